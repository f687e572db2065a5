//! Random batches on random tables, by seed: rules that hold for all intents.

use std::collections::{BTreeMap, BTreeSet};

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use membership_core::intent::needed_votes;

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
                if self.one_in(2) {
                    let mut consent = self.vote(other);
                    consent.evidence.via = (!self.one_in(5)).then_some(me);
                    votes.push(consent);
                }
                intent(me, Action::Suspect { suspect, votes })
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

struct Check<'a> {
    seed: u64,
    before: &'a Snapshot,
    after: &'a Snapshot,
    observed: &'a Observed,
    intents: &'a [Intent],
    applied: &'a Applied,
    limits: &'a TableLimits,
}

impl Check<'_> {
    fn everything(&self, seen: &mut BTreeMap<&'static str, u32>) {
        let mut note = |what| *seen.entry(what).or_default() += 1;
        self.answers(&mut note);
        for new in self.after.rows.entries() {
            self.row(new, &mut note);
        }
        for key in &self.applied.removes {
            let old = self
                .before
                .rows
                .by_key(key)
                .and_then(|r| r.entry())
                .unwrap();
            assert_eq!(old.status, SiloStatus::Dead, "seed {}", self.seed);
            note("removed");
        }
        self.endpoints();
        self.contacts(&mut note);
        self.again();
    }

    fn answers(&self, note: &mut impl FnMut(&'static str)) {
        let Applied { answers, rest, .. } = self.applied;
        let waiting: BTreeSet<_> = rest.iter().map(|i| i.id).collect();
        assert_eq!(waiting.len(), rest.len());
        assert!(rest.is_sorted_by_key(|i| i.id), "in order");
        for (intent, answer) in self.intents.iter().zip(answers) {
            let split = matches!(intent.action, Action::RemoveDefunct { .. })
                && matches!(answer, Answer::Applied { .. });
            assert!(
                split || waiting.contains(&intent.id) == (*answer == Answer::Queued),
                "seed {}: {intent:?} {answer:?}",
                self.seed
            );
            match answer {
                Answer::Applied { version } => assert_eq!(*version, self.after.version()),
                Answer::Queued => note("queued"),
                Answer::Refused(Refusal::TooLarge(_)) => note("too large"),
                _ => {}
            }
        }
        assert_eq!(
            self.applied.is_empty(),
            !answers.iter().any(|a| matches!(a, Answer::Applied { .. })),
            "seed {}",
            self.seed
        );
        assert!(
            rest.is_empty() || !self.applied.is_empty(),
            "seed {}: nothing was done, and yet something waits",
            self.seed
        );
    }

    fn row(&self, new: &MembershipEntry, note: &mut impl FnMut(&'static str)) {
        let seed = self.seed;
        assert_eq!(new.status == SiloStatus::Dead, new.death.is_some());
        assert!(
            Row::decode(new.address.row_key(), Row::encode(new.clone()).body())
                .entry()
                .is_some()
        );
        let old = self.before.rows.get(&new.address);
        if old == Some(new) {
            return;
        }
        assert_eq!(new.written_at, self.after.version());
        let accusers: BTreeSet<_> = new.suspicions.iter().map(|s| s.accuser).collect();
        assert_eq!(accusers.len(), new.suspicions.len(), "one vote per accuser");
        let Some(old) = old else { return };
        assert!(old.status != SiloStatus::Dead, "seed {seed}: Dead is final");
        assert!(
            old.status <= new.status,
            "seed {seed}: {} to {}",
            old.status,
            new.status
        );
        assert_eq!(old.instance_id, new.instance_id);
        if old.suspicions != new.suspicions {
            let most = self
                .before
                .version_row
                .settings
                .num_votes_for_death_declaration as usize
                + 3;
            assert!(new.suspicions.len() <= most || new.suspicions.len() < old.suspicions.len());
            note("kept vote");
        }
        let Some(death) = &new.death else { return };
        assert_eq!((death.version, death.at), (self.after.version(), NOW.wall));
        note(death.cause.as_str());
        let reason = match death.cause {
            CauseOfDeath::Voted => SuspicionReason::Silent,
            CauseOfDeath::Stuck => SuspicionReason::Stuck,
            _ => return,
        };
        assert!(
            reason == SuspicionReason::Silent || old.status == SiloStatus::Joining,
            "seed {seed}"
        );
        let counted = new
            .suspicions
            .iter()
            .filter(|v| v.reason == reason && self.was_active(&v.accuser) && self.is_fresh(old, v));
        let endpoints: BTreeSet<_> = counted.map(|v| v.accuser.endpoint()).collect();
        assert!(!endpoints.contains(&new.address.endpoint()));
        assert!(
            endpoints.len() >= self.needed_at_least(),
            "seed {seed}: {new:?}"
        );
    }

    fn was_active(&self, silo: &SiloAddress) -> bool {
        self.before
            .rows
            .get(silo)
            .is_some_and(|e| e.status == SiloStatus::Active)
    }

    fn is_fresh(&self, old: &MembershipEntry, vote: &Suspicion) -> bool {
        let limit = Duration::from_secs(120);
        let seen = self.observed.first_seen.get(&(old.address, vote.accuser));
        !old.suspicions.contains(vote)
            || NOW.wall.distance(vote.at) <= limit
            || seen.is_some_and(|(at, when)| *at == vote.at && NOW.mono.since(*when) <= limit)
    }

    /// The number of votes that are needed after all deaths and leaves of this commit.
    fn needed_at_least(&self) -> usize {
        let mut fewest = self.before.clone();
        for e in self
            .applied
            .updates
            .iter()
            .filter(|e| e.status != SiloStatus::Active)
        {
            fewest.rows.insert(Row::encode(e.clone()));
        }
        needed_votes(&fewest, &self.stale()) as usize
    }

    fn stale(&self) -> BTreeSet<SiloAddress> {
        self.observed
            .stale
            .difference(&self.observed.answered)
            .copied()
            .collect()
    }

    fn endpoints(&self) {
        for new in &self.applied.inserts {
            let others = self
                .after
                .rows
                .at_endpoint(new.address.endpoint())
                .filter(|e| e.address != new.address);
            for other in others {
                let newer = other.address.epoch() > new.address.epoch();
                assert!(
                    if newer { new.status } else { other.status } == SiloStatus::Dead,
                    "seed {}: {new:?} {other:?}",
                    self.seed
                );
            }
        }
    }

    fn contacts(&self, note: &mut impl FnMut(&'static str)) {
        let since =
            |t: &Snapshot, silo: &SiloAddress| t.rows.get(silo).and_then(|e| e.active_since);
        let newly = |silo: &SiloAddress| {
            since(self.before, silo).is_none() && since(self.after, silo).is_some()
        };
        let stale = self.stale();
        for me in self.after.rows.entries().map(|e| e.address).filter(newly) {
            note("activated");
            let met: BTreeSet<SiloAddress> = self
                .intents
                .iter()
                .filter_map(|i| match &i.action {
                    Action::BecomeActive { silo, contacted } if *silo == me => {
                        Some(contacted.iter().copied())
                    }
                    _ => None,
                })
                .flatten()
                .collect();
            for other in self
                .after
                .rows
                .entries()
                .filter(|e| !e.address.same_endpoint(&me))
            {
                let together = newly(&other.address);
                if together {
                    note("together");
                }
                if together
                    || (other.status == SiloStatus::Active && !stale.contains(&other.address))
                {
                    assert!(
                        met.contains(&other.address),
                        "seed {}: {me} never met {}",
                        self.seed,
                        other.address
                    );
                }
            }
        }
    }

    /// An intent that was applied is not applied again. A vote may still kill when fewer votes are
    /// needed in the meantime.
    fn again(&self) {
        for (intent, answer) in self.intents.iter().zip(&self.applied.answers) {
            let split = self.applied.rest.iter().any(|r| r.id == intent.id);
            if !matches!(answer, Answer::Applied { .. }) || split {
                continue;
            }
            let again = run_within(
                self.after,
                self.observed,
                std::slice::from_ref(intent),
                self.limits,
            );
            let kills =
                again.updates.iter().all(|e| matches!(&e.death, Some(d) if matches!(d.cause, CauseOfDeath::Voted | CauseOfDeath::Stuck)));
            let is_vote = matches!(intent.action, Action::Suspect { .. });
            // A removal skips silos that died in the same commit; the next removal includes them.
            if matches!(intent.action, Action::RemoveDefunct { .. }) {
                assert!(again.removes.iter().all(|key| {
                    self.applied
                        .inserts
                        .iter()
                        .chain(&self.applied.updates)
                        .any(|e| e.address.row_key() == *key)
                }));
                continue;
            }
            assert!(
                again.is_empty() || (is_vote && kills),
                "seed {}: {intent:?} {:?}",
                self.seed,
                again.answers
            );
        }
    }
}
