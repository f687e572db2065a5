//! What the tests over MariaDB share: the server, a shell, and changes without the provider.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::helpers::new_user;
use conformance_tests::servers::{RawAccess, ServerBackend, Store, with_user};
use conformance_tests::{Capability, Reason, Stop};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_sql::{MysqlConfig, MysqlTable};
pub use membership_testbed::suite::SECRET;
use membership_testbed::{Kind, Options, Server, suite};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Row, Value};

/// The timeout of clients in tests that cause failures.
pub const IMPATIENT: Duration = Duration::from_secs(2);

const TABLES: [&str; 4] = [
    "membership_version",
    "membership_silo",
    "membership_heartbeat",
    "membership_cell",
];

/// A server as the suite needs it: durable, with a password. An external one is used as it is.
pub struct MariaDb {
    pub server: Server,
    options: String,
}

impl MariaDb {
    /// Every client gets these `options` in its URL.
    pub async fn start(options: &str) -> Self {
        Self::start_with(options, &[]).await
    }

    pub async fn start_with(options: &str, args: &[&str]) -> Self {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let options_of_ours = Options {
            args,
            ..suite::durable(SECRET)
        };
        let server = Server::start_or_external(Kind::MariaDb, options_of_ours)
            .await
            .unwrap();
        Self {
            server,
            options: options.to_owned(),
        }
    }

    /// The URL that clients use.
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
        shell(self.server.url()).await
    }

    /// The suite's backend over it.
    pub fn into_backend(self) -> ServerBackend<Mysql> {
        let name = format!("mariadb ({})", self.options);
        let backend = ServerBackend::new(name, Mysql, self.server);
        backend.options(self.options).secret(SECRET)
    }

    pub async fn sql(&self, sql: &str) -> Result<Vec<Row>, Stop> {
        Ok(self.shell().await?.query(sql).await?)
    }

    /// Creates the tables, as an administrator.
    pub async fn make_schema(&self) {
        self.shell()
            .await
            .unwrap()
            .query_drop(MysqlConfig::schema_sql())
            .await
            .unwrap();
    }

    /// The script is for the server's own shell; without its `DELIMITER` lines it is two
    /// statements.
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

async fn shell(url: &str) -> Result<Conn, Stop> {
    let url = url.split('?').next().unwrap();
    Ok(Conn::new(Opts::from_url(&format!("{url}?prefer_socket=false"))?).await?)
}

/// A value as a literal of a statement.
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

/// A text as a literal of a statement.
pub fn text(value: &str) -> String {
    literal(&Value::Bytes(value.as_bytes().to_vec()))
}

/// The value of the columns `cluster`.
pub fn key(cluster: &ClusterName) -> String {
    let key = cluster.store_key();
    if key.len() <= 512 {
        text(&key)
    } else {
        format!("CONCAT('~~', SHA2({}, 512))", text(&key))
    }
}

/// MySQL or MariaDB as the suite's store.
pub struct Mysql;

#[async_trait]
impl Store for Mysql {
    type Raw = Raw;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = MysqlTable::connect(MysqlConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        Raw::open(&backend.servers().url(), cluster).await
    }

    const MAKES_READERS: bool = true;

    async fn reader(backend: &ServerBackend<Self>) -> Result<String, Stop> {
        let (mut shell, user) = (shell(&backend.servers().url()).await?, new_user());
        let who = format!("{user}@'127.0.0.1'");
        let create = format!("CREATE USER {who} IDENTIFIED BY '{SECRET}'");
        shell.query_drop(create).await?;
        for table in ["membership_meta"].iter().chain(&TABLES) {
            shell
                .query_drop(format!("GRANT SELECT ON {table} TO {who}"))
                .await?;
        }
        Ok(with_user(&backend.url(), &user, SECRET))
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

/// The rows of a cluster.
pub struct Raw {
    shell: Conn,
    cluster: String,
}

impl Raw {
    pub async fn open(url: &str, cluster: &ClusterName) -> Result<Self, Stop> {
        let shell = shell(url).await?;
        let cluster = key(cluster);
        Ok(Self { shell, cluster })
    }

    async fn run(&mut self, sql: String) -> Result<(), Stop> {
        Ok(self.shell.query_drop(sql).await?)
    }
}

#[async_trait]
impl RawAccess for Raw {
    type Saved = Vec<(&'static str, Vec<Vec<Value>>)>;

    async fn put_row(&mut self, silo: &str, body: &str) -> Result<(), Stop> {
        let (cluster, silo, body) = (&self.cluster, text(silo), text(body));
        self.run(format!(
            "REPLACE INTO membership_silo (cluster, silo, status, written_at, body) VALUES ({cluster}, {silo}, '', 0, {body})"
        ))
        .await
    }

    async fn put_version_row(&mut self, row: &str) -> Result<(), Stop> {
        let (cluster, row) = (&self.cluster, text(row));
        self.run(format!(
            "INSERT INTO membership_version (cluster, name, version, token, body) VALUES ({cluster}, 'by hand', 0, '', {row})
             ON DUPLICATE KEY UPDATE body = {row}"
        ))
        .await
    }

    async fn drop_row(&mut self, silo: Option<&str>) -> Result<(), Stop> {
        let one = |silo| format!("membership_silo WHERE silo = {} AND", text(silo));
        let from = silo.map_or("membership_version WHERE".to_owned(), one);
        self.run(format!("DELETE FROM {from} cluster = {}", self.cluster))
            .await
    }

    async fn count(&mut self) -> Result<usize, Stop> {
        Ok(self.save().await?.iter().map(|(_, rows)| rows.len()).sum())
    }

    async fn save(&mut self) -> Result<Self::Saved, Stop> {
        let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
        self.shell.query_drop(begin).await?;
        let mut saved = Self::Saved::new();
        for table in TABLES {
            let select = format!("SELECT * FROM {table} WHERE cluster = {}", self.cluster);
            let rows: Vec<Row> = self.shell.query(select).await?;
            saved.push((table, rows.into_iter().map(Row::unwrap).collect()));
        }
        Ok(saved)
    }

    async fn restore(&mut self, saved: &Self::Saved) -> Result<(), Stop> {
        self.run("START TRANSACTION".to_owned()).await?;
        for table in TABLES {
            let cluster = &self.cluster;
            self.run(format!("DELETE FROM {table} WHERE cluster = {cluster}"))
                .await?;
        }
        for (table, rows) in saved {
            for row in rows {
                let values: Vec<_> = row.iter().map(literal).collect();
                let values = values.join(", ");
                self.run(format!("INSERT INTO {table} VALUES ({values})"))
                    .await?;
            }
        }
        self.run("COMMIT".to_owned()).await
    }
}
