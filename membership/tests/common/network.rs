//! A network in memory: every message arrives at once, in virtual time. Also the smallest transport
//! that an application could write.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use membership::protocol::{Destination, LinkId};
use membership::transport::{
    EncodedMessage, Hello, Inbox, PeerIdentity, Transport, TransportError,
};
use membership::{ClusterView, InstanceId, SiloAddress};

/// Shared by the transports of a test.
#[derive(Clone, Debug, Default)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    inboxes: HashMap<SocketAddr, Arc<dyn Inbox>>,
    /// Both ends of each connection.
    links: HashMap<LinkId, (SocketAddr, SocketAddr)>,
    cut: HashSet<SocketAddr>,
}

impl Network {
    /// A transport at `127.0.0.1:port`.
    pub fn transport(&self, port: u16) -> Arc<dyn Transport> {
        Arc::new(MemoryTransport {
            at: SocketAddr::from(([127, 0, 0, 1], port)),
            network: self.clone(),
        })
    }

    /// From now on nothing is delivered to this endpoint or from it.
    pub fn cut(&self, endpoint: SocketAddr) {
        self.0.lock().unwrap().cut.insert(endpoint);
    }
}

#[derive(Debug)]
struct MemoryTransport {
    at: SocketAddr,
    network: Network,
}

#[async_trait]
impl Transport for MemoryTransport {
    fn local_endpoint(&self) -> SocketAddr {
        self.at
    }

    async fn start(&self, _: Hello, inbox: Arc<dyn Inbox>) -> Result<(), TransportError> {
        let mut network = self.network.0.lock().unwrap();
        network.inboxes.insert(self.at, inbox);
        Ok(())
    }

    fn send(&self, to: Destination, message: EncodedMessage) {
        let mut network = self.network.0.lock().unwrap();
        let (link, to) = match to {
            Destination::Link(link) => match network.links.get(&link) {
                Some((a, b)) => (link, if *a == self.at { *b } else { *a }),
                None => return,
            },
            Destination::Endpoint(to) | Destination::Fresh(to) => {
                let link = LinkId(network.links.len() as u64);
                network.links.insert(link, (self.at, to));
                (link, to)
            }
            other => unreachable!("{other:?}"),
        };
        if network.cut.contains(&self.at) || network.cut.contains(&to) {
            return;
        }
        if let Some(inbox) = network.inboxes.get(&to).cloned() {
            tokio::spawn(async move {
                inbox
                    .deliver(link, PeerIdentity::Unproven, message.to_bytes())
                    .await
            });
        }
    }

    fn instance(&self) -> Option<InstanceId> {
        None
    }

    fn update(&self, _: Option<SiloAddress>, _: &ClusterView) {}

    async fn shutdown(&self) {
        let mut network = self.network.0.lock().unwrap();
        network.inboxes.remove(&self.at);
    }
}
