//! The store under the suite: how to connect to it, and how to reach past the table.

{{raw_module}}{{server_module}}
use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::servers::{{{access}}{{local_server}}ServerBackend, Store};
use conformance_tests::{Capability, Reason, RoundTrips, Stop};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_provider::Provider;
{{testbed}}{{imports}}
/// What every client connects with, and nothing may show.
const SECRET: &str = "conformance-secret";

/// The store under test.
pub struct UnderTest;

/// The server that `MEMBERSHIP_TEST_{{NAME}}_URL` names, or one of the tests' own.
pub async fn backend() -> ServerBackend<UnderTest> {
{{start}}
}

#[async_trait]
impl Store for UnderTest {
{{staging}}
    async fn connect(&self, url: &str, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        membership_{{ident}}::provider().connect(url, cluster.clone()).await
    }

    /// What cannot exist for this store, and why. What is neither listed here nor staged fails.
    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[(Capability::Hints, Reason::NoHints), {{orphans}}]
    }

    /// What the README promises; the suite counts.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::NONE.read(1).read_row(1).commit(1).update_i_am_alive(1)
    }

    /// The shortest timeouts with which the store can be used.
    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=1s"
    }

    fn proxies_external(&self) -> bool {
        true
    }
}
