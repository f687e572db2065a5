//! The contract: one call per method.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{
    Baseline, ClusterName, CommitOutcome, CommitRequest, Durability, Guarantees, HeartbeatWrite,
    HintStream, InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, Recency,
    RowRead, SiloAddress, TableError, TableLimits, VersionToken,
};
use membership_provider::{Provider, StoreProvider};

use super::baseline::SqliteBaseline;
use super::client::{Inner, LIMITS};
use super::config::SCHEMES;
use super::session::{Gate, Session};
use super::{STORE, SqliteConfig, admin, commit, heartbeat, read};

/// The membership table of one cluster in a SQLite file.
///
/// Cheap to clone. All clones share one connection, one thread and one queue, which end after the
/// last clone is dropped, or by [`close`](Self::close). Works in any async runtime, and without
/// one.
///
/// * Reads are linearizable on the machine of the file. Acknowledged commits survive a loss of
///   power if the disk keeps what it has confirmed.
/// * Every operation ends within the configured time. While another process holds the file's lock
///   the answer is `Busy`; a commit that the disk did not confirm in time is `OutcomeUnknown`;
///   every other operation that ends by time was certainly not applied.
/// * Each operation compares the file with its path: after it was deleted or replaced, reads and
///   commits answer `TableReplaced` and write nothing. `initialize` opens the path again.
///
/// Cancellation: dropping a future only drops the answer. A queued operation is then not started;
/// the table's thread finishes a running one, or rolls it back.
///
/// ```no_run
/// use membership_core::{ClusterKey, InitializeRequest, MembershipTable, ReadRequest, SharedSettings, TableId};
/// use membership_sql::{SqliteConfig, SqliteTable};
///
/// # async fn example() -> Result<(), membership_core::TableError> {
/// let cluster = "billing/blue".parse().expect("a cluster name");
/// let config = SqliteConfig::new("/var/lib/billing/membership.db");
/// let table = SqliteTable::connect(config, cluster).await?;
/// let cluster_key = ClusterKey::new([9; 32]); // random
/// let request = InitializeRequest::new(TableId::new(0x5eed), SharedSettings::default(), cluster_key);
/// table.initialize(&request).await?;
/// let answer = table.read(&ReadRequest::all()).await?;
/// # let _ = answer; Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteTable(Arc<Inner>);

/// Opens tables by connection string: `sqlite:`.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, SqliteConfig::from_url, SqliteTable::connect)
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
    /// Opens the table of `cluster`. A missing file is not an error and is not created: that is for
    /// `initialize`. Writes nothing.
    ///
    /// # Errors
    /// `Configuration` (no such directory, a network file system, `:memory:`), `PermissionDenied`,
    /// `ForeignTable` (not a SQLite database, or foreign tables with our names), `NewerLayout`,
    /// `Damaged`, `Busy`.
    pub async fn connect(config: SqliteConfig, cluster: ClusterName) -> Result<Self, TableError> {
        Inner::connect(config, cluster).await.map(Self)
    }

    /// Closes the file after the queued operations, and returns when it is closed. Other clones
    /// answer `Unavailable` from then on. Dropping the last clone does the same without waiting.
    pub async fn close(self) {
        self.0.close().await;
    }

    /// The configuration of this table.
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
        let initialize =
            move |s: &mut Session, gate: &dyn Gate| admin::initialize(s, &request, gate);
        self.0.run(Operation::Initialize, initialize).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let request = request.clone();
        let read = move |s: &mut Session, _: &dyn Gate| read::read(s, &request);
        self.0.run(Operation::Read, read).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let (silo, known) = (*silo, known.cloned());
        let read = move |s: &mut Session, _: &dyn Gate| read::read_row(s, &silo, known.as_ref());
        self.0.run(Operation::ReadRow, read).await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        let sent = request.clone();
        let commit = move |s: &mut Session, gate: &dyn Gate| commit::commit(s, &sent, gate);
        let outcome = self.0.run(Operation::Commit, commit).await;
        outcome.map_err(|e| e.of_commit(request.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let write = write.clone();
        let update =
            move |s: &mut Session, gate: &dyn Gate| heartbeat::update_i_am_alive(s, &write, gate);
        self.0.run(Operation::UpdateIAmAlive, update).await
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.0.run(Operation::Delete, admin::delete).await
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }

    fn hints(&self) -> Option<HintStream> {
        Some(self.0.hints())
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        Some(Box::new(SqliteBaseline(Arc::clone(&self.0))))
    }
}
