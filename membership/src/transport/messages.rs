//! Between the protocol, which has messages, and a transport, which carries bytes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use membership_core::protocol::{Header, LinkId, Message, PeerIdentity};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::codec::{EncodeError, decode, encode_body, encode_header};
use super::{DeliverError, EncodedMessage, Inbox, Lane, SendFailure};

/// A longer message is decoded on a thread of its own: 10,000 rows take tens of milliseconds.
const DECODE_ASIDE: usize = 256 * 1024;
/// The longest message of the queue of probes; theirs have some 100 bytes
/// with whole headers.
const SMALL: usize = 4096;
/// After so many probes and answers a view has its turn.
const IN_A_ROW: usize = 64;
/// Memory of views that wait to be handled.
const BULK_MEMORY: usize = 256 << 20;
/// A message takes up to this many times its bytes in memory: one of rows of two bytes, each of
/// which is an object and a reason why it is no row. One of a silo that means well takes four times.
const IN_MEMORY: usize = 100;

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
    /// A message could not be delivered.
    SendFailed {
        /// The destination.
        to: SocketAddr,
        /// The machine there said that no process listens at that address.
        refused: bool,
        /// Why, for people.
        reason: String,
    },
    /// A connection with a silo has ended, and not by this process.
    Disconnected {
        /// The address at which that silo is dialled.
        peer: SocketAddr,
    },
}

/// The inbox of a silo: decodes what arrives, and queues it.
///
/// Probes and their answers have a queue of their own, which views cannot fill. Both queues are
/// bounded in messages, and the one of views also in memory: a link that brings more waits, and no
/// other one does.
#[derive(Clone, Debug)]
pub struct MessageInbox {
    small: mpsc::Sender<Inbound>,
    bulk: mpsc::Sender<(Inbound, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

/// The end of an inbox from which a silo reads.
#[derive(Debug)]
pub struct Messages {
    small: mpsc::Receiver<Inbound>,
    bulk: mpsc::Receiver<(Inbound, OwnedSemaphorePermit)>,
    /// Small ones since the last view.
    in_a_row: usize,
}

impl Messages {
    /// The next message: probes and answers first, but not for ever. None once the transport has
    /// dropped its end. Cancel safe.
    pub async fn recv(&mut self) -> Option<Inbound> {
        if self.in_a_row >= IN_A_ROW {
            self.in_a_row = 0;
            if let Ok((inbound, _room)) = self.bulk.try_recv() {
                return Some(inbound);
            }
        }
        tokio::select! {
            biased;
            Some(inbound) = self.small.recv() => {
                self.in_a_row += 1;
                Some(inbound)
            }
            Some((inbound, _room)) = self.bulk.recv() => {
                self.in_a_row = 0;
                Some(inbound)
            }
            else => None,
        }
    }
}

impl MessageInbox {
    /// An inbox for up to `capacity` messages (at least 1) of each kind, and the end to read them
    /// from.
    #[must_use]
    pub fn channel(capacity: usize) -> (Arc<dyn Inbox>, Messages) {
        let (small, small_read) = mpsc::channel(capacity.max(1));
        let (bulk, bulk_read) = mpsc::channel(capacity.max(1));
        let room = Arc::new(Semaphore::new(BULK_MEMORY));
        let messages = Messages {
            small: small_read,
            bulk: bulk_read,
            in_a_row: 0,
        };
        (Arc::new(Self { small, bulk, room }), messages)
    }
}

impl MessageInbox {
    /// Waits until there is room for a message of so many bytes; one may always be under way.
    async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, DeliverError> {
        let memory = bytes.saturating_mul(IN_MEMORY).min(BULK_MEMORY);
        let memory = u32::try_from(memory).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(memory).await;
        room.map_err(|_| DeliverError::Stopped)
    }

    async fn deliver_bulk(&self, bytes: usize, inbound: Inbound) -> Result<(), DeliverError> {
        let room = self.room(bytes).await?;
        let sent = self.bulk.send((inbound, room)).await;
        sent.map_err(|_| DeliverError::Stopped)
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
        let bytes = message.len();
        let inbound = |(header, body)| Inbound::Message {
            link,
            peer,
            header,
            body: Arc::new(body),
        };
        if bytes <= SMALL {
            let (header, body) = decode(&message)?;
            if lane(&body) == Lane::Probe {
                let sent = self.small.send(inbound((header, body))).await;
                return sent.map_err(|_| DeliverError::Stopped);
            }
            return self.deliver_bulk(bytes, inbound((header, body))).await;
        }
        // Room first: a decoded message takes more memory than its bytes.
        let room = self.room(bytes).await?;
        let (decoded, room) = if bytes > DECODE_ASIDE {
            // The thread keeps the room, also when the connection closes meanwhile.
            let decoding = tokio::task::spawn_blocking(move || (decode(&message), room));
            decoding.await.map_err(|_| DeliverError::Stopped)?
        } else {
            (decode(&message), room)
        };
        let decoded = decoded?;
        let sent = self.bulk.send((inbound(decoded), room)).await;
        sent.map_err(|_| DeliverError::Stopped)
    }

    fn send_failed(&self, to: SocketAddr, failure: SendFailure) {
        let SendFailure { refused, reason } = failure;
        // Dropped when the inbox is full: messages matter more.
        let _ = self.small.try_send(Inbound::SendFailed {
            to,
            refused,
            reason,
        });
    }

    fn disconnected(&self, peer: SocketAddr) {
        // Dropped when the inbox is full: the next probe finds out, too.
        let _ = self.small.try_send(Inbound::Disconnected { peer });
    }
}
