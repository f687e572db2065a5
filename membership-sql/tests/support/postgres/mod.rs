//! What the tests over PostgreSQL stage: servers, another program with a connection of its own, and damage.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
pub use conformance_tests::launch::{How, Options};
use conformance_tests::launch::{Kind, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{Backend, Capability, Checkpoint, Proxied, Reason, Stop, child};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_sql::{PostgresConfig, PostgresTable};
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// Where a killed process finds the server.
const URL: &str = "MEMBERSHIP_SQL_TEST_POSTGRES";
const TABLES: [&str; 4] = [
    "membership_version",
    "membership_silo",
    "membership_heartbeat",
    "membership_cell",
];
/// Planted, and searched for.
pub const SECRET: &str = "correct-horse-battery-staple";

type Saved = Vec<(&'static str, Vec<String>)>;

/// A server as the suite takes it.
pub struct Postgres {
    pub server: Server,
    pub pooler: bool,
    /// What clients connect to; the server itself unless something stands between.
    pub url: String,
}

impl Postgres {
    /// Yours as it is, where one is named; else one of our own, durable, with a password.
    pub async fn start(options: Options) -> Self {
        let yours = Kind::Postgres
            .url_variables()
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let options = if yours {
            Options {
                durable: true,
                ..Options::default()
            }
        } else {
            ours(options)
        };
        let server = Server::start(Kind::Postgres, options).await.unwrap();
        Self {
            url: server.url().to_owned(),
            server,
            pooler: false,
        }
    }

    pub fn config(&self) -> PostgresConfig {
        PostgresConfig::from_url(&self.url)
            .unwrap()
            .pooler(self.pooler)
    }

    async fn shell(&self) -> Result<Shell, Stop> {
        Ok(Shell::connect(self.server.url()).await?)
    }
}

/// What every server of our own is like.
pub fn ours(options: Options) -> Options {
    Options {
        password: Some(SECRET.to_owned()),
        durable: true,
        ..options
    }
}

/// Another program with a connection of its own.
pub struct Shell(tokio_postgres::Client);

impl Shell {
    pub async fn connect(url: &str) -> Result<Self, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self(client))
    }

    pub async fn run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.0.batch_execute(sql).await
    }

    /// The rows as texts.
    pub async fn ask(&self, sql: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
        let row = |m| match m {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|i| row.get(i).unwrap_or_default().to_owned())
                    .collect(),
            ),
            _ => None,
        };
        Ok(self
            .0
            .simple_query(sql)
            .await?
            .into_iter()
            .filter_map(row)
            .collect())
    }
}

pub fn quoted(text: &str) -> String {
    let doubled = text.replace('\'', "''").replace('\\', "\\\\");
    format!(" E'{doubled}'")
}

pub async fn open(
    config: PostgresConfig,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(
        PostgresTable::connect(config, cluster.clone()).await?,
    ))
}

/// The same server at another address.
pub fn by_way_of(url: &str, from: SocketAddr, to: SocketAddr) -> String {
    url.replace(&from.to_string(), &to.to_string())
}

/// The columns of a version row that was a text.
fn columns(cluster: &str, text: &str) -> Result<String, Stop> {
    let serde_json::Value::Object(mut all) = serde_json::from_str(text)? else {
        return Err(Stop::failed("the version row to stage is no JSON object"));
    };
    let mut take = |name: &str| all.remove(name);
    let plain = |v: Option<serde_json::Value>, or: &str| {
        v.map_or_else(
            || or.to_owned(),
            |v| v.to_string().trim_matches('"').to_owned(),
        )
    };
    let recent = take("recent")
        .and_then(|v| v.as_array().cloned())
        .unwrap_or_default();
    let id = recent.last().map_or_else(
        || format!("{:032x}", 0),
        |r| plain(r.get("id").cloned(), ""),
    );
    let values = [
        quoted(cluster),
        quoted("staged"),
        quoted(&plain(take("table_id"), "")),
        plain(take("version"), "0"),
        quoted(&id),
        plain(take("deleting"), "false"),
        plain(take("row_count"), "0"),
        plain(take("layout"), "NULL"),
        plain(take("min_layout"), "NULL"),
        format!(
            "ARRAY[{}]::text[]",
            recent
                .iter()
                .map(|r| quoted(&r.to_string()))
                .collect::<Vec<_>>()
                .join(",")
        ),
        quoted(&take("settings").map_or_else(|| "null".to_owned(), |v| v.to_string())),
        quoted(&take("core").map_or_else(|| "\"\"".to_owned(), |v| v.to_string())),
        quoted(&serde_json::Value::Object(all).to_string()),
    ];
    Ok(values.join(", "))
}

