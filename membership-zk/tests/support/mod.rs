//! What the tests of this crate share: ZooKeeper as the suite's store.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

pub mod shell;

use std::sync::Arc;

use async_trait::async_trait;
pub use conformance_tests::helpers::until;
use conformance_tests::servers::{ServerBackend, Store};
use conformance_tests::{RoundTrips, Stop};
use membership_core::{ClusterName, Durability, Guarantees, MembershipTable, Recency, TableError};
use membership_zk::{ZkConfig, ZkTable};

use shell::Raw;

/// ZooKeeper, whether one server or an ensemble.
pub struct ZooKeeper;

#[async_trait]
impl Store for ZooKeeper {
    type Raw = Raw;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = ZkTable::connect(ZkConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        Raw::open(&backend.url(), &backend.servers().addresses(), cluster).await
    }

    /// A follower may lag behind, and a client reads nothing older than it has seen.
    fn required_guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::MonotonicPerClient, Durability::Kept)
    }

    /// As the README describes it.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::ONE_EACH
            .read_with_barrier(2)
            .conflict(2)
            .commit_again(2)
            .initialize(2)
    }

    /// A request names as many rows as fit into a quarter of what the server takes.
    fn pages(&self, rows: usize, bytes: usize) -> u64 {
        let pages = (rows * 2 * 128)
            .div_ceil(256 << 10)
            .max((rows * bytes.max(1 << 10)).div_ceil(4 << 20));
        u64::try_from(pages.max(1)).unwrap()
    }

    /// With the longest session timeout that these servers allow: pings are then too rare to be
    /// taken for connections that only monitor.
    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=2s&session_timeout=10s"
    }

    fn proxies_external(&self) -> bool {
        true
    }
}
