//! What differs between stores, and the servers on which a store runs.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{ClusterName, Guarantees, MembershipTable, TableError};

use super::backend::ServerBackend;
use crate::backend::STRONGEST;
use crate::capability::{Capability, Reason};
use crate::proxy::Proxy;
use crate::raw::RawAccess;
use crate::round_trips::RoundTrips;
use crate::stop::Stop;

/// What differs between stores: how to connect, and how to access data past the contract.
#[async_trait]
pub trait Store: Sized + Send + Sync + 'static {
    /// Access past the contract. [`DocumentAccess`](super::DocumentAccess) for a table over one
    /// document.
    type Raw: RawAccess;

    /// A new client of this cluster, independent of all others.
    ///
    /// # Errors
    /// The provider's error.
    async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError>;

    /// Opens access to this cluster past the contract.
    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Self::Raw, Stop>;

    /// Whether [`reader`](Self::reader) makes a user on one server that the tests have started. By
    /// default not.
    const MAKES_READERS: bool = false;

    /// Makes a user that may read all clusters and write none, and returns the URL of its clients,
    /// with the options of the backend. See [`Backend::reader`](crate::Backend::reader).
    async fn reader(_backend: &ServerBackend<Self>) -> Result<String, Stop> {
        Err(Stop::NotStaged(Capability::Reader))
    }

    /// The capabilities that do not apply to this store, on any servers.
    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[]
    }

    /// The guarantees that the store must have, unless the servers or the options of one backend
    /// allow less ([`ServerBackend::requires`]). By default the strongest ones.
    fn required_guarantees(&self) -> Guarantees {
        STRONGEST
    }

    /// The round trips that the provider's documentation promises.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::NONE
    }

    /// The number of pages into which the store divides an answer with so many rows of so many
    /// bytes each.
    fn pages(&self, _rows: usize, _bytes: usize) -> u64 {
        1
    }

    /// The URL options with the shortest timeouts with which the store can be used. Cases behind
    /// the proxy wait for them.
    fn short_timeouts(&self) -> &'static str {
        "operation_timeout=2s&connect_timeout=2s"
    }

    /// The URL of a client that the server refuses: with a wrong password that contains the secret.
    fn refused(&self, url: &str, secret: &str) -> String {
        url.replace(&format!(":{secret}@"), &format!(":{secret}-and-wrong@"))
    }

    /// Identifies connections of the client's own monitoring by their first bytes. See
    /// [`Proxy::set_monitoring`].
    fn monitoring(&self) -> Option<fn(first: &[u8]) -> bool> {
        None
    }

    /// Whether an external server, of which only the URL is known, can be reached through a proxy.
    /// It cannot where the URL has a name in place of the server's address.
    fn proxies_external(&self) -> bool {
        false
    }
}

/// The servers on which a store runs: one, or several that form a cluster.
#[async_trait]
pub trait Servers: Send + Sync + 'static {
    /// The URL by which clients connect, with user and password.
    fn url(&self) -> String;

    /// The addresses of the servers, as in the URL.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// Whether somebody else runs them. Then the tests must not stop them, and do not know their
    /// secret.
    fn is_external(&self) -> bool;

    /// Kills the servers as a crash does (SIGKILL), or starts them again on their data and returns
    /// when they answer.
    async fn set_running(&self, running: bool) -> Result<(), Stop>;

    /// Whether [`empty`](Self::empty) is staged. By default not.
    fn can_be_emptied(&self) -> bool {
        false
    }

    /// Kills the servers, removes their data, and starts them again with the same settings at the
    /// same addresses. See [`Backend::recreate`](crate::Backend::recreate).
    async fn empty(&self) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Recreate))
    }

    /// Kills the server that leads this cluster and starts it again. See
    /// [`Backend::kill_leader`](crate::Backend::kill_leader). By default kills and starts all
    /// servers.
    async fn kill_leader(&self, _cluster: &ClusterName) -> Result<(), Stop> {
        self.set_running(false).await?;
        self.set_running(true).await
    }

    /// Whether another server takes over, within seconds, from a leader that does not answer. Then
    /// the next four are staged. By default not.
    fn have_successors(&self) -> bool {
        false
    }

    /// The address of the server that leads this cluster.
    async fn leader(&self, _cluster: &ClusterName) -> Result<SocketAddr, Stop> {
        Err(Stop::NotStaged(Capability::Depose))
    }

    /// Freezes the leader until another one leads. See [`Backend::depose`](crate::Backend::depose).
    async fn depose(&self, _cluster: &ClusterName) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Depose))
    }

    /// Continues the frozen server. See [`Backend::thaw`](crate::Backend::thaw).
    async fn thaw(&self) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Depose))
    }

    /// Returns when the server that was frozen takes part again. See
    /// [`Backend::rejoined`](crate::Backend::rejoined).
    async fn rejoined(&self) -> Result<(), Stop> {
        Err(Stop::NotStaged(Capability::Depose))
    }

    /// The proxy whose addresses the servers announce to clients. None if clients know only the
    /// addresses of their URL; then every client gets its own proxy.
    fn advertised_proxy(&self) -> Option<Proxy> {
        None
    }
}
