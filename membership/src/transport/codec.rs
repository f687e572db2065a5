//! Messages as bytes: the [header](super::header), the first bits of which name the encoding, then
//! the body.
//!
//! Here every header is whole, so that a message needs nothing else to be understood. The TCP
//! transport leaves out what the handshake of a connection has fixed, and adds it again.
//!
//! The parts of the header and the body are in postcard's wire format; rows in it are the stored
//! text itself. The files in `tests/corpus` freeze this encoding.

use membership_core::protocol::{Header, Message};

use super::header;

/// A message cannot be encoded. This does not happen with messages that the protocol makes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message cannot be encoded: {0}")]
pub struct EncodeError(String);

impl EncodeError {
    pub(super) fn new(error: postcard::Error) -> Self {
        Self::other(&error)
    }

    pub(crate) fn other(error: &dyn std::error::Error) -> Self {
        Self(error.to_string())
    }
}

/// Bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Another encoding than this build knows.
    #[error("encoding {0} is not known to this build")]
    Encoding(u8),
    /// Damaged, or not from this library.
    #[error("damaged message: {0}")]
    Damaged(String),
    /// Its header leaves out what a handshake fixed, and this is not the connection of one.
    #[error("the header of the message is incomplete without its connection")]
    Incomplete,
    /// A message, and more bytes after it.
    #[error("{0} bytes too many after the message")]
    Trailing(usize),
}

impl DecodeError {
    pub(super) fn damaged(error: postcard::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// The bytes of a message: of any length, a whole snapshot of 10,000 rows is several MiB.
///
/// # Errors
/// [`EncodeError`], never for messages that the protocol makes.
pub fn encode(header: &Header, body: &Message) -> Result<Vec<u8>, EncodeError> {
    postcard::to_extend(body, header::put(header, None)?).map_err(EncodeError::new)
}

/// The message that bytes mean.
///
/// Safe on bytes of any origin. A row takes more room in memory than on the wire: bound the bytes
/// first.
///
/// # Errors
/// [`DecodeError`]; disconnect the sender.
pub fn decode(bytes: &[u8]) -> Result<(Header, Message), DecodeError> {
    let (header, rest) = header::take(bytes, None)?;
    let (body, rest) = postcard::take_from_bytes(rest).map_err(DecodeError::damaged)?;
    if rest.is_empty() {
        Ok((header, body))
    } else {
        Err(DecodeError::Trailing(rest.len()))
    }
}

/// The second part of an encoded message, after the header: the two together are equal to
/// [`encode`].
pub(super) fn encode_body(body: &Message) -> Result<Vec<u8>, EncodeError> {
    postcard::to_extend(body, Vec::new()).map_err(EncodeError::new)
}
