//! One connection after its handshake: what waits to be sent on it, and whether it still works.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use membership_core::protocol::{LinkId, PeerIdentity};
use membership_core::{ClusterKeys, InstanceId};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::handshake::Agreed;
use super::queue::Queue;
use super::recent::Recent;
use super::roll::Standing;
use crate::transport::EncodedMessage;

/// After this time without a frame from the other side, the next message is sent with a ping.
const QUIET: Duration = Duration::from_secs(2);
/// If a ping has no answer for this long, the connection is doubtful: the next message dials again.
/// The connection stays open until the new one is made, because a silo that was only paused answers
/// on it.
const PONG_TIMEOUT: Duration = Duration::from_secs(3);

/// After this time a connection that could not be made anew is tried again.
const RENEW_AGAIN: Duration = Duration::from_secs(60);

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    /// The process at the other end, as it says.
    pub(super) instance: InstanceId,
    /// The process at the other end, by its key.
    pub(super) peer: PeerIdentity,
    pub(super) queue: Arc<Queue>,
    origin: Instant,
    received: AtomicU64,
    progress: AtomicU64,
    pinged: AtomicU64,
    doubted: AtomicBool,
    idle: AtomicU64,
    /// Bytes of an unfinished message that have arrived.
    pub(super) held: AtomicUsize,
    /// Closes the connection, because it holds too much.
    pub(super) cut: Notify,
    /// Closes the connection, because its peer has many newer ones.
    pub(super) surplus: Notify,
    /// Closes the connection, because its peer would not be admitted now.
    pub(super) expelled: Notify,
    /// The other side dialled.
    pub(super) incoming: bool,
    /// From where it dialled.
    from: Option<IpAddr>,
    /// What the confirmed view says of its peer.
    standing: AtomicU8,
    /// Milliseconds after which it is made anew.
    age: AtomicU64,
    /// How long it may live, unless nothing must be proven again. The side that dialled makes it anew
    /// before.
    pub(super) life: Duration,
    besides: Besides,
    /// What messages of silos need not repeat.
    pub(super) agreed: Option<Agreed>,
}

/// What a peer has shown besides its key.
#[derive(Clone, Debug, Default)]
pub(super) struct Besides {
    /// A certificate, which ends.
    pub(super) certificate: bool,
    /// The secrets of which it had one.
    pub(super) secret: Option<ClusterKeys>,
}

/// What a link is made of.
#[derive(Debug)]
pub(super) struct Ends {
    /// The process at the other end, as it says.
    pub(super) instance: InstanceId,
    /// The process at the other end, by its key.
    pub(super) peer: PeerIdentity,
    /// From where the other side dialled, if it did.
    pub(super) from: Option<IpAddr>,
    /// How long it stays open without anything sent or received.
    pub(super) idle: Duration,
    /// After this long it is made anew.
    pub(super) age: Duration,
    /// After this long it ends.
    pub(super) life: Duration,
    /// What the confirmed view said of the peer when it was believed, and the keys of that view.
    pub(super) standing: Standing,
    pub(super) keys: ClusterKeys,
    pub(super) besides: Besides,
    /// What the handshake has fixed.
    pub(super) agreed: Option<Agreed>,
}

impl Link {
    pub(super) fn new(id: LinkId, ends: Ends, queue: Arc<Queue>) -> Self {
        let link = Self {
            id,
            instance: ends.instance,
            peer: ends.peer,
            queue,
            origin: Instant::now(),
            received: AtomicU64::new(1),
            progress: AtomicU64::new(1),
            pinged: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
            idle: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            cut: Notify::new(),
            surplus: Notify::new(),
            expelled: Notify::new(),
            incoming: ends.from.is_some(),
            from: ends.from,
            standing: AtomicU8::new(ends.standing as u8),
            age: AtomicU64::new(millis(ends.age)),
            life: ends.life,
            besides: ends.besides,
            agreed: ends.agreed,
        };
        link.close_when_idle_for(ends.idle);
        link
    }

