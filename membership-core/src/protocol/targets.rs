//! Chooses the silos to probe: ring successors, accused silos, and a share of the stale rows.

use std::collections::BTreeSet;

use super::machine::Protocol;
use super::rings::{self, Rings};
use crate::SiloAddress;

/// Maximum number of accused silos that a silo probes besides its ring successors.
const MAX_ACCUSED_TARGETS: usize = 10;
/// How many silos share the probing of each stale row.
const STALE_SHARE: usize = 4;
/// Up to so many Active silos also probe each other by rings of their own while most silos join.
const MAX_WATCHED: usize = 256;
/// Maximum number of stale rows that a silo probes at a time. A roll call names all stale rows, so the
/// others need no probes of their own to leave; those that do not leave come next.
const MAX_STALE_TARGETS: usize = 10;

impl Protocol {
    /// Chooses the silos to probe: ring successors, accused silos, and this silo's share of the
    /// stale rows.
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
            if ctx.variant.scribe && ctx.members.joining.len() > active.len() {
                // Most of the ring successors do not vote, and an Active silo that is gone holds all
                // Joining ones up.
                if active.len() <= MAX_WATCHED {
                    targets.extend(rings::successors(&ctx.me, active, silos));
                } else if let Some(oldest) = ctx.leader().filter(|s| *s != ctx.me)
                    && rings::is_my_share(&ctx.me, &oldest, active, STALE_SHARE)
                {
                    targets.insert(oldest);
                }
            }
            let votes = |s: &SiloAddress| ctx.confirmed_entry(s).map_or(&[][..], |e| &e.suspicions);
            let fresh = |s: &SiloAddress| votes(s).iter().any(|v| ctx.is_fresh(*s, v));
            targets.extend(
                ctx.members
                    .accused
                    .iter()
                    .filter(|s| **s != ctx.me && fresh(s))
                    .take(MAX_ACCUSED_TARGETS),
            );
            if !self.stale.is_empty() {
                let live: Vec<SiloAddress> = ctx
                    .members
                    .active
                    .iter()
                    .filter(|s| !self.stale.contains(s))
                    .copied()
                    .collect();
                targets.extend(
                    self.stale
                        .iter()
                        .filter(|s| rings::is_my_share(&ctx.me, s, &live, STALE_SHARE))
                        .take(MAX_STALE_TARGETS),
                );
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
