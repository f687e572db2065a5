//! What all clones of a table share: two connections, one for reads and heartbeats and one for the
//! rest, so that a silo that waits for a lock still writes heartbeats.
//!
//! Every operation ends within its time. An operation takes its connection out of the slot, and
//! puts it back only when it came to its end: if its future is dropped, the connection is closed
//! with it (clause T14).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{
    ClusterName, Guarantees, Operation, TableError, TableErrorKind as Kind, TableLimits,
};
use tokio::time::{Instant, timeout_at};

use super::config::{MysqlConfig, MysqlProcedure};
use super::connection::Connection;
use super::error::error;
use super::server::Facts;
use super::{keys, procedure};
use crate::shared::{DecodeCache, Doubts, Replicas, guarantees};

/// The tested limit; a server accepts more if its `max_allowed_packet` does.
const LIMITS: TableLimits = TableLimits::new(1_000, 1 << 20, 16 << 20, 100_000);
/// The part of a packet that is not the bytes of rows: a version row with 16 commits of 64 keys, in
/// hexadecimal digits, and the SQL around 1,000 rows.
const OVERHEAD: usize = 768 << 10;

/// A connection that was idle for longer is tested before a request that must not be sent twice.
/// Firewalls and proxies drop idle connections, and the outcome of a commit would be unknown for no
/// reason.
const IDLE: Duration = Duration::from_secs(60);

/// The connection of some operations, while none of them uses it.
pub(super) type Slot = tokio::sync::Mutex<Option<Connection>>;

/// What all clones of a table share.
pub(super) struct Inner {
    pub(super) config: MysqlConfig,
    pub(super) cluster: ClusterName,
    /// The value of the columns `cluster`, as it is written in a statement.
    pub(super) key: String,
    pub(super) cache: DecodeCache,
    pub(super) limits: TableLimits,
    /// For reads and heartbeats.
    pub(super) reads: Slot,
    /// For everything else.
    pub(super) writes: Slot,
    /// How often connections were found broken or are in doubt.
    generation: AtomicU64,
    doubts: Doubts,
    replicas: Replicas,
    facts: Mutex<Facts>,
}

/// An operation.
#[async_trait]
pub(super) trait Work: Sync {
    type Answer: Send;
    /// Its name.
    const OPERATION: Operation;
    /// Whether it may be executed twice.
    const REPEATABLE: bool = true;

