//! Messages whose header is that of the message before them: it is left out.
//!
//! Nothing in the header of a member without a table changes from message to message once it is in a
//! cluster, and the handshake does not tell all of it: the founding is found later. So each end
//! remembers, for each connection and direction, the last header that travelled by itself. What is
//! put here is written in that order and never dropped afterwards, so both ends remember the same.

use bytes::Bytes;

use super::frame::{self, FrameError, Kind, MAX_FROM_OTHERS};
use crate::transport::EncodedMessage;

/// The header of the last message that was written with one.
#[derive(Debug, Default)]
pub(super) struct Written(Bytes);

impl Written {
    /// Appends the frame of a message of at most [`CHUNK`](frame::CHUNK) bytes.
    pub(super) fn put(&mut self, buffer: &mut Vec<u8>, item: &EncodedMessage) {
        let (head, body) = (item.head(), item.body());
        // Whoever reads may drop longer ones, and would then not know their header.
        let length = u8::try_from(head.len()).ok();
        match length.filter(|n| *n > 0 && item.len() + 2 <= MAX_FROM_OTHERS) {
            None => frame::put(buffer, Kind::Message, &[head, body]),
            Some(_) if *head == self.0 => frame::put(buffer, Kind::Again, &[body]),
            Some(length) => {
                frame::put(buffer, Kind::Headed, &[&[length], head, body]);
                self.0.clone_from(head);
            }
        }
    }
}

/// The header of the last message that arrived with one.
#[derive(Debug, Default)]
pub(super) struct Heard(Vec<u8>);

impl Heard {
    /// The message in a `Headed` frame, whose header is remembered.
    pub(super) fn headed(&mut self, content: Vec<u8>) -> Result<Vec<u8>, FrameError> {
        let mut message = content;
        let length = message.first().map_or(0, |n| usize::from(*n));
        if length == 0 || message.len() <= length {
            return Err(FrameError::Garbage("a message shorter than its header"));
        }
        message.remove(0);
        self.0 = message[..length].to_vec();
        Ok(message)
    }

    /// The message in an `Again` frame.
    pub(super) fn again(&self, body: &[u8]) -> Result<Vec<u8>, FrameError> {
        if self.0.is_empty() {
            return Err(FrameError::Garbage("a message without a header"));
        }
        Ok([&self.0, body].concat())
    }
}
