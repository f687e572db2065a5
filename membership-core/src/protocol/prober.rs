//! Probes other silos and keeps one record for each: misses, timeouts, the indirect last probe, and
//! what counts as a suspicion.
//!
//! It never writes and never votes; it reports which silos it suspects now, and since when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::context::Ctx;
use super::estimator::Estimator;
use super::message::{IndirectOutcome, Message};
use super::notice::Observation;
use super::timers::Timer;
use crate::{Evidence, MonoTime, SiloAddress, Suspicion, SuspicionReason, WallTime};

/// Maximum number of votes in a row that fresh evidence of life holds back.
pub(crate) const MAX_SUPPRESSED: u32 = 3;

#[derive(Debug)]
struct Flight {
    nonce: u64,
    began: MonoTime,
    timeout: Duration,
    /// The intermediary, for an indirect probe.
    via: Option<SiloAddress>,
}

#[derive(Debug, Default)]
struct Peer {
    estimator: Estimator,
    flight: Option<Flight>,
    misses: u32,
    /// The last failed probe: when it began (monotonic), its timeout, and the wall clock when it
    /// had failed.
    failed: Option<(MonoTime, Duration, WallTime)>,
    failed_at: Option<MonoTime>,
    last_answer: Option<(MonoTime, WallTime)>,
    /// When the question was sent whose answer came last, on any connection.
    asked: Option<MonoTime>,
    /// The intermediary's vote, and when it arrived.
    consent: Option<(MonoTime, Suspicion)>,
    suppressed: u32,
}

/// A silo that this silo would vote against now.
#[derive(Debug, Clone)]
pub(crate) struct Suspect {
    pub(crate) silo: SiloAddress,
    pub(crate) mine: Suspicion,
    pub(crate) consent: Option<Suspicion>,
    /// When the last probe failed, by this silo's clock.
    pub(crate) failed_at: MonoTime,
    /// The current timeout of one probe to it.
    pub(crate) period: Duration,
    /// It answered a question that was sent after that probe began.
    pub(crate) evidence_of_life: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Prober {
    /// The probed silos: a few, for any size of the cluster. They are checked after every input.
    targets: BTreeMap<SiloAddress, Peer>,
    /// Records of other alive silos that answered something or were probed before.
    others: BTreeMap<SiloAddress, Peer>,
    /// Intermediaries that were silent or could not judge, and until when they are not asked.
    excluded: BTreeMap<SiloAddress, MonoTime>,
    last_answer: Option<MonoTime>,
    /// The value of `losses` up to which records of silos that are no longer alive were removed.
    losses: u64,
}

impl Prober {
    /// Sets the targets to exactly these silos. The record of a former target is kept while that
    /// silo is alive.
    pub(crate) fn set_targets(&mut self, ctx: &mut Ctx, targets: &BTreeSet<SiloAddress>) {
        let is_alive = |s: &SiloAddress| ctx.members.alive.binary_search(s).is_ok();
        if self.losses != ctx.members.losses {
            self.losses = ctx.members.losses;
            self.excluded.retain(|s, _| is_alive(s));
            self.others.retain(|s, _| is_alive(s));
        }
        let dropped: Vec<SiloAddress> = self
            .targets
            .keys()
            .filter(|s| !targets.contains(s) || !is_alive(s))
            .copied()
            .collect();
        for silo in dropped {
            ctx.timers.clear(Timer::Probe(silo));
            ctx.timers.clear(Timer::Doubt(silo));
            if let Some(mut peer) = self.targets.remove(&silo).filter(|_| is_alive(&silo)) {
                peer.flight = None;
                peer.misses = 0;
                peer.consent = None;
                self.others.insert(silo, peer);
            }
        }
        for silo in targets {
            if !self.targets.contains_key(silo) {
                let peer = self.others.remove(silo).unwrap_or_default();
                self.targets.insert(*silo, peer);
                let delay = ctx.jitter(ctx.config.probe_timeout);
                ctx.set_timer(Timer::Probe(*silo), delay);
            }
        }
    }

    fn peer(&self, silo: &SiloAddress) -> Option<&Peer> {
        self.targets.get(silo).or_else(|| self.others.get(silo))
    }

