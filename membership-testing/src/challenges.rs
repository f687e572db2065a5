//! Which silos were challenged in the table, and when: from the ground truth.

use crate::clock::VirtualTime;
use crate::ground_truth::GroundTruth;
use membership_core::{SiloAddress, Snapshot, Suspicion, SuspicionReason};

impl GroundTruth {
    /// Records a challenge that a commit has written.
    pub(crate) fn record_challenge(
        &mut self,
        before: &Snapshot,
        after: &Snapshot,
        silo: SiloAddress,
    ) {
        let known = before.rows.get(&silo).map_or(&[][..], |e| &e.suspicions);
        let is_new = |v: &Suspicion| v.reason == SuspicionReason::Challenge && !known.contains(v);
        if after
            .rows
            .get(&silo)
            .is_some_and(|e| e.suspicions.iter().any(is_new))
        {
            self.challenged.entry(silo).or_default().push(self.now);
        }
    }

    /// Whether a challenge of this silo can have counted for a decision. The commit of that decision
    /// may renew the challenge; then the earlier one counted.
    #[must_use]
    pub fn is_challenged(&self, silo: &SiloAddress, decided: VirtualTime) -> bool {
        let lasts = self.config.death_vote_expiration + self.config.i_am_alive_period * 2;
        let lasts = self.longest(lasts);
        self.challenged.get(silo).is_some_and(|times| {
            times
                .iter()
                .any(|at| *at <= decided && decided.saturating_sub(*at) <= lasts)
        })
    }
}
