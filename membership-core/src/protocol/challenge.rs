//! Where no majority is left, silos that died cannot be voted out before their heartbeats are stale.
//! A vote that does not count, a *challenge*, asks them to show that they still write: then half of
//! that time is enough.
//!
//! Only a silo whose last roll call reached no majority acts on a challenge. A challenged silo writes
//! a heartbeat at once, and then three times as often. The challenged silo's row stays in the
//! denominator of majorities.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::{Heartbeats, MonoTime, SharedSettings, SiloAddress};

/// Minimum number of reads in which the heartbeat must have stood still, and the time between two.
const MIN_READS: u32 = 4;
/// See [`MIN_READS`].
pub(crate) const BETWEEN_READS: Duration = Duration::from_secs(1);
/// How many heartbeats of this silo must have been read back meanwhile: writes work.
const OWN_BEATS: u64 = 2;

#[derive(Debug)]
struct Watch {
    counter: u64,
    /// When the first read that showed this counter was answered.
    since: MonoTime,
    reads: u32,
    /// The time of the last read that was counted.
    counted: MonoTime,
    /// When the last read that showed this counter was sent.
    last: MonoTime,
    /// The counter of this silo in the first of these reads.
    own: u64,
}

/// The heartbeats of challenged silos, since each was challenged.
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    watches: BTreeMap<SiloAddress, Watch>,
    /// The last heartbeat of this silo that was read.
    own: u64,
}

impl Challenges {
    /// Discards all observations: this silo was paused, or the table was unavailable.
    pub(crate) fn reset(&mut self) {
        self.watches.clear();
    }

    /// Handles heartbeats from a read that was sent at `sent` and answered at `now`.
    pub(crate) fn on_read(
        &mut self,
        sent: MonoTime,
        now: MonoTime,
        heartbeats: &Heartbeats,
        challenged: &BTreeSet<SiloAddress>,
        me: &SiloAddress,
    ) {
        let counter = |silo: &SiloAddress| heartbeats.silos.get(silo).map_or(0, |b| b.counter);
        self.own = self.own.max(counter(me));
        self.watches.retain(|silo, _| challenged.contains(silo));
        for silo in challenged {
            let read = counter(silo);
            match self.watches.get_mut(silo).filter(|w| w.counter >= read) {
                Some(watch) => {
                    watch.last = watch.last.max(sent);
                    if sent.since(watch.counted) >= BETWEEN_READS {
                        watch.reads = watch.reads.saturating_add(1);
                        watch.counted = sent;
                    }
                }
                None => {
                    let watch = Watch {
                        counter: read,
                        since: now,
                        reads: 1,
                        counted: now,
                        last: sent,
                        own: self.own,
                    };
                    self.watches.insert(*silo, watch);
                }
            }
        }
    }

    /// All challenged silos whose heartbeat has stood still for half of the time of a stale one.
    /// (The caller must also check that they have not answered.)
    pub(crate) fn standing_still(
        &self,
        now: MonoTime,
        settings: &SharedSettings,
    ) -> impl Iterator<Item = SiloAddress> {
        let (period, least) = (settings.i_am_alive_period, settings.staleness() / 2);
        let still = move |w: &Watch| {
            w.reads >= MIN_READS
                && w.last.since(w.since) >= least
                && now.since(w.last) <= period
                && self.own >= w.own.saturating_add(OWN_BEATS)
        };
        let still = self.watches.iter().filter(move |(_, w)| still(w));
        still.map(|(silo, _)| *silo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heartbeat, WallTime};

    struct Reading {
        challenges: Challenges,
        challenged: BTreeSet<SiloAddress>,
        now: MonoTime,
    }

    fn silo(n: u8) -> SiloAddress {
        SiloAddress::new([10, 0, 0, n].into(), 7100, 1)
    }

    impl Reading {
        fn new() -> Self {
            Self {
                challenges: Challenges::default(),
                challenged: [silo(2)].into(),
                now: MonoTime::ZERO,
            }
        }

        /// Reads these counters of silos 1, this one, and 2 after some time; returns who is silent.
        fn read(&mut self, after_ms: u64, counters: [u64; 2]) -> Vec<SiloAddress> {
            self.now = self.now + Duration::from_millis(after_ms);
            let beat = |counter| Heartbeat {
                counter,
                at: WallTime::default(),
            };
            let silos = [(silo(1), beat(counters[0])), (silo(2), beat(counters[1]))];
            let beats = Heartbeats::new(silos.into(), None);
            self.challenges
                .on_read(self.now, self.now, &beats, &self.challenged, &silo(1));
            let settings = SharedSettings::default();
            self.challenges
                .standing_still(self.now, &settings)
                .collect()
        }
    }

    #[test]
    fn a_challenged_heartbeat_stands_still_for_half_of_the_usual_time() {
        let half = SharedSettings::default().staleness() / 2;
        let ms = u64::try_from(half.as_millis()).unwrap();
        let mut r = Reading::new();
        assert_eq!(r.read(0, [4, 9]), []);
        assert_eq!(r.read(1_000, [4, 9]), []);
        assert_eq!(r.read(1_000, [5, 9]), []);
        assert_eq!(r.read(ms - 2_001, [6, 9]), [], "a moment too early");
        assert_eq!(r.read(1, [6, 9]), [silo(2)]);
        assert_eq!(r.read(1_000, [6, 10]), [], "it beats");
    }

    #[test]
    fn few_reads_own_writes_that_fail_or_a_pause_prove_nothing() {
        let mut r = Reading::new();
        r.read(0, [4, 9]);
        r.read(900, [4, 9]);
        r.read(60_000, [6, 9]);
        assert_eq!(r.read(900, [6, 9]), [], "two reads a second apart");
        assert_eq!(r.read(1_000, [6, 9]), [], "three");
        assert_eq!(r.read(1_000, [6, 9]), [silo(2)]);
        let mut r = Reading::new();
        for _ in 0..60 {
            assert_eq!(
                r.read(1_000, [5, 9]),
                [],
                "this silo's writes do not arrive"
            );
        }
        r.challenges.reset();
        assert_eq!(r.read(1_000, [7, 9]), []);
        r.challenged.clear();
        assert_eq!(r.read(1_000, [9, 9]), []);
    }
}
