//! The contract: one call per method.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{
    Baseline, ClusterName, CommitOutcome, CommitRequest, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, RowRead, SiloAddress,
    TableError, TableLimits, VersionToken,
};
use membership_provider::{Provider, StoreProvider};

use super::baseline::PostgresBaseline;
use super::client::{Call, Inner, LIMITS};
use super::config::SCHEMES;
use super::{PostgresConfig, STORE};

/// The membership table of one cluster in a PostgreSQL database.
///
/// Cheap to clone. All clones share one connection, a second one while there are
/// [`hints`](MembershipTable::hints), one more for reads and heartbeats while a commit waits, and
/// one for reads while a heartbeat waits as well; they are closed after the last clone is dropped. Needs a tokio runtime and stays with the one in
/// which it was connected.
///
/// * Reads go to the primary; a standby is refused. An operation is one round trip.
/// * Whether reads are linearizable, whether a read with a barrier is possible, and whether
///   acknowledged commits survive a failover depends on the standbys: see
///   [`PostgresFailover`](crate::PostgresFailover).
/// * Every operation ends within the configured time. One that takes longer closes the connection,
///   and the next operation opens a new one. A commit or heartbeat whose answer was lost is
///   `OutcomeUnknown`.
///
/// Cancellation: dropping a future only drops the answer; the operation runs to its end.
///
/// ```no_run
/// use membership_core::{ClusterKey, InitializeRequest, MembershipTable, ReadRequest, SharedSettings, TableId};
/// use membership_sql::{PostgresConfig, PostgresTable};
///
/// # async fn example() -> Result<(), membership_core::TableError> {
/// let cluster = "billing/blue".parse().expect("a cluster name");
/// let config = PostgresConfig::from_url("postgres://silo@db.example/app")?;
/// let table = PostgresTable::connect(config, cluster).await?;
/// let cluster_key = ClusterKey::new([9; 32]); // random
/// let request = InitializeRequest::new(TableId::new(0x5eed), SharedSettings::default(), cluster_key);
/// table.initialize(&request).await?;
/// let answer = table.read(&ReadRequest::all()).await?;
/// # let _ = answer; Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresTable(Arc<Inner>);

/// Opens tables by connection string: `postgres:` and `postgresql:`.
/// Its schema is the statements that create the tables.
#[must_use]
pub fn provider() -> impl Provider {
    StoreProvider::new(SCHEMES, PostgresConfig::from_url, PostgresTable::connect)
        .with_schema(PostgresConfig::schema_sql)
}

impl fmt::Debug for PostgresTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTable")
            .field("cluster", &self.0.cluster.to_string())
            .field("config", self.config())
            .finish_non_exhaustive()
    }
}

impl PostgresTable {
    /// Connects to the server and checks whether it can keep the contract. Missing tables are not
    /// an error and are not created: that is for `initialize`. Writes nothing.
    ///
    /// # Errors
    /// `Unavailable` (no answer), `Configuration` (a standby, no such database, TLS, a pooler
    /// without `pooler=true`), `PermissionDenied`, `ForeignTable`, `NewerLayout`, `Damaged`.
    pub async fn connect(config: PostgresConfig, cluster: ClusterName) -> Result<Self, TableError> {
        Inner::connect(config, cluster).await.map(Self)
    }

    /// The configuration of this table.
    #[must_use]
    pub fn config(&self) -> &PostgresConfig {
        &self.0.client.config
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
        let initialize = |call: Call| async move { call.initialize(&request).await };
        self.0.run(Operation::Initialize, initialize).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let request = request.clone();
        let read = |call: Call| async move { call.read(&request).await };
        self.0.run(Operation::Read, read).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let (silo, known) = (*silo, known.cloned());
        let read = |call: Call| async move { call.read_row(&silo, known.as_ref()).await };
        self.0.run(Operation::ReadRow, read).await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        request.validate(&LIMITS, STORE)?;
        let sent = request.clone();
        let commit = |call: Call| async move { call.look_twice(|| call.commit(&sent)).await };
        let outcome = self.0.run(Operation::Commit, commit).await;
        outcome.map_err(|e| e.of_commit(request.attempt))
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let write = write.clone();
        let update = |call: Call| async move { call.update_i_am_alive(&write).await };
        self.0.run(Operation::UpdateIAmAlive, update).await
    }

    async fn delete(&self) -> Result<(), TableError> {
        let delete = |call: Call| async move { call.delete().await };
        self.0.run(Operation::Delete, delete).await
    }

    fn limits(&self) -> TableLimits {
        LIMITS
    }

    fn guarantees(&self) -> Guarantees {
        self.0.client.guarantees()
    }

    fn hints(&self) -> Option<HintStream> {
        self.0.hints()
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        Some(Box::new(PostgresBaseline::new(&self.0)))
    }
}
