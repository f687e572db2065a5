//! The contract over a store's own operations.

/// Implements [`MembershipTable`](membership_core::MembershipTable) for a handle whose field `0` is
/// what all clones share: it has `cluster`, the operations `initialize`, `read`, `read_row`,
/// `commit`, `heartbeat` and `delete`, and `during`, which names the operation in an error. Commits
/// and heartbeats are checked before anything is sent. The other methods follow in braces.
///
/// ```ignore
/// membership_provider::table_over_inner!(MyTable, STORE, LIMITS, {
///     fn guarantees(&self) -> Guarantees {
///         Guarantees::new(Recency::Linearizable, Durability::Kept)
///     }
/// });
/// ```
#[macro_export]
macro_rules! table_over_inner {
    ($table:ty, $store:expr, $limits:expr, { $($other:tt)* }) => {
        const _: () = {
            use $crate::core::{
                ClusterName, CommitOutcome, CommitRequest, HeartbeatWrite, InitializeRequest,
                MembershipTable, Operation, ReadAnswer, ReadRequest, RowRead, SiloAddress,
                TableError, TableLimits, VersionToken,
            };

            #[::async_trait::async_trait]
            impl MembershipTable for $table {
                fn store(&self) -> &'static str {
                    $store
                }

                fn cluster(&self) -> &ClusterName {
                    &self.0.cluster
                }

                async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
                    let done = self.0.initialize(request).await;
                    done.map_err(|e| self.0.during(Operation::Initialize, e))
                }

                async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
                    let answer = self.0.read(request).await;
                    answer.map_err(|e| self.0.during(Operation::Read, e))
                }

                async fn read_row(
                    &self,
                    silo: &SiloAddress,
                    known: Option<&VersionToken>,
                ) -> Result<RowRead, TableError> {
                    let row = self.0.read_row(silo, known).await;
                    row.map_err(|e| self.0.during(Operation::ReadRow, e))
                }

                async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
                    request.validate(&$limits, $store)?;
                    let outcome = self.0.commit(request).await;
                    let during = |e| self.0.during(Operation::Commit, e);
                    outcome.map_err(|e| during(e).of_commit(request.attempt))
                }

                async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
                    write.validate($store)?;
                    let done = self.0.heartbeat(write).await;
                    done.map_err(|e| self.0.during(Operation::UpdateIAmAlive, e))
                }

                async fn delete(&self) -> Result<(), TableError> {
                    let done = self.0.delete().await;
                    done.map_err(|e| self.0.during(Operation::Delete, e))
                }

                fn limits(&self) -> TableLimits {
                    $limits
                }

                $($other)*
            }
        };
    };
}
