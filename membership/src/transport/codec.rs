//! Messages as bytes: one byte that names the encoding, the header, the body. Both in postcard's wire format; rows inside are the stored
//! text itself. The frozen corpus in `tests/corpus` keeps this encoding what it is.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use membership_core::protocol::{Header, Message};

/// The first byte of every encoded message.
const ENCODING: u8 = 1;

/// A message that cannot be encoded. It does not happen with messages that the protocol makes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message cannot be encoded: {0}")]
pub struct EncodeError(#[from] postcard::Error);

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Another encoding than this build knows.
    #[error("encoding {0} is not known to this build")]
    Encoding(u8),
    /// Damaged, or not from this library.
    #[error("damaged message: {0}")]
    Damaged(#[from] postcard::Error),
    /// A message, and more bytes after it.
    #[error("{0} bytes too many after the message")]
    Trailing(usize),
}

/// The bytes of a message: of any length, a whole snapshot of 10,000 rows is several MiB.
///
/// # Errors
/// [`EncodeError`], never for messages that the protocol makes.
pub fn encode(header: &Header, body: &Message) -> Result<Vec<u8>, EncodeError> {
    Ok(postcard::to_extend(body, encode_header(header)?)?)
}

/// The message that bytes mean.
///
/// Safe on bytes of any origin. A row takes more room in memory than on the wire: bound the bytes first.
///
/// # Errors
/// [`DecodeError`]; whoever sent this should be disconnected.
pub fn decode(bytes: &[u8]) -> Result<(Header, Message), DecodeError> {
    let (encoding, rest) = bytes
        .split_first()
        .ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
    if *encoding != ENCODING {
        return Err(DecodeError::Encoding(*encoding));
    }
    let (header, rest) = postcard::take_from_bytes(rest)?;
    let (body, rest) = postcard::take_from_bytes(rest)?;
    if rest.is_empty() {
        Ok((header, body))
    } else {
        Err(DecodeError::Trailing(rest.len()))
    }
}

/// The first part of an encoded message: the encoding and the header, which differ from receiver to receiver.
/// Followed by [`EncodeCache::body`] it is what [`encode`] gives.
///
/// # Errors
/// [`EncodeError`], never for headers that the protocol makes.
pub fn encode_header(header: &Header) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::with_capacity(96);
    bytes.push(ENCODING);
    Ok(postcard::to_extend(header, bytes)?)
}

/// Encodes a body once while it is sent to many: remembers the last one.
#[derive(Default)]
pub struct EncodeCache(Mutex<Option<(Weak<Message>, Bytes)>>);

impl EncodeCache {
    /// The bytes of a body, shared with the previous call when that was for the same object in memory.
    ///
    /// # Errors
    /// [`EncodeError`], never for bodies that the protocol makes.
    pub fn body(&self, body: &Arc<Message>) -> Result<Bytes, EncodeError> {
        // The weak reference keeps the address from being used again, so the same address is the same message.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = last
            .as_ref()
            .filter(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(body)))
        {
            return Ok(bytes.clone());
        }
        let bytes = Bytes::from(postcard::to_extend(&**body, Vec::new())?);
        *last = Some((Arc::downgrade(body), bytes.clone()));
        Ok(bytes)
    }
}

impl fmt::Debug for EncodeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncodeCache")
    }
}
