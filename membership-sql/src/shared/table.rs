//! The contract over a pair of connections: one call per method.

/// Implements [`MembershipTable`](membership_core::MembershipTable) for a handle whose field `0` is an
/// `Arc` of what all clones share: `cluster`, `limits`, `pool`, and the methods of
/// [`Client`](super::pool::Client). The operations and the baseline are those of the module that uses
/// it.
macro_rules! table_over_pool {
    ($table:ident, $baseline:ident, $store:expr) => {
        #[::async_trait::async_trait]
        impl ::membership_core::MembershipTable for $table {
            fn store(&self) -> &'static str {
                $store
            }

            fn cluster(&self) -> &::membership_core::ClusterName {
                &self.0.cluster
            }

            async fn initialize(
                &self,
                request: &::membership_core::InitializeRequest,
            ) -> Result<(), ::membership_core::TableError> {
                self.0.run(&self.0.pool.writes, Initialize(request)).await
            }

            async fn read(
                &self,
                request: &::membership_core::ReadRequest,
            ) -> Result<::membership_core::ReadAnswer, ::membership_core::TableError> {
                match request.new_connection {
                    true => self.0.run_anew(Read(request)).await,
                    false => self.0.run(&self.0.pool.reads, Read(request)).await,
                }
            }

            async fn read_row(
                &self,
                silo: &::membership_core::SiloAddress,
                known: Option<&::membership_core::VersionToken>,
            ) -> Result<::membership_core::RowRead, ::membership_core::TableError> {
                self.0.run(&self.0.pool.reads, ReadRow(silo, known)).await
            }

            async fn commit(
                &self,
                request: &::membership_core::CommitRequest,
            ) -> Result<::membership_core::CommitOutcome, ::membership_core::TableError> {
                request.validate(&self.0.limits, $store)?;
                let outcome = self.0.run(&self.0.pool.writes, Commit(request)).await;
                outcome.map_err(|e| e.of_commit(request.attempt))
            }

            async fn update_i_am_alive(
                &self,
                write: &::membership_core::HeartbeatWrite,
            ) -> Result<(), ::membership_core::TableError> {
                self.0.run(&self.0.pool.reads, Heartbeat(write)).await
            }

            async fn delete(&self) -> Result<(), ::membership_core::TableError> {
                self.0.run(&self.0.pool.writes, Delete).await
            }

            fn limits(&self) -> ::membership_core::TableLimits {
                self.0.limits
            }

            fn guarantees(&self) -> ::membership_core::Guarantees {
                self.0.guarantees()
            }

            fn baseline(&self) -> Option<Box<dyn ::membership_core::Baseline>> {
                Some(Box::new($baseline(Arc::clone(&self.0))))
            }
        }
    };
}
pub(crate) use table_over_pool;
