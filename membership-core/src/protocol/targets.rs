//! Chooses the silos to probe: ring successors, a few accused silos, and a share of many and of the stale rows.

use std::collections::BTreeSet;

use super::machine::Protocol;
use super::rings::{self, Rings, Share};
use super::roll_call::few_vote;
use crate::SiloAddress;

/// Up to so many silos with fresh votes against them are probed by everybody. Where there are more, as
/// after a network that was down for a minute, all would pay for the same few as long as the votes are
/// fresh, and they are shared.
const MAX_PROBED_BY_ALL: usize = 3;
/// How many silos probe each stale row, and each of many accused silos.
const SHARE: usize = 4;
/// Up to so many Active silos also probe each other by rings of their own while most silos join.
const MAX_WATCHED: usize = 256;
/// Maximum number of those that a silo probes at a time. A roll call names all stale rows, so the
/// others need no probes of their own to leave; those that do not leave come next.
const MAX_SHARED: usize = 10;

impl Protocol {
    /// Chooses the silos to probe: ring successors, a few accused silos, or this silo's share of many,
    /// and its share of the stale rows.
    pub(super) fn retarget(&mut self) {
        self.voter.on_view(&self.ctx);
        let mut targets = BTreeSet::new();
        let moved = self.ctx.members.moved.replace(Vec::new());
        if self.ctx.is_active() {
            let ctx = &self.ctx;
            let (silos, one_ring) = (ctx.config.num_probed_silos, ctx.variant.one_ring);
            self.successors.follow(
                ctx.me,
                &ctx.members,
                moved.as_deref(),
                Rings {
                    silos,
                    one: one_ring,
                },
            );
            targets.extend(self.successors.silos());
            let active = &ctx.members.active;
            // Where few vote, one that none of the others probes would be missed by nobody who may vote. P14
            let most_join = ctx.variant.scribe && ctx.members.joining.len() > active.len();
            if most_join || few_vote(ctx) {
                // Most of the ring successors do not vote, and an Active silo that is gone holds all
                // Joining ones up.
                if active.len() <= MAX_WATCHED {
                    targets.extend(rings::successors(&ctx.me, active, silos));
                } else if let Some(oldest) = ctx.leader().filter(|s| *s != ctx.me)
                    && Share::of(&ctx.me, active.iter(), SHARE).is_mine(&oldest)
                {
                    targets.insert(oldest);
                }
            }
            let votes = |s: &SiloAddress| ctx.confirmed_entry(s).map_or(&[][..], |e| &e.suspicions);
            let fresh = |s: &&SiloAddress| votes(s).iter().any(|v| ctx.is_fresh(**s, v));
            let accused = ctx.members.accused.iter().filter(fresh);
            let mut shared: BTreeSet<SiloAddress> =
                accused.filter(|s| **s != ctx.me).copied().collect();
            if shared.len() <= MAX_PROBED_BY_ALL {
                targets.append(&mut shared);
            }
            shared.extend(&self.stale);
            if !shared.is_empty() {
                let live = ctx
                    .members
                    .active
                    .iter()
                    .filter(|s| !self.stale.contains(s));
                let share = Share::of(&ctx.me, live, SHARE);
                let mine = shared.into_iter().filter(|s| share.is_mine(s));
                targets.extend(mine.take(MAX_SHARED));
            }
        } else {
            self.successors = rings::Successors::default();
        }
        // Usually the targets have not changed.
        if self.aimed_at.0 != targets || self.aimed_at.1 != self.ctx.members.losses {
            let usual: BTreeSet<_> = self.successors.silos().collect();
            self.prober.set_besides(targets.difference(&usual).copied());
            self.prober.set_targets(&mut self.ctx, &targets);
            self.aimed_at = (targets, self.ctx.members.losses);
        }
    }
}
