//! What all clones of a table share: two connections, and what is known of the server.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{ClusterName, Guarantees, TableError, TableErrorKind as Kind, TableLimits};
use membership_provider::Hosts;
use tokio::time::timeout;

use super::config::{MysqlConfig, MysqlProcedure};
use super::connection::Connection;
use super::error::error;
use super::server::Facts;
use super::{STORE, keys, procedure};
use crate::shared::pool::{Client, Pool};
use crate::shared::{DecodeCache, Replicas, guarantees};

/// The tested limit; a server accepts more if its `max_allowed_packet` does.
const LIMITS: TableLimits = TableLimits::new(1_000, 1 << 20, 16 << 20, 100_000);
/// The part of a packet that is not the bytes of rows: a version row with 16 commits of 64 keys, in
/// hexadecimal digits, and the SQL around 1,000 rows.
const OVERHEAD: usize = 768 << 10;

/// What all clones of a table share.
pub(super) struct Inner {
    pub(super) config: MysqlConfig,
    pub(super) cluster: ClusterName,
    /// The value of the columns `cluster`, as it is written in a statement.
    pub(super) key: String,
    pub(super) cache: DecodeCache,
    pub(super) limits: TableLimits,
    pub(super) pool: Pool<Connection>,
    hosts: Hosts,
    replicas: Replicas,
    facts: Mutex<Facts>,
}

impl Inner {
    /// Connects, and refuses a server that cannot be used.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) async fn connect(
        config: MysqlConfig,
        cluster: ClusterName,
    ) -> Result<Self, TableError> {
        config.validate()?;
        let limit = config.timeout();
        let replicas = Replicas::default();
        let hosts = Hosts::new(config.servers().len());
        let opening = open(&config, &hosts, &replicas, false);
        let opened = timeout(limit, opening).await.map_err(|_| late(limit));
        let opened = opened.and_then(|opened| opened);
        let connection = opened.map_err(|e| e.at(config.address()))?;
        config.warn_if_exposed(hosts.last(), connection.encrypted);
        let facts = connection.facts.clone();
        warn(&facts, &config, &hosts);
        let room = facts.packet.saturating_sub(OVERHEAD) / 2;
        let bytes_per_commit = LIMITS.bytes_per_commit.min(room);
        Ok(Self {
            key: keys::cluster(&cluster),
            config,
            cluster,
            cache: DecodeCache::default(),
            limits: {
                let mut limits = LIMITS;
                limits.bytes_per_commit = bytes_per_commit;
                limits.bytes_per_row = LIMITS.bytes_per_row.min(bytes_per_commit);
                limits
            },
            pool: Pool::new(connection),
            hosts,
            replicas,
            facts: Mutex::new(facts),
        })
    }

    /// What was found at connecting, or what the configuration promises.
    pub(super) fn guarantees(&self) -> Guarantees {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = facts.group || self.is_alone();
        let kept = match self.config.loses_at_failover() {
            Some(loses) => !loses,
            None => alone || facts.semi_sync,
        };
        let promised = self.config.loses_at_failover().is_some();
        guarantees(alone || promised, kept && facts.lossy.is_none())
    }

    /// Whether no other server can have taken over, as far as it is known.
    fn is_alone(&self) -> bool {
        self.config.servers().len() == 1 && self.replicas.none()
    }

    /// Refuses the answer to a read with a barrier if another server may have taken over.
    ///
    /// # Errors
    /// `Unavailable`
    pub(super) async fn check_barrier(
        &self,
        connection: &mut Connection,
    ) -> Result<(), TableError> {
        if self.config.loses_at_failover().is_some() {
            return Ok(());
        }
        self.replicas.note(connection.has_replicas().await);
        if connection.facts.group || self.is_alone() {
            return Ok(());
        }
        let message = "a replica or another host may be the primary by now (or this user may not see the replicas, which takes REPLICATION SLAVE): set \
            failover_may_lose=false if none that lacks a commit is ever promoted, or failover_may_lose=true if the primary is \
            stopped before one is";
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
        self.config.address()
    }

    fn share(&self) -> Duration {
        self.hosts.share(self.limit())
    }

    async fn open(&self, another: bool) -> Result<Connection, TableError> {
        let connection = open(&self.config, &self.hosts, &self.replicas, another).await?;
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != connection.facts {
            warn(&connection.facts, &self.config, &self.hosts);
            known.clone_from(&connection.facts);
        }
        drop(known);
        Ok(connection)
    }
}

fn late(limit: Duration) -> TableError {
    error(Kind::Unavailable, format!("no answer within {limit:?}"))
}

/// Opens a connection to a server that takes writes, and checks the tables and the procedure.
async fn open(
    config: &MysqlConfig,
    hosts: &Hosts,
    replicas: &Replicas,
    another: bool,
) -> Result<Connection, TableError> {
    let connect = |host: usize, limit| async move {
        let connecting = Connection::open(config, &config.servers()[host]);
        let connected = timeout(limit, connecting).await;
        connected.unwrap_or_else(|_| Err(late(limit)))
    };
    let mut connection = hosts.find(another, config.timeout(), connect).await?;
    replicas.note(connection.has_replicas().await);
    connection.has_tables().await?;
    if config.procedure_use() != MysqlProcedure::Never {
        connection.has_procedure = connection.finds_procedure().await?;
        let required = config.procedure_use() == MysqlProcedure::Require;
        if required && !connection.has_procedure && connection.known_tables {
            return Err(error(Kind::Configuration, procedure::missing()));
        }
    }
    Ok(connection)
}

fn warn(facts: &Facts, config: &MysqlConfig, hosts: &Hosts) {
    if let Some(why) = &facts.lossy {
        let server = config.servers()[hosts.last()].to_string();
        tracing::warn!(
            server,
            why,
            "the server may lose acknowledged commits in a crash"
        );
    }
}
