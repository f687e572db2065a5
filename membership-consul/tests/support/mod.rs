//! What the tests of this crate share: Consul as the suite's store, and servers for single tests.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

pub mod shell;

use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::helpers::new_user;
pub use conformance_tests::helpers::{blue, until};
use conformance_tests::servers::{ServerBackend, Store, with_user};
use conformance_tests::{RoundTrips, Stop};
use membership_consul::{ConsulConfig, ConsulTable};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_testbed::{Kind, Options, Server, suite};

use shell::{Raw, Shell};

/// The token of the tests' own servers, which refuse other clients.
pub const SECRET: &str = "0c0ffee0-5ec2-4e75-8a11-5add1e5ba77e";

/// Consul, whether one server or several.
pub struct Consul;

#[async_trait]
impl Store for Consul {
    type Raw = Raw;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = ConsulTable::connect(ConsulConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        Ok(Raw::new(Shell::of(&backend.url()), cluster))
    }

    const MAKES_READERS: bool = true;

    async fn reader(backend: &ServerBackend<Self>) -> Result<String, Stop> {
        let rules = "key_prefix \"membership/\" { policy = \"read\" }";
        let token = shell::token(&Shell::of(&backend.url()), &new_user(), rules).await;
        Ok(with_user(&backend.url(), "", &token))
    }

    /// As the README describes it.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::ONE_EACH.conflict(2).commit_again(2).delete(2)
    }
}

/// A server for one test alone, whatever the environment names.
pub async fn server() -> Server {
    suite::locked_server(Kind::Consul, SECRET).await
}

pub async fn connect(url: &str) -> Result<ConsulTable, TableError> {
    ConsulTable::connect(ConsulConfig::from_url(url)?, blue()).await
}
