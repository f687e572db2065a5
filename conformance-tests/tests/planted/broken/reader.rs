//! A client that may read and not write.

use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, Conflict, Guarantees, HeartbeatWrite,
    InitializeRequest, MembershipTable, Operation, ReadAnswer, ReadRequest, RowRead, SiloAddress,
    TableError, TableErrorKind, TableLimits, VersionToken,
};

use super::bug::Bug;

#[derive(Debug)]
pub struct Reader {
    pub bug: Bug,
    pub inner: Arc<dyn MembershipTable>,
}

fn denied(operation: Operation) -> TableError {
    let kind = TableErrorKind::PermissionDenied;
    TableError::new(kind, operation, "broken", "the user may only read")
}

#[async_trait]
impl MembershipTable for Reader {
    fn store(&self) -> &'static str {
        self.inner.store()
    }

    fn cluster(&self) -> &ClusterName {
        self.inner.cluster()
    }

    async fn initialize(&self, _: &InitializeRequest) -> Result<(), TableError> {
        Err(denied(Operation::Initialize))
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        self.inner.read(request).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        self.inner.read_row(silo, known).await
    }

    async fn commit(&self, _: &CommitRequest) -> Result<CommitOutcome, TableError> {
        match self.bug {
            Bug::DeniedIsAConflict => Ok(CommitOutcome::Conflict(Conflict::new(None, None))),
            Bug::DeniedIsUnknown => Err(TableError::new(
                TableErrorKind::OutcomeUnknown,
                Operation::Commit,
                "broken",
                "the store does not answer as expected",
            )),
            _ => Err(denied(Operation::Commit)),
        }
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        match self.bug {
            Bug::LetsReadersBeat => self.inner.update_i_am_alive(write).await,
            _ => Err(denied(Operation::UpdateIAmAlive)),
        }
    }

    async fn delete(&self) -> Result<(), TableError> {
        Err(denied(Operation::Delete))
    }

    fn limits(&self) -> TableLimits {
        self.inner.limits()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }
}
