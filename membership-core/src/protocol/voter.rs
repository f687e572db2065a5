//! Turns suspicions into votes. It takes them fresh from the prober for every attempt to write, and
//! holds back each vote that a rule forbids.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::context::Ctx;
use super::partition::{PartitionCheck, Verdict};
use super::prober::{Prober, Suspect};
use crate::intent::{Action, Intent};
use crate::{Evidence, IntentId, MonoTime, SiloAddress, Suspicion, SuspicionReason};

#[derive(Debug, Default)]
pub(crate) struct Voter {
    /// Suspects that did not answer a partition check: when the check ended, and whether this silo
    /// is on the larger side.
    checked: BTreeMap<SiloAddress, (MonoTime, bool)>,
    /// When a vote of this silo against each silo was last written.
    voted: BTreeMap<SiloAddress, MonoTime>,
    /// Since when this silo sees each silo Joining.
    joining: BTreeMap<SiloAddress, MonoTime>,
    /// The earliest of these times: nothing is checked until it is old enough.
    joining_since: Option<MonoTime>,
}

/// The inputs of the voter.
pub(crate) struct VoterInput<'a> {
    pub(crate) stale: &'a BTreeSet<SiloAddress>,
    /// All probed silos are silent: only stale silos may be accused.
    pub(crate) deaf: bool,
    pub(crate) score: u8,
    pub(crate) local: u8,
    pub(crate) health_multiplier: u32,
}

impl Voter {
    /// Discards all earlier observations.
    pub(crate) fn reset(&mut self, now: MonoTime) {
        self.checked.clear();
        for since in self.joining.values_mut() {
            *since = now;
        }
        self.joining_since = self.joining.values().min().copied();
    }

    pub(crate) fn on_view(&mut self, ctx: &Ctx) {
        let now = ctx.mono();
        let joining = &ctx.members.joining;
        self.joining.retain(|s, _| joining.binary_search(s).is_ok());
        for silo in joining.iter().filter(|s| **s != ctx.me) {
            self.joining.entry(*silo).or_insert(now);
        }
        self.joining_since = self.joining.values().min().copied();
        let alive = |s: &SiloAddress| ctx.members.alive.binary_search(s).is_ok();
        self.checked.retain(|s, _| alive(s));
        self.voted.retain(|s, _| alive(s));
    }

    pub(crate) fn on_verdict(&mut self, verdict: &Verdict) {
        for (silo, majority) in &verdict.silent {
            self.checked.insert(*silo, (verdict.at, *majority));
        }
    }

    /// Records that a vote of this silo was written.
    pub(crate) fn landed(&mut self, ctx: &Ctx, silo: SiloAddress) {
        self.voted.insert(silo, ctx.mono());
    }

    /// Whether no local reason prevents this silo from accusing others. An announced view is
    /// confirmed first: majorities are counted in what the table says.
    fn may_judge(ctx: &Ctx, input: &VoterInput<'_>) -> bool {
        ctx.is_active()
            && !ctx.suspended
            && !ctx.table_doubted()
            && !ctx.is_announced()
            && input.local == 0
    }

    /// All silos that this silo would vote against now, before the partition rule.
    fn candidates(&self, ctx: &Ctx, prober: &Prober, input: &VoterInput<'_>) -> Vec<Suspect> {
        if !Self::may_judge(ctx, input) {
            return Vec::new();
        }
        let now = ctx.mono();
        let window = ctx.failure_window();
        let mut all = prober.suspects(ctx, input.score, input.health_multiplier);
        let limit = ctx.settings().max_join_attempt_time;
        if self
            .joining_since
            .is_some_and(|first| now.since(first) >= limit)
        {
            for (silo, since) in &self.joining {
                if now.since(*since) >= limit && !all.iter().any(|s| s.silo == *silo) {
                    all.push(stuck(ctx, *silo, input.score));
                }
            }
        }
        all.retain(|s| {
            // A vote is renewed once per failure window while the suspicion lasts.
            let voted = self
                .voted
                .get(&s.silo)
                .is_some_and(|t| now.since(*t) < window);
            // The failed probe must be at most one probe period old (probing continues and renews
            // it) and not from before the table recovered.
            let fresh = now.since(s.failed_at) <= s.period
                && ctx.table.recovered_at.is_none_or(|t| s.failed_at >= t);
            !voted && fresh && (!input.deaf || input.stale.contains(&s.silo))
        });
        all
    }

