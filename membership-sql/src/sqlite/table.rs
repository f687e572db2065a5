//! The contract, as messages to the table's thread.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency, RowRead,
    SiloAddress, TableError, TableErrorKind, TableLimits, VersionToken, Yardstick,
};

use super::session::{Session, reading};
use super::worker::Worker;
use super::yardstick::SqliteYardstick;
use super::{STORE, SqliteConfig, admin, commit, place, read, schema};

/// What is tested; SQLite itself takes more.
const LIMITS: TableLimits = TableLimits {
    rows_per_commit: 10_000,
    bytes_per_row: 1 << 20,
    bytes_per_commit: 64 << 20,
    rows: 100_000,
};

/// The membership table of one cluster in a SQLite file.
///
/// Cheap to clone; all clones share one connection, one thread and one queue. The thread and the connection end after the last clone
/// is dropped, or with [`close`](Self::close). Works from any async runtime, and from none.
///
/// * Reads are linearizable on the machine that the file is on, and acknowledged commits survive a loss of power if the disk keeps what it
///   says that it has written.
/// * Every operation ends within the configured time. While another process holds the file's lock the answer is `Busy`; a commit that
///   the disk did not confirm in time is `OutcomeUnknown`; everything else that ends by time was certainly not applied.
/// * The file is compared with its path at every operation: after it was deleted or replaced, reads and commits answer `TableReplaced`
///   and write nothing. `initialize` opens the path anew.
///
/// Cancellation: dropping a future gives up the answer only. What was queued is then not begun; what had begun is finished or rolled back
/// by the table's thread.
///
/// ```no_run
/// use membership_core::{InitializeRequest, MembershipTable, ReadRequest, SharedSettings, TableId};
/// use membership_sql::{SqliteConfig, SqliteTable};
///
/// # async fn example() -> Result<(), membership_core::TableError> {
/// let cluster = "billing/blue".parse().expect("a cluster name");
/// let table = SqliteTable::open(SqliteConfig::new("/var/lib/billing/membership.db"), cluster).await?;
/// table.initialize(&InitializeRequest { table_id: TableId::new(0x5eed), settings: SharedSettings::default() }).await?;
/// let answer = table.read(&ReadRequest::all()).await?;
/// # let _ = answer; Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteTable(Arc<Inner>);

pub(super) struct Inner {
    pub(super) worker: Worker,
    cluster: ClusterName,
    config: SqliteConfig,
}

impl fmt::Debug for SqliteTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTable")
            .field("cluster", &self.0.cluster.to_string())
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}

impl SqliteTable {
    /// Opens the table of `cluster`. A file that does not exist yet is no error, and is not made: that is for `initialize`.
    /// Nothing is written.
    ///
    /// # Errors
    /// `Configuration` (no such directory, a network file system, `:memory:`), `PermissionDenied`, `ForeignTable` (not a SQLite database, or
    /// somebody else's tables under our names), `NewerLayout`, `Damaged`, `Busy`.
    pub async fn open(config: SqliteConfig, cluster: ClusterName) -> Result<Self, TableError> {
        config.validate()?;
        let path = place::check(config.path(), config.allows_network())?;
        let session = Session::new(
            path,
            config.creates(),
            cluster.store_key(),
            cluster.to_string(),
        );
        let worker = Worker::start(session, config.timeout()).map_err(|e| {
            TableError::new(
                TableErrorKind::Unavailable,
                Operation::Connect,
                STORE,
                "the system gives no thread",
            )
            .with_source(e)
        })?;
        worker
            .call(Operation::Connect, |session, _| {
                if let Some((file, _)) = session.file()? {
                    let looking = reading(&file.conn)?;
                    schema::present(&looking, &mut file.checked)?;
                }
                Ok(())
            })
            .await?;
        Ok(Self(Arc::new(Inner {
            worker,
            cluster,
            config,
        })))
    }

    /// Closes the file, after what is queued, and returns when it is closed. Every other clone answers `Unavailable` from then on.
    /// Dropping the last clone does the same without waiting.
    pub async fn close(self) {
        self.0.worker.close().await;
    }

    /// How it was opened.
    #[must_use]
    pub fn config(&self) -> &SqliteConfig {
        &self.0.config
    }
}

#[async_trait]
impl MembershipTable for SqliteTable {
    fn store(&self) -> &'static str {
        STORE
    }

    fn cluster(&self) -> &ClusterName {
        &self.0.cluster
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let request = request.clone();
        self.0
            .worker
            .call(Operation::Initialize, move |session, gate| {
                admin::initialize(session, &request, gate)
            })
            .await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let request = request.clone();
        self.0
            .worker
            .call(Operation::Read, move |session, _| {
                read::read(session, &request)
            })
            .await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let (silo, known) = (*silo, known.cloned());
        self.0
            .worker
            .call(Operation::ReadRow, move |session, _| {
                read::read_row(session, &silo, known.as_ref())
            })
            .await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        let sent = request.clone();
        let answer = self
            .0
            .worker
            .call(Operation::Commit, move |session, gate| {
                commit::commit(session, &sent, &LIMITS, gate)
            })
            .await;
        answer.map_err(|e| e.of_commit(request.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let write = write.clone();
        self.0
            .worker
            .call(Operation::UpdateIAmAlive, move |session, gate| {
                commit::update_i_am_alive(session, &write, gate)
            })
            .await
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.0.worker.call(Operation::Delete, admin::delete).await
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            reads: Recency::Linearizable,
            durability: Durability::Kept,
        }
    }

    fn hints(&self) -> Option<HintStream> {
        Some(Box::pin(self.0.worker.listen()))
    }

    fn yardstick(&self) -> Option<Box<dyn Yardstick>> {
        Some(Box::new(SqliteYardstick(Arc::clone(&self.0))))
    }
}
