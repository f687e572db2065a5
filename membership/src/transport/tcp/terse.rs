//! Messages on a connection without what its handshake has fixed.
//!
//! The transport gets whole messages and delivers whole messages: only the frames between the two
//! ends are terse. What is no message of the library, because a layer above changes the bytes, is
//! sent as it is.

use super::frame::{self, CHUNK, Kind};
use crate::transport::EncodedMessage;
use crate::transport::codec::DecodeError;
use crate::transport::header::{self, Fixed};

/// Appends the frame of a message of at most [`CHUNK`] bytes.
pub(super) fn put(buffer: &mut Vec<u8>, item: &EncodedMessage, fixed: &Fixed) {
    debug_assert!(item.len() <= CHUNK);
    match shorten(item.head(), fixed) {
        Some((head, rest)) => frame::put(buffer, Kind::Terse, &[&head, rest, item.body()]),
        None => frame::put(buffer, Kind::Message, &[item.head(), item.body()]),
    }
}

/// A header without what is fixed, and the bytes behind it; none if the bytes would not be the same
/// after [`restore`].
fn shorten<'a>(head: &'a [u8], fixed: &Fixed) -> Option<(Vec<u8>, &'a [u8])> {
    let (header, rest) = header::take(head, None).ok()?;
    let whole = header::put(&header, None).ok()?;
    let is_same = head.strip_prefix(&whole[..]) == Some(rest);
    let terse = header::put(&header, Some(fixed)).ok()?;
    is_same.then_some((terse, rest))
}

/// The whole message that a terse one means.
pub(super) fn restore(content: &[u8], fixed: &Fixed) -> Result<Vec<u8>, DecodeError> {
    let (header, rest) = header::take(content, Some(fixed))?;
    let whole = header::put(&header, None).map_err(|e| DecodeError::Damaged(e.to_string()))?;
    Ok([&whole, rest].concat())
}
