//! What the tests over MariaDB share: the server, a shell to it, staging past the contract.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::fmt::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::launch::{How, Kind, Options, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{Backend, Capability, Checkpoint, Proxied, Reason, Stop, child};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_sql::{MysqlConfig, MysqlTable};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Row, Value};

/// Where the killed process finds the server.
pub const URL: &str = "MEMBERSHIP_MYSQL_TEST_URL";
/// The password of every server that the suite runs on.
pub const SECRET: &str = "correct-horse-battery-staple";
/// How long clients wait where something goes wrong on purpose.
pub const IMPATIENT: Duration = Duration::from_secs(2);

const TABLES: [&str; 4] = [
    "membership_version",
    "membership_silo",
    "membership_heartbeat",
    "membership_cell",
];

pub async fn open(
    url: &str,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(
        MysqlTable::open(MysqlConfig::from_url(url)?, cluster.clone()).await?,
    ))
}

/// A server as the suite wants it: durable, with a password. One that somebody else runs is taken as it is.
pub struct MariaDb {
    pub server: Server,
    options: String,
}

type Saved = Vec<(&'static str, Vec<Vec<Value>>)>;

const OURS: &[(Capability, Reason)] = &[(Capability::Hints, Reason::NoHints)];
const YOURS: &[(Capability, Reason)] = &[
    (Capability::Hints, Reason::NoHints),
    (Capability::Restart, Reason::Managed),
    (Capability::Unavailable, Reason::Managed),
    (Capability::Secret, Reason::NoSecret),
];

impl MariaDb {
    /// `options` stand in the URL of every client.
    pub async fn start(options: &str) -> Self {
        Self::start_with(options, &[]).await
    }

    pub async fn start_with(options: &str, args: &[&str]) -> Self {
        let yours = Kind::MariaDb
            .url_variables()
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let ours = Options {
            durable: true,
            password: Some(SECRET.to_owned()),
            args,
            ..Options::default()
        };
        let server = Server::start(Kind::MariaDb, if yours { Options::default() } else { ours })
            .await
            .unwrap();
        Self {
            server,
            options: options.to_owned(),
        }
    }

    /// How clients are told to connect.
    pub fn url(&self) -> String {
        let url = self.server.url();
        format!(
            "{url}{}{}",
            if url.contains('?') { '&' } else { '?' },
            self.options
        )
    }

    pub fn config(&self) -> MysqlConfig {
        MysqlConfig::from_url(&self.url()).unwrap()
    }

    /// Another program with a connection of its own.
    pub async fn shell(&self) -> Result<Conn, Stop> {
        let url = self.server.url().split('?').next().unwrap().to_owned();
        Ok(Conn::new(Opts::from_url(&format!("{url}?prefer_socket=false"))?).await?)
    }

    pub async fn sql(&self, sql: &str) -> Result<Vec<Row>, Stop> {
        Ok(self.shell().await?.query(sql).await?)
    }

    /// As somebody does who may.
    pub async fn make_schema(&self) {
        self.shell()
            .await
            .unwrap()
            .query_drop(MysqlConfig::schema_sql())
            .await
            .unwrap();
    }

    /// The script is for the server's own shell; without its `DELIMITER` lines it is two statements.
    pub async fn make_procedure(&self) {
        self.make_schema().await;
        let script = MysqlConfig::procedure_sql();
        let (_, create) = script.split_once("DELIMITER //\n").unwrap();
        let (create, _) = create.split_once("//\n").unwrap();
        self.sql("DROP PROCEDURE IF EXISTS membership_commit_1")
            .await
            .unwrap();
        self.sql(create).await.unwrap();
    }
}

/// A value as a statement takes it.
pub fn literal(value: &Value) -> String {
    let Value::Bytes(bytes) = value else {
        return "NULL".to_owned();
    };
    let mut out = String::from("_utf8mb4 x'");
    for byte in bytes {
        write!(out, "{byte:02x}").unwrap();
    }
    out + "'"
}

/// A text as a statement takes it.
pub fn text(value: &str) -> String {
    literal(&Value::Bytes(value.as_bytes().to_vec()))
}

/// What stands in the columns `cluster`.
pub fn key(cluster: &ClusterName) -> String {
    let key = cluster.store_key();
    if key.len() <= 512 {
        text(&key)
    } else {
        format!("CONCAT('~~', SHA2({}, 512))", text(&key))
    }
}

#[async_trait]
impl Backend for MariaDb {
    fn name(&self) -> String {
        format!("mariadb ({})", self.options)
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(&self.url(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        if self.server.how() == How::Yours {
            YOURS
        } else {
            OURS
        }
    }

    async fn put_row(&self, cluster: &ClusterName, silo: &str, body: &str) -> Result<(), Stop> {
        let (cluster, silo, body) = (key(cluster), text(silo), text(body));
        self.sql(&format!(
            "REPLACE INTO membership_silo (cluster, silo, status, written_at, body) VALUES ({cluster}, {silo}, '', 0, {body})"
        ))
        .await?;
        Ok(())
    }

    async fn put_version_row(&self, cluster: &ClusterName, row: &str) -> Result<(), Stop> {
        let (cluster, row) = (key(cluster), text(row));
        let sql = format!(
            "INSERT INTO membership_version (cluster, name, version, token, body) VALUES ({cluster}, 'by hand', 0, '', {row})
             ON DUPLICATE KEY UPDATE body = {row}"
        );
        self.sql(&sql).await?;
        Ok(())
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.sql(&format!(
            "DELETE FROM membership_version WHERE cluster = {}",
            key(cluster)
        ))
        .await?;
        Ok(())
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.restore(cluster, &(Box::new(Saved::new()) as Checkpoint))
            .await
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        let mut shell = self.shell().await?;
        shell
            .query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            .await?;
        let mut saved = Saved::new();
        for table in TABLES {
            let rows: Vec<Row> = shell
                .query(format!(
                    "SELECT * FROM {table} WHERE cluster = {}",
                    key(cluster)
                ))
                .await?;
            saved.push((table, rows.into_iter().map(Row::unwrap).collect()));
        }
        Ok(Box::new(saved))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved
            .downcast_ref::<Saved>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        let mut shell = self.shell().await?;
        shell.query_drop("START TRANSACTION").await?;
        for table in TABLES {
            shell
                .query_drop(format!(
                    "DELETE FROM {table} WHERE cluster = {}",
                    key(cluster)
                ))
                .await?;
        }
        for (table, rows) in saved {
            for row in rows {
                let values: Vec<_> = row.iter().map(literal).collect();
                shell
                    .query_drop(format!(
                        "INSERT INTO {table} VALUES ({})",
                        values.join(", ")
                    ))
                    .await?;
            }
        }
        Ok(shell.query_drop("COMMIT").await?)
    }

    async fn restart(&self) -> Result<(), Stop> {
        if self.server.how() == How::Yours {
            return Err(Stop::NotStaged(Capability::Restart));
        }
        self.set_available(false).await?;
        self.set_available(true).await
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if self.server.how() == How::Yours {
            return Err(Stop::NotStaged(Capability::Unavailable));
        }
        if available {
            self.server.start_again().await?
        } else {
            self.server.kill().await?
        }
        Ok(())
    }

    fn secret(&self) -> Result<String, Stop> {
        if self.server.how() == How::Yours {
            Err(Stop::NotStaged(Capability::Secret))
        } else {
            Ok(SECRET.to_owned())
        }
    }

    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        Some(
            open(
                &format!(
                    "mysql://nobody:{SECRET}@{}/membership",
                    self.server.address()
                ),
                cluster,
            )
            .await,
        )
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let proxy = Proxy::to(self.server.address())?;
        let url = self.url().replace(
            &self.server.address().to_string(),
            &proxy.address().to_string(),
        );
        let config = MysqlConfig::from_url(&url)?.operation_timeout(IMPATIENT);
        Ok(Proxied {
            table: Arc::new(MysqlTable::open(config, cluster.clone()).await?),
            proxy,
        })
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(URL, self.url());
        Ok(command)
    }
}
