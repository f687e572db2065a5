//! The transport for those who have no connections of their own: plain TCP, one connection per direction, no encryption.
//!
//! Put it where only the cluster's servers reach it: there is no authentication yet. What a stranger can do is bounded: connections,
//! handshakes, frames, unfinished messages and queues all have limits, and damage closes a connection and nothing else.

mod connect;
mod counters;
mod frame;
mod handshake;
mod link;
mod queue;
mod routes;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use membership_core::protocol::{Destination, Header, Message};
use membership_core::{SiloAddress, TableId};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use self::queue::Item;
use self::routes::{Phase, Shared};
use super::{Hello, Inbox, Transport, TransportError, TransportStats, encode_header};

/// How long queued messages may take to leave at shutdown: long enough for a farewell.
const DRAIN: Duration = Duration::from_secs(1);

/// Bounds of a [`TcpTransport`]. The defaults suit a cluster of a thousand silos.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TcpConfig {
    /// How long a connection may take to be made. Default 3 s: two lost packets are forgiven.
    pub connect_timeout: Duration,
    /// How long a handshake may take, on both sides. Default 3 s.
    pub handshake_timeout: Duration,
    /// A connection without a message for so long is closed; the next message dials again. Default 2 min.
    pub idle_timeout: Duration,
    /// Incoming connections at a time, those in their handshake included; more are closed at once. Default 4,096.
    pub max_incoming: usize,
    /// Of these, connections in their handshake. Default 512.
    pub max_incoming_handshakes: usize,
    /// Messages that wait on one connection; the oldest are dropped. Each has at most 64 KiB. Default 128.
    pub max_queued_messages: usize,
    /// Bytes of messages above 64 KiB that wait on one connection besides; the oldest are dropped, and one always may wait. A body that
    /// goes to many is in memory once. Default 8 MiB.
    pub max_queued_bytes: usize,
    /// The largest message, sent or received, in bytes; at most 4 GiB - 1. Default 64 MiB, about 100,000 rows.
    pub max_message_bytes: usize,
    /// Bytes of long messages that have arrived in part, over all connections. Default 256 MiB.
    pub max_unfinished_bytes: usize,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            handshake_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(120),
            max_incoming: 4096,
            max_incoming_handshakes: 512,
            max_queued_messages: 128,
            max_queued_bytes: 8 << 20,
            max_message_bytes: 64 << 20,
            max_unfinished_bytes: 256 << 20,
        }
    }
}

/// Messages over TCP.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), membership::transport::TransportError> {
/// use membership::transport::{TcpTransport, Transport};
///
/// let transport = TcpTransport::bind("127.0.0.1:0".parse().unwrap()).await?;
/// assert_ne!(transport.local_endpoint().port(), 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TcpTransport {
    local: SocketAddr,
    shared: Arc<Shared>,
    /// Taken by `start`.
    listener: Mutex<Option<TcpListener>>,
    /// Every task listens to it, so it also knows when all have ended; dropping it ends them.
    phase: watch::Sender<Phase>,
}

impl TcpTransport {
    /// Listens on an address, port 0 = any free one. Connections wait until [`start`](Transport::start). Must be called within tokio.
    ///
    /// # Errors
    /// [`TransportError::Bind`], with the address and what to do.
    pub async fn bind(address: SocketAddr) -> Result<Self, TransportError> {
        Self::bind_with(address, TcpConfig::default()).await
    }

    /// The same with other bounds.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub async fn bind_with(address: SocketAddr, config: TcpConfig) -> Result<Self, TransportError> {
        let failed = |source| TransportError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let phase = watch::Sender::new(Phase::Running);
        Ok(Self {
            local,
            shared: Arc::new(Shared::new(config)),
            listener: Mutex::new(Some(listener)),
            phase,
        })
    }

    /// The address that was bound, with the real port.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

#[async_trait]
impl Transport for TcpTransport {
    fn local_endpoint(&self) -> SocketAddr {
        self.local
    }

    async fn start(&self, hello: Hello, inbox: Inbox) -> Result<(), TransportError> {
        let runtime = Handle::try_current().map_err(|e| TransportError::Other(Box::new(e)))?;
        let listener = self
            .listener
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .ok_or(TransportError::AlreadyStarted)?;
        let phase = self.phase.subscribe();
        self.shared
            .begin(hello, inbox.clone(), phase.clone(), runtime.clone());
        runtime.spawn(connect::accept_all(
            self.shared.clone(),
            listener,
            inbox,
            phase,
        ));
        Ok(())
    }

    fn send(&self, to: Destination, header: &Header, body: &Arc<Message>) {
        let (head, body) = match encode_header(header)
            .and_then(|head| Ok((head, self.shared.cache.body(body)?)))
        {
            Ok(parts) => parts,
            Err(error) => return tracing::error!(%error, message = body.name(), "message dropped"),
        };
        let item = Item {
            head: Bytes::from(head),
            body,
        };
        if item.len() > self.shared.config.max_message_bytes {
            self.shared.refuse_too_large(to, item.len());
        } else {
            self.shared.send(to, item);
        }
    }

    fn update(&self, silo: SiloAddress, table_id: Option<TableId>, version: u64) {
        self.shared.update(silo, table_id, version);
    }

    async fn shutdown(&self) {
        drop(
            self.listener
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        self.phase.send_if_modified(|p| {
            *p == Phase::Running && {
                *p = Phase::Draining;
                true
            }
        });
        // A dial that is under way may still deliver; its queue is sent before the connection closes.
        self.shared.end();
        let _ = timeout(DRAIN, self.phase.closed()).await;
        self.phase.send_replace(Phase::Closed);
        self.phase.closed().await;
    }

    fn stats(&self) -> TransportStats {
        self.shared.counters.read()
    }
}
