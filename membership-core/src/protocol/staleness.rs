//! Finds stale heartbeats. Clocks are never compared: only counters, by this silo's monotonic time,
//! in reads after its last pause and after the last outage of the table.

use std::time::Duration;

use crate::{Heartbeats, MonoTime, SharedSettings, SiloAddress};

/// Minimum number of reads in which a heartbeat must have stood still.
const MIN_READS: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Watch {
    /// When the first read that showed this counter was answered.
    since: MonoTime,
    /// Number of reads that showed it, each at least half a period after the one before.
    reads: u32,
    /// The time of the last of these reads.
    counted: MonoTime,
    /// When the last read that showed it was sent.
    last: MonoTime,
}

/// The record of one silo's heartbeat.
#[derive(Clone, Copy, Debug)]
struct Known {
    silo: SiloAddress,
    /// The largest counter that was read.
    counter: u64,
    /// The observation of that counter; none before the first read that counts.
    watch: Option<Watch>,
}

#[derive(Debug, Default)]
pub(crate) struct Staleness {
    /// By silo.
    known: Vec<Known>,
    /// Silos whose heartbeat stood still in enough reads. Usually none, so that the check every
    /// second is cheap.
    still: Vec<SiloAddress>,
}

impl Staleness {
    /// Discards all observations: this silo was paused, or the table was unavailable.
    pub(crate) fn reset(&mut self) {
        for known in &mut self.known {
            known.watch = None;
        }
        self.still.clear();
    }

    /// Handles heartbeats from a read that was sent at `sent` and answered at `now`; they are from
    /// some moment between. Standing still therefore counts from the answer of the first read to
    /// the sending of the last. Only silos in `alive`, which is sorted, are watched. One pass over
    /// all three lists in parallel.
    pub(crate) fn on_read(
        &mut self,
        sent: MonoTime,
        now: MonoTime,
        heartbeats: &Heartbeats,
        alive: &[SiloAddress],
        period: Duration,
    ) {
        self.still.clear();
        let mut before = std::mem::take(&mut self.known).into_iter().peekable();
        let mut beats = heartbeats.silos.iter().peekable();
        self.known.reserve(alive.len());
        for silo in alive.iter().copied() {
            while before.next_if(|known| known.silo < silo).is_some() {}
            while beats.next_if(|(s, _)| **s < silo).is_some() {}
            let old = before.next_if(|known| known.silo == silo);
            let read = beats
                .next_if(|(s, _)| **s == silo)
                .map_or(0, |(_, beat)| beat.counter);
            let counter = old.map_or(0, |known| known.counter).max(read);
            let mut watch = old
                .filter(|known| known.counter == counter)
                .and_then(|known| known.watch);
            match &mut watch {
                Some(w) => {
                    w.last = w.last.max(sent);
                    if sent.since(w.counted) >= period / 2 {
                        w.reads += 1;
                        w.counted = sent;
                    }
                    if w.reads >= MIN_READS {
                        self.still.push(silo);
                    }
                }
                None => {
                    watch = Some(Watch {
                        since: now,
                        reads: 1,
                        counted: now,
                        last: sent,
                    })
                }
            }
            self.known.push(Known {
                silo,
                counter,
                watch,
            });
        }
    }

    /// All silos whose heartbeat has stood still for long enough, each with the time when the last read
    /// was sent that showed that. (The caller must also check that they have not answered.)
    pub(crate) fn standing_still(
        &self,
        now: MonoTime,
        settings: &SharedSettings,
    ) -> impl Iterator<Item = (SiloAddress, MonoTime)> {
        let stands = move |silo: &SiloAddress| {
            let read = self.stands_still(silo, now, settings)?;
            Some((*silo, read))
        };
        self.still.iter().filter_map(stands)
    }

    /// How long the heartbeat of a silo has stood still, as far as reads show.
    pub(crate) fn stood_still_for(&self, silo: &SiloAddress) -> Duration {
        let at = self.known.binary_search_by_key(silo, |known| known.silo);
        let watch = at.ok().and_then(|i| self.known.get(i)?.watch);
        watch.map_or(Duration::ZERO, |w| w.last.since(w.since))
    }

    fn stands_still(
        &self,
        silo: &SiloAddress,
        now: MonoTime,
        settings: &SharedSettings,
    ) -> Option<MonoTime> {
        let at = self.known.binary_search_by_key(silo, |known| known.silo);
        let watch = at.ok().and_then(|i| self.known.get(i)?.watch);
        let still = watch.filter(|w| {
            w.reads >= MIN_READS
                && w.last.since(w.since) >= settings.staleness()
                && now.since(w.last) <= settings.i_am_alive_period
        });
        still.map(|w| w.last)
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
        Heartbeats::new(
            [(
                silo,
                Heartbeat {
                    counter,
                    at: WallTime::default(),
                },
            )]
            .into(),
            None,
        )
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
        assert_eq!(
            s.standing_still(at(30_000), &settings).collect::<Vec<_>>(),
            [(silo, at(30_000))]
        );
        assert!(
            s.standing_still(at(40_001), &settings).next().is_none(),
            "the last read is too old"
        );
        s.on_read(at(41_000), at(41_000), &beats(silo, 5), &[silo], p);
        assert!(
            s.standing_still(at(41_000), &settings).next().is_none(),
            "it moved"
        );
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

    #[test]
    fn a_heartbeat_stands_still_from_one_read_to_another() {
        let p = SharedSettings::default().i_am_alive_period;
        let silo = SiloAddress::new([10, 0, 0, 1].into(), 1, 1);
        let mut s = Staleness::default();
        assert_eq!(s.stood_still_for(&silo), Duration::ZERO);
        for (ms, counter, still) in [(0, 4, 0), (5_000, 4, 5), (9_000, 5, 0), (12_000, 5, 3)] {
            s.on_read(at(ms), at(ms), &beats(silo, counter), &[silo], p);
            assert_eq!(s.stood_still_for(&silo), Duration::from_secs(still), "{ms}");
        }
        s.reset();
        assert_eq!(s.stood_still_for(&silo), Duration::ZERO);
    }

    #[test]
    fn a_counter_that_goes_back_is_no_sign_of_life() {
        let settings = SharedSettings::default();
        let p = settings.i_am_alive_period;
        let silo = SiloAddress::new([10, 0, 0, 1].into(), 1, 1);
        let mut s = Staleness::default();
        for (ms, counter) in [(0, 4), (10_000, 3), (20_000, 4), (30_000, 4)] {
            s.on_read(at(ms), at(ms), &beats(silo, counter), &[silo], p);
        }
        assert!(s.standing_still(at(30_000), &settings).next().is_some());
    }

    #[test]
    fn reads_in_quick_succession_count_as_one() {
        let settings = SharedSettings::default();
        let p = settings.i_am_alive_period;
        let silo = SiloAddress::new([10, 0, 0, 1].into(), 1, 1);
        let mut s = Staleness::default();
        for ms in [0, 29_999, 30_000] {
            s.on_read(at(ms), at(ms), &beats(silo, 4), &[silo], p);
        }
        assert!(s.standing_still(at(30_000), &settings).next().is_none());
    }
}