    /// Milliseconds since the connection was made, plus one: 0 is "never".
    fn now(&self) -> u64 {
        millis(self.origin.elapsed()) + 1
    }

    /// Records that bytes arrived.
    pub(super) fn note_received(&self) {
        self.received.store(self.now(), Relaxed);
    }

    /// Records that the system took bytes to send.
    pub(super) fn note_progress(&self) {
        self.progress.store(self.now(), Relaxed);
    }

    /// Whether to dial again instead of relying on this connection.
    pub(super) fn is_doubtful(&self) -> bool {
        let pinged = self.pinged.load(Relaxed);
        let unanswered = pinged > self.received.load(Relaxed)
            && self.now().saturating_sub(pinged) > millis(PONG_TIMEOUT);
        unanswered || self.doubted.load(Relaxed)
    }

    /// It is to be made anew. Until it is, it carries messages.
    pub(super) fn is_old(&self) -> bool {
        self.now() > self.age.load(Relaxed)
    }

    /// What the confirmed view says of its peer. Without TLS nobody can be told apart.
    pub(super) fn standing(&self) -> Standing {
        if self.peer == PeerIdentity::Unproven {
            return Standing::Member;
        }
        Standing::from_byte(self.standing.load(Relaxed))
    }

    /// Whether its peer would be believed now as it was then: it has a row, which names its key, and
    /// has shown nothing else that may have ended. `secret` = those of now.
    pub(super) fn is_as_good_as_new(&self, secret: Option<&ClusterKeys>) -> bool {
        self.peer != PeerIdentity::Unproven
            && self.standing() == Standing::Member
            && !self.besides.certificate
            && self.besides.secret.as_ref() == secret
    }

    /// Follows a new confirmed view. `revoked` = a key that newcomers showed is gone.
    pub(super) fn judge(&self, now: Standing, revoked: bool) {
        let before = self.standing();
        self.standing.store(now as u8, Relaxed);
        let lost_its_row = before != Standing::Newcomer && now == Standing::Newcomer;
        let lost_its_key = revoked && now == Standing::Newcomer;
        if self.peer != PeerIdentity::Unproven && (lost_its_row || lost_its_key) {
            self.expelled.notify_one();
        }
    }

    /// From where the other side dialled, if it did.
    pub(super) const fn from(&self) -> Option<IpAddr> {
        self.from
    }

    /// A member is at the address from which it dialled.
    pub(super) fn note_source(&self, recent: &mut Recent) {
        let proven = self.peer != PeerIdentity::Unproven && self.standing() == Standing::Member;
        if let Some(from) = self.from.filter(|_| proven) {
            recent.note(from, Instant::now());
        }
    }

    /// Another process may listen at its endpoint now.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Relaxed);
    }

    /// The new dial failed: the connection is used again.
    pub(super) fn trust(&self) {
        self.doubted.store(false, Relaxed);
        if self.is_old() {
            self.age.store(self.now() + millis(RENEW_AGAIN), Relaxed);
        }
    }

    /// Sends a message, with a ping if nothing has arrived for a while. Gives the number of older
    /// messages that were dropped for it.
    pub(super) fn send(&self, item: EncodedMessage) -> usize {
        let (now, received) = (self.now(), self.received.load(Relaxed));
        if self.pinged.load(Relaxed) <= received && now.saturating_sub(received) > millis(QUIET) {
            self.pinged.store(now, Relaxed);
            self.queue.ping();
        }
        self.queue.push(item)
    }

    pub(super) fn close_when_idle_for(&self, idle: Duration) {
        self.idle.store(millis(idle), Relaxed);
    }

    /// How much longer it stays open if nothing happens; none if its time is up.
    pub(super) fn idle_time_left(&self) -> Option<Duration> {
        let until =
            self.progress.load(Relaxed).max(self.received.load(Relaxed)) + self.idle.load(Relaxed);
        until
            .checked_sub(self.now())
            .filter(|ms| *ms > 0)
            .map(Duration::from_millis)
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4)
}