    /// Holds back votes against silos that show signs of life; starts a partition check where one
    /// is needed.
    pub(crate) fn poll(
        &mut self,
        ctx: &mut Ctx,
        prober: &mut Prober,
        check: &mut PartitionCheck,
        input: &VoterInput<'_>,
    ) {
        let suspects = self.candidates(ctx, prober, input);
        for suspect in suspects.iter().filter(|s| s.evidence_of_life) {
            prober.suppressed(&suspect.silo);
        }
        if check.is_running() || !ctx.variant.partition_checks || !Self::may_judge(ctx, input) {
            return;
        }
        let now = ctx.mono();
        let due = |silo: &SiloAddress, period: Duration| {
            self.checked
                .get(silo)
                .is_none_or(|(t, _)| now.since(*t) >= period)
        };
        let may_be_alone =
            |silo: &SiloAddress| !input.stale.contains(silo) && ctx.members.active.len() > 2;
        let (mut to_check, mut stuck) = (BTreeSet::new(), BTreeSet::new());
        for suspect in suspects.iter().filter(|s| !s.evidence_of_life) {
            if may_be_alone(&suspect.silo)
                && self.verdict(ctx, suspect).is_none()
                && due(&suspect.silo, suspect.period)
            {
                to_check.insert(suspect.silo);
                if suspect.mine.reason == SuspicionReason::Stuck {
                    stuck.insert(suspect.silo);
                }
            }
        }
        if !input.deaf {
            // The check takes one probe period. It may start while the last probe is in flight,
            // because both have ended when the check ends.
            let doubted = prober.doubted(ctx).filter(|s| {
                may_be_alone(s) && due(s, prober.period(ctx, s, input.health_multiplier))
            });
            to_check.extend(doubted);
        }
        if !to_check.is_empty() {
            let timeout = to_check
                .iter()
                .map(|s| prober.period(ctx, s, input.health_multiplier))
                .max()
                .unwrap_or(ctx.config.probe_timeout);
            check.start(ctx, to_check, stuck, timeout);
        }
    }

    /// The result of a check of a suspect that still counts: it ended at most two probe periods ago
    /// and this silo is on the larger side.
    fn verdict(&self, ctx: &Ctx, suspect: &Suspect) -> Option<()> {
        if !ctx.variant.partition_checks {
            return Some(());
        }
        let (at, majority) = self.checked.get(&suspect.silo)?;
        (*majority && ctx.mono().since(*at) <= suspect.period.saturating_mul(2)).then_some(())
    }

    /// The votes to write now.
    pub(crate) fn intents(
        &self,
        ctx: &mut Ctx,
        prober: &Prober,
        input: &VoterInput<'_>,
    ) -> Vec<Intent> {
        let mut intents = Vec::new();
        for suspect in self.candidates(ctx, prober, input) {
            let stale = input.stale.contains(&suspect.silo);
            if suspect.evidence_of_life || !(stale || self.verdict(ctx, &suspect).is_some()) {
                continue;
            }
            let mut mine = suspect.mine;
            mine.evidence.stale = stale;
            let votes = std::iter::once(mine).chain(suspect.consent).collect();
            let id = IntentId::new(ctx.random_id());
            intents.push(Intent::new(
                id,
                Some(ctx.me),
                Action::Suspect {
                    suspect: suspect.silo,
                    votes,
                },
            ));
        }
        intents
    }

    /// Whether a vote is held back only because this silo has not seen the suspect's heartbeat
    /// stand still.
    pub(crate) fn waits_for_staleness(
        &self,
        ctx: &Ctx,
        prober: &Prober,
        input: &VoterInput<'_>,
    ) -> bool {
        let all = VoterInput {
            stale: input.stale,
            deaf: false,
            score: input.score,
            local: input.local,
            health_multiplier: input.health_multiplier,
        };
        self.candidates(ctx, prober, &all)
            .iter()
            .any(|s| !input.stale.contains(&s.silo))
    }
}

fn stuck(ctx: &Ctx, silo: SiloAddress, score: u8) -> Suspect {
    let evidence = Evidence {
        accuser_health: score,
        ..Evidence::default()
    };
    Suspect {
        silo,
        mine: Suspicion {
            accuser: ctx.me,
            at: ctx.now.wall,
            reason: SuspicionReason::Stuck,
            evidence,
            extra: crate::Extra::default(),
        },
        consent: None,
        failed_at: ctx.mono(),
        period: ctx.config.probe_timeout.max(Duration::from_millis(1)),
        evidence_of_life: false,
    }
}
