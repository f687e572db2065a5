//! A table behind a network: a small server over the in-memory table, and a client that breaks one
//! clause on purpose.
//!
//! Client and server exchange lines with a number. The request and the answer of that number are in
//! memory that both share.

mod client;
mod flaw;
mod server;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::proxy::Proxy;
use conformance_tests::{Backend, Capability, Checkpoint, Proxied, Reason, RoundTrips, Stop};
use membership_core::{ClusterName, MembershipTable, TableError};
use tokio::sync::Semaphore;

use client::{Client, LONG_TIMEOUT, SHORT_TIMEOUT};

pub use flaw::Flaw;
use server::Server;

/// The backend.
pub struct Networked {
    flaw: Flaw,
    server: Arc<Server>,
}

impl Networked {
    pub fn new(flaw: Flaw) -> Self {
        Self {
            flaw,
            server: Server::start(),
        }
    }

    fn connect(
        &self,
        cluster: &ClusterName,
        address: SocketAddr,
        flaw: Flaw,
        timeout: Duration,
    ) -> Arc<dyn MembershipTable> {
        Arc::new(Client {
            flaw,
            timeout,
            server: self.server.clone(),
            address,
            cluster: cluster.clone(),
            connection: Arc::default(),
            permits: Semaphore::new(8),
            broken: false.into(),
            listening: Mutex::default(),
        })
    }
}

#[async_trait]
impl Backend for Networked {
    fn name(&self) -> String {
        format!("{:?}", self.flaw)
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        let hints = matches!(
            self.flaw,
            Flaw::HintsLate | Flaw::HintsEnd | Flaw::HintsStop
        );
        Ok(self.connect(
            cluster,
            self.server.address,
            if hints { self.flaw } else { Flaw::None },
            LONG_TIMEOUT,
        ))
    }

    async fn proxied(&self, cluster: &ClusterName) -> Result<Proxied, Stop> {
        let proxy = Proxy::to(self.server.address)?;
        let address = if self.flaw == Flaw::BypassesTheProxy {
            self.server.address
        } else {
            proxy.address()
        };
        Ok(Proxied {
            table: self.connect(cluster, address, self.flaw, SHORT_TIMEOUT),
            proxy,
        })
    }

    fn round_trips(&self) -> RoundTrips {
        RoundTrips::NONE
            .read(1)
            .read_row(1)
            .commit(1)
            .conflict(1)
            .commit_again(1)
            .update_i_am_alive(1)
            .initialize(2)
            .delete(2)
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[
            (Capability::Child, Reason::InMemory),
            (Capability::Depose, Reason::OneServer),
            (Capability::Recreate, Reason::InMemory),
            (Capability::Reader, Reason::InMemory),
            (Capability::Secret, Reason::NoSecret),
        ]
    }

    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        self.server.memory.put_row(cluster, key, body).await
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        self.server.memory.put_version_row(cluster, text).await
    }

    async fn drop_row(&self, cluster: &ClusterName, key: &str) -> Result<(), Stop> {
        self.server.memory.drop_row(cluster, key).await
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.server.memory.drop_version_row(cluster).await
    }

    async fn count(&self, cluster: &ClusterName) -> Result<usize, Stop> {
        self.server.memory.count(cluster).await
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.server.memory.wipe(cluster).await
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        self.server.memory.save(cluster).await
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        self.server.memory.restore(cluster, saved).await
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.server.stop().await;
        self.server.start_again();
        Ok(())
    }

    async fn set_available(&self, available: bool) -> Result<(), Stop> {
        if available {
            self.server.start_again()
        } else {
            self.server.stop().await
        }
        Ok(())
    }
}
