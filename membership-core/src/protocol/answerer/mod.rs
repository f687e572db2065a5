//! Answers roll calls: which of the suspects does this silo reach? For each suspect that it has not
//! heard recently it sends two probes, half a timeout apart, and says *reached*, *failed* or
//! *unknown*. It also does this for its own calls.
//!
//! A *failed* carries this silo's consent to a vote only if this silo is healthy and knows the suspect
//! at that epoch. Against a suspect whose heartbeat it sees stand still, only a local reason to doubt
//! itself holds back its consent: the few that are left of many may not probe each other. (The consent
//! of a Joining silo counts for challenges alone.) A silo that is not well itself says *reached* or *unknown*. So does one whose table is no longer the one it knew, because
//! another silo may have the suspect's address. It says *unknown* at once and *reached* if its probe
//! is answered: a silo that often pauses may be the only one that can say so.
//!
//! Here is what it knows of each suspect, and when it probes; `outbox` says it to those who asked.

mod outbox;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::allowance::Allowance;
use super::context::Ctx;
use super::message::{Consent, Finding, MAX_NAMED, Message};
use super::prober::Prober;
use super::roll_call::words_last;
use super::timers::Timer;
use crate::{MonoTime, SiloAddress, SiloStatus};
use outbox::{Caller, First, Outbox};

pub(crate) use outbox::Own;

/// To find out once more that more suspects than these refuse connections, as after a crash of many, would
/// cost too much.
const SHORT: usize = 16;
/// Maximum number of suspects that this silo probes for calls at a time; others are *unknown*.
const MAX_CASES: usize = 1_024;
/// Maximum number of callers that wait for the same suspect.
const MAX_CALLERS: usize = 32;

#[derive(Debug)]
struct Case {
    began: MonoTime,
    timeout: Duration,
    nonces: Vec<u64>,
    /// How many probes it takes: one, if it has failed just before.
    probes: usize,
    refused: u32,
    /// When it ended without an answer.
    failed_at: Option<MonoTime>,
    /// When it failed to answer before, if it is probed once more because somebody may ask again.
    failed_before: Option<MonoTime>,
    waiting: Vec<(Caller, u64)>,
    /// Callers that were told *failed*, or *unknown* at once: a later answer of the suspect is told to
    /// them, too.
    told: Vec<(Caller, u64)>,
}

/// Whether this silo may judge others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge {
    /// The score of all reasons together.
    pub(crate) score: u8,
    /// The score of the local reasons alone.
    pub(crate) local: u8,
    pub(crate) multiplier: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Answerer {
    cases: BTreeMap<SiloAddress, Case>,
    /// Silos that write no heartbeats, as far as this silo can see.
    expired: BTreeSet<SiloAddress>,
    allowance: Allowance,
    outbox: Outbox,
}

impl Answerer {
    /// Discards everything after a pause of this silo: its results prove nothing.
    pub(crate) fn void(&mut self, ctx: &mut Ctx) {
        ctx.timers.clear(Timer::Answers);
        for (silo, case) in std::mem::take(&mut self.cases) {
            for (caller, call) in case.waiting {
                self.outbox.add(caller, call, silo, Finding::Unknown);
            }
        }
        self.outbox.flush(ctx);
    }

    /// Takes note of the silos that write no heartbeats.
    pub(crate) fn on_expired(
        &mut self,
        stale: &BTreeSet<SiloAddress>,
        challenged: &BTreeSet<SiloAddress>,
    ) {
        if !(stale.is_empty() && challenged.is_empty() && self.expired.is_empty()) {
            self.expired = stale.union(challenged).copied().collect();
        }
    }

    /// What this silo found for its own calls since this was last taken.
    pub(crate) fn take_own(&mut self) -> Own {
        self.outbox.take_own()
    }

