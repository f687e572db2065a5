//! From a suspicion to a vote, with everything that can hold it back.

mod held_back;

use std::collections::BTreeSet;

use super::super::answerer::{Answerer, Judge};
use super::super::message::{Consent, Finding};
use super::super::prober::Prober;
use super::super::roll_call::{Electorate, RollCall};
use super::super::timers::Timer;
use super::super::voter::{Voter, VoterInput};
use super::*;
use crate::SuspicionReason;
use crate::hooks::Calls;
use crate::intent::{Action, Intent};

struct World {
    ctx: Ctx,
    prober: Prober,
    answerer: Answerer,
    roll_call: RollCall,
    voter: Voter,
    stale: BTreeSet<SiloAddress>,
    silent: BTreeSet<SiloAddress>,
    /// Silos that reach everybody.
    reaching: BTreeSet<SiloAddress>,
    deaf: bool,
    local: u8,
    /// The table has not answered the last call yet.
    busy: bool,
    /// How many calls were made, the number of the last one, and whom it named.
    calls: usize,
    call: u64,
    named: BTreeSet<SiloAddress>,
}

impl World {
    /// The tested silo probes silo 2, which is silent; the other silos answer everything.
    fn new(rows: Vec<MembershipEntry>) -> Self {
        let mut ctx = ctx();
        believe(&mut ctx, snapshot(5, rows));
        let (mut prober, mut voter) = (Prober::default(), Voter::default());
        prober.set_targets(&mut ctx, &BTreeSet::from([silo(2)]));
        voter.on_view(&ctx);
        Self {
            ctx,
            prober,
            answerer: Answerer::default(),
            roll_call: RollCall::default(),
            voter,
            stale: BTreeSet::new(),
            silent: BTreeSet::from([silo(2)]),
            reaching: BTreeSet::new(),
            deaf: false,
            local: 0,
            busy: false,
            calls: 0,
            call: 0,
            named: BTreeSet::new(),
        }
    }

    fn judge(&self) -> Judge {
        Judge {
            score: self.local,
            local: self.local,
            multiplier: 1,
        }
    }

    fn hears(&mut self, from: SiloAddress, asked: MonoTime) {
        self.prober.on_answer(&self.ctx, from, asked);
        self.answers(from);
    }

    fn answers(&mut self, from: SiloAddress) {
        self.answerer.on_sign_of_life(&mut self.ctx, from);
        self.roll_call.on_sign_of_life(&from);
        self.voter.on_sign_of_life(&from);
    }

    /// The silos that are not silent answer what they were asked.
    fn deliver(&mut self) {
        for (to, message) in sent(&mut self.ctx) {
            let to = to.unwrap();
            if self.silent.contains(&to) {
                continue;
            }
            match message {
                Message::Probe { nonce } => {
                    if self.prober.on_ack(&mut self.ctx, to, nonce) {
                        self.answers(to);
                    } else if let Some(asked) = self.answerer.on_ack(to, nonce) {
                        self.hears(to, asked);
                    }
                }
                Message::RollCall { call, suspects } => {
                    let findings: Vec<_> = suspects
                        .iter()
                        .filter(|(s, _)| *s != to)
                        .map(|(s, silent_ms)| (*s, self.finding(to, *s, *silent_ms)))
                        .collect();
                    let began = self
                        .roll_call
                        .on_answer(&self.ctx, to, call, &findings, &[]);
                    if let Some(began) = began {
                        self.hears(to, began);
                    }
                }
                _ => {}
            }
        }
    }

    fn finding(&self, by: SiloAddress, suspect: SiloAddress, silent_ms: u64) -> Finding {
        if !self.silent.contains(&suspect) || self.reaching.contains(&by) {
            return Finding::Reached;
        }
        Finding::Failed {
            silent_ms,
            heard_ms: Some(silent_ms + 1_000),
            refused: false,
            consent: Some(Consent {
                misses: 2,
                timeout_ms: 1_500,
                last_answer_ms: None,
            }),
        }
    }

