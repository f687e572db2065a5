//! Asks silos which others they do not reach, for whoever is no silo: it has read the table, and
//! proves that as a newcomer does. The question changes nothing in a silo.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Destination, Header, Message, NotReached, PeerIdentity};
use membership_core::{ClusterName, ClusterView, InstanceId, SiloAddress};
use tokio::time::{Instant, timeout_at};

use super::{
    Encoder, Hello, Inbound, MessageInbox, Messages, Security, TcpConfig, TcpTransport, Transport,
    TransportError,
};

/// Answers that may wait to be read.
const INBOX: usize = 256;
/// So many silos are asked at once.
const AT_ONCE: usize = 64;
/// A silo is asked once more after half of the time.
const TRIES: u32 = 2;

/// Asks silos of a [`TcpTransport`] which other silos they do not reach, though others do: a partial
/// partition, as far as their roll calls show it. Gives the answers of those that answered within
/// `limit`; 64 are asked at a time. `view` is the table as it was just read, and `security` what the
/// silos have: without their secret or a certificate of their authority they do not answer, and say
/// in their logs who was refused.
///
/// An answer is what that silo says, for people. It has at most 4,096 entries, and may name silos
/// that do not exist.
///
/// # Errors
/// [`TransportError`] if this process cannot dial. Cancel safe.
pub async fn ask_reach(
    cluster: &ClusterName,
    view: &ClusterView,
    silos: &BTreeSet<SiloAddress>,
    security: Security,
    limit: Duration,
) -> Result<BTreeMap<SiloAddress, Vec<NotReached>>, TransportError> {
    let mut config = TcpConfig::default();
    config.security = security;
    config.connect_timeout = config.connect_timeout.min(limit);
    // Nobody dials this process: it only has to be somewhere.
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let transport = TcpTransport::bind_with(nowhere, config).await?;
    let instance = match transport.instance() {
        Some(instance) => instance,
        None => InstanceId::new(u128::from_ne_bytes(random()?)),
    };
    let (inbox, mut inbound) = MessageInbox::channel(INBOX);
    let hello = Hello::new(cluster.clone(), transport.local_endpoint(), instance);
    transport.start(hello, inbox).await?;
    transport.update(None, view);
    let from = SiloAddress::at(transport.local_endpoint(), 0);
    let asking = Asking {
        transport: &transport,
        encoder: Encoder::default(),
        header: Header::new(cluster.fingerprint(), from, instance),
        nonce: u64::from_ne_bytes(random()?),
        view,
    };
    let mut found = BTreeMap::new();
    let silos: Vec<SiloAddress> = silos.iter().copied().collect();
    for some in silos.chunks(AT_ONCE) {
        asking.ask(some, &mut inbound, limit, &mut found).await;
    }
    transport.shutdown().await;
    Ok(found)
}

fn random<const N: usize>() -> Result<[u8; N], TransportError> {
    let mut bytes = [0; N];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|e| TransportError::Other(e.to_string().into()))?;
    Ok(bytes)
}

struct Asking<'a> {
    transport: &'a TcpTransport,
    encoder: Encoder,
    header: Header,
    nonce: u64,
    view: &'a ClusterView,
}

impl Asking<'_> {
    async fn ask(
        &self,
        silos: &[SiloAddress],
        inbound: &mut Messages,
        limit: Duration,
        found: &mut BTreeMap<SiloAddress, Vec<NotReached>>,
    ) {
        let mut waiting: BTreeSet<SiloAddress> = silos.iter().copied().collect();
        for _ in 0..TRIES {
            let until = Instant::now() + limit / TRIES;
            waiting.iter().for_each(|silo| self.send(*silo));
            while !waiting.is_empty() {
                let Ok(Some(inbound)) = timeout_at(until, inbound.recv()).await else {
                    break;
                };
                match inbound {
                    Inbound::Message {
                        peer, header, body, ..
                    } => {
                        if let Some(unreached) = self.answer(peer, &header, &body)
                            && waiting.remove(&header.from)
                        {
                            found.insert(header.from, unreached);
                        }
                    }
                    // It refused the connection, or this process.
                    Inbound::SendFailed { to, .. } => waiting.retain(|s| s.endpoint() != to),
                    Inbound::Disconnected { .. } => {}
                }
            }
        }
    }

    fn send(&self, silo: SiloAddress) {
        let mut header = self.header.clone();
        header.to = Some(silo);
        let body = Arc::new(Message::AskReach { nonce: self.nonce });
        if let Ok(message) = self.encoder.encode(&header, &body) {
            let to = Destination::Endpoint(silo.endpoint());
            self.transport.send(to, message);
        }
    }

    /// What a silo answered, if it is the process that its row names.
    fn answer(
        &self,
        peer: PeerIdentity,
        header: &Header,
        body: &Message,
    ) -> Option<Vec<NotReached>> {
        let row = self.view.get(&header.from)?;
        let proven = match peer {
            PeerIdentity::Proven(instance) => instance == row.instance_id,
            PeerIdentity::Unproven => header.instance == row.instance_id,
        };
        match body {
            Message::Reach { nonce, unreached } if proven && *nonce == self.nonce => {
                Some(unreached.clone())
            }
            _ => None,
        }
    }
}
