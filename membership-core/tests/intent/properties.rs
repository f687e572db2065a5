//! Random batches on random tables, by seed: rules that hold for all intents.

mod check;

use std::collections::BTreeMap;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use self::check::Check;
use super::*;

const SEEDS: u64 = 3000;

struct SeededRng(Xoshiro256PlusPlus);

impl SeededRng {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    fn silo(&mut self, ports: u64) -> SiloAddress {
        let port = u16::try_from(self.below(ports)).unwrap() + 1;
        let epoch = if self.one_in(4) { 1 + self.below(3) } else { 2 };
        silo_at(port, epoch)
    }
    fn vote(&mut self, accuser: SiloAddress) -> Suspicion {
        let ago = Duration::from_secs(self.below(200));
        let at = if self.one_in(6) {
            NOW.wall.plus(ago)
        } else {
            NOW.wall.minus(ago)
        };
        let reason = if self.one_in(4) {
            SuspicionReason::Stuck
        } else {
            SuspicionReason::Silent
        };
        {
            let mut it = vote_at(accuser, at);
            it.reason = reason;
            it
        }
    }
    fn call(&mut self, t: &Snapshot, suspect: SiloAddress) -> Option<Call> {
        let others = t.rows.entries().map(|e| e.address);
        let failed = others.filter(|s| *s != suspect && !self.one_in(4));
        let mut call = call(failed.collect::<Vec<_>>());
        call.reached = u32::from(self.one_in(4));
        call.sample = self.one_in(8).then(|| 1 + self.below(8) as u32);
        (!self.one_in(10)).then_some(call)
    }
    fn status(&mut self) -> SiloStatus {
        use SiloStatus::{Active, Dead, Joining, ShuttingDown, Stopping};
        [
            Active,
            Active,
            Active,
            Active,
            Joining,
            Joining,
            ShuttingDown,
            Stopping,
            Dead,
        ][usize::try_from(self.below(9)).unwrap()]
    }

    fn table(&mut self, ports: u64) -> (Snapshot, Observed) {
        let (mut entries, mut observed) = (BTreeMap::new(), Observed::default());
        for _ in 0..self.below(ports * 2) {
            let silo = self.silo(ports);
            let status = self.status();
            let mut e = match status {
                SiloStatus::Dead => died(
                    silo,
                    CauseOfDeath::Left,
                    Duration::from_secs(self.below(2000)),
                ),
                _ => entry(silo, status),
            };
            for _ in 0..self.below(8).saturating_sub(3) {
                let accuser = self.silo(ports);
                if !accuser.same_endpoint(&silo)
                    && e.suspicions.iter().all(|s| s.accuser != accuser)
                {
                    let vote = self.vote(accuser);
                    if self.one_in(2) {
                        let seen = NOW.mono.minus(Duration::from_secs(self.below(200)));
                        observed.first_seen.insert((silo, accuser), (vote.at, seen));
                    }
                    e.suspicions.push(vote);
                }
            }
            if self.one_in(6) {
                observed.stale.insert(silo);
            }
            if self.one_in(20) {
                observed.answered.insert(silo);
            }
            entries.insert(silo, e);
        }
        let mut t = table(entries.into_values());
        if self.one_in(5) {
            t.rows.insert(Row::decode(self.silo(ports).row_key(), "{"));
        }
        (t, observed)
    }

    fn intent(&mut self, ports: u64, t: &Snapshot) -> Intent {
        let any = |rng: &mut Self| match t.rows.entries().count() {
            n if n > 0 && !rng.one_in(5) => {
                t.rows
                    .entries()
                    .nth(usize::try_from(rng.below(n as u64)).unwrap())
                    .unwrap()
                    .address
            }
            _ => rng.silo(ports),
        };
        let me = any(self);
        match self.below(9) {
            0 | 1 => join(silo_at(me.port(), 1 + self.below(5))),
            2 => {
                let contacted = t
                    .rows
                    .entries()
                    .map(|e| e.address)
                    .filter(|_| !self.one_in(30))
                    .collect();
                intent(
                    me,
                    Action::BecomeActive {
                        silo: me,
                        contacted,
                    },
                )
            }
            3..=5 => {
                let (suspect, other) = (any(self), any(self));
                let mut votes = vec![self.vote(me)];
                // No silo writes two votes of one accuser at once.
                if other != me && self.one_in(2) {
                    let mut consent = self.vote(other);
                    consent.evidence.via = (!self.one_in(5)).then_some(me);
                    votes.push(consent);
                }
                let call = self.call(t, suspect);
                intent(
                    me,
                    Action::Suspect {
                        suspect,
                        votes,
                        call,
                    },
                )
            }
            6 => match self.below(3) {
                0 => evict(me),
                _ => intent(
                    me,
                    Action::BeginShutdown {
                        silo: me,
                        fast: self.one_in(2),
                    },
                ),
            },
            7 => leave(me),
            _ => {
                let silos = (0..self.below(6)).map(|_| any(self)).collect();
                intent(me, Action::RemoveDefunct { silos })
            }
        }
    }
}

#[test]
fn the_rules_hold_for_every_batch() {
    let mut seen = BTreeMap::<&str, u32>::new();
    for seed in 0..SEEDS {
        let mut rng = SeededRng(Xoshiro256PlusPlus::seed_from_u64(seed));
        let ports = 2 + rng.below(12);
        let (mut t, observed) = rng.table(ports);
        let mut intents: Vec<Intent> = (0..=rng.below(14)).map(|_| rng.intent(ports, &t)).collect();
        for (id, intent) in (1u128..).zip(&mut intents) {
            intent.id = IntentId::new(id);
        }
        let limits = TableLimits::new(
            2 + usize::try_from(rng.below(12)).unwrap(),
            1500 + usize::try_from(rng.below(3000)).unwrap(),
            3000 + usize::try_from(rng.below(9000)).unwrap(),
            4 + usize::try_from(rng.below(30)).unwrap(),
        );
        let mut rounds = 0;
        while !intents.is_empty() {
            let applied = run_within(&t, &observed, &intents, &limits);
            let next = after(&t, &applied, &limits);
            Check {
                seed,
                before: &t,
                after: &next,
                observed: &observed,
                intents: &intents,
                applied: &applied,
                limits: &limits,
            }
            .everything(&mut seen);
            intents = applied.rest;
            t = next;
            rounds += 1;
            assert!(rounds < 40, "seed {seed}: it never ends");
        }
    }
    for what in [
        "voted",
        "stuck",
        "superseded",
        "evicted",
        "left",
        "activated",
        "together",
        "removed",
        "queued",
        "too large",
        "kept vote",
    ] {
        assert!(
            seen.get(what).is_some_and(|n| *n >= 10),
            "the rng hardly show {what}: {seen:?}"
        );
    }
}
