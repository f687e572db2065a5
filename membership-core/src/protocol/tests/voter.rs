//! From a suspicion to a vote, with everything that can hold it back.

use std::collections::BTreeSet;

use super::super::partition::PartitionCheck;
use super::super::prober::Prober;
use super::super::timers::Timer;
use super::super::voter::{Voter, VoterInput};
use super::*;
use crate::intent::Action;

struct World {
    ctx: Ctx,
    prober: Prober,
    check: PartitionCheck,
    voter: Voter,
    stale: BTreeSet<SiloAddress>,
    silent: BTreeSet<SiloAddress>,
    deaf: bool,
    local: u8,
}

impl World {
    /// The tested silo probes silo 2, which is silent; the other silos answer everything.
    fn new(rows: Vec<MembershipEntry>) -> Self {
        let mut ctx = ctx();
        believe(&mut ctx, snapshot(5, rows));
        let (mut prober, mut voter) = (Prober::default(), Voter::default());
        prober.set_targets(&mut ctx, &BTreeSet::from([silo(2)]));
        voter.on_view(&ctx);
        let (check, stale, silent) = (
            PartitionCheck::default(),
            BTreeSet::new(),
            BTreeSet::from([silo(2)]),
        );
        Self {
            ctx,
            prober,
            check,
            voter,
            stale,
            silent,
            deaf: false,
            local: 0,
        }
    }

    /// Runs for this number of seconds; returns the suspects of the votes that could be written at
    /// the end.
    fn run(&mut self, seconds: u64) -> Vec<SiloAddress> {
        let end = self.ctx.now.mono + secs(seconds);
        loop {
            for (to, message) in sent(&mut self.ctx) {
                if let (Some(to), Message::Probe { nonce }) = (to, message)
                    && !self.silent.contains(&to)
                    && !self.prober.on_ack(&mut self.ctx, to, nonce)
                    && let Some(asked) = self.check.on_ack(to, nonce)
                {
                    self.prober.on_check_answer(&self.ctx, to, asked);
                }
            }
            let votes = self.poll();
            let next = self.ctx.timers.next().unwrap_or(end).min(end);
            if next >= end {
                let by = end.since(self.ctx.now.mono);
                pass_time(&mut self.ctx, by);
                return votes;
            }
            let by = next.since(self.ctx.now.mono);
            pass_time(&mut self.ctx, by);
            while let Some(timer) = self.ctx.timers.pop_due(self.ctx.now.mono) {
                match timer {
                    Timer::Probe(s) => self.prober.on_timer(&mut self.ctx, s, 1),
                    Timer::Check => self.check.on_timer(&mut self.ctx),
                    _ => {}
                }
            }
        }
    }

    /// Runs until there is a vote against silo 2 to write.
    fn votes_within(&mut self, seconds: u64) {
        assert!(
            (0..seconds).any(|_| self.run(1) == [silo(2)]),
            "no vote within {seconds} s"
        );
    }

    fn poll(&mut self) -> Vec<SiloAddress> {
        if let Some(verdict) = self.check.poll(&mut self.ctx) {
            self.voter.on_verdict(&verdict);
        }
        let input = VoterInput {
            stale: &self.stale,
            deaf: self.deaf,
            score: self.local,
            local: self.local,
            health_multiplier: 1,
        };
        self.voter
            .poll(&mut self.ctx, &mut self.prober, &mut self.check, &input);
        let intents = self.voter.intents(&mut self.ctx, &self.prober, &input);
        let suspect = |i: crate::intent::Intent| match i.action {
            Action::Suspect { suspect, .. } => suspect,
            other => panic!("{other:?}"),
        };
        intents.into_iter().map(suspect).collect()
    }
}

#[test]
fn three_misses_and_a_majority_give_a_vote_per_failure_window() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    assert_eq!(w.run(14), []);
    assert_eq!(w.run(15), [silo(2)]);
    w.voter.landed(&w.ctx, silo(2));
    assert_eq!(w.run(1), []);
    assert_eq!(w.run(28), [silo(2)], "renewed while it stands");
}

#[test]
fn the_check_runs_during_the_last_probe() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    let misses = |w: &World| w.prober.suspects(&w.ctx, 0, 1).len();
    while !w.check.is_running() {
        assert_eq!(
            (w.run(1), misses(&w)),
            (vec![], 0),
            "it begins before the last probe is missed"
        );
    }
    let began = w.ctx.now.mono;
    let period = w.prober.period(&w.ctx, &silo(2), 1);
    w.votes_within(10);
    assert!(w.ctx.now.mono.since(began) <= period + secs(2));
    // A suspect that answers the check is cleared by it.
    let mut w = World::new(actives([1, 2, 3, 4]));
    while !w.check.is_running() {
        w.run(1);
    }
    w.silent.clear();
    assert_eq!((w.run(14), misses(&w)), (vec![], 0));
}

#[test]
fn a_minority_one_of_two_or_a_sick_silo_does_not_vote_unless_the_row_is_stale() {
    let mut minority = World::new(actives([1, 2, 3, 4]));
    minority.silent.extend([silo(3), silo(4)]);
    let mut of_two = World::new(actives([1, 2]));
    let mut deaf = World::new(actives([1, 2, 3, 4]));
    deaf.deaf = true;
    for mut w in [minority, of_two, deaf] {
        assert_eq!(w.run(60), []);
        w.stale.insert(silo(2));
        assert_eq!(w.run(10), [silo(2)]);
        w.local = 1;
        assert_eq!(
            w.run(1),
            [],
            "a silo with local trouble accuses nobody at all"
        );
    }
    of_two = World::new(actives([1, 2]));
    of_two.ctx.status = SiloStatus::Joining;
    of_two.stale.insert(silo(2));
    assert_eq!(of_two.run(60), [], "nor does one that is joining");
}

#[test]
fn suspicions_from_before_the_table_recovered_do_not_count() {
    let mut w = World::new(actives([1, 2, 3, 4]));
    w.votes_within(40);
    w.ctx.table.recovered_at = Some(w.ctx.now.mono);
    assert_eq!(w.poll(), []);
    w.votes_within(15);
}

#[test]
fn a_stuck_silo_is_voted_out_with_few_checks() {
    let mut rows = actives([1, 2, 3]);
    rows.push(entry(silo(9), SiloStatus::Joining));
    let mut w = World::new(rows);
    w.silent.clear();
    assert_eq!(w.run(299), []);
    let mut checks = 0;
    for _ in 0..60 {
        let was = w.check.is_running();
        w.run(1);
        checks += u32::from(!was && w.check.is_running());
    }
    assert_eq!(w.poll(), [silo(9)]);
    assert!(checks <= 15, "{checks} checks in a minute");
    // After a pause or a long outage of the table, the five minutes start again.
    w.voter.reset(w.ctx.now.mono);
    assert_eq!(w.run(60), []);
    assert_eq!(w.run(250), [silo(9)]);
}
