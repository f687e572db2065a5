//! What is special about a store, and the servers that it runs on.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{ClusterName, MembershipTable, TableError};

use super::backend::ServerBackend;
use crate::capability::{Capability, Reason};
use crate::proxy::Proxy;
use crate::raw::RawAccess;
use crate::round_trips::RoundTrips;
use crate::stop::Stop;

/// What is special about a store: how to connect to it, and how to reach past the contract.
#[async_trait]
pub trait Store: Sized + Send + Sync + 'static {
    /// Access past the contract. For a table over one document, [`DocumentAccess`](super::DocumentAccess).
    type Raw: RawAccess;

    /// A new client of this cluster, independent of all others.
    ///
    /// # Errors
    /// The provider's.
    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError>;

    /// Access to this cluster past the contract.
    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Self::Raw, Stop>;

    /// What cannot apply to this store, whatever its servers.
    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[]
    }

    /// The round trips that the provider's documentation promises.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::NONE
    }

    /// Into how many pages the store divides an answer with so many rows of so many bytes each.
    fn pages(&self, _rows: usize, _bytes: usize) -> u64 {
        1
    }

    /// The options of a URL that give the shortest timeouts with which the store can be used: cases behind the proxy wait for them.
    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=2s&connect_timeout=2s"
    }

    /// The URL of a client that is refused: with a password that is wrong and contains the secret.
    fn refused(&self, url: &str, secret: &str) -> String {
        url.replace(&format!(":{secret}@"), &format!(":{secret}-and-wrong@"))
    }

    /// Recognises connections of the client's own monitoring by their first bytes. See [`Proxy::set_monitoring`].
    fn monitoring(&self) -> Option<fn(first: &[u8]) -> bool> {
        None
    }

    /// Whether an external server, of which only the URL is known, can be reached through a proxy.
    fn proxies_external(&self) -> bool {
        false
    }
}

/// The servers that a store runs on: one, or several that are one cluster.
#[async_trait]
pub trait Servers: Send + Sync + 'static {
    /// The URL by which clients connect, with user and password.
    fn url(&self) -> String;

    /// Where the servers listen, as the URL names them.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// Whether somebody else runs them: nobody here may stop them, and their secret is not known.
    fn is_external(&self) -> bool;

    /// Kills the servers as a crash would (SIGKILL), or starts them again on their data and returns when they answer.
    async fn set_running(&self, running: bool) -> Result<(), Stop>;

    /// Kills the server that leads this cluster and starts it again. See [`Backend::kill_leader`](crate::Backend::kill_leader). By default
    /// all servers are killed and started again.
    async fn kill_leader(&self, _cluster: &ClusterName) -> Result<(), Stop> {
        self.set_running(false).await?;
        self.set_running(true).await
    }

    /// The proxy whose addresses the servers tell clients. None where clients know no addresses but those of their URL; then every client
    /// gets a proxy of its own.
    fn advertised_proxy(&self) -> Option<Proxy> {
        None
    }
}