#[async_trait]
impl Backend for Postgres {
    fn name(&self) -> String {
        if self.pooler {
            "postgres, as behind a pooler".to_owned()
        } else {
            "postgres".to_owned()
        }
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(self.config(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        const SECRET: (Capability, Reason) = (Capability::Secret, Reason::NoSecret);
        const RESTART: (Capability, Reason) = (Capability::Restart, Reason::Managed);
        const AWAY: (Capability, Reason) = (Capability::Unavailable, Reason::Managed);
        const HINTS: (Capability, Reason) = (Capability::Hints, Reason::StoreForbids);
        match (self.server.how(), self.pooler) {
            (How::Yours, false) => &[RESTART, AWAY, SECRET],
            (How::Yours, true) => &[RESTART, AWAY, SECRET, HINTS],
            (_, false) => &[],
            (_, true) => &[HINTS],
        }
    }

    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        let values = [cluster.store_key().as_str(), key, "", body].map(quoted);
        let [cluster, key, status, body] = values;
        let sql = format!(
            "INSERT INTO membership_silo (cluster, silo, status, written_at, body) VALUES ({cluster}, {key}, {status}, 0, {body})
             ON CONFLICT (cluster, silo) DO UPDATE SET body = excluded.body"
        );
        Ok(self.shell().await?.run(&sql).await?)
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        let (key, values) = (cluster.store_key(), columns(&cluster.store_key(), text)?);
        let sql = format!(
            "DELETE FROM membership_version WHERE cluster = {}; INSERT INTO membership_version (cluster, name, table_id, version, commit_id,
             deleting, row_count, layout, min_layout, recent, settings, core, extra) VALUES ({values})",
            quoted(&key)
        );
        Ok(self.shell().await?.run(&sql).await?)
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let sql = format!(
            "DELETE FROM membership_version WHERE cluster = {}",
            quoted(&cluster.store_key())
        );
        Ok(self.shell().await?.run(&sql).await?)
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.restore(cluster, &(Box::new(Saved::new()) as Checkpoint))
            .await
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        let shell = self.shell().await?;
        let mut saved = Saved::new();
        for table in TABLES {
            let sql = format!(
                "SELECT row_to_json(t)::text FROM {table} t WHERE cluster = {}",
                quoted(&cluster.store_key())
            );
            saved.push((
                table,
                shell.ask(&sql).await?.into_iter().flatten().collect(),
            ));
        }
        Ok(Box::new(saved))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved
            .downcast_ref::<Saved>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        let key = quoted(&cluster.store_key());
        let mut sql: String = TABLES
            .iter()
            .map(|table| format!("DELETE FROM {table} WHERE cluster = {key};\n"))
            .collect();
        for (table, rows) in saved {
            for row in rows {
                sql += &format!(
                    "INSERT INTO {table} SELECT * FROM json_populate_record(NULL::{table}, {}::json);\n",
                    quoted(row)
                );
            }
        }
        Ok(self.shell().await?.run(&sql).await?)
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.server.kill().await?;
        Ok(self.server.start_again().await?)
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        let done = if available {
            self.server.start_again().await
        } else {
            self.server.kill().await
        };
        Ok(done?)
    }

    fn secret(&self) -> Result<String, Stop> {
        Ok(SECRET.to_owned())
    }

    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        let url = self
            .url
            .replace("postgres@", "nobody@")
            .replace("postgres:", "nobody:")
            .replace("nobody://", "postgres://");
        Some(
            open(
                PostgresConfig::from_url(&url).unwrap().pooler(self.pooler),
                cluster,
            )
            .await,
        )
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let address: SocketAddr = self.server.address();
        let proxy = Proxy::to(address)?;
        let config = PostgresConfig::from_url(&by_way_of(&self.url, address, proxy.address()))?
            .pooler(self.pooler);
        Ok(Proxied {
            table: open(config.operation_timeout(Duration::from_secs(2)), cluster).await?,
            proxy,
        })
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(URL, format!("{}?pooler={}", self.url, self.pooler));
        Ok(command)
    }
}

/// Does nothing unless it is the process that the suite kills.
pub async fn crash_child() {
    if let (Some(cluster), Some(url)) = (child::cluster(), std::env::var(URL).ok()) {
        child::run(
            &*open(PostgresConfig::from_url(&url).unwrap(), &cluster)
                .await
                .unwrap(),
        )
        .await;
    }
}
