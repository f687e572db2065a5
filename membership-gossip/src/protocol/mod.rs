//! The behaviour of one member as a state machine without input or output.

mod codec;
mod message;

pub use codec::{DecodeError, EncodeError, MAX_BYTES, MAX_INFLATED, decode, encode};
pub use message::{Ballot, Header, Message, PROTOCOL_VERSION, Refusal, Settings};
