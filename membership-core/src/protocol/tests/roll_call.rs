//! Roll calls: whom they ask, what they count, and how long they wait. Invariants P10 to P13.

mod counting;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};

use super::super::message::{Consent, Finding};
use super::super::roll_call::{Asked, Electorate, RollCall, Verdict};
use super::super::timers::Timer;
use super::*;

type Silos = BTreeSet<SiloAddress>;

fn silos(numbers: impl IntoIterator<Item = u8>) -> Silos {
    numbers.into_iter().map(silo).collect()
}

/// It had answered a second before it fell silent.
fn failed_for(silent: Duration) -> Finding {
    failed_after(silent, secs(1))
}

/// It had last answered this long before it fell silent.
fn failed_after(silent: Duration, heard: Duration) -> Finding {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap();
    Finding::Failed {
        silent_ms: ms(silent),
        heard_ms: Some(ms(silent + heard)),
        refused: false,
        consent: Some(Consent {
            misses: 2,
            timeout_ms: 1_500,
            last_answer_ms: None,
        }),
    }
}

/// The tested silo calls; the others answer at once, if they are there.
struct Calling {
    ctx: Ctx,
    roll_call: RollCall,
    /// The call under way.
    call: u64,
    stale: Silos,
    challenged: Silos,
    score: u8,
    quiet: bool,
    /// Silos that crashed when the test began.
    down: Silos,
    /// Who does not reach whom since then.
    cut: BTreeSet<(SiloAddress, SiloAddress)>,
    /// What silos say instead.
    said: BTreeMap<(SiloAddress, SiloAddress), Finding>,
    /// Suspects that silos name themselves.
    missed: BTreeMap<SiloAddress, Vec<SiloAddress>>,
    began: MonoTime,
    /// The suspects of each round of the call, and when they were asked about.
    rounds: Vec<(Duration, Silos)>,
    /// Everybody who was asked.
    asked: Silos,
    /// Who was told that there was no majority, and against whom.
    results: Vec<(SiloAddress, Silos, u32)>,
}

impl Calling {
    /// Silos 1 to n are Active; the first became Active first. The caller missed its first probe
    /// when the test began, and calls three seconds later.
    fn new(n: u8) -> Self {
        Self::among((1..=n).map(silo).collect())
    }

    fn among(active: Vec<SiloAddress>) -> Self {
        let rows = active.into_iter().map(|s| entry(s, SiloStatus::Active));
        Self::with_rows((1..).zip(rows).map(led).collect())
    }

    fn with_rows(rows: Vec<MembershipEntry>) -> Self {
        let mut ctx = ctx();
        believe(&mut ctx, snapshot(5, rows));
        let began = ctx.now.mono;
        pass_time(&mut ctx, secs(3));
        Self {
            ctx,
            roll_call: RollCall::default(),
            call: 0,
            stale: Silos::new(),
            challenged: Silos::new(),
            score: 0,
            quiet: false,
            down: Silos::new(),
            cut: BTreeSet::new(),
            said: BTreeMap::new(),
            missed: BTreeMap::new(),
            began,
            rounds: Vec::new(),
            asked: Silos::new(),
            results: Vec::new(),
        }
    }

    fn crash(mut self, numbers: impl IntoIterator<Item = u8>) -> Self {
        self.down.extend(silos(numbers));
        self
    }

    /// Cuts every link between the two sides, in both directions.
    fn split(mut self, one: impl IntoIterator<Item = u8>, other: &[u8]) -> Self {
        for a in silos(one) {
            for b in other.iter().copied().map(silo) {
                self.cut.extend([(a, b), (b, a)]);
            }
        }
        self
    }

    fn elapsed(&self) -> Duration {
        self.ctx.now.mono.since(self.began)
    }

    fn reaches(&self, from: SiloAddress, to: SiloAddress) -> bool {
        !self.down.contains(&to) && !self.cut.contains(&(from, to))
    }

    fn finding(&self, by: SiloAddress, suspect: SiloAddress) -> Finding {
        match self.said.get(&(by, suspect)) {
            Some(finding) => *finding,
            None if self.reaches(by, suspect) => Finding::Reached,
            None => failed_for(self.elapsed()),
        }
    }

    fn with<'a>(stale: &'a Silos, challenged: &'a Silos, score: u8, quiet: bool) -> Electorate<'a> {
        Electorate {
            stale,
            challenged,
            score,
            quiet,
            timeout: ms(1_500),
        }
    }

