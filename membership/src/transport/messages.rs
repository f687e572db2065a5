//! Between the protocol, which has messages, and a transport, which carries bytes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use membership_core::protocol::{LinkId, PeerIdentity};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::codec::EncodeError;
use super::wire::{TableWire, Wire};
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
/// Encodes the messages of silos.
pub type Encoder = WireEncoder<TableWire>;
/// What arrives at a silo.
pub type Inbound = WireInbound<TableWire>;
/// The inbox of a silo.
pub type MessageInbox = WireInbox<TableWire>;
/// The end of an inbox from which a silo reads.
pub type Messages = WireMessages<TableWire>;

/// Encodes messages. A body that is sent to many receivers, one after the other, is encoded once.
pub struct WireEncoder<W: Wire>(Mutex<Option<(Weak<W::Message>, Bytes)>>);

impl<W: Wire> Default for WireEncoder<W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W: Wire> WireEncoder<W> {
    /// The bytes of a message. The body is shared with the message before if it is the same object.
    ///
    /// # Errors
    /// [`EncodeError`], of silos' messages never for those that the protocol makes.
    pub fn encode(
        &self,
        header: &W::Header,
        body: &Arc<W::Message>,
    ) -> Result<EncodedMessage, EncodeError> {
        let head = W::encode_header(header)?.into();
        Ok(EncodedMessage::new(W::lane(body), head, self.body(body)?))
    }

    fn body(&self, body: &Arc<W::Message>) -> Result<Bytes, EncodeError> {
        // The weak reference keeps the address from being used again, so the same address is the
        // same message.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = last
            .as_ref()
            .filter(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(body)))
        {
            return Ok(bytes.clone());
        }
        let bytes = Bytes::from(W::encode_body(body)?);
        *last = Some((Arc::downgrade(body), bytes.clone()));
        Ok(bytes)
    }
}

impl<W: Wire> fmt::Debug for WireEncoder<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

/// What arrives.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WireInbound<W: Wire> {
    /// A message.
    Message {
        /// The connection that it came by.
        link: LinkId,
        /// Who is at the other end of that connection.
        peer: PeerIdentity,
        /// The sender, the receiver, and, of a silo, the sender's view.
        header: W::Header,
        /// What it says.
        body: Arc<W::Message>,
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

/// An inbox: decodes what arrives, and queues it.
///
/// Probes and their answers have a queue of their own, which views cannot fill. Both queues are
/// bounded in messages, and the one of views also in memory: a link that brings more waits, and no
/// other one does.
#[derive(Clone, Debug)]
pub struct WireInbox<W: Wire> {
    small: mpsc::Sender<Arrived<W>>,
    bulk: mpsc::Sender<(Arrived<W>, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

/// What arrived, and when: before it waited for room.
type Arrived<W> = (WireInbound<W>, Instant);

/// The end of an inbox from which the messages are read.
#[derive(Debug)]
pub struct WireMessages<W: Wire> {
    small: mpsc::Receiver<Arrived<W>>,
    bulk: mpsc::Receiver<(Arrived<W>, OwnedSemaphorePermit)>,
    /// Small ones since the last view.
    in_a_row: usize,
}

impl<W: Wire> WireMessages<W> {
    /// The next message: probes and answers first, but not for ever. None once the transport has
    /// dropped its end. Cancel safe.
    pub async fn recv(&mut self) -> Option<WireInbound<W>> {
        self.next().await.map(|(inbound, _)| inbound)
    }

    /// The same, with how long it waited here. Cancel safe.
    pub async fn recv_waited(&mut self) -> Option<(WireInbound<W>, Duration)> {
        let (inbound, arrived) = self.next().await?;
        Some((inbound, arrived.elapsed()))
    }

    async fn next(&mut self) -> Option<Arrived<W>> {
        if self.in_a_row >= IN_A_ROW {
            self.in_a_row = 0;
            if let Ok((arrived, _room)) = self.bulk.try_recv() {
                return Some(arrived);
            }
        }
        tokio::select! {
            biased;
            Some(arrived) = self.small.recv() => {
                self.in_a_row += 1;
                Some(arrived)
            }
            Some((arrived, _room)) = self.bulk.recv() => {
                self.in_a_row = 0;
                Some(arrived)
            }
            else => None,
        }
    }
}

impl<W: Wire> WireInbox<W> {
    /// An inbox for up to `capacity` messages (at least 1) of each kind, and the end to read them
    /// from.
    #[must_use]
    pub fn channel(capacity: usize) -> (Arc<dyn Inbox>, WireMessages<W>) {
        let (small, small_read) = mpsc::channel(capacity.max(1));
        let (bulk, bulk_read) = mpsc::channel(capacity.max(1));
        let room = Arc::new(Semaphore::new(BULK_MEMORY));
        let messages = WireMessages {
            small: small_read,
            bulk: bulk_read,
            in_a_row: 0,
        };
        (Arc::new(Self { small, bulk, room }), messages)
    }

    /// Waits until there is room for a message of so many bytes; one may always be under way.
    async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, DeliverError> {
        let memory = W::in_memory(bytes).min(BULK_MEMORY);
        let memory = u32::try_from(memory).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(memory).await;
        room.map_err(|_| DeliverError::Stopped)
    }

    async fn deliver_bulk(&self, bytes: usize, arrived: Arrived<W>) -> Result<(), DeliverError> {
        let room = self.room(bytes).await?;
        let sent = self.bulk.send((arrived, room)).await;
        sent.map_err(|_| DeliverError::Stopped)
    }
}

#[async_trait]
impl<W: Wire> Inbox for WireInbox<W> {
    async fn deliver(
        &self,
        link: LinkId,
        peer: PeerIdentity,
        message: Bytes,
    ) -> Result<(), DeliverError> {
        let (bytes, at) = (message.len(), Instant::now());
        let arrived = |(header, body)| {
            let body = Arc::new(body);
            let inbound = WireInbound::Message {
                link,
                peer,
                header,
                body,
            };
            (inbound, at)
        };
        if bytes <= SMALL {
            let (header, body) = W::decode(&message)?;
            if W::lane(&body) == Lane::Probe {
                let sent = self.small.send(arrived((header, body))).await;
                return sent.map_err(|_| DeliverError::Stopped);
            }
            return self.deliver_bulk(bytes, arrived((header, body))).await;
        }
        // Room first: a decoded message takes more memory than its bytes.
        let room = self.room(bytes).await?;
        let (decoded, room) = if bytes > DECODE_ASIDE {
            // The thread keeps the room, also when the connection closes meanwhile.
            let decoding = tokio::task::spawn_blocking(move || (W::decode(&message), room));
            decoding.await.map_err(|_| DeliverError::Stopped)?
        } else {
            (W::decode(&message), room)
        };
        let decoded = decoded?;
        let sent = self.bulk.send((arrived(decoded), room)).await;
        sent.map_err(|_| DeliverError::Stopped)
    }

    fn send_failed(&self, to: SocketAddr, failure: SendFailure) {
        let SendFailure { refused, reason } = failure;
        let failed = WireInbound::SendFailed {
            to,
            refused,
            reason,
        };
        // Dropped when the inbox is full: messages matter more.
        let _ = self.small.try_send((failed, Instant::now()));
    }

    fn disconnected(&self, peer: SocketAddr) {
        // Dropped when the inbox is full: the next probe finds out, too.
        let lost = WireInbound::Disconnected { peer };
        let _ = self.small.try_send((lost, Instant::now()));
    }
}
