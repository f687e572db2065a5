//! What the tests of this crate share: servers, staging past the contract, entries, commits.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::launch::{How, Kind, Options, Server};
use conformance_tests::proxy::Proxy;
use conformance_tests::{
    Backend, Capability, Checkpoint, Effort, Proxied, Reason, RoundTrips, Stop, child,
};
use membership_cassandra::{CassandraConfig, CassandraTable};
use membership_core::{ClusterName, ConnectionString, MembershipTable, TableError};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::serialize::row::SerializeRow;
use scylla::value::{CqlValue, Row};

/// Where the killed process finds the server.
pub const URL: &str = "MEMBERSHIP_CASSANDRA_TEST_URL";
/// What clients of the suite's own server log in with.
pub const SECRET: &str = "correct-horse-battery-staple";
/// How long clients wait where something goes wrong on purpose: a Java program that is asked for the first time takes its time.
pub const IMPATIENT: Duration = Duration::from_secs(2);

/// Fewer rounds for the cases whose length is a number and nothing else: a transaction of Cassandra is several writes that are flushed, so
/// that the default efforts would take longer than the share of `cargo xtask test` may. No case is left out and none checks less per round;
/// a soak asks for more than the default, and gets it.
pub fn shorter(effort: &mut Effort) {
    if effort.commits <= Effort::default().commits {
        effort.model_operations = 1_000;
        effort.commits = 600;
        effort.kills = 40;
    }
}

pub async fn open(
    url: &str,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(
        CassandraTable::connect(CassandraConfig::from_url(url)?, cluster.clone()).await?,
    ))
}

/// What somebody with the store's own tools has.
pub struct Shell {
    pub session: Session,
    pub keyspace: String,
}

impl Shell {
    pub async fn open(url: &str) -> Result<Self, Stop> {
        let parts = ConnectionString::parse("test", &["cassandra"], url)?;
        let mut builder = SessionBuilder::new()
            .known_nodes(parts.addresses(9042))
            .driver_config_reporting(false);
        if let (Some(user), Some(password)) = (&parts.user, &parts.password) {
            builder = builder.user(user, password);
        }
        Ok(Self {
            session: builder.build().await?,
            keyspace: parts.path.unwrap_or_else(|| "membership".to_owned()),
        })
    }

    /// Runs a statement; `{ks}` stands for the keyspace. The rows of its answer.
    pub async fn run(
        &self,
        text: &str,
        values: impl SerializeRow,
    ) -> Result<Vec<Vec<Option<CqlValue>>>, Stop> {
        let answer = self
            .session
            .query_unpaged(text.replace("{ks}", &self.keyspace), values)
            .await?;
        if !answer.is_rows() {
            return Ok(Vec::new());
        }
        let rows = answer.into_rows_result()?;
        Ok(rows
            .rows::<Row>()?
            .map(|row| row.map(|row| row.columns))
            .collect::<Result<_, _>>()?)
    }
}

pub fn text(value: impl Into<String>) -> CqlValue {
    CqlValue::Text(value.into())
}

/// Every column of a row, in the order of `ALL`.
const ALL: [&str; 15] = [
    "cluster",
    "silo",
    "body",
    "table_id",
    "version",
    "commit_id",
    "row_count",
    "layout",
    "min_layout",
    "settings",
    "core",
    "deleting",
    "extra",
    "serial",
    "recent",
];

type Rows = Vec<Vec<Option<CqlValue>>>;

/// A store as the suite wants it: a server of ours that keeps what it has acknowledged, or one that somebody else runs.
pub struct Store(pub Server);