    fn start(&mut self, suspects: impl IntoIterator<Item = u8>) {
        let suspects = silos(suspects);
        self.start_against(&suspects, false);
    }

    fn start_against(&mut self, suspects: &Silos, stuck: bool) {
        let since = self.began;
        let suspects = suspects.iter().map(|s| (*s, (since, stuck))).collect();
        let with = Self::with(&self.stale, &self.challenged, self.score, self.quiet);
        let asked = self.roll_call.start(&mut self.ctx, &suspects, &[], &with);
        self.find_out(asked);
    }

    /// What the caller finds itself.
    fn find_out(&mut self, (call, suspects): Asked) {
        self.call = call;
        let me = self.ctx.me;
        let own = suspects
            .iter()
            .map(|(s, _)| (call, *s, self.finding(me, *s)));
        let own = own.collect();
        self.roll_call.on_own(&self.ctx, own);
    }

    fn poll(&mut self) -> Vec<Verdict> {
        let with = Self::with(&self.stale, &self.challenged, self.score, self.quiet);
        let (verdicts, asked) = self.roll_call.poll(&mut self.ctx, &with);
        if let Some(asked) = asked {
            self.find_out(asked);
        }
        self.deliver();
        verdicts
    }

    /// Delivers what was sent, and the answers to it.
    fn deliver(&mut self) {
        for (to, message) in sent(&mut self.ctx) {
            let to = to.unwrap();
            match message {
                Message::RollCall { call, suspects } => {
                    let named: Silos = suspects.iter().map(|(s, _)| *s).collect();
                    let at = self.elapsed();
                    if self.rounds.last() != Some(&(at, named.clone())) {
                        self.rounds.push((at, named.clone()));
                    }
                    self.asked.insert(to);
                    if self.reaches(self.ctx.me, to) && self.reaches(to, self.ctx.me) {
                        let others = named.into_iter().filter(|s| *s != to);
                        let findings: Vec<_> = others.map(|s| (s, self.finding(to, s))).collect();
                        let missed = self.missed.get(&to).cloned().unwrap_or_default();
                        self.roll_call
                            .on_answer(&self.ctx, to, call, &findings, &missed);
                    }
                }
                Message::RollResult {
                    suspects, reached, ..
                } => self
                    .results
                    .push((to, suspects.into_iter().collect(), reached)),
                Message::Probe { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Lets the call go on until it ends.
    fn end(&mut self) -> Vec<Verdict> {
        self.deliver();
        for _ in 0..200 {
            let verdicts = self.poll();
            if !self.roll_call.is_running() {
                return verdicts;
            }
            // Answers may have changed something at once.
            let verdicts = self.poll();
            if !self.roll_call.is_running() {
                return verdicts;
            }
            let by = self.ctx.timers.next().unwrap().since(self.ctx.now.mono);
            pass_time(&mut self.ctx, by);
            while let Some(timer) = self.ctx.timers.pop_due(self.ctx.now.mono) {
                assert_eq!(timer, Timer::Check);
                self.roll_call.look();
            }
        }
        panic!("the call does not end")
    }

    /// Lets the call go on for this time.
    fn go_on_for(&mut self, time: Duration) {
        let end = self.ctx.now.mono + time;
        self.deliver();
        while self.ctx.now.mono < end {
            assert_eq!(self.poll().len(), 0);
            assert!(self.roll_call.is_running());
            let next = self.ctx.timers.next().unwrap().min(end);
            let by = next.since(self.ctx.now.mono);
            pass_time(&mut self.ctx, by);
            while self.ctx.timers.pop_due(next).is_some() {
                self.roll_call.look();
            }
        }
    }

    /// Silo `by` says this of a suspect, without being asked again.
    fn say(&mut self, by: u8, suspect: u8, finding: Finding) {
        let findings = [(silo(suspect), finding)];
        let call = self.call;
        let began = self
            .roll_call
            .on_answer(&self.ctx, silo(by), call, &findings, &[]);
        assert!(began.is_some());
    }

    /// Calls about these suspects; returns those that may be voted out.
    fn lost(&mut self, suspects: impl IntoIterator<Item = u8>) -> Silos {
        self.start(suspects);
        self.end().into_iter().map(|v| v.silo).collect()
    }
}

/// The n-th silo became Active at version n.
fn led((n, mut entry): (u64, MembershipEntry)) -> MembershipEntry {
    entry.active_since = entry.active_since.map(|_| n);
    entry
}
