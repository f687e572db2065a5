//! The toy store under the suite: how to connect to it, and how to reach past the table.

mod server;

use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::servers::{DocumentAccess, LocalServer, ServerBackend, Store};
use conformance_tests::{Capability, Reason, RoundTrips, Stop};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_provider::Provider;
use membership_toy::{ToyConfig, ToyDocuments};

/// What every client connects with, and nothing may show.
const SECRET: &str = "conformance-secret";

/// The store under test.
pub struct UnderTest;

/// The server that `MEMBERSHIP_TEST_TOY_URL` names, or one of the tests' own.
pub async fn backend() -> ServerBackend<UnderTest> {
    let server = LocalServer::start("MEMBERSHIP_TEST_TOY_URL", "toy", SECRET, server::command);
    ServerBackend::new("toy", UnderTest, server.await.unwrap()).secret(SECRET)
}

#[async_trait]
impl Store for UnderTest {
    type Raw = DocumentAccess;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        membership_toy::provider()
            .connect(url, cluster.clone())
            .await
    }

    /// Damage, wipes and backups go through the provider's own documents.
    async fn raw(
        backend: &ServerBackend<Self>,
        cluster: &ClusterName,
    ) -> Result<DocumentAccess, Stop> {
        let config = ToyConfig::from_url(&backend.url())?;
        Ok(DocumentAccess::new(ToyDocuments::new(config, cluster)))
    }

    /// What cannot exist for this store, and why. What is neither listed here nor staged fails.
    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[
            (Capability::Hints, Reason::NoHints),
            (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
        ]
    }

    /// What the README promises; the suite counts.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::NONE
            .read(1)
            .read_row(1)
            .commit(1)
            .update_i_am_alive(1)
    }

    /// The shortest timeouts with which the store can be used.
    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=1s"
    }

    fn proxies_external(&self) -> bool {
        true
    }
}
