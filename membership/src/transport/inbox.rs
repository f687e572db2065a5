//! Where a transport puts what arrives.

use std::fmt;
use std::net::SocketAddr;

use async_trait::async_trait;
use bytes::Bytes;
use membership_core::protocol::{LinkId, PeerIdentity};

use super::DecodeError;

/// Takes the bytes that arrive. The library implements it ([`MessageInbox`](super::MessageInbox));
/// a transport calls it.
#[async_trait]
pub trait Inbox: Send + Sync + fmt::Debug {
    /// Takes one message, exactly as it was sent. `peer` is who has been proven to be at the other
    /// end of its connection. `link` is the connection it came by: an answer
    /// goes to [`Destination::Link`](membership_core::protocol::Destination::Link) of it, and must
    /// travel back on the same connection.
    ///
    /// Waits while the silo is busy, so that a connection is read no faster than the silo keeps up.
    /// Cancel safe: a cancelled delivery has not happened.
    ///
    /// # Errors
    /// [`DeliverError`]: close the connection.
    async fn deliver(
        &self,
        link: LinkId,
        peer: PeerIdentity,
        message: Bytes,
    ) -> Result<(), DeliverError>;

    /// Reports that what was sent to `to` could not be delivered; one report may stand for several
    /// messages. Optional. Returns at once.
    fn send_failed(&self, to: SocketAddr, failure: SendFailure);

    /// Reports that a connection with the silo that is dialled at `peer` has ended, and that neither
    /// this process nor, as far as the transport knows, that silo wanted it: an end of the stream, a
    /// reset, an error of the network. At most once for each connection, and only where the
    /// transport knows the address: because it dialled it, or because the peer has proven it. The
    /// silo is probed at once. Optional. Returns at once.
    ///
    /// Report it when the next message to `peer` no longer takes that connection. A connection that
    /// either side closes on purpose, because it is idle for example, is not reported by either: a
    /// probe would only open it again.
    fn disconnected(&self, peer: SocketAddr);
}

/// Why a message could not be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendFailure {
    /// The machine at that address said that no process listens there: the protocol takes the silo
    /// for unreachable without waiting for a timeout.
    pub refused: bool,
    /// Why, for people.
    pub reason: String,
}

impl SendFailure {
    /// Any failure but a refusal. It only improves reports.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            refused: false,
            reason: reason.into(),
        }
    }

    /// The machine at that address answered, and said that no process listens there, as with
    /// [`std::io::ErrorKind::ConnectionRefused`]. A silo that answers slowly, refuses a handshake or
    /// has no room for a connection is not refused in this sense, nor is one behind a proxy that
    /// refuses in its name; a message that may still arrive in another way is not either.
    #[must_use]
    pub fn refused(reason: impl Into<String>) -> Self {
        Self {
            refused: true,
            reason: reason.into(),
        }
    }
}

/// Why a message was not delivered. The connection that it came by is of no more use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// The bytes are not a message.
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    /// The silo has stopped.
    #[error("the silo has stopped")]
    Stopped,
}
