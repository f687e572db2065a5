//! In a large cluster a silo looks at one more of those that it does not probe every second.

use std::collections::{BTreeMap, BTreeSet};

use super::super::prober::Prober;
use super::super::reach::Reach;
use super::*;
use crate::hooks::ProtocolVariant;

/// The tested silo is one of so many, and probes silos 2 and 3.
const ALL: u8 = 40;
/// More than so many are a large cluster.
const LIMIT: usize = 30;

struct Surveying {
    ctx: Ctx,
    prober: Prober,
    reach: Reach,
    /// How often each silo was asked.
    asked: BTreeMap<SiloAddress, u32>,
}

impl Surveying {
    fn new(all: u8) -> Self {
        let mut ctx = ctx();
        ctx.variant = ProtocolVariant {
            full_check_limit: Some(LIMIT),
            ..ProtocolVariant::SCRIBE
        };
        believe(&mut ctx, snapshot(50, actives(1..=all)));
        let mut prober = Prober::default();
        prober.set_targets(&mut ctx, &[2, 3].map(silo).into());
        ctx.out.clear();
        Self {
            ctx,
            prober,
            reach: Reach::default(),
            asked: BTreeMap::new(),
        }
    }

    /// Time passes in which all answer that are not in `silent`.
    fn pass(&mut self, seconds: u64, silent: &[u8]) {
        for _ in 0..seconds * 10 {
            pass_time(&mut self.ctx, ms(100));
            if !silent.contains(&2) {
                self.prober.on_answer(&self.ctx, silo(2), self.ctx.now.mono);
            }
            self.reach.look(&mut self.ctx, &self.prober);
            for (to, message) in sent(&mut self.ctx) {
                let (Some(to), Message::Probe { nonce }) = (to, message) else {
                    panic!("{to:?}");
                };
                *self.asked.entry(to).or_default() += 1;
                if !silent.iter().any(|n| silo(*n) == to) {
                    self.reach.on_ack(&to, nonce);
                }
            }
        }
    }

    fn unreached(&self) -> Vec<SiloAddress> {
        let unreached = self.reach.unreached(&self.ctx);
        unreached.iter().map(|one| one.silo).collect()
    }
}

#[test]
fn all_are_met_that_this_silo_does_not_probe_one_a_second() {
    let mut s = Surveying::new(ALL);
    s.pass(41, &[]);
    let others: BTreeSet<SiloAddress> = (4..=ALL).map(silo).collect();
    assert_eq!(s.asked.keys().copied().collect::<BTreeSet<_>>(), others);
    let questions: u32 = s.asked.values().sum();
    assert!((37..=46).contains(&questions), "{questions}");
    assert!(s.unreached().is_empty());
}

#[test]
fn a_silo_that_does_not_answer_for_three_failure_windows_is_named_until_it_does() {
    let mut s = Surveying::new(ALL);
    let mut named = None;
    for second in 0..120_u64 {
        s.pass(1, &[7]);
        if s.unreached() == [silo(7)] {
            named = Some(second);
            break;
        }
        assert!(s.unreached().is_empty());
    }
    let first = 4;
    assert!(
        named.is_some_and(|at| (first + 9..60).contains(&at)),
        "{named:?}"
    );
    s.pass(60, &[7]);
    assert_eq!(s.unreached(), [silo(7)]);
    assert!(s.asked[&silo(7)] > 3 && s.asked[&silo(30)] > 0);
    s.pass(10, &[]);
    assert!(s.unreached().is_empty());
}

#[test]
fn a_silo_that_is_accused_or_dead_is_not_named() {
    for is_dead in [true, false] {
        let mut s = Surveying::new(ALL);
        s.pass(60, &[7]);
        assert_eq!(s.unreached(), [silo(7)]);
        let mut rows = actives((1..=ALL).filter(|n| *n != 7));
        if !is_dead {
            let mut accused = entry(silo(7), SiloStatus::Active);
            accused.suspicions.push(vote(2, NOON));
            rows.push(accused);
        }
        believe(&mut s.ctx, snapshot(51, rows));
        s.ctx.out.clear();
        s.pass(5, &[7]);
        assert!(s.unreached().is_empty(), "{is_dead}");
    }
}

#[test]
fn a_silo_that_nobody_answers_names_nobody() {
    let mut s = Surveying::new(ALL);
    let all: Vec<u8> = (2..=ALL).collect();
    s.pass(120, &all);
    assert!(s.unreached().is_empty() && s.asked.len() > 20);
}

#[test]
fn a_small_cluster_is_not_surveyed() {
    let mut s = Surveying::new(30);
    s.pass(60, &[7]);
    assert!(s.asked.is_empty());
}
