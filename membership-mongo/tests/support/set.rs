//! A replica set of three members, whom clients and each other find through a proxy.

use std::time::Duration;

use conformance_tests::launch::{LaunchError, ReplicaSet};
use conformance_tests::proxy::Proxy;
use membership_core::{ClusterName, MembershipTable, ReadRequest, TableErrorKind};
use membership_mongo::{MongoConfig, MongoTable};

use super::{SECRET, is_monitoring, until};

/// Three members with the user `root`.
pub struct Set {
    pub servers: ReplicaSet,
    pub proxy: Proxy,
}

impl Set {
    pub async fn start() -> Self {
        let any = ([127, 0, 0, 1], 0).into();
        let proxy = Proxy::on(any, None).unwrap();
        proxy.also(any, None).unwrap();
        proxy.also(any, None).unwrap();
        proxy.set_monitoring(is_monitoring);
        let doors = proxy.addresses();
        let servers = ReplicaSet::start(doors.len(), Some(SECRET), |member, address| {
            proxy.set_target_of(doors[member], address);
            doors[member]
        });
        Self {
            servers: servers.await.unwrap(),
            proxy,
        }
    }

    /// Kills whoever is the primary; another one takes over, and the killed one comes back to that.
    pub async fn kill_primary(&self) -> Result<(), LaunchError> {
        let killed = self.servers.kill_primary().await?;
        self.servers.start_again(killed).await
    }

    /// Waits until the set serves.
    pub async fn serves(&self) {
        let cluster: ClusterName = "nobody/serves".parse().unwrap();
        until("the set serves", async || {
            let config = MongoConfig::from_url(&self.servers.url())
                .unwrap()
                .operation_timeout(Duration::from_secs(3));
            let Ok(table) = MongoTable::connect(config, cluster.clone()).await else {
                return false;
            };
            let answer = table
                .read(&ReadRequest {
                    barrier: true,
                    ..ReadRequest::all()
                })
                .await;
            matches!(answer, Err(e) if e.kind() == TableErrorKind::NotInitialized)
        })
        .await;
    }
}
