//! Implements the table traits for `Arc`, also of a `dyn MembershipTable`.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Baseline, CommitOutcome, CommitRequest, Guarantees, HeartbeatWrite, HintStream,
    InitializeRequest, MembershipTable, ReadAnswer, ReadRequest, RowRead, TableError, TableLimits,
};
use crate::{ClusterName, SiloAddress, VersionToken};

#[async_trait]
impl<T: MembershipTable + ?Sized> MembershipTable for Arc<T> {
    fn store(&self) -> &'static str {
        (**self).store()
    }

    fn cluster(&self) -> &ClusterName {
        (**self).cluster()
    }

    async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        (**self).initialize(request).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        (**self).read(request).await
    }

    async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        (**self).read_row(silo, known).await
    }

    async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        (**self).commit(request).await
    }

    async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        (**self).update_i_am_alive(write).await
    }

    async fn delete(&self) -> Result<(), TableError> {
        (**self).delete().await
    }

    fn limits(&self) -> TableLimits {
        (**self).limits()
    }

    fn guarantees(&self) -> Guarantees {
        (**self).guarantees()
    }

    fn hints(&self) -> Option<HintStream> {
        (**self).hints()
    }

    fn baseline(&self) -> Option<Box<dyn Baseline>> {
        (**self).baseline()
    }
}
