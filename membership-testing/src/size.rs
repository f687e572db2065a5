//! The size of messages on the wire.
//!
//! The frames are those of the `silo-membership` crate's own transport, on a connection whose
//! handshake has fixed all that a handshake can fix: both ends know their addresses, and have read
//! the same table. That crate compares each kind of message with what it really writes.

use std::sync::{Arc, Weak};

use membership_core::protocol::{Header, Message};

/// Longer messages are sent in pieces of this length, each in its own frame.
const CHUNK: u64 = 64 * 1024;
/// The length and the kind of a frame.
const FRAME: u64 = 4 + 1;
/// The whole length of a message in pieces, in its first frame.
const TOTAL: u64 = 4;
/// The first byte of a header, which says what is in it, and the digest at its end.
const FIRST_AND_DIGEST: u64 = 1 + 8;

/// The bytes of a message with its frames, as the transport of the `silo-membership` crate writes
/// it. Without what TLS, TCP and IP add.
///
/// ```
/// use membership_core::protocol::{Header, Message};
/// use membership_core::{InstanceId, SiloAddress, TableId};
///
/// let silo = |n| SiloAddress::new([10, 0, 0, n].into(), 7100, 1_763_000_000_000);
/// let mut header = Header::new(1, silo(1), InstanceId::new(7));
/// (header.to, header.table_id) = (Some(silo(2)), Some(TableId::new(3)));
/// let nonce = u64::from(u32::MAX);
/// assert_eq!(membership_testing::bytes_on_wire(&header, &Message::Probe { nonce }), 21);
/// ```
#[must_use]
pub fn bytes_on_wire(header: &Header, body: &Message) -> u64 {
    framed(header, encoded(body))
}

/// Measures messages. A body that is sent to several receivers is measured once.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    last: Option<(Weak<Message>, u64)>,
}

impl Sizes {
    /// See [`bytes_on_wire`].
    pub(super) fn frame(&mut self, header: &Header, body: &Arc<Message>) -> u64 {
        framed(header, self.body(body))
    }

    fn body(&mut self, body: &Arc<Message>) -> u64 {
        if let Some((known, size)) = &self.last
            && std::ptr::eq(known.as_ptr(), Arc::as_ptr(body))
        {
            return *size;
        }
        let size = encoded(&**body);
        // The weak reference keeps the address from being reused.
        self.last = Some((Arc::downgrade(body), size));
        size
    }
}

/// The size of a message whose body has so many bytes.
fn framed(header: &Header, body: u64) -> u64 {
    let always = FIRST_AND_DIGEST + encoded(&header.version);
    let fixed = encoded(&(header.cluster, header.protocol))
        + encoded(&(header.from, header.instance, header.to, header.table_id));
    let whole = always + fixed + body;
    if whole > CHUNK {
        return whole + TOTAL + whole.div_ceil(CHUNK) * FRAME;
    }
    // Both ends have an address and a table: who names none says so in a byte.
    let none = u64::from(header.to.is_none()) + u64::from(header.table_id.is_none());
    FRAME + always + none + body
}

/// The size in postcard's format, which that transport uses.
fn encoded<T: serde::Serialize>(value: &T) -> u64 {
    let size = postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default());
    size.ok().and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{InstanceId, SiloAddress, TableId};

    #[test]
    fn a_body_is_measured_once_and_a_header_each_time() {
        let silo = |n| SiloAddress::new([10, 0, 0, n].into(), 7100, 1);
        let mut header = Header::new(1, silo(1), InstanceId::new(7));
        (header.to, header.table_id) = (Some(silo(2)), Some(TableId::new(3)));
        let mut sizes = Sizes::default();
        let body = Arc::new(Message::Identify { nonce: u64::MAX });
        // Frame, first byte, version, digest; kind of message, nonce.
        assert_eq!(sizes.frame(&header, &body), 5 + 1 + 1 + 8 + 1 + 10);
        header.version = 300;
        header.table_id = None;
        assert_eq!(sizes.frame(&header, &body), 5 + 1 + 1 + 2 + 8 + 1 + 10);
        let shorter = Arc::new(Message::Probe { nonce: 1 });
        assert_eq!(sizes.frame(&header, &shorter), 5 + 1 + 1 + 2 + 8 + 1 + 1);
    }
}
