//! Asks a living member what it sees, and to change something, for whoever is no member.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Destination, PeerIdentity};
use membership_core::{ClusterName, InstanceId, SiloAddress};
use membership_gossip::GossipView;
use membership_gossip::protocol::{Header, MAX_BYTES, Message, Waiting};
use membership_gossip::state::MemberStatus;
use tokio::time::{Instant, timeout_at};

use super::wire::GossipWire;
use crate::runtime::clock::Clock;
use crate::runtime::listen::random;
use crate::transport::{
    Hello, Security, TcpConfig, TcpTransport, Transport, TransportError, WireEncoder, WireInbound,
    WireInbox, WireMessages,
};

crate::debug_as_display!(InspectError);

/// Answers that may wait to be read.
const INBOX: usize = 16;
/// A question is asked again after this time: a message may be lost.
const AGAIN: Duration = Duration::from_secs(1);

/// Why a member gave no answer.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// This process cannot dial.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The member cannot be reached, or refuses this process.
    #[error("{reason}")]
    NotReached {
        /// Why, for people.
        reason: String,
    },
    /// It was reached, and did not answer in time.
    #[error("{at} did not answer within {waited:?}")]
    Silent {
        /// Who was asked.
        at: SocketAddr,
        /// How long this process waited.
        waited: Duration,
    },
    /// The process there is in no cluster.
    #[error("the process at {at} is in no cluster: {}", no_cluster(.waiting.as_deref()))]
    NoCluster {
        /// Who was asked.
        at: SocketAddr,
        /// What it waits for, if it joins; none: it has left, or has not begun to join.
        waiting: Option<Box<Waiting>>,
    },
    /// There is no such member.
    #[error("{member} is no member, as far as {at} knows")]
    NotMember {
        /// Who was asked.
        at: SocketAddr,
        /// Whom the question was about.
        member: SiloAddress,
    },
}

/// Asks members of a cluster without a store. It is no member, and needs what members need: the
/// secret, certificates, or the same lack of both. Whoever has that may down members.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use membership::gossip::Inspector;
/// use membership::transport::Security;
/// use std::time::Duration;
///
/// let limit = Duration::from_secs(5);
/// let mut inspector = Inspector::new("blue".parse()?, Security::none()).await?;
/// let view = inspector.view("127.0.0.1:7100".parse()?, limit).await?;
/// println!("{} members, agreed on: {}", view.members().count(), view.converged());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Inspector {
    transport: TcpTransport,
    encoder: WireEncoder<GossipWire>,
    inbound: WireMessages<GossipWire>,
    header: Header,
    nonce: u32,
}

impl Inspector {
    /// Makes ready to dial members of a cluster. Needs a tokio runtime with time and input/output.
    ///
    /// # Errors
    /// [`TransportError`].
    pub async fn new(cluster: ClusterName, security: Security) -> Result<Self, TransportError> {
        let config = TcpConfig {
            security,
            max_message_bytes: MAX_BYTES,
            ..TcpConfig::default()
        };
        // Nobody dials this process: it only has to be somewhere.
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let transport = TcpTransport::bind_with(nowhere, config).await?;
        let random = || random().map_err(|e| TransportError::Other(e.into()));
        let instance = match transport.instance() {
            Some(instance) => instance,
            None => InstanceId::new(u128::from_ne_bytes(random()?)),
        };
        let (inbox, inbound) = WireInbox::channel(INBOX);
        let hello = Hello::new(cluster.clone(), transport.local_endpoint(), instance);
        transport.start(hello.without_table(), inbox).await?;
        let epoch = Clock::new().now().wall.as_millis();
        let me = SiloAddress::at(transport.local_endpoint(), epoch);
        let nonce = (instance.get() >> 96) as u32;
        Ok(Self {
            transport,
            encoder: WireEncoder::default(),
            inbound,
            header: Header::new(cluster.fingerprint(), me, instance),
            nonce,
        })
    }

