//! The messages of members without a table, as transports carry them.

use membership_gossip::protocol::{
    Header, MAX_INFLATED, Message, decode, encode_body, encode_header,
};

use crate::transport::{DecodeError, EncodeError, Kind, Lane, Wire};

/// The messages of members without a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GossipWire {}

/// The most bytes that one deflated byte becomes.
const INFLATED: usize = 1032;
/// A state takes up to about this many times its inflated bytes in memory.
const IN_MEMORY: usize = 4;

impl Wire for GossipWire {
    type Header = Header;
    type Message = Message;

    const KIND: Kind = Kind::Gossip;

    fn encode_header(header: &Header) -> Result<Vec<u8>, EncodeError> {
        encode_header(header).map_err(|error| EncodeError::other(&error))
    }

    fn encode_body(body: &Message) -> Result<Vec<u8>, EncodeError> {
        encode_body(body).map_err(|error| EncodeError::other(&error))
    }

    fn decode(bytes: &[u8]) -> Result<(Header, Message), DecodeError> {
        decode(bytes).map_err(|error| DecodeError::Damaged(error.to_string()))
    }

    /// What has a state in it is bulk; so is the answer to a tool.
    fn lane(body: &Message) -> Lane {
        match body {
            Message::Welcome(_)
            | Message::State(_)
            | Message::Delta { .. }
            | Message::Ask { .. }
            | Message::Seen { .. }
            | Message::Inspect { .. }
            | Message::Inspected { .. }
            | Message::Waiting { .. } => Lane::Bulk,
            _ => Lane::Probe,
        }
    }

    fn in_memory(bytes: usize) -> usize {
        let inflated = bytes.saturating_mul(INFLATED).min(MAX_INFLATED.max(bytes));
        inflated.saturating_mul(IN_MEMORY)
    }
}
