//! How messages travel between silos.
//!
//! A [`Transport`] carries bytes from one endpoint to another. It does not know what they mean: the
//! library encodes each message before it calls [`Transport::send`], and decodes what the transport
//! gives to [`Inbox::deliver`]. A transport never answers a message, never judges a peer and never
//! retries: the protocol does all that.
//!
//! Probes should measure what the application's own traffic would meet. An application that already
//! has connections between its servers should therefore carry these bytes over them, with a
//! `Transport` of its own; [`TcpTransport`] is for all others. It encrypts, and proves to each side who the
//! other is; a transport of the application says whom it has [proven](PeerIdentity), or that it
//! proves nothing.
//!
//! ```text
//! protocol   Header + Message                          of one `Wire`
//! library    Encoder                 MessageInbox      the encoding, once
//! transport  send(to, bytes)   ->    deliver(bytes)    your connections, or TcpTransport
//! ```
//!
//! The bytes of a message are whole: no connection and no other message is needed to understand them.
//! [`TcpTransport`] sends fewer, because the handshake has told both ends most of each header, and
//! delivers whole ones.
//!
//! A layer between the two, for example one that encrypts, is a `Transport` that wraps another: it
//! changes the bytes in `send`, and gives the inner transport an `Inbox` that changes them back, and
//! passes on both kinds of reports.
//!
//! A process that dies leaves traces that a transport may report: its system refuses new connections
//! ([`SendFailure::refused`]) and ends the open ones ([`Inbox::disconnected`]). With them a crash is
//! detected sooner; without them it is still detected, by probes without answers. Neither appears
//! when a machine loses its power or its network, or when a process hangs or is stopped (SIGSTOP):
//! its system keeps its connections, and accepts new ones for it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::protocol::{Destination, LinkId};
use membership_core::{ClusterView, InstanceId, SiloAddress};

mod ask;
mod codec;
mod encoded;
mod error;
mod header;
mod hello;
mod inbox;
mod messages;
mod security;
mod stats;
mod tcp;
mod tls;
mod wire;

pub use ask::ask_reach;
pub use codec::{DecodeError, EncodeError, decode, encode};
pub use encoded::{EncodedMessage, Lane};
pub use error::TransportError;
pub use hello::Hello;
pub use inbox::{DeliverError, Inbox, SendFailure};
pub use membership_core::protocol::PeerIdentity;
pub use messages::{
    Encoder, Inbound, MessageInbox, Messages, WireEncoder, WireInbound, WireInbox, WireMessages,
};
pub use security::Security;
pub use stats::TransportStats;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use tcp::fuzzing;
pub use tcp::{TcpConfig, TcpTransport};
pub use tls::{
    Certificates, CertificatesError, Secret, SecretError, SiloKey, Validity, certificate_at,
    client_config, instance_at,
};
#[cfg(feature = "http")]
pub(crate) use tls::{files, provider};
pub use wire::{Kind, TableWire, Wire};

/// Carries bytes between silos. One silo uses one transport for its whole life.
///
/// What an implementation must keep:
///
/// * **At most once, no order, no promise.** Messages may be lost and may overtake each other, but
///   are never delivered twice.
/// * **`send` never waits.** What does not fit into a bounded queue is dropped.
/// * **Memory is bounded** per peer, whatever the peer does: also when it stops reading for ever.
/// * **No opinion on who is alive.** The next send repairs a broken connection; only the protocol
///   decides that a peer is gone.
/// * **Answers come from the protocol**, never from the transport: otherwise a silo with a dead
///   executor would look healthy.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Where other silos can dial this one, as far as the transport knows: the address that was
    /// bound, the port never 0. A silo advertises it unless it is given another address; it must be
    /// given one if this ip address is unspecified (`0.0.0.0`).
    fn local_endpoint(&self) -> SocketAddr;

    /// Begins to deliver: accepts connections and gives what arrives to `inbox`. Called once,
    /// before the first `send`.
    ///
    /// # Errors
    /// [`TransportError`]; nothing was started then.
    async fn start(&self, hello: Hello, inbox: Arc<dyn Inbox>) -> Result<(), TransportError>;

    /// Sends one message, or drops it. Returns at once. A failure that is noticed may be reported
    /// with [`Inbox::send_failed`]; a crash is detected sooner if a [refusal](SendFailure::refused)
    /// is, and if the end of a connection is reported with [`Inbox::disconnected`]. Drops everything
    /// before `start` and after `shutdown`.
    fn send(&self, to: Destination, message: EncodedMessage);

    /// The instance id that this transport proves to its peers, for example by a key pair: the
    /// silo takes it for its own. None: it proves nothing, and the silo takes a random one. A
    /// transport that gives one also tells [`Inbox::deliver`] which instance its peer has proven.
    fn instance(&self) -> Option<InstanceId>;

    /// What later handshakes may rely on: this silo's address, once its epoch is decided, and the
    /// newest view that it has from the table. The view names every member's instance, and its
    /// version row has the [keys](membership_core::ClusterKeys) by which newcomers prove that they
    /// have read the table. Connections of processes that would not be admitted now are closed, and
    /// processes that are not alive in it may say little. A transport that proves nothing has
    /// nothing to do.
    fn update(&self, silo: Option<SiloAddress>, view: &ClusterView);

    /// What later handshakes of a member without a table may rely on: its address, and the processes
    /// that are members now with their addresses. Nothing depends on it but how many handshakes
    /// their addresses may begin, and warnings. By default nothing is done.
    fn update_members(&self, me: SiloAddress, members: &[(SiloAddress, InstanceId)]) {
        let _ = (me, members);
    }

    /// Stops accepting and delivering, gives queued messages a short moment (at most a second) to
    /// leave, and closes every connection. May be called twice. If the future is dropped,
    /// everything is closed when the transport is dropped.
    async fn shutdown(&self);

    /// From which address the other side dialled a connection, for people; none: it is not known, or
    /// this side dialled.
    fn dialled_from(&self, _: LinkId) -> Option<IpAddr> {
        None
    }

    /// Counters since the start; zeroes for a transport that does not count.
    fn stats(&self) -> TransportStats {
        TransportStats::default()
    }
}
