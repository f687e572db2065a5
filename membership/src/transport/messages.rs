//! Between the protocol, which has messages, and a transport, which carries bytes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use membership_core::protocol::{Header, LinkId, Message, PeerIdentity};
use tokio::sync::mpsc;

use super::codec::{EncodeError, decode, encode_body, encode_header};
use super::{DeliverError, EncodedMessage, Inbox, Lane};

/// A longer message is decoded on a thread of its own: 10,000 rows take tens of milliseconds.
const DECODE_ASIDE: usize = 256 * 1024;

/// Encodes messages. A body that is sent to many receivers, one after the other, is encoded once.
#[derive(Default)]
pub struct Encoder(Mutex<Option<(Weak<Message>, Bytes)>>);

impl Encoder {
    /// The bytes of a message. The body is shared with the message before if it is the same object.
    ///
    /// # Errors
    /// [`EncodeError`], never for messages that the protocol makes.
    pub fn encode(
        &self,
        header: &Header,
        body: &Arc<Message>,
    ) -> Result<EncodedMessage, EncodeError> {
        let head = encode_header(header)?.into();
        Ok(EncodedMessage::new(lane(body), head, self.body(body)?))
    }

    fn body(&self, body: &Arc<Message>) -> Result<Bytes, EncodeError> {
        // The weak reference keeps the address from being used again, so the same address is the
        // same message.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = last
            .as_ref()
            .filter(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(body)))
        {
            return Ok(bytes.clone());
        }
        let bytes = Bytes::from(encode_body(body)?);
        *last = Some((Arc::downgrade(body), bytes.clone()));
        Ok(bytes)
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

const fn lane(body: &Message) -> Lane {
    match body {
        Message::Delta(_) | Message::AskDelta { .. } | Message::Farewell { .. } => Lane::Bulk,
        _ => Lane::Probe,
    }
}

/// What arrives at a silo.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Inbound {
    /// A message.
    Message {
        /// The connection that it came by.
        link: LinkId,
        /// Who is at the other end of that connection.
        peer: PeerIdentity,
        /// The sender, the receiver, and the sender's view.
        header: Header,
        /// What it says.
        body: Arc<Message>,
    },
    /// A message could not be delivered. Only for better reports.
    SendFailed {
        /// The destination.
        to: SocketAddr,
        /// Why, for people.
        reason: String,
    },
}

/// The inbox of a silo: decodes what arrives, and queues it. Bounded.
#[derive(Clone, Debug)]
pub struct MessageInbox(mpsc::Sender<Inbound>);

impl MessageInbox {
    /// An inbox for up to `capacity` messages (at least 1), and the end to read them from.
    #[must_use]
    pub fn channel(capacity: usize) -> (Arc<dyn Inbox>, mpsc::Receiver<Inbound>) {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        (Arc::new(Self(sender)), receiver)
    }
}

#[async_trait]
impl Inbox for MessageInbox {
    async fn deliver(
        &self,
        link: LinkId,
        peer: PeerIdentity,
        message: Bytes,
    ) -> Result<(), DeliverError> {
        let (header, body) = if message.len() > DECODE_ASIDE {
            tokio::task::spawn_blocking(move || decode(&message))
                .await
                .map_err(|_| DeliverError::Stopped)??
        } else {
            decode(&message)?
        };
        let body = Arc::new(body);
        self.0
            .send(Inbound::Message {
                link,
                peer,
                header,
                body,
            })
            .await
            .map_err(|_| DeliverError::Stopped)
    }

    fn send_failed(&self, to: SocketAddr, reason: String) {
        // Dropped when the inbox is full: messages matter more.
        let _ = self.0.try_send(Inbound::SendFailed { to, reason });
    }
}
