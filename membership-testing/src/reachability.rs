//! Which silos reached each other, from the ground truth: in any interval of the past, over links
//! that are cut one by one, between processes that pause.
//!
//! P10 and P12 to P14 judge by it.

use std::time::Duration;

use crate::clock::VirtualTime;
use crate::ground_truth::{GroundTruth, JUDGED, ProcessRecord};
use membership_core::SiloAddress;

/// How many round trips a probe's timeout follows.
const SAMPLES: u32 = 100;

impl GroundTruth {
    /// Records the longest latency that a message can have from now on.
    pub(crate) fn record_latency(&mut self, longest: Duration) {
        if self.latencies.last().is_none_or(|(_, l)| *l != longest) {
            self.latencies.push((self.now, longest));
        }
    }

    /// The longest latency of a message from `from` to `to`.
    #[must_use]
    pub fn longest_latency(&self, from: VirtualTime, to: VirtualTime) -> Duration {
        let next = self.latencies.iter().skip(1).map(|(since, _)| Some(*since));
        self.latencies
            .iter()
            .zip(next.chain([None]))
            .filter(|((since, _), until)| *since <= to && until.is_none_or(|u| u >= from))
            .map(|((_, latency), _)| *latency)
            .max()
            .unwrap_or_default()
    }

    /// By how much the timeout of a probe can be longer now than without experience: it follows the
    /// last hundred round trips of a link.
    #[must_use]
    pub fn grown_timeout(&self) -> Duration {
        let c = &self.config;
        let from = self.ago(self.longest(c.probe_period * SAMPLES));
        // Of round trips from nothing to `most`, the mean and 5.226 standard deviations are at most
        // 3.113 times that.
        let most = self.longest_latency(from, self.now) * 2;
        let grown = most.mul_f64(3.12).min(c.max_probe_timeout);
        grown.saturating_sub(c.probe_timeout())
    }

    /// How long before a decision the causes of a death can lie. A roll call asks each silo for two
    /// probes now, and waits up to a failure window for what was sent before; no suspicion is older
    /// than a probe period, which a silo that is not well stretches; and the writer may still wait
    /// for its last table call.
    #[must_use]
    pub fn roll_call_lookback(&self) -> Duration {
        let c = &self.config;
        self.longest(c.max_probe_timeout * 3 + c.failure_window * 2 + c.table_call_timeout)
    }

    /// The longest time without a break in which a process was paused or held, of the times that
    /// have a part in `from..=to`.
    #[must_use]
    pub fn longest_silence(record: &ProcessRecord, from: VirtualTime, to: VirtualTime) -> Duration {
        let pauses = record.paused.spans(from, to);
        let mut spans: Vec<_> = pauses.chain(record.held.spans(from, to)).collect();
        spans.sort_unstable();
        let (mut longest, mut last) = (Duration::ZERO, None);
        for (since, until) in spans {
            let (begin, end) = match last {
                Some((begin, end)) if since <= end => (begin, until.max(end)),
                _ => (since, until),
            };
            longest = longest.max(end.saturating_sub(begin));
            last = Some((begin, end));
        }
        longest
    }

    /// The longest time without a break in which a process ran and was neither paused nor held, of
    /// the times that have a part in `from..=to`.
    #[must_use]
    pub fn longest_run(record: &ProcessRecord, from: VirtualTime, to: VirtualTime) -> Duration {
        let pauses = record.paused.spans(from, to);
        let mut spans: Vec<_> = pauses.chain(record.held.spans(from, to)).collect();
        spans.sort_unstable();
        let (mut longest, mut since) = (Duration::ZERO, from.max(record.started));
        for (begin, end) in spans {
            longest = longest.max(begin.saturating_sub(since));
            since = since.max(end);
        }
        longest.max(to.saturating_sub(since))
    }

    /// Whether a silo ran for so long without a pause that it could have judged others: after each
    /// pause it probes them anew within a probe period, counts their silence for a failure window, and a
    /// call takes as long.
    #[must_use]
    pub fn could_judge(&self, silo: &SiloAddress, from: VirtualTime, to: VirtualTime) -> bool {
        let least = self.config.failure_window * 2 + self.config.probe_period;
        let least = self.longest(least);
        self.owner(silo)
            .is_some_and(|record| Self::longest_run(record, from, to) >= least)
    }

