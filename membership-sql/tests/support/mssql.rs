//! What the tests over SQL Server share: the server, a shell, and changes without the provider.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::servers::{RawAccess, ServerBackend, Store};
use conformance_tests::{Capability, Reason, Stop};
use membership_core::{ClusterName, ConnectionString, MembershipTable, TableError};
use membership_sql::{MssqlConfig, MssqlTable};
use membership_testbed::{Kind, Server, suite};
use tiberius::{AuthMethod, Client, ColumnData, Config, EncryptionLevel, Row};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

/// The password: the server refuses simpler ones.
pub const SECRET: &str = "Correct-horse-battery-staple-1";

const TABLES: [&str; 4] = [
    "membership_version",
    "membership_silo",
    "membership_heartbeat",
    "membership_cell",
];

/// The suite's backend: a container, or the server that the environment names.
pub async fn backend() -> ServerBackend<Mssql> {
    let options = suite::durable(SECRET);
    let server = Server::start_or_external(Kind::SqlServer, options)
        .await
        .unwrap();
    ServerBackend::new("sqlserver", Mssql, server).secret(SECRET)
}

/// SQL Server as the suite's store.
pub struct Mssql;

#[async_trait]
impl Store for Mssql {
    type Raw = Raw;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = MssqlTable::connect(MssqlConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        let shell = shell(&backend.servers().url()).await?;
        let cluster = cluster.store_key();
        Ok(Raw { shell, cluster })
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[(Capability::Hints, Reason::NoHints)]
    }

    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=2s"
    }

    fn proxies_external(&self) -> bool {
        true
    }
}

/// Another program with a connection of its own.
async fn shell(url: &str) -> Result<Client<Compat<TcpStream>>, Stop> {
    let url = ConnectionString::parse("mssql", &["mssql"], url)?;
    let (host, port) = url.hosts[0].clone();
    let mut config = Config::new();
    config.encryption(EncryptionLevel::NotSupported);
    config.database(url.path.unwrap_or_default());
    config.authentication(AuthMethod::sql_server(
        url.user.unwrap_or_default(),
        url.password.unwrap_or_default(),
    ));
    let stream = TcpStream::connect((host, port.unwrap_or(1433))).await?;
    Ok(Client::connect(config, stream.compat_write()).await?)
}

/// The rows of a cluster.
pub struct Raw {
    shell: Client<Compat<TcpStream>>,
    cluster: String,
}

/// A value as a literal of a statement.
fn literal(value: &ColumnData<'_>) -> String {
    match value {
        ColumnData::String(Some(text)) => quoted(text),
        ColumnData::I32(Some(n)) => n.to_string(),
        ColumnData::I64(Some(n)) => n.to_string(),
        ColumnData::Bit(Some(bit)) => u8::from(*bit).to_string(),
        _ => "NULL".to_owned(),
    }
}

fn quoted(text: &str) -> String {
    format!("N'{}'", text.replace('\'', "''"))
}

impl Raw {
    async fn run(&mut self, sql: &str) -> Result<Vec<Row>, Stop> {
        let answer = self.shell.simple_query(sql).await?;
        Ok(answer.into_results().await?.into_iter().flatten().collect())
    }

    fn is_mine(&self) -> String {
        format!("cluster = {}", quoted(&self.cluster))
    }
}

