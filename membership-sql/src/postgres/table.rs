//! The contract. Each operation is a task of its own: dropping its future gives up the answer only, and one that is not polled for a while
//! does not keep the connection from anybody else.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, RowRead,
    SiloAddress, TableError, TableErrorKind, TableLimits, VersionToken, Yardstick,
};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::codec::Cache;
use super::link::Line;
use super::yardstick::PostgresYardstick;
use super::{PostgresConfig, STORE, admin, commit, hints, read};
use crate::bell::Bell;

/// What is tested; PostgreSQL itself takes more.
const LIMITS: TableLimits = TableLimits {
    rows_per_commit: 10_000,
    bytes_per_row: 1 << 20,
    bytes_per_commit: 64 << 20,
    rows: 100_000,
};

/// The membership table of one cluster in a PostgreSQL database.
///
/// Cheap to clone; all clones share one connection, and a second one for [`hints`](MembershipTable::hints) once somebody asks for them. Both
/// are closed after the last clone is dropped. Needs a running Tokio runtime, with which it stays.
///
/// * Reads are linearizable: they go to the primary; a standby is refused. Each operation is one round trip.
/// * Whether acknowledged commits survive a failover depends on the standbys: see [`PostgresFailover`](crate::PostgresFailover).
/// * Every operation ends within the configured time. What took longer gives up the connection; the next operation makes a new one.
///   A commit or heartbeat whose answer was lost is `OutcomeUnknown`.
///
/// Cancellation: dropping a future gives up the answer only; what was begun is finished.
///
/// ```no_run
/// use membership_core::{InitializeRequest, MembershipTable, ReadRequest, SharedSettings, TableId};
/// use membership_sql::{PostgresConfig, PostgresTable};
///
/// # async fn example() -> Result<(), membership_core::TableError> {
/// let cluster = "billing/blue".parse().expect("a cluster name");
/// let table = PostgresTable::connect(PostgresConfig::from_url("postgres://silo@db.example/app")?, cluster).await?;
/// table.initialize(&InitializeRequest { table_id: TableId::new(0x5eed), settings: SharedSettings::default() }).await?;
/// let answer = table.read(&ReadRequest::all()).await?;
/// # let _ = answer; Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresTable(Arc<Inner>);

/// What all clones share.
pub(super) struct Inner {
    pub(super) line: Arc<Line>,
    cache: Cache,
    cluster: ClusterName,
    key: String,
    channel: String,
    runtime: Handle,
    bell: Arc<Bell>,
    listener: Mutex<Option<AbortHandle>>,
}

impl fmt::Debug for PostgresTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTable")
            .field("cluster", &self.0.cluster.to_string())
            .field("config", &self.0.line.config)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(listener) = self
            .listener
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            listener.abort();
        }
        self.bell.close();
    }
}

impl PostgresTable {
    /// Connects to the server and looks whether it can keep the contract. Tables that do not exist yet are no error, and are not made:
    /// that is for `initialize`. Nothing is written.
    ///
    /// # Errors
    /// `Unavailable` (no answer), `Configuration` (a standby, no such database, TLS, a pooler without `pooler=true`), `PermissionDenied`,
    /// `ForeignTable`, `NewerLayout`, `Damaged`.
    pub async fn connect(config: PostgresConfig, cluster: ClusterName) -> Result<Self, TableError> {
        config.validate()?;
        let runtime = Handle::try_current().map_err(|e| {
            TableError::new(
                TableErrorKind::Configuration,
                Operation::Connect,
                STORE,
                "there is no Tokio runtime here",
            )
            .with_source(e)
        })?;
        let line = Arc::new(Line::new(config, LIMITS.rows)?);
        let table = Self(Arc::new(Inner {
            line,
            cache: Cache::default(),
            key: cluster.store_key(),
            channel: hints::channel(cluster.fingerprint()),
            cluster,
            runtime,
            bell: Arc::default(),
            listener: Mutex::default(),
        }));
        table
            .0
            .call(Operation::Connect, |inner| async move {
                inner.line.link(inner.line.deadline()).await.map(|_| ())
            })
            .await?;
        Ok(table)
    }

    /// How it was opened.
    #[must_use]
    pub fn config(&self) -> &PostgresConfig {
        &self.0.line.config
    }
}

impl Inner {
    /// Runs an operation to its end, whatever becomes of this future.
    pub(super) async fn call<
        T: Send + 'static,
        F: Future<Output = Result<T, TableError>> + Send + 'static,
    >(
        self: &Arc<Self>,
        operation: Operation,
        work: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, TableError> {
        match self.runtime.spawn(work(Arc::clone(self))).await {
            Ok(answer) => answer.map_err(|e| e.during(operation).at(self.line.config.place())),
            Err(e) => {
                let message = "the runtime that the table was opened in is ending";
                Err(
                    TableError::new(TableErrorKind::OutcomeUnknown, operation, STORE, message)
                        .with_source(e),
                )
            }
        }
    }
}

#[async_trait]
impl MembershipTable for PostgresTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let request = request.clone();
        let work = |t: Arc<Inner>| async move {
            admin::initialize(&t.line, &t.cache, &t.cluster, &request, t.line.deadline()).await
        };
        self.0.call(Operation::Initialize, work).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let request = request.clone();
        let work = |t: Arc<Inner>| async move {
            read::read(&t.line, &t.cache, &t.key, &request, t.line.deadline()).await
        };
        self.0.call(Operation::Read, work).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let (silo, known) = (*silo, known.cloned());
        let work = |t: Arc<Inner>| async move {
            read::read_row(
                &t.line,
                &t.cache,
                &t.key,
                &silo,
                known.as_ref(),
                t.line.deadline(),
            )
            .await
        };
        self.0.call(Operation::ReadRow, work).await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        let sent = request.clone();
        let work = |t: Arc<Inner>| async move {
            commit::commit(
                &t.line,
                &t.cache,
                &t.key,
                &t.channel,
                &sent,
                &LIMITS,
                t.line.deadline(),
            )
            .await
        };
        self.0
            .call(Operation::Commit, work)
            .await
            .map_err(|e| e.of_commit(request.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let write = write.clone();
        let work = |t: Arc<Inner>| async move {
            commit::update_i_am_alive(&t.line, &t.cache, &t.key, &write, t.line.deadline()).await
        };
        self.0.call(Operation::UpdateIAmAlive, work).await
    }

    async fn delete(&self) -> Result<(), TableError> {
        let work = |t: Arc<Inner>| async move {
            admin::delete(&t.line, &t.cache, &t.cluster, t.line.deadline()).await
        };
        self.0.call(Operation::Delete, work).await
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        let durability = if self.0.line.may_lose() {
            Durability::MayBeLost
        } else {
            Durability::Kept
        };
        Guarantees {
            reads: Recency::Linearizable,
            durability,
        }
    }

    fn hints(&self) -> Option<HintStream> {
        if !self.0.line.config.listens() {
            return None;
        }
        let heard = self.0.bell.listen();
        let mut listener = self
            .0
            .listener
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if listener.is_none() {
            let task = hints::listen(
                Arc::downgrade(&self.0.line),
                self.0.channel.clone(),
                Arc::clone(&self.0.bell),
            );
            *listener = Some(self.0.runtime.spawn(task).abort_handle());
        }
        Some(Box::pin(heard))
    }

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        Some(Box::new(PostgresYardstick::new(&self.0)))
    }
}
