//! From which addresses members came of late. A silo that dials others may show another address
//! than the one in its row: behind NAT, or with a second interface. It must not share the places of
//! strangers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::sources::host;

/// How many addresses are remembered. Beyond it, the one that was seen first is forgotten.
const MOST: usize = 4096;
/// For how long. A link that lasts is seen again and again.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The addresses from which members proved who they are, with when they were last seen there.
#[derive(Debug, Default)]
pub(super) struct Recent(HashMap<IpAddr, Instant>);

impl Recent {
    pub(super) fn note(&mut self, from: IpAddr, now: Instant) {
        let from = host(from);
        if self.0.len() >= MOST && !self.0.contains_key(&from) {
            self.0
                .retain(|_, seen| now.duration_since(*seen) < REMEMBERED);
            let first = self.0.iter().min_by_key(|(_, seen)| **seen);
            if let Some(first) = first
                .map(|(from, _)| *from)
                .filter(|_| self.0.len() >= MOST)
            {
                self.0.remove(&first);
            }
        }
        self.0.insert(from, now);
    }

    pub(super) fn has(&self, from: IpAddr, now: Instant) -> bool {
        let seen = self.0.get(&host(from));
        seen.is_some_and(|seen| now.duration_since(*seen) < REMEMBERED)
    }

    pub(super) fn knows(&self, from: IpAddr) -> bool {
        self.0.contains_key(&host(from))
    }

    pub(super) fn forget(&mut self, from: IpAddr) {
        self.0.remove(&host(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_remembered_for_minutes_and_many_are_bounded() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let at = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        for n in 0..2 * MOST {
            recent.note(at(n), now + Duration::from_millis(n as u64));
        }
        assert_eq!(recent.0.len(), MOST);
        let later = now + Duration::from_secs(20);
        assert!(recent.has(at(2 * MOST - 1), later) && !recent.has(at(0), later));
        assert!(!recent.has(at(2 * MOST - 1), later + REMEMBERED));
        assert!(recent.knows(at(2 * MOST - 1)));
        recent.forget(at(2 * MOST - 1));
        assert!(!recent.knows(at(2 * MOST - 1)));
    }
}
