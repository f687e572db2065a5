//! The staging for the suite: how to get a client, and what can go wrong with the store.

mod server;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::proxy::Proxy;
use conformance_tests::{Backend, Capability, Proxied, Reason, RoundTrips, Stop, child};
use membership_core::{ClusterName, DocumentStore, MembershipTable, TableError};
use membership_toy::{ToyConfig, ToyDocuments};

use server::Server;

/// Where the killed process finds the store.
pub const CHILD: &str = "MEMBERSHIP_TOY_TEST_CHILD";
/// What every client connects with, and nobody may see.
const SECRET: &str = "conformance-secret";

/// The store under test.
pub struct Toy {
    server: Server,
}

impl Toy {
    /// Your server, if `MEMBERSHIP_TEST_TOY_URL` names one; else one of its own.
    pub async fn start() -> Self {
        Self {
            server: Server::start(SECRET).await,
        }
    }
}

#[async_trait]
impl Backend for Toy {
    fn name(&self) -> String {
        "toy".to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        membership_toy::open(self.server.url(), cluster.clone()).await
    }

    /// What cannot exist for this store, and why. What is neither listed here nor staged below fails.
    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        if self.server.is_yours() {
            return &[
                (Capability::Hints, Reason::NoHints),
                (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
                (Capability::Restart, Reason::Managed),
                (Capability::Unavailable, Reason::Managed),
                (Capability::Secret, Reason::Managed),
            ];
        }
        &[
            (Capability::Hints, Reason::NoHints),
            (Capability::RefusesOrphanHeartbeats, Reason::SecondRoundTrip),
        ]
    }

    /// With this, damage, wipes and backups are staged already.
    async fn documents(
        &self,
        cluster: &ClusterName,
    ) -> Result<Option<Box<dyn DocumentStore>>, TableError> {
        let config = ToyConfig::from_url(&self.server.url())?;
        Ok(Some(Box::new(ToyDocuments::open(&config, cluster).await?)))
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.set_available(false).await?;
        self.set_available(true).await
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if self.server.is_yours() {
            return Err(Stop::NotStaged(Capability::Unavailable));
        }
        if available {
            self.server.up().await
        } else {
            self.server.kill()
        }
        Ok(())
    }

    fn secret(&self) -> Result<String, Stop> {
        if self.server.is_yours() {
            Err(Stop::NotStaged(Capability::Secret))
        } else {
            Ok(SECRET.to_owned())
        }
    }

    async fn refused_client(
        &self,
        cluster: &ClusterName,
    ) -> Option<Result<Arc<dyn MembershipTable>, TableError>> {
        let url = format!("toy://:{SECRET}-and-wrong@{}", self.server.address());
        Some(membership_toy::open(url, cluster.clone()).await)
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let proxy = Proxy::to(self.server.address())?;
        let config = ToyConfig::from_url(&self.server.url_at(proxy.address()))?
            .timeout(Duration::from_secs(1));
        Ok(Proxied {
            table: membership_toy::connect(&config, cluster.clone()).await?,
            proxy,
        })
    }

    /// What the README promises; the suite counts.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::NONE
            .read(1)
            .read_row(1)
            .commit(1)
            .update_i_am_alive(1)
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(CHILD, self.server.url());
        Ok(command)
    }
}