const YOURS: &[(Capability, Reason)] = &[
    (Capability::Restart, Reason::Managed),
    (Capability::Unavailable, Reason::Managed),
    (Capability::Secret, Reason::NoSecret),
    (Capability::Proxy, Reason::NoProxy),
    (Capability::Hints, Reason::NoHints),
    (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
];
const OURS: &[(Capability, Reason)] = &[
    (Capability::Hints, Reason::NoHints),
    (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
];

impl Store {
    pub async fn start() -> Self {
        let yours = Kind::Cassandra
            .url_variables()
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        let ours = Options {
            durable: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        Self(
            Server::start(
                Kind::Cassandra,
                if yours { Options::default() } else { ours },
            )
            .await
            .unwrap(),
        )
    }

    pub fn url(&self) -> String {
        self.0.url().to_owned()
    }

    fn is_yours(&self) -> bool {
        self.0.how() == How::Yours
    }

    pub async fn shell(&self) -> Result<Shell, Stop> {
        Shell::open(&self.url()).await
    }
}

#[async_trait]
impl Backend for Store {
    fn name(&self) -> String {
        "cassandra".to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(&self.url(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        if self.is_yours() { YOURS } else { OURS }
    }

    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        let values = (cluster.to_string(), key, body);
        self.shell()
            .await?
            .run(
                "INSERT INTO {ks}.silos (cluster, silo, body) VALUES (?, ?, ?)",
                values,
            )
            .await
            .map(drop)
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        let row: serde_json::Value = serde_json::from_str(text)?;
        let string = |name: &str| row[name].as_str().map(str::to_owned);
        let number = |name: &str| row[name].as_i64();
        let short = |name: &str| row[name].as_i64().and_then(|n| i32::try_from(n).ok());
        let records = row["recent"].as_array();
        let recent = records.map(|all| {
            let place = |record: &serde_json::Value| {
                i32::try_from(record["version"].as_u64().unwrap_or(0) % 16).unwrap_or(0)
            };
            all.iter()
                .map(|record| (place(record), record.to_string()))
                .collect::<std::collections::HashMap<_, _>>()
        });
        let last = records.map(|all| {
            all.last()
                .and_then(|record| record["id"].as_str())
                .map_or_else(|| "0".repeat(32), str::to_owned)
        });
        let settings = row.get("settings").map(ToString::to_string);
        let set = "UPDATE {ks}.silos SET table_id = ?, version = ?, commit_id = ?, row_count = ?, layout = ?, min_layout = ?, settings = ?, \
                   core = ?, deleting = ?, recent = ? WHERE cluster = ? AND silo = 'version'";
        let values = (
            string("table_id"),
            number("version"),
            last,
            number("row_count"),
            short("layout"),
            short("min_layout"),
            settings,
            string("core"),
            row["deleting"].as_bool(),
            recent,
            cluster.to_string(),
        );
        self.shell().await?.run(set, values).await.map(drop)
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let drop_it = "DELETE FROM {ks}.silos WHERE cluster = ? AND silo = 'version'";
        self.shell()
            .await?
            .run(drop_it, (cluster.to_string(),))
            .await
            .map(drop)
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        let shell = self.shell().await?;
        for table in ["silos", "heartbeats"] {
            shell
                .run(
                    &format!("DELETE FROM {{ks}}.{table} WHERE cluster = ?"),
                    (cluster.to_string(),),
                )
                .await?;
        }
        Ok(())
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        let shell = self.shell().await?;
        let rows = shell
            .run(
                &format!(
                    "SELECT {} FROM {{ks}}.silos WHERE cluster = ?",
                    ALL.join(", ")
                ),
                (cluster.to_string(),),
            )
            .await?;
        let beats = shell
            .run(
                "SELECT cluster, silo, beat FROM {ks}.heartbeats WHERE cluster = ?",
                (cluster.to_string(),),
            )
            .await?;
        Ok(Box::new((rows, beats)))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let (rows, beats) = saved
            .downcast_ref::<(Rows, Rows)>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        self.wipe(cluster).await?;
        let shell = self.shell().await?;
        let places = vec!["?"; ALL.len()].join(", ");
        for row in rows {
            shell
                .run(
                    &format!(
                        "INSERT INTO {{ks}}.silos ({}) VALUES ({places})",
                        ALL.join(", ")
                    ),
                    row.clone(),
                )
                .await?;
        }
        for beat in beats {
            shell
                .run(
                    "INSERT INTO {ks}.heartbeats (cluster, silo, beat) VALUES (?, ?, ?)",
                    beat.clone(),
                )
                .await?;
        }
        Ok(())
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.set_available(false).await?;
        self.set_available(true).await
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if available {
            self.0.start_again().await?;
        } else {
            self.0.kill().await?;
        }
        Ok(())
    }

    fn secret(&self) -> Result<String, Stop> {
        if self.is_yours() {
            Err(Stop::NotStaged(Capability::Secret))
        } else {
            Ok(SECRET.to_owned())
        }
    }

    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        Some(open(&self.url().replace("//cassandra:", "//nobody:"), cluster).await)
    }

    /// The driver takes the node that it asks first for where it is connected to, whatever the node announces; there is no other node.
    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        if self.is_yours() {
            return Err(Stop::NotStaged(Capability::Proxy));
        }
        let proxy = Proxy::to(self.0.address())?;
        let url = self
            .url()
            .replace(&self.0.address().to_string(), &proxy.address().to_string());
        let config = CassandraConfig::from_url(&url)?.operation_timeout(IMPATIENT);
        Ok(Proxied {
            table: Arc::new(CassandraTable::connect(config, cluster.clone()).await?),
            proxy,
        })
    }

    /// What the README says.
    fn round_trips(&self) -> RoundTrips {
        let ones = RoundTrips::NONE
            .read(1)
            .read_unchanged(1)
            .read_with_barrier(1)
            .read_row(1)
            .commit(1)
            .conflict(1)
            .commit_again(1);
        ones.update_i_am_alive(1).initialize(1).delete(6)
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(URL, self.url());
        Ok(command)
    }
}

/// A server that forgets nothing, with a password, for this test alone, whatever the environment names.
pub async fn server() -> Server {
    let options = Options {
        durable: true,
        password: Some(SECRET.to_owned()),
        tls: true,
        local: true,
        ..Options::default()
    };
    Server::start(Kind::Cassandra, options).await.unwrap()
}

pub fn blue() -> ClusterName {
    "blue".parse().unwrap()
}

pub async fn connect(url: &str) -> Result<CassandraTable, TableError> {
    CassandraTable::connect(CassandraConfig::from_url(url)?, blue()).await
}

/// A keyspace of its own on a server, with options of the URL.
pub fn at(server: &Server, keyspace: &str, options: &str) -> String {
    format!(
        "{}?{options}",
        server.url().replace("/membership", &format!("/{keyspace}"))
    )
    .trim_end_matches('?')
    .to_owned()
}

/// Waits until something holds, for as long as a busy machine may need.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{what}: not within a minute"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
