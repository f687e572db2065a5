//! Whose heartbeat stands still. No clocks are compared: only counters, and only by my own monotonic time, and only in reads that were made
//! after my last pause and after the table's last outage for me.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Heartbeats, MonoTime, SharedSettings, SiloAddress};

/// A heartbeat must have stood still in at least so many reads.
const MIN_READS: u32 = 3;

#[derive(Debug)]
struct Watch {
    counter: u64,
    /// When the answer of the first read that showed this counter came.
    since: MonoTime,
    /// Reads that showed it, each at least half a period after the one before.
    reads: u32,
    /// The last of those.
    counted: MonoTime,
    /// When the last read that showed it was sent.
    last: MonoTime,
}

#[derive(Debug, Default)]
pub(crate) struct Staleness {
    watches: BTreeMap<SiloAddress, Watch>,
    counters: BTreeMap<SiloAddress, u64>,
    /// Those that stood still in enough reads: usually none, so that looking every second costs nothing.
    still: Vec<SiloAddress>,
}

impl Staleness {
    /// Everything seen so far no longer counts: I was paused, or the table was away.
    pub(crate) fn reset(&mut self) {
        self.watches.clear();
        self.still.clear();
    }

    /// Heartbeats were read, by a call sent at `sent` whose answer came at `now`; they are from some moment between. So standing still
    /// counts from the answer of the first read to the question of the last. Only silos in `alive`, which is sorted, are watched.
    pub(crate) fn on_read(&mut self, sent: MonoTime, now: MonoTime, heartbeats: &Heartbeats, alive: &[SiloAddress], period: Duration) {
        self.watches.retain(|s, _| alive.binary_search(s).is_ok());
        self.counters.retain(|s, _| alive.binary_search(s).is_ok());
        self.still.clear();
        for silo in alive.iter().copied() {
            let known = self.counters.entry(silo).or_insert(0);
            *known = (*known).max(heartbeats.counter(&silo));
            let counter = *known;
            match self.watches.get_mut(&silo) {
                Some(w) if w.counter == counter => {
                    w.last = w.last.max(sent);
                    if sent.since(w.counted) >= period / 2 {
                        w.reads += 1;
                        w.counted = sent;
                    }
                    if w.reads >= MIN_READS {
                        self.still.push(silo);
                    }
                }
                _ => {
                    self.watches.insert(silo, Watch { counter, since: now, reads: 1, counted: now, last: sent });
                }
            }
        }
    }

    /// Everybody whose heartbeat has stood still for long enough. (That it has not answered me either is for the caller to add.)
    pub(crate) fn standing_still(&self, now: MonoTime, settings: &SharedSettings) -> impl Iterator<Item = SiloAddress> {
        self.still.iter().copied().filter(move |silo| self.stands_still(silo, now, settings))
    }

    fn stands_still(&self, silo: &SiloAddress, now: MonoTime, settings: &SharedSettings) -> bool {
        self.watches.get(silo).is_some_and(|w| {
            w.reads >= MIN_READS && w.last.since(w.since) >= settings.staleness() && now.since(w.last) <= settings.i_am_alive_period
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heartbeat, WallTime};

    fn at(ms: u64) -> MonoTime {
        MonoTime::ZERO + Duration::from_millis(ms)
    }

    fn beats(silo: SiloAddress, counter: u64) -> Heartbeats {
        Heartbeats { silos: [(silo, Heartbeat { counter, at: WallTime::default() })].into(), cluster: None }
    }

    #[test]
    fn stale_only_after_three_periods_in_three_reads_and_a_fresh_one() {
        let settings = SharedSettings::default();
        let p = settings.i_am_alive_period;
        let silo = SiloAddress::new([10, 0, 0, 1].into(), 1, 1);
        let mut s = Staleness::default();
        for ms in [0, 5_000, 10_000, 29_999] {
            s.on_read(at(ms), at(ms), &beats(silo, 4), &[silo], p);
            assert!(s.standing_still(at(ms), &settings).next().is_none(), "{ms}");
        }
        s.on_read(at(30_000), at(30_000), &beats(silo, 4), &[silo], p);
        assert_eq!(s.standing_still(at(30_000), &settings).collect::<Vec<_>>(), [silo]);
        assert!(s.standing_still(at(40_001), &settings).next().is_none(), "the last read is too old");
        s.on_read(at(41_000), at(41_000), &beats(silo, 5), &[silo], p);
        assert!(s.standing_still(at(41_000), &settings).next().is_none(), "it moved");
    }

    #[test]
    fn two_reads_far_apart_or_a_reset_between_prove_nothing() {
        let settings = SharedSettings::default();
        let p = settings.i_am_alive_period;
        let silo = SiloAddress::new([10, 0, 0, 1].into(), 1, 1);
        let mut s = Staleness::default();
        s.on_read(at(0), at(0), &beats(silo, 4), &[silo], p);
        s.on_read(at(60_000), at(60_000), &beats(silo, 4), &[silo], p);
        assert!(s.standing_still(at(60_000), &settings).next().is_none());
        s.reset();
        s.on_read(at(65_000), at(65_000), &beats(silo, 4), &[silo], p);
        assert!(s.standing_still(at(65_000), &settings).next().is_none());
    }
}