    /// Handles a call: answers at once what is known, and probes the other suspects.
    pub(crate) fn on_call(
        &mut self,
        ctx: &mut Ctx,
        prober: &Prober,
        caller: Caller,
        call: u64,
        suspects: &[(SiloAddress, u64)],
        judge: Judge,
    ) {
        let now = ctx.mono();
        let silos = ctx.members.alive.len();
        if caller.is_some_and(|(_, by)| !self.allowance.take(now, by, silos)) {
            return;
        }
        let (mut findings, mut probes) = (Vec::new(), false);
        let me = ctx.me;
        let is_short = suspects.len() <= SHORT;
        for (silo, silent_ms) in suspects.iter().take(MAX_NAMED).filter(|(s, _)| *s != me) {
            let silent = Duration::from_millis(*silent_ms);
            let again = self.cases.get(silo).and_then(|c| c.failed_at);
            if let Some(finding) = self.at_once(ctx, prober, silo, (silent, is_short), judge) {
                findings.push((*silo, finding));
                if matches!(finding, Finding::Failed { .. }) {
                    self.remember(ctx, prober, *silo, (caller, call));
                    let timeout = prober.timeout(ctx, silo, judge.multiplier);
                    let window = ctx.failure_window();
                    let soon = silent < window && silent + timeout * 3 / 2 >= window;
                    if words_last(ctx) {
                        continue;
                    }
                    if soon {
                        self.probe_once_more(ctx, silo, (timeout, timeout / 4), caller);
                    } else if silent >= window + timeout * 2 {
                        let old = timeout * 3 / 4;
                        self.probe_once_more(ctx, silo, (timeout, old), caller);
                    }
                }
                continue;
            }
            // Whoever may not judge can still find that it reaches the suspect.
            let judges = may_judge(ctx, judge);
            if !judges {
                findings.push((*silo, Finding::Unknown));
                let timeout = prober.timeout(ctx, silo, judge.multiplier);
                let old = |case: &Case| case.failed_at.is_some_and(|at| now.since(at) > timeout);
                if self.cases.get(silo).is_some_and(old) {
                    self.cases.remove(silo);
                }
            }
            if let Some(case) = self.cases.get_mut(silo) {
                let callers = if judges {
                    &mut case.waiting
                } else {
                    &mut case.told
                };
                if callers.len() < MAX_CALLERS && !callers.contains(&(caller, call)) {
                    callers.push((caller, call));
                }
                continue;
            }
            let may = caller.is_none_or(|(_, by)| self.allowance.take(now, by, silos));
            if self.cases.len() >= MAX_CASES || !may {
                if judges {
                    findings.push((*silo, Finding::Unknown));
                }
                continue;
            }
            let (mut waiting, mut told) = (Vec::new(), Vec::new());
            if judges {
                waiting.push((caller, call));
            } else {
                told.push((caller, call));
            }
            let timeout = prober.timeout(ctx, silo, judge.multiplier);
            let nonce = ctx.probe_nonce();
            ctx.expense.add(now, &ctx.config);
            ctx.send_to(*silo, Message::Probe { nonce });
            probes = true;
            self.cases.insert(
                *silo,
                Case {
                    began: now,
                    timeout,
                    nonces: vec![nonce],
                    probes: if again.is_some() || !judges { 1 } else { 2 },
                    refused: 0,
                    failed_at: None,
                    failed_before: again.filter(|_| !words_last(ctx)),
                    waiting,
                    told,
                },
            );
        }
        let Some(to) = caller else {
            self.outbox.begin_own(call, findings);
            return self.arm(ctx);
        };
        let missed = prober
            .missed()
            .filter(|s| !suspects.iter().any(|(named, _)| named == s) && *s != to.1)
            .take(MAX_NAMED)
            .collect();
        let first = First {
            to,
            call,
            findings,
            missed,
        };
        self.outbox.begin(ctx, first, probes);
        self.arm(ctx);
    }

    /// The caller will ask again when a suspect has been silent for a failure window, which is soon, and what
    /// was found will be too old then: it is probed in the meantime.
    fn probe_once_more(
        &mut self,
        ctx: &mut Ctx,
        silo: &SiloAddress,
        (timeout, old): (Duration, Duration),
        caller: Caller,
    ) {
        let now = ctx.mono();
        let Some(case) = self.cases.get_mut(silo) else {
            return;
        };
        if case.failed_at.is_none_or(|at| now.since(at) < old) {
            return;
        }
        let silos = ctx.members.alive.len();
        if !caller.is_none_or(|(_, by)| self.allowance.take(now, by, silos)) {
            return;
        }
        let nonce = ctx.probe_nonce();
        ctx.expense.add(now, &ctx.config);
        ctx.send_to(*silo, Message::Probe { nonce });
        (case.began, case.timeout) = (now, timeout);
        (case.nonces, case.probes, case.refused) = (vec![nonce], 1, 0);
        case.failed_before = case.failed_at.take();
    }

    /// Remembers who was told *failed*: a later answer of the suspect is told to them, too. What the
    /// own probes of this silo found counts as a case that has ended.
    fn remember(&mut self, ctx: &Ctx, prober: &Prober, silo: SiloAddress, told: (Caller, u64)) {
        if self.cases.len() >= MAX_CASES && !self.cases.contains_key(&silo) {
            return;
        }
        let now = ctx.mono();
        let case = self.cases.entry(silo).or_insert_with(|| Case {
            began: now,
            timeout: Duration::ZERO,
            nonces: Vec::new(),
            probes: 1,
            refused: 0,
            failed_at: Some(prober.silence(&silo).map_or(now, |s| s.failed_at)),
            failed_before: None,
            waiting: Vec::new(),
            told: Vec::new(),
        });
        if case.told.len() < MAX_CALLERS && !case.told.contains(&told) {
            case.told.push(told);
        }
    }

