//! Probes other silos and keeps one record for each: round trips, misses, and what counts as a
//! suspicion.
//!
//! It never writes and never votes; it reports which silos it suspects now, and since when. A
//! missed probe is followed by another at once. A late answer is a sign of life and a sample. A
//! refused connection is a miss at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::context::Ctx;
use super::early::Early;
use super::estimator::Estimator;
use super::message::Message;
use super::observation::Observation;
use super::timers::Timer;
use crate::hooks::Calls;
use crate::{Evidence, MonoTime, SiloAddress, Suspicion, SuspicionReason, WallTime};

/// Maximum number of votes in a row that fresh evidence of life holds back.
pub(crate) const MAX_SUPPRESSED: u32 = 3;
/// The shortest period between probes of one silo, when few silos are probed.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// Within which time new targets are probed first while most silos join.
const WHILE_MANY_JOIN: Duration = Duration::from_millis(250);
/// The part of a probe timeout within which answers of one silo have come together.
const TOGETHER: u32 = 8;
/// How many unanswered probes of one silo are remembered, so that a late answer is recognized.
const MAX_LATE: usize = 8;
/// So many records of silos that this one does not probe are kept, however old they are.
const FEW_OTHERS: usize = 256;
/// Beyond them, how long records are kept after the last answer: many times what any decision looks back.
const KEPT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy)]
struct Flight {
    nonce: u64,
    sent: MonoTime,
    timeout: Duration,
}

/// A probe that was not answered in time.
#[derive(Debug, Clone, Copy)]
struct Failed {
    sent: MonoTime,
    timeout: Duration,
    at: MonoTime,
    wall: WallTime,
}

#[derive(Debug, Default)]
struct Peer {
    estimator: Estimator,
    flight: Option<Flight>,
    /// Probes whose time is over, and when they were sent.
    late: VecDeque<(u64, MonoTime)>,
    misses: u32,
    /// Since its last answer its machine has refused connections.
    refused: bool,
    /// When the next probe is due, while one is under way that was sent early.
    planned: Option<MonoTime>,
    /// A probe was sent again because the connection was lost, and it has not answered since.
    resent: bool,
    /// The last failed probe.
    failed: Option<Failed>,
    /// When the first probe was sent that it has left unanswered since its last answer.
    silent_since: Option<MonoTime>,
    last_answer: Option<(MonoTime, WallTime)>,
    /// The last answer of its protocol; those of its application do not count here.
    last_reply: Option<MonoTime>,
    /// When the last probe was answered, and the round trip that was taken from that.
    sampled: Option<(MonoTime, Duration)>,
    /// When the question was sent whose answer came last, on any connection.
    asked: Option<MonoTime>,
    suppressed: u32,
}

/// A silo that this silo would vote against now.
#[derive(Debug, Clone)]
pub(crate) struct Suspect {
    pub(crate) silo: SiloAddress,
    pub(crate) mine: Suspicion,
    /// When the last probe failed, by this silo's clock.
    pub(crate) failed_at: MonoTime,
    /// It answered a question that was sent after that probe.
    pub(crate) evidence_of_life: bool,
}