    fn peer_mut(&mut self, silo: &SiloAddress) -> Option<&mut Peer> {
        self.targets
            .get_mut(silo)
            .or_else(|| self.others.get_mut(silo))
    }

    pub(crate) fn targets(&self) -> usize {
        self.targets.len()
    }

    /// When any silo last answered a probe.
    pub(crate) fn last_answer(&self) -> Option<MonoTime> {
        self.last_answer
    }

    /// When this silo last answered.
    pub(crate) fn answered_at(&self, silo: &SiloAddress) -> Option<MonoTime> {
        self.peer(silo).and_then(|p| p.last_answer).map(|(t, _)| t)
    }

    /// The last sign of life of a silo, by both clocks of this process.
    pub(crate) fn last_sign(&self, silo: &SiloAddress) -> Option<(MonoTime, WallTime)> {
        self.peer(silo).and_then(|p| p.last_answer)
    }

    /// All silos that answered within a window.
    pub(crate) fn answered(&self, now: MonoTime, window: Duration) -> BTreeSet<SiloAddress> {
        let all = self.targets.iter().chain(&self.others);
        all.filter(|(_, p)| p.last_answer.is_some_and(|(t, _)| now.since(t) <= window))
            .map(|(s, _)| *s)
            .collect()
    }

    pub(crate) fn answered_within(
        &self,
        silo: &SiloAddress,
        now: MonoTime,
        window: Duration,
    ) -> bool {
        self.answered_at(silo)
            .is_some_and(|t| now.since(t) <= window)
    }

    /// Resets all miss counters: the network or the table was unavailable for all silos.
    pub(crate) fn forget_misses(&mut self) {
        for peer in self.targets.values_mut().chain(self.others.values_mut()) {
            peer.misses = 0;
            peer.consent = None;
            peer.failed = None;
            peer.failed_at = None;
        }
    }

    /// Discards probes in flight after a pause of this silo, and starts them again.
    pub(crate) fn void(&mut self, ctx: &mut Ctx) {
        for (silo, peer) in &mut self.targets {
            peer.flight = None;
            let delay = ctx.jitter(ctx.config.probe_timeout);
            ctx.set_timer(Timer::Probe(*silo), delay);
        }
    }

    fn timeout(peer: &Peer, ctx: &Ctx, health_multiplier: u32) -> Duration {
        let c = &ctx.config;
        peer.estimator
            .timeout(c.probe_timeout)
            .max(c.min_probe_timeout)
            .saturating_mul(health_multiplier)
            .min(c.max_probe_timeout)
    }

    /// Handles the timer of one peer: its probe has timed out, or the next one is due.
    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx, silo: SiloAddress, health_multiplier: u32) {
        let now = ctx.mono();
        let Some(peer) = self.targets.get_mut(&silo) else {
            return;
        };
        if let Some(flight) = peer.flight.take() {
            match flight.via {
                // The intermediary was silent: this is not a miss, but it is not asked again soon.
                Some(via) => {
                    self.excluded
                        .insert(via, now + ctx.failure_window().saturating_mul(2));
                }
                None => Self::miss(peer, ctx, silo, &flight, false),
            }
        }
        let limit = ctx.config.num_missed_probes_limit;
        let Some(peer) = self.targets.get(&silo) else {
            return;
        };
        let indirect = ctx.variant.indirect_probes && peer.misses + 1 == limit;
        let timeout = Self::timeout(peer, ctx, health_multiplier);
        let via = if indirect {
            self.intermediary(ctx, &silo)
        } else {
            None
        };
        let nonce = ctx.random();
        match via {
            Some(via) => {
                ctx.send_to(
                    via,
                    Message::IndirectProbe {
                        round: nonce,
                        suspect: silo,
                        timeout,
                    },
                );
                ctx.set_timer(Timer::Probe(silo), timeout.saturating_mul(5) / 2);
            }
            None => {
                ctx.send_to(silo, Message::Probe { nonce });
                ctx.set_timer(Timer::Probe(silo), timeout);
            }
        }
        if indirect && limit > 1 {
            ctx.set_timer(Timer::Doubt(silo), timeout / 2);
        }
        if let Some(peer) = self.targets.get_mut(&silo) {
            peer.flight = Some(Flight {
                nonce,
                began: now,
                timeout,
                via,
            });
        }
    }

