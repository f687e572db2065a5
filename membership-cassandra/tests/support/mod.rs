//! What the tests of this crate share: Cassandra as the suite's store, and servers for single
//! tests.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::helpers::new_user;
pub use conformance_tests::helpers::{blue, until};
use conformance_tests::servers::{RawAccess, ServerBackend, Store, VersionRowFields, with_user};
use conformance_tests::{Capability, Reason, RoundTrips, Stop};
use membership_cassandra::{CassandraConfig, CassandraTable};
use membership_core::{ClusterName, ConnectionString, MembershipTable, TableError};
pub use membership_testbed::suite::SECRET;
use membership_testbed::{Kind, Options, Server};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::serialize::row::SerializeRow;
use scylla::value::{CqlValue, Row};
use serde_json::Value;

/// The timeout of clients in tests that cause failures.
pub const IMPATIENT: Duration = Duration::from_secs(2);

/// Cassandra.
pub struct Cassandra;

/// The driver connects to the node of the URL, whatever address that node announces, and there is
/// no other: so a proxy in the URL is enough.
#[async_trait]
impl Store for Cassandra {
    type Raw = Raw;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = CassandraTable::connect(CassandraConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        Ok(Raw {
            shell: Shell::open(&backend.url()).await?,
            cluster: cluster.to_string(),
        })
    }

    const MAKES_READERS: bool = true;

    async fn reader(backend: &ServerBackend<Self>) -> Result<String, Stop> {
        let (shell, user) = (Shell::open(&backend.url()).await?, new_user());
        for statement in [
            &format!("CREATE ROLE {user} WITH PASSWORD = '{SECRET}' AND LOGIN = true"),
            &format!("GRANT SELECT ON KEYSPACE {{ks}} TO {user}"),
        ] {
            shell.run(statement, ()).await?;
        }
        Ok(with_user(&backend.url(), &user, SECRET))
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[
            (Capability::Hints, Reason::NoHints),
            (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
        ]
    }

    /// As the README describes it.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::ONE_EACH.delete(6)
    }

    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=2s"
    }
}

/// Access with the store's own tools.
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

    /// Runs a statement, with `{ks}` replaced by the keyspace. Returns the rows of its answer.
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

/// Every column of a row.
const ALL: &str = "cluster, silo, body, table_id, version, commit_id, row_count, layout, \
                   min_layout, settings, core, deleting, extra, serial, recent";

type Rows = Vec<Vec<Option<CqlValue>>>;

/// The rows of a cluster.
pub struct Raw {
    shell: Shell,
    cluster: String,
}

impl Raw {
    /// Runs a statement whose one value is the cluster.
    async fn of_cluster(&self, text: &str) -> Result<Rows, Stop> {
        self.shell.run(text, (&self.cluster,)).await
    }
}

#[async_trait]
impl RawAccess for Raw {
    type Saved = (Rows, Rows);

    async fn put_row(&mut self, key: &str, body: &str) -> Result<(), Stop> {
        let insert = "INSERT INTO {ks}.silos (cluster, silo, body) VALUES (?, ?, ?)";
        let values = (&self.cluster, key, body);
        self.shell.run(insert, values).await.map(drop)
    }

    /// Columns of fields that are missing or of another type become null.
    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop> {
        let mut row = VersionRowFields::parse(text)?;
        let recent = row.has_recent().then(|| {
            let place = |(place, record)| (i32::try_from(place).unwrap_or(0), record);
            row.recent().map(place).collect::<HashMap<i32, String>>()
        });
        let last = row.has_recent().then(|| row.last_commit());
        let settings = row.take("settings").map(|settings| settings.to_string());
        let row = Value::Object(row.into_rest());
        let string = |name: &str| row[name].as_str().map(str::to_owned);
        let number = |name: &str| row[name].as_i64();
        let short = |name: &str| row[name].as_i64().and_then(|n| i32::try_from(n).ok());
        let set = "UPDATE {ks}.silos SET table_id = ?, version = ?, commit_id = ?, row_count = ?, \
                   layout = ?, min_layout = ?, settings = ?, core = ?, deleting = ?, recent = ? \
                   WHERE cluster = ? AND silo = 'version'";
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
            &self.cluster,
        );
        self.shell.run(set, values).await.map(drop)
    }

    async fn drop_row(&mut self, key: Option<&str>) -> Result<(), Stop> {
        let delete = "DELETE FROM {ks}.silos WHERE cluster = ? AND silo = ?";
        let values = (&self.cluster, key.unwrap_or("version"));
        self.shell.run(delete, values).await.map(drop)
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        let (silos, beats) = self.save().await?;
        Ok(silos.len() + beats.len())
    }

    async fn save(&mut self) -> Result<(Rows, Rows), Stop> {
        let silos = format!("SELECT {ALL} FROM {{ks}}.silos WHERE cluster = ?");
        let beats = "SELECT cluster, silo, heartbeat FROM {ks}.heartbeats WHERE cluster = ?";
        Ok((
            self.of_cluster(&silos).await?,
            self.of_cluster(beats).await?,
        ))
    }

    async fn restore(&mut self, (silos, beats): &(Rows, Rows)) -> Result<(), Stop> {
        for table in ["silos", "heartbeats"] {
            let delete = format!("DELETE FROM {{ks}}.{table} WHERE cluster = ?");
            self.of_cluster(&delete).await?;
        }
        let values = vec!["?"; ALL.split(',').count()].join(", ");
        let silo = format!("INSERT INTO {{ks}}.silos ({ALL}) VALUES ({values})");
        for row in silos {
            self.shell.run(&silo, row.clone()).await?;
        }
        let beat = "INSERT INTO {ks}.heartbeats (cluster, silo, heartbeat) VALUES (?, ?, ?)";
        for row in beats {
            self.shell.run(beat, row.clone()).await?;
        }
        Ok(())
    }
}

/// A durable server with a password for one test alone, whatever the environment names.
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
