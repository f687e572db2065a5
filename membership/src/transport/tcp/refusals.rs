//! Warns of silos that are refused for a secret or a certificate.
//!
//! A stranger at the port is none of this: it is counted, and told of at level debug. But a silo of
//! the confirmed view that is refused, or refuses this one, is a rotation in the wrong order. The
//! connections that are open hide it for up to an hour, so it must be seen at once. The same holds
//! for a newcomer that has proven a key of the cluster: it can never join.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::counters::{Counters, add};
use super::handshake::{Claim, HandshakeError, Me};
use crate::transport::tls::Proven;

/// One address is named once within this time.
const PERIOD: Duration = Duration::from_secs(600);
/// So many addresses are named within that time.
const MOST_MEMBERS: usize = 16;
/// Newcomers say where they are themselves, so they get fewer lines, which no silo of the view needs.
const MOST_NEWCOMERS: usize = 4;
/// A silo that closes a connection without a word may just be stopping: it is named if it does so
/// again after this time.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Why a connection failed that this side dialled.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal<'a> {
    /// This silo refuses the other one's secret.
    Secret(&'a HandshakeError),
    /// This silo refuses the other one's certificate.
    Certificate(&'a str),
    /// The other silo closed the connection when it heard who this one is.
    Unsaid(&'a HandshakeError),
}

impl<'a> Refusal<'a> {
    /// None if neither a secret nor a certificate is a likely reason.
    pub(super) fn of(error: &'a HandshakeError) -> Option<Self> {
        match error {
            HandshakeError::NoSecret(_) | HandshakeError::WrongSecret(_) => {
                Some(Self::Secret(error))
            }
            HandshakeError::NoCertificate(_) => Some(Self::Certificate("it shows no certificate")),
            HandshakeError::Dismissed => Some(Self::Unsaid(error)),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Refusals {
    counters: Arc<Counters>,
    members: Mutex<Named>,
    newcomers: Mutex<Named>,
}

impl Refusals {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            members: Mutex::new(Named::new(MOST_MEMBERS)),
            newcomers: Mutex::new(Named::new(MOST_NEWCOMERS)),
        }
    }

    /// A connection that this side dialled has failed. `proven` = what the other side has proven.
    pub(super) fn dialled(
        &self,
        to: SocketAddr,
        me: &Me,
        proven: Option<Proven>,
        refusal: Refusal<'_>,
    ) {
        let Some(member) = me.roll.member_at(to) else {
            return;
        };
        // Another process at the address of a silo that ended.
        if matches!(proven, Some(Proven::Key(instance)) if instance != member) {
            return;
        }
        add(&self.counters.mismatched_members, 1);
        let again = match refusal {
            Refusal::Unsaid(_) => AGAIN_AFTER,
            Refusal::Secret(_) | Refusal::Certificate(_) => Duration::ZERO,
        };
        if !due(&self.members, to, again) {
            return;
        }
        match refusal {
            Refusal::Secret(error) => warn_of_secret(to, error),
            Refusal::Certificate(why) => warn_of_certificate(&to, why),
            Refusal::Unsaid(error) => tracing::warn!(
                peer = %to,
                reason = %error,
                "a silo of the view refuses this one: its log says why; compare the secret files and certificates of both"
            ),
        }
    }

    /// An incoming connection was refused.
    pub(super) fn accepted(&self, error: &HandshakeError) {
        let (HandshakeError::NoSecret(claim)
        | HandshakeError::WrongSecret(claim)
        | HandshakeError::NoCertificate(claim)) = error
        else {
            return;
        };
        match *claim {
            Claim::Member(peer) => {
                add(&self.counters.mismatched_members, 1);
                if due(&self.members, peer, Duration::ZERO) {
                    match error {
                        HandshakeError::NoCertificate(_) => {
                            warn_of_certificate(&peer, "it shows no certificate");
                        }
                        _ => warn_of_secret(peer, error),
                    }
                }
            }
            Claim::Newcomer(peer) => {
                if due(&self.newcomers, peer, Duration::ZERO) {
                    tracing::warn!(
                        %peer,
                        reason = %error,
                        "a newcomer that has read the table is refused: give it the secret and the certificates of this cluster, or stop it"
                    );
                }
            }
            Claim::Stranger => {}
        }
    }

    /// The certificate of an incoming connection was refused, from an address at which a silo of
    /// the view is.
    pub(super) fn certificate_at(&self, from: IpAddr, why: &str) {
        add(&self.counters.mismatched_members, 1);
        let from = from.to_canonical();
        if due(&self.members, SocketAddr::new(from, 0), Duration::ZERO) {
            warn_of_certificate(&from, why);
        }
    }
}

fn warn_of_secret(peer: SocketAddr, reason: &HandshakeError) {
    tracing::warn!(
        %peer,
        %reason,
        "a silo of the view has not the secret of this one: add the newest key to the secret file of every silo before any file has it first, and remove the old one last"
    );
}

fn warn_of_certificate(peer: &dyn Display, reason: &str) {
    tracing::warn!(
        %peer,
        reason,
        "the certificate of a silo of the view is refused: compare its certificate with `--tls-ca` of this one; both authorities must be in every `--tls-ca` before a certificate of the new one is used"
    );
}

fn due(named: &Mutex<Named>, peer: SocketAddr, again_after: Duration) -> bool {
    let mut named = named.lock().unwrap_or_else(PoisonError::into_inner);
    named.due(peer, again_after, Instant::now())
}

/// The addresses that were refused of late: as many as may be named.
#[derive(Debug)]
struct Named {
    most: usize,
    peers: HashMap<SocketAddr, Seen>,
}

#[derive(Debug)]
struct Seen {
    first: Instant,
    last: Instant,
    named: Option<Instant>,
}

impl Named {
    fn new(most: usize) -> Self {
        let peers = HashMap::new();
        Self { most, peers }
    }

    /// Whether to name the peer now, which was refused. It must have been refused before, this long
    /// ago.
    fn due(&mut self, peer: SocketAddr, again_after: Duration, now: Instant) -> bool {
        self.peers
            .retain(|_, seen| now.duration_since(seen.last) < PERIOD);
        if self.peers.len() >= self.most && !self.peers.contains_key(&peer) {
            return false;
        }
        let seen = self.peers.entry(peer).or_insert(Seen {
            first: now,
            last: now,
            named: None,
        });
        seen.last = now;
        let named = |at: Instant| now.duration_since(at) < PERIOD;
        if seen.named.is_some_and(named) || now.duration_since(seen.first) < again_after {
            return false;
        }
        seen.named = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn one_address_is_named_once_in_ten_minutes() {
        let (mut named, begin) = (Named::new(2), Instant::now());
        let mut due = |port, second| {
            let now = begin + Duration::from_secs(second);
            named.due(at(port), Duration::ZERO, now)
        };
        assert!(due(1, 0) && due(2, 0));
        // No more addresses than that.
        assert!(!due(3, 1));
        let again: Vec<u64> = (1..1300).filter(|second| due(1, *second)).collect();
        assert_eq!(again, [600, 1200]);
        assert!(due(3, 1300), "the second one was not refused any more");
    }

    #[test]
    fn a_silo_that_stops_is_not_named() {
        let (mut named, begin) = (Named::new(2), Instant::now());
        let mut due = |ms| named.due(at(1), AGAIN_AFTER, begin + Duration::from_millis(ms));
        assert!(!due(0) && !due(100));
        assert!(due(250) && !due(400));
    }
}
