//! The counters of a transport.

/// Counters of a transport since its start. A message counts as sent when the system took its last
/// byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportStats {
    /// Messages sent.
    pub sent: u64,
    /// Messages received and delivered.
    pub received: u64,
    /// Bytes sent, framing included.
    pub bytes_sent: u64,
    /// Bytes received, framing included.
    pub bytes_received: u64,
    /// Connections dialled with success.
    pub dialled: u64,
    /// Dials that failed, were refused, or ended in a handshake that failed.
    pub dials_failed: u64,
    /// Connections accepted with a good handshake.
    pub accepted: u64,
    /// Connections open now, both kinds.
    pub open: u64,
    /// Bytes in queues now.
    pub queued_bytes: u64,
    /// Messages dropped because a queue was full.
    pub dropped_queue_full: u64,
    /// Messages dropped because their connection was closed or could not be made.
    pub dropped_no_connection: u64,
    /// Messages dropped because they are larger than the bound.
    pub dropped_too_large: u64,
    /// Messages above 4 KiB that arrived and were dropped, because their sender is not alive in the
    /// confirmed view.
    pub dropped_of_others: u64,
    /// Incoming connections refused because there were too many.
    pub refused_too_many: u64,
    /// Incoming connections refused because they belong to another cluster; without TLS only.
    pub refused_cluster: u64,
    /// Incoming connections refused because the other side has no row in the table and no key of
    /// the cluster: a stranger, or a silo of another cluster.
    pub refused_unproven: u64,
    /// Incoming connections refused because the other side has not the secret.
    pub refused_secret: u64,
    /// Incoming connections refused because the other side shows no certificate, or one that has
    /// ended, is of another authority or names another cluster.
    pub refused_certificate: u64,
    /// Handshakes with silos that are alive in the confirmed view, in either direction, in which a
    /// secret or a certificate was missing or wrong: a rotation in the wrong order.
    pub mismatched_members: u64,
    /// Incoming connections refused because no protocol version is common.
    pub refused_version: u64,
    /// Incoming connections closed because their handshake was of another protocol, not TLS as
    /// expected, or damaged.
    pub refused_handshake: u64,
    /// Incoming connections closed because the handshake took too long.
    pub handshake_timeouts: u64,
    /// Connections closed because a frame or message was above its bound.
    pub closed_oversized: u64,
    /// Connections closed because a frame or message was invalid.
    pub closed_garbage: u64,
}
