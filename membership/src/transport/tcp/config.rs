//! The bounds of a TCP transport.

use std::time::Duration;

use crate::transport::{Security, SiloKey};

/// Bounds of a [`TcpTransport`](super::TcpTransport). The defaults suit a cluster of a thousand
/// silos.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TcpConfig {
    /// How connections are protected. Default: [`Security::table`].
    pub security: Security,
    /// The key pair, for a process that uses it elsewhere too. Default: one of its own.
    pub key: Option<SiloKey>,
    /// How long a connection may take to be made. Default 3 s: enough for two lost packets.
    pub connect_timeout: Duration,
    /// How long a handshake may take, on both sides. The side that dials has half of it for its first
    /// message. Default 2 s; a silo with a probe timeout above 3 s, as in the preset `wan`, or with the
    /// setting `scribe` takes 8 s: where hundreds start at once, machines are slow.
    pub handshake_timeout: Duration,
    /// A connection without a message for this long is closed; the next message dials again.
    /// Default 2 min.
    pub idle_timeout: Duration,
    /// Incoming connections at a time, including those in their handshake; more are closed at once.
    /// At most half of them are of processes that are not alive in the confirmed view. Default
    /// 4,096.
    pub max_incoming: usize,
    /// Of these, connections in their handshake; beyond it older ones end. Default 1,024.
    pub max_incoming_handshakes: usize,
    /// Of these, connections from addresses at which the view has no silo: the others are kept for
    /// those that have one. Default 384.
    pub max_handshakes_of_strangers: usize,
    /// Handshakes of one address at which the view has a silo, at a time. Default 256: hundreds of
    /// silos may run on one machine.
    pub max_handshakes_per_silo_address: usize,
    /// Handshakes of one other address at a time. Default 32.
    pub max_handshakes_per_address: usize,
    /// Handshakes with TLS of one such other address that may go on within a second, once it has said
    /// what it wants; the others wait. Default 100.
    pub max_handshakes_per_second: usize,
    /// The same for all such other addresses: keys and signatures cost time. Networks (/16, of IPv6
    /// /48) share them. Default 300.
    pub max_handshakes_of_strangers_per_second: usize,
    /// Messages of at most 64 KiB that wait on one connection; the oldest are dropped. Default 128.
    pub max_queued_messages: usize,
    /// Bytes of longer messages that wait on one connection; the oldest are dropped, but one may
    /// always wait. A body that goes to many receivers is in memory once. Default 8 MiB.
    pub max_queued_bytes: usize,
    /// The largest message, sent or received, in bytes; at most 4 GiB - 1. Default 64 MiB, about
    /// 100,000 rows.
    pub max_message_bytes: usize,
    /// Bytes of long messages that have arrived in part, over all connections; above it the
    /// connection that holds the most is closed. Default 256 MiB.
    pub max_unfinished_bytes: usize,
    /// Bytes that wait to be sent, over all connections; a body that goes to many counts for each.
    /// Above it each connection keeps only its newest messages. Default 1 GiB.
    pub max_queued_bytes_in_all: usize,
    /// A connection whose other side takes no byte for this long is closed. Default 30 s.
    pub write_timeout: Duration,
    /// A connection is made anew after this long, up to a quarter less, so that what was proven at
    /// its beginning is proven again. If that fails, it ends after an eighth more, unless its peer has
    /// a row and has shown no certificate, and the secret is the same. Default 1 h.
    pub max_age: Duration,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            security: Security::table(),
            key: None,
            connect_timeout: Duration::from_secs(3),
            handshake_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(120),
            max_incoming: 4096,
            max_incoming_handshakes: 1024,
            max_handshakes_of_strangers: 384,
            max_handshakes_per_silo_address: 256,
            max_handshakes_per_address: 32,
            max_handshakes_per_second: 100,
            max_handshakes_of_strangers_per_second: 300,
            max_queued_messages: 128,
            max_queued_bytes: 8 << 20,
            max_message_bytes: 64 << 20,
            max_unfinished_bytes: 256 << 20,
            max_queued_bytes_in_all: 1 << 30,
            write_timeout: Duration::from_secs(30),
            max_age: Duration::from_secs(3600),
        }
    }
}
