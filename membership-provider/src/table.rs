//! The contract over a store's own operations.

/// Implements [`MembershipTable`](membership_core::MembershipTable) for a handle whose field `0` is
/// what all clones share: it has `cluster`, the operations `initialize`, `read`, `read_row`,
/// `commit`, `heartbeat` and `delete`, and `run`, which runs each of them and names the operation in
/// its error. Commits and heartbeats are checked before anything is sent. A table that is not
/// initialized, and that the caller knows, was replaced; no read is of unknown outcome, and any
/// failure of a commit that was sent before may be. The other methods follow in braces.
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
                    let done = self.0.initialize(request);
                    self.0.run(Operation::Initialize, done).await
                }

                async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
                    let read = async {
                        let answer = self.0.read(request).await;
                        let known = request.known.as_ref();
                        answer.map_err(|e| $crate::gone_since(e, known).of_a_read())
                    };
                    self.0.run(Operation::Read, read).await
                }

                async fn read_row(
                    &self,
                    silo: &SiloAddress,
                    known: Option<&VersionToken>,
                ) -> Result<RowRead, TableError> {
                    let read = async {
                        let row = self.0.read_row(silo, known).await;
                        row.map_err(|e| $crate::gone_since(e, known).of_a_read())
                    };
                    self.0.run(Operation::ReadRow, read).await
                }

                async fn commit(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
                    request.validate(&$limits, $store)?;
                    let commit = async {
                        let outcome = self.0.commit(request).await;
                        outcome.map_err(|e| $crate::gone_since(e, Some(&request.expected)))
                    };
                    let outcome = self.0.run(Operation::Commit, commit).await;
                    outcome.map_err(|e| e.of_commit(request.attempt))
                }

                async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
                    write.validate($store)?;
                    let done = self.0.heartbeat(write);
                    self.0.run(Operation::UpdateIAmAlive, done).await
                }

                async fn delete(&self) -> Result<(), TableError> {
                    self.0.run(Operation::Delete, self.0.delete()).await
                }

                fn limits(&self) -> TableLimits {
                    $limits
                }

                $($other)*
            }
        };
    };
}
