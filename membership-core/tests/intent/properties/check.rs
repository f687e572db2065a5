//! What holds for every batch: its answers, each row before and after, and the same batch again.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use membership_core::intent::needed_votes;

pub(super) struct Check<'a> {
    pub(super) seed: u64,
    pub(super) before: &'a Snapshot,
    pub(super) after: &'a Snapshot,
    pub(super) observed: &'a Observed,
    pub(super) intents: &'a [Intent],
    pub(super) applied: &'a Applied,
    pub(super) limits: &'a TableLimits,
}

impl Check<'_> {
    pub(super) fn everything(&self, seen: &mut BTreeMap<&'static str, u32>) {
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
        assert!(
            reason == SuspicionReason::Stuck || self.a_call_allows(old),
            "seed {seed}: {new:?}"
        );
    }

    /// Whether one of the roll calls about a silo allows its death, by a count of its own.
    fn a_call_allows(&self, old: &MembershipEntry) -> bool {
        let stale = self.stale();
        let mut calls = self.intents.iter().filter_map(|i| match &i.action {
            Action::Suspect { suspect, call, .. } if *suspect == old.address => call.as_ref(),
            _ => None,
        });
        let fresh = |e: &&MembershipEntry| !stale.contains(&e.address);
        let is_active = |e: &&MembershipEntry| e.status == SiloStatus::Active;
        let live = self.before.rows.entries().filter(fresh).filter(is_active);
        let joining_count = old.status == SiloStatus::Joining || live.count() <= 2;
        let asked = |e: &&MembershipEntry| {
            fresh(e) && (is_active(e) || (e.status == SiloStatus::Joining && joining_count))
        };
        let all: Vec<_> = self.before.rows.entries().filter(asked).collect();
        let actives = self.before.rows.entries();
        let actives = actives.filter(|e| e.status == SiloStatus::Active);
        let leader = actives.min_by_key(|e| (e.active_since, e.address));
        calls.any(|call| {
            if stale.contains(&old.address) && call.reached == 0 {
                return true;
            }
            let failed = all.iter().filter(|e| call.failed.contains(&e.address));
            let (failed, all) = (failed.count(), all.len());
            let leads = leader
                .is_some_and(|e| call.failed.contains(&e.address) && !stale.contains(&e.address));
            match call.sample {
                Some(sample) => {
                    let (silos, sample) = (all as f64, f64::from(sample));
                    let deviation = (sample / 4.0 * (1.0 - sample / silos).max(0.0)).sqrt();
                    let excess = failed as f64 - sample / 2.0;
                    excess > 0.0 && excess >= 16.0 / 3.0 * deviation - 1e-9
                }
                None => {
                    failed * 2 > all || (failed * 2 == all && all > 2 && leads && call.reached == 0)
                }
            }
        })
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
            // A vote from far in the future, by a clock that was set back since, gives way.
            let gives_way = again.updates.iter().all(|e| {
                let votes = self.after.rows.get(&e.address).map(|e| &e.suspicions[..]);
                let far = |v: &Suspicion| NOW.wall.distance(v.at) > Duration::from_secs(120);
                let by_author = |v: &&Suspicion| Some(v.accuser) == intent.author;
                votes.is_some_and(|all| all.iter().find(by_author).is_some_and(far))
            });
            assert!(
                again.is_empty() || (is_vote && (kills || gives_way)),
                "seed {}: {intent:?} {:?}",
                self.seed,
                again.answers
            );
        }
    }
}
