//! What the tests of this crate share: Azure Table storage as the suite's store.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

pub mod shell;

use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::helpers::blue;
use conformance_tests::servers::{ServerBackend, Servers, Store};
use conformance_tests::{Capability, Reason, RoundTrips, Stop};
use membership_azure::{AzureTable, AzureTableConfig};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_testbed::{Kind, Server, suite};

use shell::Shell;

/// The account key of every server that the suite runs on.
pub const SECRET: &str = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZS1jb3JyZWN0";

/// Azure Table storage.
pub struct AzureStore;

#[async_trait]
impl Store for AzureStore {
    type Raw = Shell;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = AzureTable::connect(AzureTableConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Shell, Stop> {
        let shell = Shell::of(&backend.url(), cluster);
        shell.ok_or_else(|| Stop::failed("the URL has no account key"))
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[(Capability::Hints, Reason::NoHints)]
    }

    /// As the README describes it.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::ONE_EACH.conflict(2).commit_again(2).delete(5)
    }

    /// A row and its heartbeat are two entities, and a page has a thousand.
    fn pages(&self, rows: usize, _bytes: usize) -> u64 {
        (2 * rows as u64 + 2).div_ceil(1_000)
    }

    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=2s&connect_timeout=1s"
    }

    fn refused(&self, url: &str, secret: &str) -> String {
        url.replace(secret, &format!("{secret}AAAA"))
    }

    fn proxies_external(&self) -> bool {
        true
    }
}

/// The suite's backend on these servers. Without the account's key there is only the table's own
/// client.
pub fn backend(servers: impl Servers) -> ServerBackend<AzureStore> {
    let has_key = Shell::of(&servers.url(), &blue()).is_some();
    let backend = ServerBackend::new("azure-table", AzureStore, servers).secret(SECRET);
    let past_the_contract = [
        Capability::RawAccess,
        Capability::Wipe,
        Capability::SaveAndRestore,
    ];
    match has_key {
        true => backend,
        false => past_the_contract
            .into_iter()
            .fold(backend, |backend, what| {
                backend.without(what, Reason::OnlyAddress)
            }),
    }
}

/// Azurite with data that survives a stop; an external one is used as it is.
pub async fn server() -> Server {
    Server::start_or_external(Kind::Azurite, suite::durable(SECRET))
        .await
        .unwrap()
}
