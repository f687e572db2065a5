//! A timeout and a measurement for every operation, around any table.

use std::time::Duration;

use async_trait::async_trait;
use membership_core::{
    Baseline, ClusterName, CommitOutcome, CommitRequest, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, RowRead, SiloAddress,
    TableError, TableErrorKind, TableLimits, VersionToken,
};
use std::sync::Arc;
use tokio::time::Instant;

/// A table whose operations have a timeout and are measured (see [`metrics`](crate::metrics)).
///
/// A write that times out is an error of kind `OutcomeUnknown`, because it may have happened or may
/// yet happen; a read is `Unavailable`. The operation is dropped (clause T14). A silo wraps its
/// table in one of these by itself.
///
/// ```
/// use membership::{MemoryTable, MembershipTable, TimedTable};
/// use std::time::Duration;
/// let table = TimedTable::new(MemoryTable::new("blue".parse()?), Duration::from_secs(10));
/// assert_eq!(table.store(), "memory");
/// # Ok::<(), membership::ParseClusterError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TimedTable {
    inner: Arc<dyn MembershipTable>,
    timeout: Duration,
}

impl TimedTable {
    /// Gives every operation of `table` this timeout.
    #[must_use]
    pub fn new(table: impl MembershipTable, timeout: Duration) -> Self {
        Self {
            inner: Arc::new(table),
            timeout,
        }
    }

    async fn timed<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, TableError>> + Send,
    ) -> Result<T, TableError> {
        let began = Instant::now();
        let result = match tokio::time::timeout(self.timeout, call).await {
            Ok(result) => result,
            Err(_) => Err(self.too_late(operation)),
        };
        let took = began.elapsed();
        let outcome = result.as_ref().err().map_or("ok", |e| e.kind().as_str());
        crate::metrics::table_call(operation, outcome, took);
        tracing::debug!(
            cluster = %self.inner.cluster(),
            operation = operation.as_str(),
            outcome,
            ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "table call"
        );
        result
    }

    fn too_late(&self, operation: Operation) -> TableError {
        TableError::new(
            unanswered(operation),
            operation,
            self.inner.store(),
            format!("no answer within {:?}", self.timeout),
        )
    }
}

/// The error of an operation without an answer. `Unavailable` means that nothing was written, which
/// is certain for reads alone (clause T5).
pub(crate) fn unanswered(operation: Operation) -> TableErrorKind {
    match operation {
        Operation::Read | Operation::ReadRow => TableErrorKind::Unavailable,
        _ => TableErrorKind::OutcomeUnknown,
    }
}

#[async_trait]
impl MembershipTable for TimedTable {
    fn store(&self) -> &'static str {
        self.inner.store()
    }

    fn cluster(&self) -> &ClusterName {
        self.inner.cluster()
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.timed(Operation::Initialize, self.inner.initialize(request))
            .await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.timed(Operation::Read, self.inner.read(request)).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.timed(Operation::ReadRow, self.inner.read_row(silo, known))
            .await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        self.timed(Operation::Commit, self.inner.commit(request))
            .await
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        self.timed(
            Operation::UpdateIAmAlive,
            self.inner.update_i_am_alive(write),
        )
        .await
    }

    async fn delete(&self) -> Result<(), TableError> {
        self.timed(Operation::Delete, self.inner.delete()).await
    }

    fn limits(&self) -> TableLimits {
        self.inner.limits()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn hints(&self) -> Option<HintStream> {
        self.inner.hints()
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        self.inner.baseline()
    }
}
