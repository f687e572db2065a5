//! How messages travel between silos.
//!
//! A [`Transport`] carries messages; it never answers one, never judges a peer, and never retries: the protocol does all that. Probes
//! measure what the application's own traffic would meet, so an application that already has connections between its servers should carry
//! these messages over them, by a `Transport` of its own: [`encode`] and [`decode`] turn a message into bytes and back.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::protocol::{Destination, Header, LinkId, Message};
use membership_core::{ClusterName, InstanceId, SiloAddress, TableId};
use tokio::sync::mpsc;

mod codec;
mod stats;
mod tcp;

pub use codec::{DecodeError, EncodeCache, EncodeError, decode, encode, encode_header};
pub use stats::TransportStats;
pub use tcp::{TcpConfig, TcpTransport};

/// Carries messages between silos. One silo uses one transport for its whole life.
///
/// What an implementation must keep:
///
/// * **At most once, no order, no promise.** Messages may be lost, never doubled, and may overtake each other.
/// * **`send` never waits.** What does not fit into a bounded queue is dropped.
/// * **Memory is bounded** per peer, whatever the peer does: also when it stops reading for ever.
/// * **No opinion on who is alive.** A broken connection is repaired by the next send; the protocol alone decides that a peer is gone.
/// * **Answers come from the protocol**, never from the transport: otherwise a silo with a dead executor would look healthy.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Where other silos can dial this one, as far as the transport knows: the address that was bound, the port never 0.
    /// It is what a silo advertises unless it is told otherwise; the ip address may be unspecified (`0.0.0.0`), and then it must be.
    fn local_endpoint(&self) -> SocketAddr;

    /// Begins to deliver: accepts connections and puts what arrives into `inbox`. Called once, before the first `send`.
    ///
    /// # Errors
    /// [`TransportError`]; nothing was started then.
    async fn start(&self, hello: Hello, inbox: Inbox) -> Result<(), TransportError>;

    /// Sends one message, or drops it. Returns at once. A failure that is noticed may be reported as [`Inbound::SendFailed`].
    ///
    /// The same `body` is often sent to many destinations one after the other: encode it once (an [`EncodeCache`] helps).
    /// Before `start` and after `shutdown` it drops everything.
    fn send(&self, to: Destination, header: &Header, body: &Arc<Message>);

    /// What later handshakes say of this silo. Connections that exist stay as they are: every message carries newer data anyway.
    fn update(&self, silo: SiloAddress, table_id: Option<TableId>, version: u64);

    /// Stops accepting and delivering, gives what is queued a short moment (at most a second) to leave, and closes every connection.
    /// Calling it twice is harmless. If the future is dropped, everything is closed when the transport is dropped.
    async fn shutdown(&self);

    /// Counters since the start; zeroes for a transport that does not count.
    fn stats(&self) -> TransportStats {
        TransportStats::default()
    }
}

/// Who this silo is: what it says first on each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Which cluster; connections of other clusters are refused.
    pub cluster: ClusterName,
    /// Where others dial this silo.
    pub advertise: SocketAddr,
    /// This process.
    pub instance: InstanceId,
    /// This silo, once its epoch is decided.
    pub silo: Option<SiloAddress>,
    /// The table of its view, once there is one.
    pub table_id: Option<TableId>,
    /// The version of its view.
    pub version: u64,
    /// Reserved for authentication; nothing reads it yet. At most 1 KiB.
    pub authentication: Vec<u8>,
}

/// What a transport tells the silo.
#[derive(Clone, Debug)]
pub enum Inbound {
    /// A message arrived.
    Message {
        /// The connection it came by: where [`Destination::Link`] sends an answer.
        link: LinkId,
        /// Who sends it, to whom, and what view it has.
        header: Header,
        /// What it says.
        body: Arc<Message>,
    },
    /// A message could not be delivered. Only for better reports.
    SendFailed {
        /// Where it was to go.
        to: SocketAddr,
        /// Why, for people.
        reason: String,
    },
}

/// Where a transport puts what arrives. Bounded, cheap to clone.
#[derive(Clone, Debug)]
pub struct Inbox(mpsc::Sender<Inbound>);

impl Inbox {
    /// An inbox for up to `capacity` messages (at least 1), and the end to read them from.
    #[must_use]
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<Inbound>) {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        (Self(sender), receiver)
    }

    /// Delivers a message; waits while the inbox is full, so that a connection is read no faster than the silo keeps up.
    /// False when the silo has gone: close the connection. Cancel safe: a cancelled delivery has not happened.
    pub async fn deliver(&self, link: LinkId, header: Header, body: Arc<Message>) -> bool {
        self.0
            .send(Inbound::Message { link, header, body })
            .await
            .is_ok()
    }

    /// Reports a failure; dropped when the inbox is full.
    pub fn failed(&self, to: SocketAddr, reason: impl Into<String>) {
        let _ = self.0.try_send(Inbound::SendFailed {
            to,
            reason: reason.into(),
        });
    }

    /// Whether nobody reads any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// Why a transport did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", advice(.source))]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// `start` was called before.
    #[error("this transport was started before: every silo needs a transport of its own")]
    AlreadyStarted,
    /// Anything else; for transports of applications.
    #[error("the transport did not start: {0}")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; stop the process that listens there, or choose another port (0 = any free one)"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; it is no address of this machine: listen on 0.0.0.0 and advertise it instead"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
        _ => "",
    }
}
