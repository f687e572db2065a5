//! Messages as bytes: one byte that names the encoding, then the header, then the body.
//!
//! Header and body are in postcard's wire format; rows in it are the stored text itself. The files
//! in `tests/corpus` freeze this encoding.

use membership_core::protocol::{Header, Message};

/// The first byte of every encoded message.
const ENCODING: u8 = 1;

/// A message cannot be encoded. This does not happen with messages that the protocol makes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message cannot be encoded: {0}")]
pub struct EncodeError(String);

impl EncodeError {
    fn new(error: postcard::Error) -> Self {
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
    /// A message, and more bytes after it.
    #[error("{0} bytes too many after the message")]
    Trailing(usize),
}

impl DecodeError {
    fn damaged(error: postcard::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// The bytes of a message: of any length, a whole snapshot of 10,000 rows is several MiB.
///
/// # Errors
/// [`EncodeError`], never for messages that the protocol makes.
pub fn encode(header: &Header, body: &Message) -> Result<Vec<u8>, EncodeError> {
    postcard::to_extend(body, encode_header(header)?).map_err(EncodeError::new)
}

/// The message that bytes mean.
///
/// Safe on bytes of any origin. A row takes more room in memory than on the wire: bound the bytes
/// first.
///
/// # Errors
/// [`DecodeError`]; disconnect the sender.
pub fn decode(bytes: &[u8]) -> Result<(Header, Message), DecodeError> {
    let Some((encoding, rest)) = bytes.split_first() else {
        return Err(DecodeError::damaged(
            postcard::Error::DeserializeUnexpectedEnd,
        ));
    };
    if *encoding != ENCODING {
        return Err(DecodeError::Encoding(*encoding));
    }
    let (header, rest) = postcard::take_from_bytes(rest).map_err(DecodeError::damaged)?;
    let (body, rest) = postcard::take_from_bytes(rest).map_err(DecodeError::damaged)?;
    if rest.is_empty() {
        Ok((header, body))
    } else {
        Err(DecodeError::Trailing(rest.len()))
    }
}

/// The first part of an encoded message: the encoding and the header, which differ from receiver to
/// receiver. The first part and [`encode_body`] together are equal to [`encode`].
pub(super) fn encode_header(header: &Header) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::with_capacity(96);
    bytes.push(ENCODING);
    postcard::to_extend(header, bytes).map_err(EncodeError::new)
}

/// The second part of an encoded message.
pub(super) fn encode_body(body: &Message) -> Result<Vec<u8>, EncodeError> {
    postcard::to_extend(body, Vec::new()).map_err(EncodeError::new)
}
