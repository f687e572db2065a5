//! How several servers of one kind become one cluster, as a trait.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

/// The ports of all servers of a cluster, with which one server finds the others.
#[derive(Clone, Debug)]
pub(in crate::launch) struct Peers {
    /// The ports of each server in addition to the one for clients, as many as
    /// [`Clustered::ports`].
    pub(in crate::launch) ports: Vec<Vec<u16>>,
}

impl Peers {
    /// A port of a server; 0 if there is none.
    pub(in crate::launch) fn port(&self, server: usize, which: usize) -> u16 {
        self.ports
            .get(server)
            .and_then(|ports| ports.get(which))
            .copied()
            .unwrap_or_default()
    }

    /// This port of every server.
    pub(in crate::launch) fn each(&self, which: usize) -> impl Iterator<Item = u16> {
        (0..self.ports.len()).map(move |server| self.port(server, which))
    }
}

/// How several servers of one kind become one cluster.
pub(in crate::launch) trait Clustered: Send + Sync {
    /// The number of ports that a server needs for the other servers.
    fn ports(&self) -> usize;

    /// The address of a server: 127.0.0.1, unless the servers have one port and differ in their
    /// addresses. Then all have the same ports.
    fn host(&self, _server: usize) -> Ipv4Addr {
        Ipv4Addr::LOCALHOST
    }

    /// The arguments of one server.
    fn arguments(&self, server: usize, peers: &Peers) -> Vec<String>;

    /// Forms a cluster of running servers, if arguments cannot do that. `names` are the addresses
    /// by which clients and servers find each server. Called again until it succeeds.
    fn unite(&self, _servers: &[SocketAddr], _names: &[SocketAddr]) -> io::Result<()> {
        Ok(())
    }

    /// Creates the user with this password, once a server leads.
    fn secure(&self, _leader: SocketAddr, _password: &str) -> io::Result<()> {
        Ok(())
    }

    /// Whether one server leads. Otherwise all serve alike.
    fn has_leader(&self) -> bool {
        true
    }

    /// Whether this server reports itself as the leader; without leaders, whether it serves.
    fn leads(&self, server: usize, address: SocketAddr, peers: &Peers) -> io::Result<bool>;

    /// Whether an answering server takes part in the cluster.
    fn takes_part(&self, _address: SocketAddr) -> io::Result<bool> {
        Ok(true)
    }

    /// The URL of all servers: the URL of one, with all addresses in place of its own.
    fn url(&self, url: String) -> String {
        url
    }
}
