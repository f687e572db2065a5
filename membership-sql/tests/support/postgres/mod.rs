//! What the tests over PostgreSQL share: PostgreSQL as the suite's store, and another program with
//! a connection of its own.
#![allow(dead_code, unused_imports)]

use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::helpers::new_user;
use conformance_tests::servers::{RawAccess, ServerBackend, Store, VersionRowFields, with_user};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_sql::{PostgresConfig, PostgresTable};
pub use membership_testbed::Options;
pub use membership_testbed::suite::SECRET;
use serde_json::Value;
use tokio_postgres::{NoTls, SimpleQueryMessage};

const TABLES: [&str; 4] = [
    "membership_version",
    "membership_silo",
    "membership_heartbeat",
    "membership_cell",
];

/// PostgreSQL as the suite's store.
pub struct Postgres;

#[async_trait]
impl Store for Postgres {
    type Raw = Raw;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = PostgresTable::connect(PostgresConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        Ok(Raw {
            shell: Shell::connect(&backend.servers().url()).await?,
            cluster: cluster.store_key(),
        })
    }

    const MAKES_READERS: bool = true;

    async fn reader(backend: &ServerBackend<Self>) -> Result<String, Stop> {
        let shell = Shell::connect(&backend.servers().url()).await?;
        let (user, tables) = (new_user(), TABLES.join(", "));
        let sql = format!(
            "CREATE ROLE {user} LOGIN PASSWORD '{SECRET}'; GRANT USAGE ON SCHEMA public TO {user};
             GRANT SELECT ON membership_meta, {tables} TO {user}"
        );
        shell.run(&sql).await?;
        Ok(with_user(&backend.url(), &user, SECRET))
    }

    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=2s"
    }

    fn proxies_external(&self) -> bool {
        true
    }
}

/// The options that all servers of these tests share.
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

/// The rows of a cluster.
pub struct Raw {
    shell: Shell,
    cluster: String,
}

#[async_trait]
impl RawAccess for Raw {
    type Saved = Vec<(&'static str, Vec<String>)>;

    async fn put_row(&mut self, key: &str, body: &str) -> Result<(), Stop> {
        let [cluster, key, status, body] = [self.cluster.as_str(), key, "", body].map(quoted);
        let sql = format!(
            "INSERT INTO membership_silo (cluster, silo, status, written_at, body) VALUES ({cluster}, {key}, {status}, 0, {body})
             ON CONFLICT (cluster, silo) DO UPDATE SET body = excluded.body"
        );
        Ok(self.shell.run(&sql).await?)
    }

    async fn put_version_row(&mut self, text: &str) -> Result<(), Stop> {
        let (cluster, values) = (quoted(&self.cluster), columns(&self.cluster, text)?);
        let sql = format!(
            "DELETE FROM membership_version WHERE cluster = {cluster}; INSERT INTO membership_version (cluster, name, table_id, version, commit_id,
             deleting, row_count, layout, min_layout, recent, settings, core, extra) VALUES ({values})"
        );
        Ok(self.shell.run(&sql).await?)
    }

    async fn drop_row(&mut self, key: Option<&str>) -> Result<(), Stop> {
        let one = |key| format!("membership_silo WHERE silo = {} AND", quoted(key));
        let from = key.map_or("membership_version WHERE".to_owned(), one);
        let sql = format!("DELETE FROM {from} cluster = {}", quoted(&self.cluster));
        Ok(self.shell.run(&sql).await?)
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        Ok(self.save().await?.iter().map(|(_, rows)| rows.len()).sum())
    }

    async fn save(&mut self) -> Result<Self::Saved, Stop> {
        let cluster = quoted(&self.cluster);
        let mut saved = Self::Saved::new();
        for table in TABLES {
            let sql =
                format!("SELECT row_to_json(t)::text FROM {table} t WHERE cluster = {cluster}");
            let rows = self.shell.ask(&sql).await?;
            saved.push((table, rows.into_iter().flatten().collect()));
        }
        Ok(saved)
    }

    async fn restore(&mut self, saved: &Self::Saved) -> Result<(), Stop> {
        let cluster = quoted(&self.cluster);
        let delete = |table| format!("DELETE FROM {table} WHERE cluster = {cluster};\n");
        let mut sql: String = TABLES.iter().map(delete).collect();
        for (table, rows) in saved {
            for row in rows.iter().map(|row| quoted(row)) {
                sql += &format!(
                    "INSERT INTO {table} SELECT * FROM json_populate_record(NULL::{table}, {row}::json);\n"
                );
            }
        }
        Ok(self.shell.run(&sql).await?)
    }
}

/// The columns of a version row's text.
fn columns(cluster: &str, text: &str) -> Result<String, Stop> {
    let mut row = VersionRowFields::parse(text)?;
    let mut take = |name: &str, or: &str| row.take_text(name).unwrap_or_else(|| or.to_owned());
    let [table, version, deleting] = [("table_id", ""), ("version", "0"), ("deleting", "false")]
        .map(|(name, or)| take(name, or));
    let counts = [
        ("row_count", "0"),
        ("layout", "NULL"),
        ("min_layout", "NULL"),
    ]
    .map(|(name, or)| take(name, or));
    let mut json = |name: &str, or: &str| {
        let value = row.take(name).map(|value| value.to_string());
        quoted(&value.unwrap_or_else(|| or.to_owned()))
    };
    let (settings, core) = (json("settings", "null"), json("core", "\"\""));
    let recent: Vec<String> = row.recent().map(|(_, record)| quoted(&record)).collect();
    let values = [
        quoted(cluster),
        quoted("staged"),
        quoted(&table),
        version,
        quoted(&row.last_commit()),
        deleting,
        counts.join(", "),
        format!("ARRAY[{}]::text[]", recent.join(",")),
        settings,
        core,
        quoted(&Value::Object(row.into_rest()).to_string()),
    ];
    Ok(values.join(", "))
}
