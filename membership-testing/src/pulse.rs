//! Where the pulse of the cluster speaks for silos that write heartbeats rarely: from the ground truth.

use crate::clock::VirtualTime;
use crate::ground_truth::GroundTruth;
use membership_core::{SiloAddress, SiloStatus, Snapshot, Suspicion};

/// So many refresh periods after a commit everybody knows it who judges others.
const KNOWN: u32 = 3;

impl GroundTruth {
    /// Records the votes against this silo that a commit has written.
    pub(crate) fn record_votes(&mut self, before: &Snapshot, after: &Snapshot, silo: SiloAddress) {
        if self.pulse_above.is_none() {
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
        let Some(limit) = self.pulse_above else {
            return;
        };
        let active = after.rows.entries();
        let mut active = active.filter(|e| e.status == SiloStatus::Active);
        if after.rows.len() > limit && active.nth(limit).is_some() {
            self.pulse_since.get_or_insert(self.now);
        } else {
            self.pulse_since = None;
        }
    }

    /// Whether no silo that decided at `decided` can have taken this one for stale, however long its
    /// heartbeat stood still: everybody knew that the cluster has a pulse, and no vote against the silo
    /// that was fresh.
    #[must_use]
    pub fn pulse_speaks_for(&self, silo: &SiloAddress, decided: VirtualTime) -> bool {
        let c = &self.config;
        let known = self.longest(c.table_refresh_period * KNOWN + c.i_am_alive_period * KNOWN);
        let lasts = self.longest(c.death_vote_expiration + c.i_am_alive_period * 2);
        let fresh = |at: &VirtualTime| *at <= decided && decided.saturating_sub(*at) <= lasts;
        self.pulse_since
            .is_some_and(|since| decided.saturating_sub(since) >= known)
            && !self.table_changed.overlaps(decided.saturating_sub(known))
            && !self
                .accused
                .get(silo)
                .is_some_and(|all| all.iter().any(fresh))
    }
}