    /// What is known of a suspect that has been silent towards the caller for this time, without a
    /// probe; and whether the call is about few.
    fn at_once(
        &mut self,
        ctx: &Ctx,
        prober: &Prober,
        silo: &SiloAddress,
        (silent, is_short): (Duration, bool),
        judge: Judge,
    ) -> Option<Finding> {
        let now = ctx.mono();
        let timeout = prober.timeout(ctx, silo, judge.multiplier);
        let known = ctx
            .confirmed_entry(silo)
            .is_some_and(|e| e.status != SiloStatus::Dead);
        let young = |at: MonoTime| now.since(at) <= timeout.min(silent);
        if known && prober.replied_at(silo).is_some_and(young) {
            return Some(Finding::Reached);
        }
        if !known {
            return Some(Finding::Unknown);
        }
        if !may_judge(ctx, judge) {
            return None;
        }
        if let Some(silence) = prober.silence(silo)
            && silence.misses >= 2
            && now.since(silence.failed_at)
                <= lasts(ctx, timeout, silent, silence.refused && is_short)
        {
            let since = prober
                .replied_at(silo)
                .map_or(silence.since, |t| t.max(silence.since));
            return Some(self.failed(
                ctx,
                prober,
                silo,
                judge,
                since,
                (silence.misses, silence.timeout, silence.refused),
            ));
        }
        let case = self.cases.get(silo)?;
        let Some(at) = case.failed_at else {
            // It has left the probes before this one unanswered, too.
            let before = case.failed_before?;
            let lasts = lasts(ctx, timeout, silent, false);
            let counts = now.since(before) <= lasts || now.since(case.began) >= timeout / 2;
            return counts.then(|| self.verdict(ctx, prober, silo, judge));
        };
        let refused = case.refused as usize >= case.probes;
        if now.since(at) > lasts(ctx, timeout, silent, refused && is_short) {
            // Too old: it is probed again.
            self.cases.remove(silo);
            return None;
        }
        Some(self.verdict(ctx, prober, silo, judge))
    }

    fn verdict(&self, ctx: &Ctx, prober: &Prober, silo: &SiloAddress, judge: Judge) -> Finding {
        let Some(case) = self.cases.get(silo) else {
            return Finding::Unknown;
        };
        if !may_judge(ctx, judge) {
            return Finding::Unknown;
        }
        let since = prober
            .unanswered_since(silo)
            .map_or(case.began, |t| t.min(case.began));
        let since = prober.replied_at(silo).map_or(since, |t| t.max(since));
        self.failed(
            ctx,
            prober,
            silo,
            judge,
            since,
            (2, case.timeout, case.refused as usize >= case.probes),
        )
    }

    fn failed(
        &self,
        ctx: &Ctx,
        prober: &Prober,
        silo: &SiloAddress,
        judge: Judge,
        since: MonoTime,
        (misses, timeout, refused): (u32, Duration, bool),
    ) -> Finding {
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let consent = Consent {
            misses,
            timeout_ms: millis(timeout),
            last_answer_ms: prober.last_sign(silo).map(|(_, w)| w.as_millis()),
        };
        let heard = prober.replied_at(silo).map(|t| millis(ctx.mono().since(t)));
        let consents = judge.score == 0 || self.expired.contains(silo);
        Finding::Failed {
            silent_ms: millis(ctx.mono().since(since)),
            heard_ms: heard,
            refused,
            consent: consents.then_some(consent),
        }
    }

    /// Handles an answer to a probe of a case; returns when the case began.
    pub(crate) fn on_ack(&mut self, from: SiloAddress, nonce: u64) -> Option<MonoTime> {
        self.cases
            .get(&from)
            .filter(|case| case.nonces.contains(&nonce))
            .map(|case| case.began)
    }

    /// A suspect has answered this silo, on whatever it was asked: whoever asked about it is told.
    pub(crate) fn on_sign_of_life(&mut self, ctx: &mut Ctx, from: SiloAddress) {
        let Some(case) = self.cases.remove(&from) else {
            return;
        };
        let corrects = !case.told.is_empty();
        if !case.nonces.is_empty() {
            ctx.expense.add_in_vain(ctx.now.mono, &ctx.config);
        }
        for (caller, call) in case.waiting.into_iter().chain(case.told) {
            self.outbox.add(caller, call, from, Finding::Reached);
        }
        if corrects {
            // Somebody may be about to vote.
            self.outbox.flush(ctx);
        }
        self.arm(ctx);
    }

