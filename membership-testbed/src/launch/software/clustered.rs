//! How several servers of one kind become one cluster, as a trait.

use std::io;
use std::net::SocketAddr;

/// What one server of a cluster needs to find the others. All of them are on 127.0.0.1.
#[derive(Clone, Debug)]
pub(in crate::launch) struct Peers {
    /// The ports of each server besides the clients' one, as many as [`Clustered::ports`] says.
    pub(in crate::launch) ports: Vec<Vec<u16>>,
}

impl Peers {
    /// A port of a server; 0 where there is none.
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
    /// How many ports a server needs for the other servers.
    fn ports(&self) -> usize;

    /// The arguments of one of the servers.
    fn arguments(&self, server: usize, peers: &Peers) -> Vec<String>;

    /// Makes a cluster of servers that run, where arguments do not. `names` are the addresses by
    /// which clients and servers find each server. Called again until it succeeds.
    fn unite(&self, _servers: &[SocketAddr], _names: &[SocketAddr]) -> io::Result<()> {
        Ok(())
    }

    /// Makes the user with this password, once a server leads.
    fn secure(&self, _leader: SocketAddr, _password: &str) -> io::Result<()> {
        Ok(())
    }

    /// Whether this server says that it leads.
    fn leads(&self, server: usize, address: SocketAddr, peers: &Peers) -> io::Result<bool>;

    /// Whether a server that answers takes part in the cluster.
    fn takes_part(&self, _address: SocketAddr) -> io::Result<bool> {
        Ok(true)
    }

    /// The URL of all servers, made of that of one which has all addresses in the place of its own.
    fn url(&self, url: String) -> String {
        url
    }
}