/// What this silo's own probes say of another silo.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence {
    pub(crate) misses: u32,
    pub(crate) refused: bool,
    /// When the first unanswered message was sent.
    pub(crate) since: MonoTime,
    /// When the last probe failed.
    pub(crate) failed_at: MonoTime,
    pub(crate) timeout: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Prober {
    /// The probed silos: a few, for any size of the cluster. They are checked after every input.
    targets: BTreeMap<SiloAddress, Peer>,
    /// Targets besides those of every silo: accused and stale ones.
    besides: BTreeSet<SiloAddress>,
    /// Records of other alive silos that answered something or were probed before.
    others: BTreeMap<SiloAddress, Peer>,
    /// Of so many records the old ones go.
    most_others: usize,
    /// The round trips of all silos.
    overall: Estimator,
    last_answer: Option<MonoTime>,
    /// When a missed probe last made this silo look at all others.
    looked: Option<MonoTime>,
    early: Early,
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
            if let Some(mut peer) = self.targets.remove(&silo).filter(|_| is_alive(&silo)) {
                peer.flight = None;
                peer.misses = 0;
                peer.silent_since = None;
                self.others.insert(silo, peer);
            }
        }
        let mut spread = period(ctx, targets.len());
        if ctx.variant.scribe && ctx.members.joining.len() > ctx.members.active.len() {
            // An Active silo that is gone holds all Joining ones up.
            spread = spread.min(WHILE_MANY_JOIN);
        }
        for silo in targets {
            let is_alive = ctx.members.alive.binary_search(silo).is_ok();
            if is_alive && !self.targets.contains_key(silo) {
                let peer = self.others.remove(silo).unwrap_or_default();
                self.targets.insert(*silo, peer);
                let delay = ctx.jitter(spread);
                ctx.set_timer(Timer::Probe(*silo), delay);
            }
        }
    }

    /// The targets to come are these besides those that every silo probes at any time: all of them
    /// together are probed no more often than those are.
    pub(crate) fn set_besides(&mut self, targets: impl Iterator<Item = SiloAddress>) {
        self.besides = targets.collect();
    }

    /// The time between two probes of a target.
    fn period(&self, ctx: &Ctx, silo: &SiloAddress) -> Duration {
        let (full, most) = (ctx.config.probe_period, ctx.config.num_probed_silos.max(1));
        let usual = self.targets.len().saturating_sub(self.besides.len());
        if !self.besides.contains(silo) {
            return period(ctx, usual);
        }
        let besides = u32::try_from(self.besides.len()).unwrap_or(u32::MAX);
        full.max(full.saturating_mul(besides) / most)
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

    /// When the protocol of this silo last answered.
    pub(crate) fn replied_at(&self, silo: &SiloAddress) -> Option<MonoTime> {
        self.peer(silo).and_then(|p| p.last_reply)
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
            peer.failed = None;
            peer.silent_since = None;
            peer.refused = false;
        }
    }

    /// Discards probes in flight after a pause of this silo, and starts them again.
    pub(crate) fn void(&mut self, ctx: &mut Ctx) {
        let period = period(ctx, self.targets.len());
        for (silo, peer) in &mut self.targets {
            peer.flight = None;
            let delay = ctx.jitter(period);
            ctx.set_timer(Timer::Probe(*silo), delay);
        }
    }

    /// The current timeout of one probe to this silo.
    pub(crate) fn timeout(&self, ctx: &Ctx, silo: &SiloAddress, multiplier: u32) -> Duration {
        let own = self.peer(silo).and_then(|p| p.estimator.timeout());
        let least = ctx.probe_timeout();
        own.or_else(|| self.overall.timeout())
            .unwrap_or(least)
            .max(least)
            .saturating_mul(multiplier)
            .min(ctx.config.max_probe_timeout.max(least))
    }

    /// Handles the timer of one peer: its probe has timed out, or the next one is due.
    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx, silo: SiloAddress, multiplier: u32) {
        let timeout = self.timeout(ctx, &silo, multiplier);
        let period = self.period(ctx, &silo);
        let Some(peer) = self.targets.get_mut(&silo) else {
            return;
        };
        let mut missed = false;
        if let Some(flight) = peer.flight.take() {
            peer.miss(ctx, silo, flight);
            missed = peer.misses == 1;
            let next = (flight.sent + period).max(ctx.mono());
            // It is suspected, and the probes only show whether it comes back; or too many were sent early.
            let suspected = peer.misses >= ctx.config.num_missed_probes_limit;
            if next > ctx.mono() && (suspected || !self.early.take(ctx.mono(), &ctx.config)) {
                ctx.set_timer_at(Timer::Probe(silo), next);
                return;
            }
        }
        peer.probe(ctx, silo, timeout);
        if missed {
            self.look_around(ctx, multiplier);
        }
    }

    /// A silo has missed a probe, and others may have fallen silent at the same moment: all are
    /// probed now, at most once in two failure windows and not where many were probed early, because where
    /// many messages are slow or lost this happens again and again. Their next probes stay where they were.
    fn look_around(&mut self, ctx: &mut Ctx, multiplier: u32) {
        let now = ctx.mono();
        let recent = |at: MonoTime| now.since(at) < ctx.failure_window() * 2;
        let many = self.early.has_many(now, &ctx.config);
        if self.looked.is_some_and(recent) || !many || ctx.variant.calls != Calls::Everybody {
            return;
        }
        self.looked = Some(now);
        let quiet = |(_, p): &(&SiloAddress, &Peer)| p.flight.is_none() && p.misses == 0;
        let others: Vec<SiloAddress> = self.targets.iter().filter(quiet).map(|(s, _)| *s).collect();
        for silo in others {
            if !self.early.take(now, &ctx.config) {
                return;
            }
            let timeout = self.timeout(ctx, &silo, multiplier);
            let planned = ctx.timers.at(Timer::Probe(silo));
            if let Some(peer) = self.targets.get_mut(&silo) {
                peer.probe(ctx, silo, timeout);
                peer.planned = planned;
            }
        }
    }

    /// The silos at an endpoint that are probed.
    fn at(&self, endpoint: SocketAddr) -> Vec<SiloAddress> {
        self.targets
            .keys()
            .filter(|s| s.endpoint() == endpoint)
            .copied()
            .collect()
    }

    /// The connection with the silo at this endpoint has ended: the silo is probed at once. A probe
    /// under way may have been lost with the connection; it is no miss. This is done once between
    /// two answers: a machine that takes connections and closes them misses its probes.
    pub(crate) fn on_disconnected(&mut self, ctx: &mut Ctx, peer: SocketAddr, multiplier: u32) {
        let limit = ctx.config.num_missed_probes_limit;
        for silo in self.at(peer) {
            let timeout = self.timeout(ctx, &silo, multiplier);
            let due = |p: &&mut Peer| p.misses < limit && !p.resent;
            if let Some(peer) = self.targets.get_mut(&silo).filter(due) {
                peer.resent = true;
                if let Some(flight) = peer.flight.take() {
                    peer.remember(&flight);
                    peer.silent_since.get_or_insert(flight.sent);
                }
                peer.probe(ctx, silo, timeout);
            }
        }
    }

    /// The machine at this endpoint refused a connection: the probe under way is missed, and the
    /// next one follows at once.
    pub(crate) fn on_refused(&mut self, ctx: &mut Ctx, to: SocketAddr, multiplier: u32) {
        for silo in self.at(to) {
            let timeout = self.timeout(ctx, &silo, multiplier);
            let limit = ctx.config.num_missed_probes_limit;
            let period = self.period(ctx, &silo).max(ctx.config.probe_period);
            let Some(peer) = self.targets.get_mut(&silo) else {
                continue;
            };
            match peer.flight.take() {
                Some(flight) => {
                    peer.refused = true;
                    peer.miss(ctx, silo, flight);
                    let window = ctx.failure_window();
                    let silent = peer.silent_since.map(|at| ctx.mono().since(at));
                    // Whether it refuses for a moment, or for good, is to be known soon.
                    let soon = peer.misses < limit || silent.is_none_or(|silent| silent < window);
                    if !soon || !self.early.take(ctx.mono(), &ctx.config) {
                        let next = (flight.sent + period).max(ctx.mono());
                        ctx.set_timer_at(Timer::Probe(silo), next);
                    } else if peer.misses < limit {
                        peer.probe(ctx, silo, timeout);
                    } else {
                        let pace = (window / 8).min(ctx.config.probe_period);
                        let next = (flight.sent + pace).max(ctx.mono());
                        ctx.set_timer_at(Timer::Probe(silo), next);
                    }
                }
                // Another message was refused. A suspect keeps its pace.
                None if peer.misses < limit && self.early.take(ctx.mono(), &ctx.config) => {
                    peer.probe(ctx, silo, timeout);
                }
                None => {}
            }
        }
    }

    /// Handles the answer to a probe. Returns true when it was one of this machine's probes.
    pub(crate) fn on_ack(&mut self, ctx: &mut Ctx, from: SiloAddress, nonce: u64) -> bool {
        let now = ctx.mono();
        let period = self.period(ctx, &from);
        let Some(peer) = self.peer_mut(&from) else {
            return false;
        };
        let in_time = peer.flight.take_if(|f| f.nonce == nonce);
        let sent = match in_time {
            Some(flight) => flight.sent,
            None => {
                let Some(at) = peer.late.iter().position(|(n, _)| *n == nonce) else {
                    return false;
                };
                peer.late.remove(at).map_or(now, |(_, sent)| sent)
            }
        };
        let round_trip = now.since(sent);
        // Answers that come together have waited together: for a silo that stood still, or a connection.
        // How long they did says nothing of the next one, except for the one that waited least.
        let moment = ctx.probe_timeout() / TOGETHER;
        let together = peer.sampled.filter(|(at, _)| now.since(*at) <= moment);
        let old = together.map(|(_, other)| other);
        let sample = old.map_or(round_trip, |other| other.min(round_trip));
        peer.sampled = Some((now, sample));
        peer.estimator.take(sample, old);
        peer.asked = peer.asked.max(Some(sent));
        if in_time.is_some() {
            let planned = peer.planned.take().filter(|at| *at > now);
            let next = planned.unwrap_or((sent + period).max(now));
            ctx.set_timer_at(Timer::Probe(from), next);
        }
        self.overall.take(sample, old);
        ctx.observe(Observation::ProbeAnswered {
            peer: from,
            round_trip,
        });
        self.alive(ctx, from);
        true
    }

    /// Clears all suspicion of a silo that answered.
    fn alive(&mut self, ctx: &Ctx, from: SiloAddress) {
        if let Some(peer) = self.peer_mut(&from) {
            peer.misses = 0;
            peer.refused = false;
            peer.resent = false;
            peer.failed = None;
            peer.silent_since = None;
            peer.suppressed = 0;
            peer.last_reply = Some(ctx.mono());
            peer.last_answer = Some((ctx.mono(), ctx.now.wall));
            self.last_answer = Some(ctx.mono());
        }
    }

    /// In a cluster of thousands a silo hears of each at some time.
    fn forget_old(&mut self, ctx: &Ctx) {
        if self.others.len() >= self.most_others.max(FEW_OTHERS) {
            let kept = KEPT.max(ctx.failure_window() * 4);
            let now = ctx.mono();
            let is_young = |p: &Peer| p.last_answer.is_some_and(|(at, _)| now.since(at) <= kept);
            self.others.retain(|_, peer| is_young(peer));
            self.most_others = self.others.len() * 2;
        }
    }

    /// Handles the answer of a silo to another message, sent at `asked`, on any connection.
    pub(crate) fn on_evidence(&mut self, ctx: &Ctx, from: SiloAddress, asked: MonoTime) {
        if ctx.members.alive.binary_search(&from).is_ok() {
            self.forget_old(ctx);
            let peer = match self.targets.get_mut(&from) {
                Some(peer) => peer,
                None => self.others.entry(from).or_default(),
            };
            // A time in the future would suppress votes until then.
            peer.asked = peer.asked.max(Some(asked.min(ctx.mono())));
            peer.last_answer = Some((ctx.mono(), ctx.now.wall));
        }
    }

    /// Handles an answer of the protocol of a silo to another question than a probe of this
    /// machine: the silo is alive.
    pub(crate) fn on_answer(&mut self, ctx: &Ctx, from: SiloAddress, asked: MonoTime) {
        self.on_evidence(ctx, from, asked);
        self.alive(ctx, from);
    }

    /// What the own probes say of a silo: none while it has missed none.
    pub(crate) fn silence(&self, silo: &SiloAddress) -> Option<Silence> {
        let peer = self.targets.get(silo).filter(|p| p.misses > 0)?;
        let failed = peer.failed?;
        Some(Silence {
            misses: peer.misses,
            refused: peer.refused,
            since: peer.silent_since.unwrap_or(failed.sent),
            failed_at: failed.at,
            timeout: failed.timeout,
        })
    }

    /// All probed silos that have missed at least one probe.
    pub(crate) fn missed(&self) -> impl Iterator<Item = SiloAddress> {
        self.targets
            .iter()
            .filter(|(_, p)| p.misses > 0)
            .map(|(silo, _)| *silo)
    }

    /// Whether this silo probes others, and all of them have answered within this time.
    pub(crate) fn all_answer(&self, now: MonoTime, within: Duration) -> bool {
        let answers = |p: &Peer| p.silent_since.is_none_or(|at| now.since(at) <= within);
        !self.targets.is_empty() && self.targets.values().all(answers)
    }

    /// Whether this silo probes that one.
    pub(crate) fn is_target(&self, silo: &SiloAddress) -> bool {
        self.targets.contains_key(silo)
    }

    /// When the first message was sent that this silo has left unanswered, if there is one.
    pub(crate) fn unanswered_since(&self, silo: &SiloAddress) -> Option<MonoTime> {
        let peer = self.targets.get(silo)?;
        peer.silent_since.or(peer.flight.map(|f| f.sent))
    }

    /// All silos that have missed too many probes, as of now.
    pub(crate) fn suspects(&self, ctx: &Ctx, health: u8) -> Vec<Suspect> {
        let limit = ctx.config.num_missed_probes_limit;
        self.targets
            .iter()
            .filter(|(_, p)| p.misses >= limit)
            .filter_map(|(silo, p)| {
                let failed = p.failed?;
                let evidence = Evidence {
                    misses: p.misses,
                    timeout_ms: u64::try_from(failed.timeout.as_millis()).unwrap_or(u64::MAX),
                    last_answer: p.last_answer.map(|(_, w)| w),
                    via: None,
                    accuser_health: health,
                    stale: false,
                    ..Evidence::default()
                };
                let mine = Suspicion {
                    accuser: ctx.me,
                    at: failed.wall,
                    reason: SuspicionReason::Silent,
                    evidence,
                    extra: crate::Extra::default(),
                };
                Some(Suspect {
                    silo: *silo,
                    mine,
                    failed_at: failed.at,
                    evidence_of_life: ctx.variant.evidence_of_life
                        && p.suppressed < MAX_SUPPRESSED
                        && p.asked.is_some_and(|a| a > failed.sent),
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
            p.silent_since = None;
            p.refused = false;
        }
    }
}

impl Peer {
    fn probe(&mut self, ctx: &mut Ctx, silo: SiloAddress, timeout: Duration) {
        let nonce = ctx.probe_nonce();
        self.planned = None;
        self.flight = Some(Flight {
            nonce,
            sent: ctx.mono(),
            timeout,
        });
        ctx.set_timer(Timer::Probe(silo), timeout);
        ctx.send_to(silo, Message::Probe { nonce });
    }

    /// Keeps a probe whose answer may still come.
    fn remember(&mut self, flight: &Flight) {
        if self.late.len() == MAX_LATE {
            self.late.pop_front();
        }
        self.late.push_back((flight.nonce, flight.sent));
    }

    fn miss(&mut self, ctx: &mut Ctx, silo: SiloAddress, flight: Flight) {
        self.misses = self.misses.saturating_add(1);
        self.silent_since.get_or_insert(flight.sent);
        self.remember(&flight);
        self.failed = Some(Failed {
            sent: flight.sent,
            timeout: flight.timeout,
            at: ctx.mono(),
            wall: ctx.now.wall,
        });
        ctx.observe(Observation::ProbeMissed {
            peer: silo,
            misses: self.misses,
            refused: self.refused,
        });
    }
}

/// The time between two probes of one silo when this number of silos is probed.
fn period(ctx: &Ctx, targets: usize) -> Duration {
    let full = ctx.config.probe_period;
    let share = u32::try_from(targets).unwrap_or(u32::MAX);
    let most = ctx.config.num_probed_silos.max(1);
    (full.saturating_mul(share.min(most)) / most).max(full.min(SHORTEST_PERIOD))
}
