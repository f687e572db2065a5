//! Where the pulse of the cluster speaks for silos that write heartbeats rarely: from the ground truth.

use std::time::Duration;

use crate::clock::VirtualTime;
use crate::ground_truth::GroundTruth;
use membership_core::{SiloAddress, SiloStatus, Snapshot, Suspicion};

/// However many silos there are, each writes a heartbeat about this often.
const RAREST: Duration = Duration::from_secs(300);
/// So many refresh periods after a commit everybody knows it who judges others.
const KNOWN: u32 = 3;

impl GroundTruth {
    /// Records the votes against this silo that a commit has written.
    pub(crate) fn record_votes(&mut self, before: &Snapshot, after: &Snapshot, silo: SiloAddress) {
        if self.heartbeat_spacing.is_none() {
            return;
        }
        let votes = |of: &Snapshot| {
            of.rows
                .get(&silo)
                .map_or(Vec::new(), |e| e.suspicions.clone())
        };
        let known = votes(before);
        let is_new = |vote: &Suspicion| !known.contains(vote);
        if votes(after).iter().any(is_new) {
            self.accused.entry(silo).or_default().push(self.now);
        }
    }

    /// Records whether the table has so many Active silos that their leader's heartbeat is the pulse.
    pub(crate) fn record_pulse(&mut self, after: &Snapshot) {
        let Some(spacing) = self.heartbeat_spacing else {
            return;
        };
        let active = after.rows.entries();
        let active = active.filter(|e| e.status == SiloStatus::Active).count();
        let all = spacing.saturating_mul(u32::try_from(active).unwrap_or(u32::MAX));
        let rare = all.min(RAREST);
        if rare <= self.config.i_am_alive_period {
            self.pulse_since = None;
        } else if self.pulse_since.is_none() {
            (self.pulse_since, self.rare) = (Some(self.now), rare);
        } else {
            self.rare = self.rare.min(rare);
        }
    }

    /// Whether no silo that decided at `decided` can have taken this one for stale although its heartbeat
    /// stood still: everybody knew that the cluster has a pulse, there was no vote against the silo that
    /// was fresh, and not so many rare heartbeats were missing.
    #[must_use]
    pub fn pulse_speaks_for(&self, silo: &SiloAddress, decided: VirtualTime) -> bool {
        let c = &self.config;
        let known = self.longest(c.table_refresh_period * KNOWN + c.i_am_alive_period * KNOWN);
        let lasts = self.longest(c.death_vote_expiration + c.i_am_alive_period * 2);
        let fresh = |at: &VirtualTime| *at <= decided && decided.saturating_sub(*at) <= lasts;
        let longest = self.shortest(self.rare * c.num_missed_i_am_alive_limit);
        let beats = self.heartbeats.get(silo);
        let mut beats = beats.into_iter().flatten().flatten();
        beats.any(|at| decided.saturating_sub(*at) < longest)
            && self
                .pulse_since
                .is_some_and(|since| decided.saturating_sub(since) >= known)
            && !self.table_changed.overlaps(decided.saturating_sub(known))
            && !self
                .accused
                .get(silo)
                .is_some_and(|all| all.iter().any(fresh))
    }
}