    /// Whether a silo ran from `from` (or its start) to `to`, and answered every message within a
    /// failure window by any clock. It may have paused, any number of times, each time for less
    /// than that.
    #[must_use]
    pub fn answered(&self, silo: &SiloAddress, from: VirtualTime, to: VirtualTime) -> bool {
        self.answered_although(silo, from, to, Duration::ZERO)
    }

    /// The same, if each silence of it began this long before it stood still.
    #[must_use]
    pub fn answered_although(
        &self,
        silo: &SiloAddress,
        from: VirtualTime,
        to: VirtualTime,
        unasked: Duration,
    ) -> bool {
        let round_trip = self.longest_latency(from, to) * 2;
        let most = self
            .shortest(self.config.failure_window)
            .saturating_sub(round_trip);
        self.owner(silo).is_some_and(|record| {
            let silence = Self::longest_silence(record, from, to);
            record.started <= to
                && record.ended.is_none_or(|end| end > to)
                && !record.hidden
                && (silence.is_zero() || silence + unasked < most)
        })
    }

    /// The longest time between two probes of one silo to another, where so few silos are Active that each
    /// probes all others. In a larger cluster a silo is probed by many, one after the other: zero.
    #[must_use]
    pub fn between_probes(&self, active: usize) -> Duration {
        let (period, rings) = (self.config.probe_period, self.config.num_probed_silos);
        let others = u32::try_from(active.saturating_sub(1)).unwrap_or(u32::MAX);
        if others > rings {
            return Duration::ZERO;
        }
        let least = Duration::from_secs(1).min(period);
        self.longest((period * others / rings.max(1)).max(least))
    }

    /// Whether two silos [answered](Self::answered) and reached each other in both directions all
    /// the time from `from` (or the start of the younger one) to `to`. While messages are lost at
    /// random, or are slower than a quarter of the shortest probe timeout, nobody can know that: no
    /// silo counts as reached. Nor does a silo whose table was changed from outside: it belongs to
    /// another history than those that have the present table.
    #[must_use]
    pub fn reached(
        &self,
        a: &SiloAddress,
        b: &SiloAddress,
        from: VirtualTime,
        to: VirtualTime,
    ) -> bool {
        let (Some(x), Some(y)) = (self.owner(a), self.owner(b)) else {
            return false;
        };
        let blocked = |from_host, to_host| {
            self.blocks
                .get(&(from_host, to_host))
                .is_some_and(|i| i.during(from, to))
        };
        let loses = |host| self.lossy.get(&host).is_some_and(|i| i.during(from, to));
        self.answered(a, from, to)
            && self.answered(b, from, to)
            && self.has_original_table(a)
            && self.has_original_table(b)
            && !self.rough_network.during(from, to)
            && !self.network_down.during(from, to)
            && (x.host == y.host
                || !(blocked(x.host, y.host)
                    || blocked(y.host, x.host)
                    || loses(x.host)
                    || loses(y.host)))
    }

    /// Whether no question of `a` to `b` was answered from `from` to `to`: `b` did not run, or one
    /// direction was blocked all the time.
    #[must_use]
    pub fn unreachable(
        &self,
        a: &SiloAddress,
        b: &SiloAddress,
        from: VirtualTime,
        to: VirtualTime,
    ) -> bool {
        let (Some(x), Some(y)) = (self.owner(a), self.owner(b)) else {
            return false;
        };
        let blocked = |from_host, to_host| {
            self.blocks
                .get(&(from_host, to_host))
                .is_some_and(|i| i.throughout(from, to))
        };
        !y.hidden
            && (y.ended.is_some_and(|end| end <= from)
                || y.paused.throughout(from, to)
                || y.held.throughout(from, to)
                || blocked(x.host, y.host)
                || blocked(y.host, x.host))
    }

    /// Whether the heartbeat of a silo advanced so often that no silo that decided at `decided` can
    /// have seen it stand still for `gap`. False if the last three advances do not show that.
    #[must_use]
    pub fn beat_without_gap(
        &self,
        silo: &SiloAddress,
        decided: VirtualTime,
        gap: Duration,
    ) -> bool {
        let Some(beats) = self.heartbeats.get(silo) else {
            return false;
        };
        // The read that shows the gap is at most a period old.
        let read = decided.saturating_sub(self.longest(self.config.i_am_alive_period + JUDGED));
        let (gap, mut later) = (self.shortest(gap), decided);
        for beat in beats.iter().flatten().filter(|beat| **beat <= decided) {
            if later.saturating_sub(*beat) >= gap {
                return false;
            }
            if *beat <= read {
                return true;
            }
            later = *beat;
        }
        false
    }
}
