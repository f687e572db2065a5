//! What all clones of a table share: two connections, and what is known of the server.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{ClusterName, Guarantees, TableError, TableErrorKind as Kind, TableLimits};

use super::STORE;
use super::checks::Facts;
use super::config::MssqlConfig;
use super::connection::Connection;
use super::error::error;
use super::schema::CLUSTER_CHARS;
use crate::shared::pool::{Client, Pool};
use crate::shared::{DecodeCache, Replicas, guarantees};

/// The limit of the sizes that other SQL databases were tested with; the server accepts more.
const LIMITS: TableLimits = TableLimits::new(1_000, 1 << 20, 16 << 20, 100_000);

pub(super) struct Inner {
    pub(super) config: MssqlConfig,
    pub(super) cluster: ClusterName,
    pub(super) limits: TableLimits,
    /// The cluster's key in every table.
    pub(super) key: String,
    pub(super) cache: DecodeCache,
    pub(super) pool: Pool<Connection>,
    replicas: Replicas,
    facts: Mutex<Facts>,
}

impl Inner {
    /// Connects, and refuses a server that cannot be used.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) async fn connect(
        config: MssqlConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        config.validate()?;
        let limit = config.timeout();
        let late = |_| error(Kind::Unavailable, format!("no answer within {limit:?}"));
        let open = async {
            let mut connection = open(&config).await?;
            let key = key(&mut connection, cluster.store_key()).await?;
            Ok((connection, key))
        };
        let opened = tokio::time::timeout(limit, open).await;
        let opened = opened.map_err(late).and_then(|opened| opened);
        let (connection, key) = opened.map_err(|e| e.at(config.server().to_string()))?;
        config.warn_if_exposed();
        let replicas = Replicas::default();
        replicas.note(connection.facts.group);
        let facts = connection.facts.clone();
        warn(&facts, &config);
        Ok(Self {
            limits: LIMITS,
            key,
            config,
            cluster,
            cache: DecodeCache::default(),
            pool: Pool::new(connection),
            replicas,
            facts: Mutex::new(facts),
        })
    }

    /// What was found at connecting, or what the configuration promises.
    pub(super) fn guarantees(&self) -> Guarantees {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let (alone, promise) = (self.replicas.none(), self.config.loses_at_failover());
        let kept = promise.map_or(alone, |loses| !loses);
        guarantees(alone || promise.is_some(), kept && !facts.lossy)
    }

    /// Refuses the answer to a read with a barrier if another server may have taken over.
    ///
    /// # Errors
    /// `Unavailable`
    pub(super) fn check_barrier(&self) -> Result<(), TableError> {
        if self.config.loses_at_failover().is_some() || self.replicas.none() {
            return Ok(());
        }
        let message = "the database is in an availability group, and a secondary may be the primary by now: \
            set failover_may_lose=false if none that lacks a commit is ever made the primary, or failover_may_lose=true \
            if the primary is stopped before one is";
        Err(error(Kind::Unavailable, message))
    }
}

#[async_trait]
impl Client for Inner {
    type Connection = Connection;
    const STORE: &'static str = STORE;

    fn pool(&self) -> &Pool<Connection> {
        &self.pool
    }

    fn limit(&self) -> Duration {
        self.config.timeout()
    }

    fn address(&self) -> String {
        self.config.server().to_string()
    }

    async fn open(&self, _another: bool) -> Result<Connection, TableError> {
        let opened = open(&self.config).await;
        // What was right once may be right again: while a database fails over, it cannot be opened.
        let connection = opened.map_err(|e| match e.kind() {
            Kind::Configuration => error(Kind::Unavailable, e.message()).with_source(e),
            _ => e,
        })?;
        self.replicas.note(connection.facts.group);
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != connection.facts {
            warn(&connection.facts, &self.config);
            known.clone_from(&connection.facts);
        }
        drop(known);
        Ok(connection)
    }
}

/// Opens a connection, and checks the server and the tables.
async fn open(config: &MssqlConfig) -> Result<Connection, TableError> {
    let mut connection = Connection::open(config).await?;
    connection.check_server(config).await?;
    connection.has_tables().await?;
    Ok(connection)
}

/// The value of the columns `cluster`. A key that is longer than the column is replaced by its hash;
/// no key starts with `~~`.
async fn key(connection: &mut Connection, key: String) -> Result<String, TableError> {
    if key.len() <= CLUSTER_CHARS {
        return Ok(key);
    }
    let hash = "SELECT 7, CAST(NULL AS nvarchar(128)), CAST(N'~~' + CONVERT(varchar(128), HASHBYTES('SHA2_512', @P1), 2) AS nvarchar(max)), \
                CAST(NULL AS bigint), CAST(NULL AS nvarchar(64));";
    let lines = connection.read(hash, &[&key]).await?;
    let hashed = lines.into_iter().find_map(|line| line.body);
    hashed.ok_or_else(|| error(Kind::Unavailable, "the server hashed nothing"))
}

fn warn(facts: &Facts, config: &MssqlConfig) {
    if facts.lossy {
        let server = config.server().to_string();
        tracing::warn!(
            server,
            why = "DELAYED_DURABILITY = FORCED",
            "the server may lose acknowledged commits in a crash"
        );
    }
}
