//! The size of messages on the wire.

use std::sync::{Arc, Weak};

use membership_core::protocol::{Header, Message};

/// The bytes before a message: length and kind of the frame, and the name of the encoding.
const AROUND: u64 = 4 + 1 + 1;
/// Longer messages are sent in pieces of this length, each in its own frame.
const CHUNK: u64 = 64 * 1024;
/// The length and the kind of a frame.
const FRAME: u64 = 4 + 1;

/// Measures messages. A body that is sent to several receivers is measured once.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    last: Option<(Weak<Message>, u64)>,
}

impl Sizes {
    /// The bytes of a message with its frame.
    pub(super) fn frame(&mut self, header: &Header, body: &Arc<Message>) -> u64 {
        let content = encoded(header) + self.body(body);
        AROUND + content + (content / CHUNK) * FRAME
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

/// The size in postcard's format, which the transport of the `silo-membership` crate uses.
fn encoded<T: serde::Serialize>(value: &T) -> u64 {
    let size = postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default());
    size.ok().and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{InstanceId, SiloAddress};

    #[test]
    fn a_frame_is_its_header_its_body_and_six_bytes() {
        let from = SiloAddress::new([10, 0, 0, 1].into(), 7100, 1);
        let mut header = Header::new(1, from, InstanceId::new(7));
        header.version = 300;
        header.digest = 1 << 100;
        let mut sizes = Sizes::default();
        let body = Arc::new(Message::Probe { nonce: 1 });
        let bytes =
            postcard::to_extend(&*body, postcard::to_extend(&header, Vec::new()).unwrap()).unwrap();
        assert_eq!(sizes.frame(&header, &body), 6 + bytes.len() as u64);
        assert_eq!(sizes.frame(&header, &body), 6 + bytes.len() as u64);
        let longer = Arc::new(Message::Identify { nonce: u64::MAX });
        assert_eq!(sizes.frame(&header, &longer), 6 + bytes.len() as u64 + 9);
    }
}
