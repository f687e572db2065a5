//! What the messages of a protocol are to a transport: bytes with a header, and how urgent they are.
//!
//! Transports carry bytes, so that one serves every protocol: silos of a [table](TableWire), and
//! members without one (`GossipWire`, feature `gossip`). [`WireEncoder`](super::WireEncoder) and
//! [`WireInbox`](super::WireInbox) are between the two.

use std::fmt;

use membership_core::protocol::{Header, Message};

use super::codec::{self, DecodeError, EncodeError};
use super::{Lane, header};

/// What a process at the end of a connection takes part in. The greeting of a connection names it,
/// so that a process that dials another kind is told so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A cluster with a table: [`Silo`](crate::Silo).
    #[default]
    Table,
    /// A cluster without a store, whose members gossip.
    Gossip,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "a silo, of a cluster with a table",
            Self::Gossip => "a member of a cluster without a store, which gossips",
        })
    }
}

/// The messages of one protocol as bytes. This library alone implements it.
pub trait Wire: sealed::Sealed + fmt::Debug + Send + Sync + 'static {
    /// Sender and receiver.
    type Header: Clone + fmt::Debug + Send + Sync + 'static;
    /// What a message says.
    type Message: fmt::Debug + Send + Sync + 'static;

    /// Which protocol it is.
    const KIND: Kind;

    /// The bytes of a header.
    ///
    /// # Errors
    /// [`EncodeError`], never for headers that the protocol makes.
    fn encode_header(header: &Self::Header) -> Result<Vec<u8>, EncodeError>;

    /// The bytes that follow those of the header.
    ///
    /// # Errors
    /// [`EncodeError`] for a message that is too long to be sent.
    fn encode_body(body: &Self::Message) -> Result<Vec<u8>, EncodeError>;

    /// The message that bytes mean. Safe on bytes of any origin.
    ///
    /// # Errors
    /// [`DecodeError`]; disconnect the sender.
    fn decode(bytes: &[u8]) -> Result<(Self::Header, Self::Message), DecodeError>;

    /// How urgent a message is.
    fn lane(body: &Self::Message) -> Lane;

    /// The most memory, in bytes, that a message of so many bytes takes once it is decoded.
    fn in_memory(bytes: usize) -> usize;
}

/// The messages of silos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableWire {}

/// A message takes up to this many times its bytes in memory: one of rows of two bytes, each of
/// which is an object and a reason why it is no row. One of a silo that means well takes four times.
const IN_MEMORY: usize = 100;

impl Wire for TableWire {
    type Header = Header;
    type Message = Message;

    const KIND: Kind = Kind::Table;

    fn encode_header(header: &Header) -> Result<Vec<u8>, EncodeError> {
        header::put(header, None)
    }

    fn encode_body(body: &Message) -> Result<Vec<u8>, EncodeError> {
        codec::encode_body(body)
    }

    fn decode(bytes: &[u8]) -> Result<(Header, Message), DecodeError> {
        codec::decode(bytes)
    }

    fn lane(body: &Message) -> Lane {
        match body {
            Message::Delta(_) | Message::AskDelta { .. } | Message::Farewell { .. } => Lane::Bulk,
            _ => Lane::Probe,
        }
    }

    fn in_memory(bytes: usize) -> usize {
        bytes.saturating_mul(IN_MEMORY)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::TableWire {}
    #[cfg(feature = "gossip")]
    impl Sealed for crate::gossip::GossipWire {}
}