    /// Runs for this time; returns the suspects of the votes that could be written at the end.
    fn run(&mut self, time: Duration) -> Vec<SiloAddress> {
        let end = self.ctx.now.mono + time;
        loop {
            self.deliver();
            let votes = self.poll();
            let next = self.ctx.timers.next().unwrap_or(end).min(end);
            if next >= end && sent_nothing(&self.ctx) {
                let by = end.since(self.ctx.now.mono);
                pass_time(&mut self.ctx, by);
                return votes;
            }
            if !sent_nothing(&self.ctx) {
                continue;
            }
            let by = next.since(self.ctx.now.mono);
            pass_time(&mut self.ctx, by);
            while let Some(timer) = self.ctx.timers.pop_due(self.ctx.now.mono) {
                let judge = self.judge();
                match timer {
                    Timer::Probe(s) => self.prober.on_timer(&mut self.ctx, s, 1),
                    Timer::Check => self.roll_call.look(),
                    Timer::Answers => {
                        self.answerer.on_timer(&mut self.ctx, &self.prober, judge);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Runs until there is a vote against silo 2 to write; returns how long that took.
    fn votes_within(&mut self, seconds: u64) -> Duration {
        let began = self.ctx.now.mono;
        for _ in 0..seconds * 10 {
            if self.run(ms(100)).contains(&silo(2)) {
                return self.ctx.now.mono.since(began);
            }
        }
        panic!("no vote within {seconds} s")
    }

    fn poll(&mut self) -> Vec<SiloAddress> {
        let suspect = |i: Intent| match i.action {
            Action::Suspect { suspect, .. } => suspect,
            other => panic!("{other:?}"),
        };
        self.intents().into_iter().map(suspect).collect()
    }

    fn intents(&mut self) -> Vec<Intent> {
        let own = self.answerer.take_own();
        self.roll_call.on_own(&self.ctx, own);
        let (stale, judge) = (self.stale.clone(), self.judge());
        let challenged = BTreeSet::new();
        let with = Electorate {
            stale: &stale,
            challenged: &challenged,
            score: self.local,
            quiet: self.deaf,
            timeout: ms(1_500),
        };
        let input = VoterInput {
            stale: &stale,
            challenged: &challenged,
            deaf: self.deaf,
            score: self.local,
            outnumbered: false,
            local: self.local,
        };
        let (verdicts, mut asked) = self.roll_call.poll(&mut self.ctx, &with);
        self.voter.on_verdicts(verdicts);
        if asked.is_none() && self.ctx.variant.calls != Calls::Nobody {
            let (ctx, prober) = (&mut self.ctx, &mut self.prober);
            let ask = self.voter.to_ask(ctx, prober, &mut self.roll_call, &input);
            if !ask.suspects.is_empty() {
                self.calls += 1;
                self.named = ask.suspects.keys().chain(&ask.named).copied().collect();
                let (ctx, suspects) = (&mut self.ctx, &ask.suspects);
                asked = Some(self.roll_call.start(ctx, suspects, &ask.named, &with));
            }
        }
        if let Some((call, suspects)) = asked {
            self.call = call;
            self.answerer
                .on_call(&mut self.ctx, &self.prober, None, call, &suspects, judge);
        }
        if self.busy {
            return Vec::new();
        }
        self.voter.intents(&mut self.ctx, &self.prober, &input)
    }
}

fn sent_nothing(ctx: &Ctx) -> bool {
    !ctx.out.iter().any(|e| matches!(e, Effect::Send { .. }))
}

#[test]
fn two_misses_and_a_majority_give_a_vote_per_failure_window() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    let first = w.ctx.timers.next().unwrap().since(w.ctx.now.mono);
    let took = w.votes_within(10) - first;
    assert!(took >= ms(4_500) && took <= ms(4_700), "{took:?}");
    w.voter.landed(&w.ctx, silo(2));
    assert_eq!(w.run(ms(4_400)), []);
    let again = w.votes_within(5);
    assert!(again <= ms(2_000), "renewed while it stands: {again:?}");
}

/// What a silo with a local reason not to accuse others, or with none, writes about a silent one in a cluster
/// in which heartbeats are rare, or are not. A vote against that one may be as old as this.
fn challenges_the_silent(local: u8, rare: bool, accused: Option<Duration>) -> bool {
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.local = local;
    w.ctx.variant.heartbeat_spacing = rare.then_some(secs(50));
    w.run(secs(8));
    if let Some(age) = accused {
        let mut rows = actives([1, 2, 3, 4]);
        rows[1].suspicions = vec![vote(3, w.ctx.now.wall)];
        believe(&mut w.ctx, snapshot(6, rows));
        w.voter.on_view(&w.ctx);
        w.run(age);
    }
    let written = w.intents();
    let is_challenge = |i: &Intent| {
        matches!(&i.action, Action::Suspect { suspect, votes, .. }
            if *suspect == silo(2) && votes[0].reason == SuspicionReason::Challenge)
    };
    written.iter().any(is_challenge)
}

#[test]
fn who_may_not_judge_challenges_where_heartbeats_are_rare() {
    assert!(challenges_the_silent(1, true, None));
    assert!(
        !challenges_the_silent(1, false, None),
        "it becomes stale without"
    );
    assert!(!challenges_the_silent(0, true, None), "it votes");
    assert!(!challenges_the_silent(1, true, Some(secs(60))), "others do");
    assert!(
        challenges_the_silent(1, true, Some(secs(100))),
        "it goes on to"
    );
}

#[test]
fn a_vote_says_on_what_call_it_rests() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.votes_within(10);
    let Action::Suspect {
        suspect,
        votes,
        call,
    } = w.intents().remove(0).action
    else {
        panic!()
    };
    let call = call.unwrap();
    assert_eq!((suspect, votes.len(), call.reached), (silo(2), 3, 0));
    assert_eq!(call.failed, [silo(1), silo(3), silo(4)]);
}

#[test]
fn the_call_begins_with_the_second_miss() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    let first = w.ctx.timers.next().unwrap().since(w.ctx.now.mono);
    w.run(first + ms(2_999));
    assert_eq!(w.calls, 0);
    w.run(ms(2));
    assert_eq!((w.calls, w.named.clone()), (1, BTreeSet::from([silo(2)])));
    // A suspect that answers meanwhile is cleared.
    w.silent.clear();
    assert_eq!(w.run(secs(20)), []);
    assert_eq!(w.calls, 1);
}

#[test]
fn silos_that_missed_one_probe_are_asked_about_as_well() {
    let mut w = World::new(actives([1, 2, 3, 4, 5]));
    let both = BTreeSet::from([silo(2), silo(3)]);
    w.prober.set_targets(&mut w.ctx, &both);
    w.ctx.set_timer(Timer::Probe(silo(2)), secs(1));
    w.ctx.set_timer(Timer::Probe(silo(3)), ms(2_400));
    w.silent = both.clone();
    assert_eq!(w.run(ms(4_050)), []);
    assert_eq!((w.calls, &w.named), (1, &both));
    w.votes_within(10);
    assert_eq!(w.poll(), [silo(2), silo(3)], "they leave together");
    assert_eq!(w.calls, 1);
}

#[test]
fn a_silo_that_others_reach_gets_no_vote_and_few_calls() {
    let mut w = World::new(actives([1, 2, 3, 4, 5]));
    w.reaching = [silo(3), silo(4), silo(5)].into();
    assert_eq!(w.run(secs(120)), []);
    assert!((4..=6).contains(&w.calls), "{} calls", w.calls);
}

#[test]
fn a_stuck_silo_is_voted_out_with_few_calls() {
    let mut rows = actives([1, 2, 3]);
    rows.push(entry(silo(9), SiloStatus::Joining));
    let mut w = World::new(rows);
    w.silent.clear();
    assert_eq!(w.run(secs(299)), []);
    assert_eq!(w.calls, 0);
    w.run(secs(60));
    assert!(w.calls <= 15, "{} calls in a minute", w.calls);
    assert_eq!(w.poll(), [silo(9)], "though it answers all the while");
    // After a pause or a long outage of the table, the five minutes start again.
    w.voter.reset(w.ctx.now.mono);
    assert_eq!(w.run(secs(60)), []);
    assert_eq!(w.run(secs(250)), [silo(9)]);
}

#[test]
fn in_comparisons_a_silo_asks_one_other_or_nobody() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.ctx.variant.calls = Calls::Nobody;
    let first = w.ctx.timers.next().unwrap().since(w.ctx.now.mono);
    let took = w.votes_within(10) - first;
    assert!(took <= ms(3_100) && w.calls == 0, "{took:?}");
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.ctx.variant.calls = Calls::One;
    w.votes_within(10);
    assert_eq!(w.calls, 1);
    assert_eq!(w.intents().len(), 1);
}
