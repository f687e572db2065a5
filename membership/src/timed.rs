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
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

/// A table whose operations have a timeout and are measured (see [`metrics`](crate::metrics)).
///
/// A write that times out is an error of kind `OutcomeUnknown`, because it may have happened or may
/// yet happen; a read is `Unavailable`. The operation is dropped (clause T14). A silo wraps its
/// table in one of these by itself. Each operation is a span of `tracing`, at the level debug, with
/// the target `membership::table`.
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
        let span = self.span(operation);
        let began = Instant::now();
        let call = tokio::time::timeout(self.timeout, call).instrument(span.clone());
        let result = match call.await {
            Ok(result) => result,
            Err(_) => Err(self.too_late(operation)),
        };
        let took = began.elapsed();
        let outcome = result.as_ref().err().map_or("ok", |e| e.kind().as_str());
        if let Err(error) = &result {
            span.record("error.type", outcome);
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", error.to_string());
        }
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

    /// With the fields that OpenTelemetry has names for.
    fn span(&self, operation: Operation) -> Span {
        tracing::debug_span!(
            target: "membership::table",
            "table call",
            otel.name = format_args!("table {}", operation.as_str()),
            otel.kind = "client",
            otel.status_code = Empty,
            otel.status_description = Empty,
            db.system.name = self.inner.store(),
            db.namespace = %self.inner.cluster(),
            db.operation.name = operation.as_str(),
            error.type = Empty,
        )
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
