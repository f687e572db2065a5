//! What the tests of this crate share: etcd as the suite's store, and servers for single tests.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

pub mod shell;

use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::helpers::new_user;
pub use conformance_tests::helpers::{blue, until};
use conformance_tests::servers::{ServerBackend, Store, with_user};
use conformance_tests::{Effort, RoundTrips, Stop};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_etcd::{EtcdConfig, EtcdTable};
pub use membership_testbed::suite::SECRET;
use membership_testbed::{Kind, Options, Server, ServerSet, suite};

use shell::{Raw, Shell};

/// Fewer rounds of the long cases: one machine does the work of three servers.
pub fn shorter(effort: &mut Effort) {
    effort.model_operations = 1_000;
    effort.commits = 600;
    effort.kills = 40;
}

/// etcd, whether one member or several.
pub struct Etcd;

#[async_trait]
impl Store for Etcd {
    type Raw = Raw;

    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let table = EtcdTable::connect(EtcdConfig::from_url(url)?, cluster.clone());
        Ok(Arc::new(table.await?))
    }

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        Ok(Raw::new(Shell::of(&backend.url()).await?, cluster))
    }

    const MAKES_READERS: bool = true;

    async fn reader(backend: &ServerBackend<Self>) -> Result<String, Stop> {
        let (shell, user) = (Shell::of(&backend.url()).await?, new_user());
        shell::add_user(&shell, &user, "READ", "membership/").await?;
        Ok(with_user(&backend.url(), &user, SECRET))
    }

    /// As the README describes it.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::ONE_EACH.delete(2)
    }
}

/// A server for one test alone, whatever the environment names, with these arguments.
pub async fn server(args: &[&str]) -> Server {
    suite::own_server(Kind::Etcd, args, Options::default()).await
}

/// The same, with a password.
pub async fn locked_server() -> Server {
    suite::locked_server(Kind::Etcd, SECRET).await
}

/// Three members with the user `root`.
pub async fn three_members() -> ServerSet {
    ServerSet::start(Kind::Etcd, 3, Some(SECRET)).await.unwrap()
}

pub async fn connect(url: &str) -> Result<EtcdTable, TableError> {
    EtcdTable::connect(EtcdConfig::from_url(url)?, blue()).await
}
