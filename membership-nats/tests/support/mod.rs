//! The store under the suite: how to connect to it, and the servers that run it.

use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::servers::{DocumentAccess, ServerBackend, Store};
use conformance_tests::{Capability, Reason, RoundTrips, Stop};
use membership_core::{ClusterName, Durability, Guarantees, MembershipTable, Recency, TableError};
use membership_nats::{NatsConfig, NatsDocuments};
use membership_provider::Provider;
use membership_testbed::suite::{self, SECRET};
use membership_testbed::{Kind, Options};

/// The store under test.
pub struct UnderTest;

/// One server, or the one that `MEMBERSHIP_TEST_NATS_URL` names.
pub async fn one() -> ServerBackend<UnderTest> {
    suite::single(UnderTest, Kind::Nats, SECRET).await.unwrap()
}

/// One server whose clients use TLS.
pub async fn encrypted() -> ServerBackend<UnderTest> {
    let trust = |tls: &membership_testbed::Tls| format!("tls_ca={}", tls.ca.display());
    let backend = suite::encrypted(UnderTest, Kind::Nats, SECRET, Options::default(), trust);
    // The proxy does not follow a handshake that begins after a greeting of the server.
    let backend = backend.await.unwrap();
    backend.without(Capability::Proxy, Reason::NoProxy)
}

/// Three servers, each with a copy of the bucket. What clients read without a barrier may come from
/// a leader that was deposed.
pub async fn three() -> ServerBackend<UnderTest> {
    let backend = suite::several(UnderTest, Kind::Nats, SECRET, "servers").await;
    let guarantees = Guarantees::new(Recency::MonotonicPerClient, Durability::Kept);
    backend.unwrap().requires(guarantees)
}

#[async_trait]
impl Store for UnderTest {
    type Raw = DocumentAccess;

    /// Damage, wipes and backups go through the provider's own documents.
    async fn raw(
        backend: &ServerBackend<Self>,
        cluster: &ClusterName,
    ) -> Result<DocumentAccess, Stop> {
        let config = NatsConfig::from_url(&backend.url())?;
        let documents = NatsDocuments::open(&config, cluster).await?;
        Ok(DocumentAccess::new(documents))
    }

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        membership_nats::provider()
            .connect(url, cluster.clone())
            .await
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
            .read_unchanged(1)
            .read_with_barrier(1)
            .read_row(1)
            .commit(1)
            .update_i_am_alive(1)
    }

    /// The shortest timeouts with which the store can be used.
    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=2s&connect_timeout=1s"
    }

    fn proxies_external(&self) -> bool {
        true
    }
}
