//! A replica set of three members, which clients and members find through a proxy.

use std::net::SocketAddr;

use async_trait::async_trait;
use conformance_tests::Stop;
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::Servers;
use membership_core::ClusterName;
use membership_testbed::{Kind, ServerSet};

use super::{SECRET, is_monitoring};

/// Three members with the user `root`.
pub struct Set {
    pub servers: ServerSet,
    pub proxy: Proxy,
}

impl Set {
    pub async fn start() -> Self {
        let any = ([127, 0, 0, 1], 0).into();
        let proxy = Proxy::on(any, None).unwrap();
        proxy.also(any, None).unwrap();
        proxy.also(any, None).unwrap();
        proxy.set_monitoring(is_monitoring);
        let names = proxy.addresses();
        let known_as = |member: usize, address| {
            proxy.set_target_of(names[member], address);
            names[member]
        };
        let servers = ServerSet::start_known_as(Kind::MongoDb, 3, Some(SECRET), known_as);
        Self {
            servers: servers.await.unwrap(),
            proxy,
        }
    }
}

#[async_trait]
impl Servers for Set {
    fn url(&self) -> String {
        self.servers.url()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.addresses()
    }

    fn is_external(&self) -> bool {
        false
    }

    async fn set_running(&self, running: bool) -> Result<(), Stop> {
        Servers::set_running(&self.servers, running).await
    }

    async fn kill_leader(&self, cluster: &ClusterName) -> Result<(), Stop> {
        Servers::kill_leader(&self.servers, cluster).await
    }

    fn have_successors(&self) -> bool {
        true
    }

    async fn depose(&self, cluster: &ClusterName) -> Result<(), Stop> {
        Servers::depose(&self.servers, cluster).await
    }

    async fn thaw(&self) -> Result<(), Stop> {
        Servers::thaw(&self.servers).await
    }

    async fn rejoined(&self) -> Result<(), Stop> {
        Servers::rejoined(&self.servers).await
    }

    fn advertised_proxy(&self) -> Option<Proxy> {
        Some(self.proxy.clone())
    }
}