    /// Silos whose last probe before a vote has been in flight for at least half its timeout. Empty
    /// for a limit of one miss, because this would then apply to every silo that answers a little
    /// late.
    pub(crate) fn doubted(&self, ctx: &Ctx) -> impl Iterator<Item = SiloAddress> {
        let (now, limit) = (ctx.mono(), ctx.config.num_missed_probes_limit);
        let last = self
            .targets
            .iter()
            .filter(move |(_, p)| limit > 1 && p.misses.saturating_add(1) == limit);
        last.filter(move |(_, p)| {
            p.flight
                .as_ref()
                .is_some_and(|f| now.since(f.began) >= f.timeout / 2)
        })
        .map(|(silo, _)| *silo)
    }

    fn miss(peer: &mut Peer, ctx: &mut Ctx, silo: SiloAddress, flight: &Flight, indirect: bool) {
        peer.misses = peer.misses.saturating_add(1);
        peer.failed = Some((flight.began, flight.timeout, ctx.now.wall));
        peer.failed_at = Some(ctx.mono());
        ctx.observe(Observation::ProbeMissed {
            peer: silo,
            misses: peer.misses,
            indirect,
        });
    }

    /// A random Active silo that answered within the failure window and is not excluded as an
    /// intermediary.
    fn intermediary(&self, ctx: &mut Ctx, suspect: &SiloAddress) -> Option<SiloAddress> {
        let now = ctx.mono();
        let window = ctx.failure_window();
        let fit: Vec<SiloAddress> = ctx
            .members
            .active
            .iter()
            .filter(|s| {
                **s != ctx.me
                    && *s != suspect
                    && !s.same_endpoint(suspect)
                    && self.answered_within(s, now, window)
                    && self.excluded.get(s).is_none_or(|until| *until <= now)
            })
            .copied()
            .collect();
        let i = ctx.below(fit.len());
        fit.get(i).copied()
    }

    /// Handles the answer to a probe. Returns true when it was one of this machine's probes.
    pub(crate) fn on_ack(&mut self, ctx: &mut Ctx, from: SiloAddress, nonce: u64) -> bool {
        let now = ctx.mono();
        let Some(peer) = self.targets.get_mut(&from) else {
            return false;
        };
        let Some(flight) = peer
            .flight
            .as_ref()
            .filter(|f| f.nonce == nonce && f.via.is_none())
        else {
            return false;
        };
        let round_trip = now.since(flight.began);
        let next = (flight.began + flight.timeout).max(now);
        peer.estimator.add(round_trip);
        peer.asked = peer.asked.max(Some(flight.began));
        peer.flight = None;
        ctx.timers.set(Timer::Probe(from), next);
        ctx.observe(Observation::ProbeAnswered {
            peer: from,
            round_trip,
        });
        self.alive(ctx, from);
        true
    }

    /// Clears all suspicion of a silo that answered a probe.
    fn alive(&mut self, ctx: &Ctx, from: SiloAddress) {
        if let Some(peer) = self.peer_mut(&from) {
            peer.misses = 0;
            peer.consent = None;
            peer.suppressed = 0;
            peer.last_answer = Some((ctx.mono(), ctx.now.wall));
            self.last_answer = Some(ctx.mono());
        }
    }

    /// Handles the answer of a silo to another message, sent at `asked`, on any connection.
    pub(crate) fn on_evidence(&mut self, ctx: &Ctx, from: SiloAddress, asked: MonoTime) {
        if ctx.members.alive.binary_search(&from).is_ok() {
            let peer = match self.targets.get_mut(&from) {
                Some(peer) => peer,
                None => self.others.entry(from).or_default(),
            };
            // A time in the future would suppress votes until then.
            peer.asked = peer.asked.max(Some(asked.min(ctx.mono())));
            peer.last_answer = Some((ctx.mono(), ctx.now.wall));
        }
    }

    /// Handles an answer to the partition check: the silo is alive.
    pub(crate) fn on_check_answer(&mut self, ctx: &Ctx, from: SiloAddress, asked: MonoTime) {
        self.on_evidence(ctx, from, asked);
        self.alive(ctx, from);
    }