    /// The machine at this endpoint refuses connections: the second probe follows at once, and
    /// after it the case has failed.
    pub(crate) fn on_refused(
        &mut self,
        ctx: &mut Ctx,
        prober: &Prober,
        to: SocketAddr,
        judge: Judge,
    ) {
        let silos: Vec<SiloAddress> = self
            .cases
            .iter()
            .filter(|(s, case)| s.endpoint() == to && case.failed_at.is_none())
            .map(|(s, _)| *s)
            .collect();
        for silo in silos {
            let Some(case) = self.cases.get_mut(&silo) else {
                continue;
            };
            case.refused += 1;
            if case.nonces.len() < case.probes {
                second(ctx, silo, case);
            } else if case.refused as usize >= case.probes {
                self.fail(ctx, prober, silo, judge);
            }
        }
        self.arm(ctx);
    }

    /// Sends second probes and ends cases whose time is over.
    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx, prober: &Prober, judge: Judge) {
        let now = ctx.mono();
        let window = ctx.failure_window();
        // A suspect that answers late is remembered for a while.
        self.cases
            .retain(|_, case| case.failed_at.is_none_or(|at| now.since(at) <= window));
        let mut over = Vec::new();
        for (silo, case) in &mut self.cases {
            if case.failed_at.is_some() {
                continue;
            }
            let elapsed = now.since(case.began);
            if case.nonces.len() < case.probes && elapsed >= case.timeout / 2 {
                second(ctx, *silo, case);
            }
            if elapsed >= case.timeout {
                over.push(*silo);
            }
        }
        let ended = !over.is_empty();
        for silo in over {
            self.fail(ctx, prober, silo, judge);
        }
        self.outbox.on_timer(ctx, ended);
        self.arm(ctx);
    }

    fn fail(&mut self, ctx: &Ctx, prober: &Prober, silo: SiloAddress, judge: Judge) {
        let now = ctx.mono();
        let Some(case) = self.cases.get_mut(&silo) else {
            return;
        };
        case.failed_at = Some(now);
        let waiting = std::mem::take(&mut case.waiting);
        case.told.extend(&waiting);
        let heard = prober
            .replied_at(&silo)
            .is_some_and(|t| self.cases.get(&silo).is_some_and(|c| t >= c.began));
        let finding = if heard {
            Finding::Reached
        } else {
            self.verdict(ctx, prober, &silo, judge)
        };
        for (caller, call) in waiting {
            self.outbox.add(caller, call, silo, finding);
        }
    }

    fn arm(&mut self, ctx: &mut Ctx) {
        let due = |case: &Case| {
            if case.nonces.len() < case.probes {
                case.began + case.timeout / 2
            } else {
                case.began + case.timeout
            }
        };
        let open = self.cases.values().filter(|case| case.failed_at.is_none());
        if let Some(next) = open.map(due).chain(self.outbox.next(ctx)).min() {
            ctx.set_timer_at(Timer::Answers, next);
        }
    }
}

/// For how long what was found is said again without a probe. That a machine refuses connections is
/// decided upon after a quarter of a failure window: it must have been found again by then, which takes a
/// round trip.
fn lasts(ctx: &Ctx, timeout: Duration, silent: Duration, refused: bool) -> Duration {
    if refused && !ctx.has_pulse() {
        return timeout.min(super::roll_call::refusal(ctx) / 2);
    }
    // One that has been silent for longer was asked about before, and is probed meanwhile.
    let long = !words_last(ctx) && silent >= ctx.failure_window() + timeout * 2;
    timeout * if long { 2 } else { 1 }
}

fn second(ctx: &mut Ctx, silo: SiloAddress, case: &mut Case) {
    let nonce = ctx.probe_nonce();
    case.nonces.push(nonce);
    ctx.expense.add(ctx.mono(), &ctx.config);
    ctx.send_to(silo, Message::Probe { nonce });
}

/// Whether this silo may say *failed*. If it is suspended because the table does not answer, its word
/// is as good as that of others that have lost the table: it counts only while the row of this silo is
/// Active in the view to which the votes are applied. Otherwise a few suspended silos that answer probes,
/// and so are not stale, could keep a dead one in the view.
fn may_judge(ctx: &Ctx, judge: Judge) -> bool {
    judge.local == 0
        && !ctx.waits_for_the_table()
        && !ctx.table_doubted()
        && matches!(ctx.status, SiloStatus::Active | SiloStatus::Joining)
}
