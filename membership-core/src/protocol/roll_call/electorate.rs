//! Who counts in a roll call, and whether those who failed to reach a suspect are enough.

use std::collections::BTreeSet;
use std::time::Duration;

use super::is_joining;
use crate::SiloAddress;
use crate::intent::{self, Count};
use crate::protocol::context::Ctx;
use crate::protocol::standoff::Expiry;

/// Who counts, and how this silo is.
pub(crate) struct Electorate<'a> {
    pub(crate) stale: &'a BTreeSet<SiloAddress>,
    /// Challenged silos that have written no heartbeat since. They count in majorities.
    pub(crate) challenged: &'a BTreeSet<SiloAddress>,
    pub(crate) score: u8,
    /// Nobody has answered a probe of this silo for a while.
    pub(crate) quiet: bool,
    /// How long an answer may take.
    pub(crate) timeout: Duration,
}

/// Whether a silo writes heartbeats.
pub(crate) fn expiry(
    stale: &BTreeSet<SiloAddress>,
    challenged: &BTreeSet<SiloAddress>,
    silo: &SiloAddress,
) -> Expiry {
    if stale.contains(silo) {
        Expiry::Stale
    } else if challenged.contains(silo) {
        Expiry::Challenged
    } else {
        Expiry::No
    }
}

impl Electorate<'_> {
    /// Whether a silo writes no heartbeats: it can be voted out without a majority.
    pub(super) fn is_expired(&self, silo: &SiloAddress) -> bool {
        self.expiry(silo) > Expiry::No
    }

    pub(super) fn expiry(&self, silo: &SiloAddress) -> Expiry {
        expiry(self.stale, self.challenged, silo)
    }

    /// Whether so few silos are Active that the Joining ones count as well.
    pub(super) fn joining_count(&self, ctx: &Ctx) -> bool {
        let active = ctx.members.active.iter();
        intent::joining_count(active.filter(|s| !self.stale.contains(s)).count(), false)
    }

    /// Whether these silos are enough to vote out a suspect (`unopposed` = nobody reaches it): the rule of
    /// [`is_majority`](intent::is_majority), by the lists of the confirmed view.
    pub(super) fn majority<'a>(
        &self,
        ctx: &Ctx,
        suspect: &SiloAddress,
        silos: impl Iterator<Item = &'a SiloAddress>,
        unopposed: bool,
        sample: Option<usize>,
    ) -> bool {
        let members = &ctx.members;
        let is_active = |s: &SiloAddress| members.active.binary_search(s).is_ok();
        let fresh = |all: usize, which: &dyn Fn(&SiloAddress) -> bool| {
            all - self.stale.iter().filter(|s| which(s)).count()
        };
        let (mut active, mut joining) = (Count::default(), Count::default());
        active.all = fresh(members.active.len(), &is_active);
        let suspect_joins = is_joining(ctx, suspect);
        let with_joining = intent::joining_count(active.all, suspect_joins);
        if with_joining {
            joining.all = fresh(members.joining.len(), &|s| is_joining(ctx, s));
            let leaves = !suspect_joins && !is_active(suspect) && !self.stale.contains(suspect);
            joining.all += usize::from(leaves);
        }
        let may_tie = active.all.is_multiple_of(2) || (active.all + joining.all).is_multiple_of(2);
        let leader = if may_tie { ctx.leader() } else { None };
        let mut leads = false;
        for silo in silos.filter(|s| !self.stale.contains(s)) {
            leads |= unopposed && leader == Some(*silo);
            if is_active(silo) {
                active.some += 1;
            } else if with_joining && is_joining(ctx, silo) {
                joining.some += 1;
            }
        }
        intent::outnumber(active, joining, suspect_joins, leads, sample)
    }
}