    /// The view of the member at an address.
    ///
    /// # Errors
    /// [`InspectError`]. Cancel safe.
    pub async fn view(
        &mut self,
        at: SocketAddr,
        limit: Duration,
    ) -> Result<GossipView, InspectError> {
        let at = SocketAddr::new(at.ip().to_canonical(), at.port());
        let end = Instant::now() + limit;
        self.nonce = self.nonce.wrapping_add(1);
        let nonce = self.nonce;
        let question = Arc::new(Message::Inspect { nonce });
        self.header.founding = None;
        while Instant::now() < end {
            self.send(at, &question);
            let again = end.min(Instant::now() + AGAIN);
            while let Ok(Some(inbound)) = timeout_at(again, self.inbound.recv()).await {
                match inbound {
                    WireInbound::Message {
                        peer, header, body, ..
                    } => {
                        if let Some(view) = answer(nonce, peer, &header, &body) {
                            return view.map_err(|waiting| InspectError::NoCluster { at, waiting });
                        }
                    }
                    WireInbound::SendFailed { to, reason, .. } if to == at => {
                        return Err(InspectError::NotReached { reason });
                    }
                    _ => {}
                }
            }
        }
        Err(InspectError::Silent { at, waited: limit })
    }

    /// Asks the member at an address to down another one, or itself, and waits until it has. See
    /// [`Member::down`](super::Member::down).
    ///
    /// # Errors
    /// [`InspectError`]; with [`InspectError::Silent`] it may be downed nevertheless.
    pub async fn down(
        &mut self,
        at: SocketAddr,
        member: SiloAddress,
        limit: Duration,
    ) -> Result<(), InspectError> {
        self.change(at, member, &Message::Down { member }, limit, |status| {
            status >= MemberStatus::Down
        })
        .await
    }

    /// Asks the member at an address that another one leaves, or itself, and waits until the others
    /// are told so. It leaves as if its application had asked.
    ///
    /// # Errors
    /// [`InspectError`]; with [`InspectError::Silent`] it may leave nevertheless.
    pub async fn leave(
        &mut self,
        at: SocketAddr,
        member: SiloAddress,
        limit: Duration,
    ) -> Result<(), InspectError> {
        self.change(at, member, &Message::Leave { member }, limit, |status| {
            status >= MemberStatus::Leaving
        })
        .await
    }

    async fn change(
        &mut self,
        at: SocketAddr,
        member: SiloAddress,
        request: &Message,
        limit: Duration,
        is_done: impl Fn(MemberStatus) -> bool,
    ) -> Result<(), InspectError> {
        let end = Instant::now() + limit;
        let mut asked = false;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let view = match self.view(at, left).await {
                // It has ended, as it was asked to.
                Err(InspectError::NoCluster { .. } | InspectError::NotReached { .. })
                    if asked && member.endpoint() == at =>
                {
                    return Ok(());
                }
                Err(InspectError::Silent { at, .. }) => {
                    return Err(InspectError::Silent { at, waited: limit });
                }
                view => view?,
            };
            match view.status(&member) {
                Some(status) if is_done(status) => return Ok(()),
                // Its tombstone may have been dropped.
                None if asked => return Ok(()),
                None => return Err(InspectError::NotMember { at, member }),
                Some(_) => {}
            }
            self.header.founding = view.founding();
            self.send(at, &Arc::new(request.clone()));
            asked = true;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn send(&self, at: SocketAddr, body: &Arc<Message>) {
        if let Ok(message) = self.encoder.encode(&self.header, body) {
            self.transport.send(Destination::Endpoint(at), message);
        }
    }

    /// Closes its connections. Dropping it does the same.
    pub async fn close(self) {
        self.transport.shutdown().await;
    }
}

fn no_cluster(waiting: Option<&Waiting>) -> String {
    let seconds = |waiting: &Waiting| waiting.elapsed.as_secs();
    waiting.map_or_else(
        || "it has left, or has not begun to join".to_owned(),
        |waiting| format!("it has been joining for {} s; {waiting}", seconds(waiting)),
    )
}

/// The answer to this question, if it is one; the error within: the process is in no cluster, and
/// maybe says for what it waits.
fn answer(
    asked: u32,
    peer: PeerIdentity,
    header: &Header,
    body: &Message,
) -> Option<Result<GossipView, Option<Box<Waiting>>>> {
    let proven = match peer {
        PeerIdentity::Proven(instance) => instance == header.instance,
        PeerIdentity::Unproven => true,
    };
    if let Message::Waiting { nonce, waiting } = body {
        let is_answer = proven && *nonce == asked;
        return is_answer.then(|| Err(Some(Box::new(waiting.clone()))));
    }
    let Message::Inspected {
        nonce,
        leaving_observers_count,
        gossip,
    } = body
    else {
        return None;
    };
    if !proven || *nonce != asked {
        return None;
    }
    let me = header.from;
    let Some(member) = gossip.state().member(&me) else {
        return Some(Err(None));
    };
    let view = GossipView::told(
        header.founding,
        (**gossip).clone(),
        me,
        member.data_centre(),
        *leaving_observers_count,
    );
    Some(Ok(view))
}
