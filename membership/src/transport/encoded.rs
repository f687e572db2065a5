//! A message as a transport sees it: bytes, and how urgent they are.

use bytes::Bytes;

/// One message to send: opaque bytes, in two parts.
///
/// The receiver needs the parts one after the other, as one message of [`len`](Self::len) bytes.
/// The head differs for each receiver; the body of a message to many receivers is the same memory
/// for all of them, so keep [`Bytes`] and do not copy until the bytes are written.
///
/// ```
/// use membership::transport::{EncodedMessage, Lane};
///
/// let message = EncodedMessage::new(Lane::Probe, "head, ".into(), "body".into());
/// assert_eq!(message.len(), 10);
/// assert_eq!(message.to_bytes(), "head, body");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedMessage {
    lane: Lane,
    head: Bytes,
    body: Bytes,
}

/// The classes of messages, of which one must not wait for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lane {
    /// Probes and their answers: small. A probe that waits behind bulk counts as missed.
    Probe,
    /// Views and requests for them: up to many MiB, and seldom urgent.
    Bulk,
}

impl EncodedMessage {
    /// A message of two parts; either may be empty.
    #[must_use]
    pub const fn new(lane: Lane, head: Bytes, body: Bytes) -> Self {
        Self { lane, head, body }
    }

    /// How urgent it is. A transport that sends long messages in pieces, between which others may
    /// pass, as [`TcpTransport`](super::TcpTransport) does, has no need to look.
    #[must_use]
    pub const fn lane(&self) -> Lane {
        self.lane
    }

    /// The part that is this receiver's own.
    #[must_use]
    pub const fn head(&self) -> &Bytes {
        &self.head
    }

    /// The part that other receivers may share.
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        &self.body
    }

    /// The length of both parts, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Whether it is empty; never true for a message of the library.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Both parts as one; copies them.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        [&self.head[..], &self.body].concat().into()
    }

    /// The bytes from `from`, at most `most`, as two slices.
    pub(super) fn part(&self, from: usize, most: usize) -> [&[u8]; 2] {
        let cut = |bytes: &'_ [u8], skip: usize, most: usize| -> (usize, usize) {
            let start = skip.min(bytes.len());
            (start, bytes.len().min(start + most))
        };
        let (a, b) = cut(&self.head, from, most);
        let (c, d) = cut(
            &self.body,
            from.saturating_sub(self.head.len()),
            most - (b - a),
        );
        [&self.head[a..b], &self.body[c..d]]
    }
}