#[async_trait]
impl RawAccess for Raw {
    type Saved = Vec<(&'static str, Vec<Vec<String>>)>;

    async fn put_row(&mut self, silo: &str, body: &str) -> Result<(), Stop> {
        let (mine, cluster, silo, body) = (
            self.is_mine(),
            quoted(&self.cluster),
            quoted(silo),
            quoted(body),
        );
        let sql = format!(
            "DELETE FROM membership_silo WHERE {mine} AND silo = {silo}; \
             INSERT INTO membership_silo (cluster, silo, status, written_at, body) VALUES ({cluster}, {silo}, N'', 0, {body});"
        );
        self.run(&sql).await.map(drop)
    }

    /// What is no JSON object comes into the column that is read as one.
    async fn put_version_row(&mut self, row: &str) -> Result<(), Stop> {
        let (mine, cluster) = (self.is_mine(), quoted(&self.cluster));
        let fields: serde_json::Value = serde_json::from_str(row).unwrap_or_default();
        let number = |name: &str| {
            fields[name]
                .as_u64()
                .map_or("NULL".to_owned(), |n| n.to_string())
        };
        let text = |name: &str| quoted(fields[name].as_str().unwrap_or_default());
        let settings = quoted(&fields["settings"].to_string());
        let known = [
            "table_id",
            "version",
            "row_count",
            "layout",
            "min_layout",
            "settings",
            "recent",
            "deleting",
            "core",
        ];
        let mut extra = fields.clone();
        if let Some(extra) = extra.as_object_mut() {
            known.iter().for_each(|name| drop(extra.remove(*name)));
        }
        let core = quoted(&match &fields["core"] {
            serde_json::Value::Null => "\"\"".to_owned(),
            core => core.to_string(),
        });
        let recent = fields["recent"].as_array().cloned().unwrap_or_default();
        let last = recent
            .last()
            .and_then(|it| it["id"].as_str())
            .map_or_else(|| format!("{:032x}", 0), str::to_owned);
        let deleting = u8::from(fields["deleting"] == true);
        let mut sql = format!(
            "DELETE FROM membership_version WHERE {mine}; \
             INSERT INTO membership_version (cluster, name, table_id, version, commit_id, deleting, row_count, layout, min_layout, settings, core, extra) \
             VALUES ({cluster}, N'by hand', {}, COALESCE({}, -1), {}, {deleting}, COALESCE({}, 0), {}, {}, {settings}, {core}, {});",
            text("table_id"),
            number("version"),
            quoted(&last),
            number("row_count"),
            number("layout"),
            number("min_layout"),
            quoted(&extra.to_string()),
        );
        for record in &recent {
            let slot = record["version"].as_u64().unwrap_or(0) % 16;
            let record = quoted(&record.to_string());
            sql += &format!("UPDATE membership_version SET recent_{slot} = {record} WHERE {mine};");
        }
        self.run(&sql).await.map(drop)
    }

    async fn drop_row(&mut self, silo: Option<&str>) -> Result<(), Stop> {
        let one = |silo| format!("membership_silo WHERE silo = {} AND", quoted(silo));
        let from = silo.map_or("membership_version WHERE".to_owned(), one);
        let sql = format!("DELETE FROM {from} {};", self.is_mine());
        self.run(&sql).await.map(drop)
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        Ok(self.save().await?.iter().map(|(_, rows)| rows.len()).sum())
    }

    async fn save(&mut self) -> Result<Self::Saved, Stop> {
        let mine = self.is_mine();
        let begin =
            "SET XACT_ABORT ON; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN TRANSACTION;";
        self.run(begin).await?;
        let mut saved = Self::Saved::new();
        for table in TABLES {
            let rows = self
                .run(&format!("SELECT * FROM {table} WHERE {mine};"))
                .await?;
            let values = |row: Row| row.into_iter().map(|value| literal(&value)).collect();
            saved.push((table, rows.into_iter().map(values).collect()));
        }
        self.run("COMMIT TRANSACTION;").await?;
        Ok(saved)
    }

    async fn restore(&mut self, saved: &Self::Saved) -> Result<(), Stop> {
        let mine = self.is_mine();
        let mut sql = "SET XACT_ABORT ON; BEGIN TRANSACTION;".to_owned();
        for (table, rows) in saved {
            sql += &format!("DELETE FROM {table} WHERE {mine};");
            for row in rows {
                sql += &format!("INSERT INTO {table} VALUES ({});", row.join(", "));
            }
        }
        sql += "COMMIT TRANSACTION;";
        self.run(&sql).await.map(drop)
    }
}