    /// Handles the answer of an intermediary.
    pub(crate) fn on_indirect(
        &mut self,
        ctx: &mut Ctx,
        from: SiloAddress,
        round: u64,
        outcome: &IndirectOutcome,
        health_multiplier: u32,
    ) {
        let found = self.targets.iter().find(|(_, p)| {
            p.flight
                .as_ref()
                .is_some_and(|f| f.nonce == round && f.via == Some(from))
        });
        let Some(silo) = found.map(|(s, _)| *s) else {
            return;
        };
        let now = ctx.mono();
        let Some(peer) = self.targets.get_mut(&silo) else {
            return;
        };
        let Some(flight) = peer.flight.take() else {
            return;
        };
        match outcome {
            IndirectOutcome::Yes => {
                peer.misses = 0;
                peer.consent = None;
                peer.suppressed = 0;
            }
            IndirectOutcome::No { consent } => {
                // Only the own vote of a healthy silo counts.
                let sound = |c: &Suspicion| {
                    c.accuser == from
                        && !from.same_endpoint(&silo)
                        && c.evidence.accuser_health == 0
                };
                peer.consent = consent.clone().filter(sound).map(|mut c| {
                    // This silo writes the vote and sets its time, because the intermediary's clock
                    // may be wrong.
                    c.evidence.via = Some(ctx.me);
                    c.at = ctx.now.wall;
                    c.reason = SuspicionReason::Silent;
                    (now, c)
                });
                Self::miss(peer, ctx, silo, &flight, true);
            }
            IndirectOutcome::Unknown => {
                self.excluded
                    .insert(from, now + ctx.failure_window().saturating_mul(2));
            }
        }
        let Some(peer) = self.targets.get(&silo) else {
            return;
        };
        let wait = Self::timeout(peer, ctx, health_multiplier);
        ctx.timers
            .set(Timer::Probe(silo), (flight.began + wait).max(now));
    }

    /// The current timeout of one probe to this silo.
    pub(crate) fn period(&self, ctx: &Ctx, silo: &SiloAddress, health_multiplier: u32) -> Duration {
        self.peer(silo).map_or(ctx.config.probe_timeout, |p| {
            Self::timeout(p, ctx, health_multiplier)
        })
    }

    /// All silos that have missed too many probes, as of now.
    pub(crate) fn suspects(&self, ctx: &Ctx, health: u8, health_multiplier: u32) -> Vec<Suspect> {
        let limit = ctx.config.num_missed_probes_limit;
        self.targets
            .iter()
            .filter(|(_, p)| p.misses >= limit)
            .filter_map(|(silo, p)| {
                let (began, timeout, wall) = p.failed?;
                let evidence = Evidence {
                    misses: p.misses,
                    timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
                    last_answer: p.last_answer.map(|(_, w)| w),
                    via: None,
                    accuser_health: health,
                    stale: false,
                };
                let mine = Suspicion {
                    accuser: ctx.me,
                    at: wall,
                    reason: SuspicionReason::Silent,
                    evidence,
                    extra: crate::Extra::default(),
                };
                let period = Self::timeout(p, ctx, health_multiplier);
                // A consent may wait for the partition check, which takes one period, but not
                // longer: only another indirect probe can renew it.
                let lasts = period.saturating_mul(2);
                let consent = p
                    .consent
                    .as_ref()
                    .filter(|(at, _)| ctx.mono().since(*at) <= lasts)
                    .map(|(_, c)| c.clone());
                Some(Suspect {
                    silo: *silo,
                    mine,
                    consent,
                    failed_at: p.failed_at?,
                    period,
                    evidence_of_life: ctx.variant.evidence_of_life
                        && p.suppressed < MAX_SUPPRESSED
                        && p.asked.is_some_and(|a| a > began),
                })
            })
            .collect()
    }

    /// Records that evidence of life held back a vote.
    pub(crate) fn suppressed(&mut self, silo: &SiloAddress) {
        if let Some(p) = self.targets.get_mut(silo) {
            p.suppressed = p.suppressed.saturating_add(1);
            // Further probes up to the limit decide again.
            p.misses = 0;
            p.consent = None;
        }
    }
}