    async fn run(
        &self,
        table: &Inner,
        connection: &mut Connection,
    ) -> Result<Self::Answer, TableError>;
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
        let late = |_| error(Kind::Unavailable, format!("no answer within {limit:?}"));
        let replicas = Replicas::default();
        let opened = tokio::time::timeout(limit, open(&config, 0, &replicas)).await;
        let opened = opened.map_err(late).and_then(|opened| opened);
        let connection = opened.map_err(|e| e.at(config.address()))?;
        config.warn_if_exposed(connection.encrypted);
        let facts = connection.facts.clone();
        warn(&facts, &config);
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
            reads: Slot::new(Some(connection)),
            writes: Slot::default(),
            generation: AtomicU64::new(0),
            doubts: Doubts::default(),
            replicas,
            facts: Mutex::new(facts),
        })
    }

    /// What was found at connecting, or what the configuration promises.
    pub(super) fn guarantees(&self) -> Guarantees {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = facts.group || self.replicas.none();
        let kept = match self.config.loses_at_failover() {
            Some(loses) => !loses,
            None => alone || facts.semi_sync,
        };
        let promised = self.config.loses_at_failover().is_some();
        guarantees(alone || promised, kept && facts.lossy.is_none())
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
        if connection.facts.group || self.replicas.none() {
            return Ok(());
        }
        let message = "a replica may be the primary by now (or this user may not see the replicas, which takes REPLICATION SLAVE): set \
            failover_may_lose=false if none that lacks a commit is ever promoted, or failover_may_lose=true if the primary is \
            stopped before one is";
        Err(error(Kind::Unavailable, message))
    }

    /// Closes both connections after the operations under way.
    pub(super) async fn close(&self) {
        drop(self.reads.lock().await.take());
        drop(self.writes.lock().await.take());
    }

    /// Runs an operation within the configured time, and once more over a new connection when its
    /// answer is in doubt.
    ///
    /// # Errors
    /// The errors of the operation, with its name and the server.
    pub(super) async fn run<W: Work>(&self, slot: &Slot, work: W) -> Result<W::Answer, TableError> {
        let deadline = Instant::now() + self.config.timeout();
        match self.run_until(deadline, slot, &work).await {
            Err(e) if self.doubts.look_again(&e) => self.run_over_new(deadline, &work).await,
            answer => answer,
        }
    }

    /// Runs a read over a new connection, which the next operations use, too.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(super) async fn run_anew<W: Work>(&self, work: W) -> Result<W::Answer, TableError> {
        let deadline = Instant::now() + self.config.timeout();
        self.run_over_new(deadline, &work).await
    }

    async fn run_over_new<W: Work>(
        &self,
        deadline: Instant,
        work: &W,
    ) -> Result<W::Answer, TableError> {
        // The operations under way keep their connections, and the next ones do not use those.
        self.connections_broke();
        let slot = Slot::default();
        let answer = self.run_until(deadline, &slot, work).await;
        if let Ok(mut reads) = self.reads.try_lock() {
            *reads = slot.into_inner();
        }
        answer
    }

    async fn run_until<W: Work>(
        &self,
        deadline: Instant,
        slot: &Slot,
        work: &W,
    ) -> Result<W::Answer, TableError> {
        let limit = self.config.timeout();
        let (in_doubt, has_slot) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
        let late = |_| {
            let message = format!("no answer within {limit:?}");
            if in_doubt.load(Ordering::Relaxed) {
                error(Kind::OutcomeUnknown, message)
            } else if has_slot.load(Ordering::Relaxed) {
                error(Kind::Unavailable, message)
            } else {
                error(
                    Kind::Busy,
                    "other operations of this client took all the time",
                )
            }
        };
        let run = async {
            let mut slot = slot.lock().await;
            has_slot.store(true, Ordering::Relaxed);
            self.run_over(&mut slot, work, &in_doubt).await
        };
        let answer = timeout_at(deadline, run).await;
        let answer = answer.map_err(late).and_then(|answer| answer);
        answer.map_err(|e| e.during(W::OPERATION).at(self.config.address()))
    }

    async fn run_over<W: Work>(
        &self,
        slot: &mut Option<Connection>,
        work: &W,
        in_doubt: &Arc<AtomicBool>,
    ) -> Result<W::Answer, TableError> {
        let mut repeated = false;
        loop {
            let generation = self.generation.load(Ordering::Relaxed);
            let old = slot.take().filter(|old| old.generation == generation);
            let reused = old.is_some();
            let mut connection = match old {
                Some(connection) => connection,
                None => self.open(generation).await?,
            };
            let untested = reused && !W::REPEATABLE && connection.used.elapsed() > IDLE;
            if untested && connection.send("DO 0").await.is_err() {
                self.connections_broke();
                continue;
            }
            connection.in_doubt = Arc::clone(in_doubt);
            let answer = work.run(self, &mut connection).await;
            // A server can answer and still be unusable: it shuts down, or no longer accepts
            // writes. A new connection may find another server.
            let unavailable = matches!(&answer, Err(e) if e.kind() == Kind::Unavailable);
            if connection.is_usable() && !unavailable {
                *slot = Some(connection);
                return answer;
            }
            // The other connection is probably broken too: it is opened again before its next use.
            self.connections_broke();
            match answer {
                // It was closed while idle, and nothing happened, or nothing that must not be
                // repeated.
                Err(e) if reused && !repeated && may_repeat(&e, W::REPEATABLE) => {
                    repeated = true;
                    in_doubt.store(false, Ordering::Relaxed);
                }
                answer => return answer,
            }
        }
    }

    async fn open(&self, generation: u64) -> Result<Connection, TableError> {
        let connection = open(&self.config, generation, &self.replicas).await?;
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != connection.facts {
            warn(&connection.facts, &self.config);
            known.clone_from(&connection.facts);
        }
        drop(known);
        Ok(connection)
    }

    fn connections_broke(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

/// Opens a connection, and checks the server, the tables and the procedure.
async fn open(
    config: &MysqlConfig,
    generation: u64,
    replicas: &Replicas,
) -> Result<Connection, TableError> {
    let mut connection = Connection::open(config, generation).await?;
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

fn warn(facts: &Facts, config: &MysqlConfig) {
    if let Some(why) = &facts.lossy {
        let server = config.address();
        tracing::warn!(
            server,
            why,
            "the server may lose acknowledged commits in a crash"
        );
    }
}

fn may_repeat(e: &TableError, repeatable: bool) -> bool {
    match e.kind() {
        Kind::Unavailable => true,
        Kind::OutcomeUnknown => repeatable,
        _ => false,
    }
}
