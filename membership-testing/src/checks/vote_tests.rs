//! Tests of the checker of P5: votes that do not count, and machines that forge votes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::tests::{NOON, Stage, dead, entry, evicted, silo, voted};
use super::votes::in_some_order;
use super::*;
use crate::fake::{tampered, with_changed_inputs};
use crate::machine::{MachineFactory, protocols};
use crate::{Cluster, Rng, Violation};
use membership_core::protocol::{Command, Consent, Finding, RequestId};
use membership_core::{Row, RowChange, Suspicion, WallTime};

const S: fn(u64) -> Duration = Duration::from_secs;
const CONSENT: Consent = Consent {
    misses: 2,
    timeout_ms: 1_500,
    last_answer_ms: None,
};

/// A checker after silo 0 has asked each accuser of these rows except itself, and each has
/// consented.
fn after_consents(stage: &Stage, entries: &[MembershipEntry]) -> Votes {
    let mut check = Votes::default();
    for dead in entries {
        for vote in dead.suspicions.iter().filter(|v| v.accuser != silo(0)) {
            ask(&mut check, stage, dead.address, vote, 0);
            reply(&mut check, stage, vote.accuser, dead.address, true);
        }
    }
    check
}

fn process(stage: &Stage, silo: SiloAddress) -> ProcessId {
    stage
        .truth
        .owners
        .get(&silo)
        .copied()
        .unwrap_or(ProcessId(99))
}

fn ask(check: &mut Votes, stage: &Stage, suspect: SiloAddress, vote: &Suspicion, asker: usize) {
    ask_in(check, stage, 7, (suspect, vote, asker));
}

fn ask_in(
    check: &mut Votes,
    stage: &Stage,
    call: u64,
    (suspect, vote, asker): (SiloAddress, &Suspicion, usize),
) {
    let body = Message::RollCall {
        call,
        suspects: vec![(suspect, 3_000)],
    };
    let fact = Fact::Delivered {
        from: ProcessId(asker),
        to: process(stage, vote.accuser),
        body: &body,
    };
    check.observe(&fact, &stage.truth).unwrap();
}

fn reply(
    check: &mut Votes,
    stage: &Stage,
    from: SiloAddress,
    suspect: SiloAddress,
    consents: bool,
) {
    let finding = Finding::Failed {
        silent_ms: 5_000,
        heard_ms: None,
        refused: false,
        consent: consents.then_some(CONSENT),
    };
    let body = Message::RollAnswer {
        call: 7,
        findings: vec![(suspect, finding)],
        missed: Vec::new(),
    };
    check
        .observe(
            &Fact::Delivered {
                from: process(stage, from),
                to: ProcessId(0),
                body: &body,
            },
            &stage.truth,
        )
        .unwrap();
}

#[test]
fn p5_counts_votes() {
    let good = |entries: Vec<MembershipEntry>| {
        let mut stage = Stage::with(6);
        stage.commits(&mut after_consents(&stage, &entries), vec![], entries)
    };
    good(voted(1, &[0, 2])).unwrap();
    good(voted(1, &[0])).unwrap_err();
    good(voted(1, &[0, 0])).unwrap_err();
    good(voted(1, &[0, 1])).unwrap_err();
    good(voted(1, &[0, 9])).unwrap_err();
    // Two silos that accuse each other: the one that dies first loses its vote.
    good(vec![
        dead(1, CauseOfDeath::Voted, &[0, 2]),
        dead(2, CauseOfDeath::Voted, &[0, 3]),
    ])
    .unwrap();
    good(vec![
        dead(1, CauseOfDeath::Voted, &[0, 2]),
        dead(2, CauseOfDeath::Voted, &[0, 1]),
    ])
    .unwrap_err();
    good(vec![dead(1, CauseOfDeath::Superseded, &[])]).unwrap_err();
    good(vec![dead(1, CauseOfDeath::Left, &[])]).unwrap_err();
    good(vec![dead(0, CauseOfDeath::Left, &[])]).unwrap();
    good(vec![dead(1, CauseOfDeath::Stuck, &[0, 2])]).unwrap_err();
    let mut stale = voted(1, &[0, 2]);
    stale[0].suspicions[0].at = WallTime::from_millis(5);
    let mut stage = Stage::with(6);
    let mut check = after_consents(&stage, &stale);
    let mut early = entry(1, SiloStatus::Active);
    early.suspicions.clone_from(&stale[0].suspicions);
    stage.commits(&mut check, vec![], vec![early]).unwrap();
    stage.truth.now += S(600);
    for beat in stage.truth.heartbeats.values_mut().flatten() {
        *beat = beat.map(|t| t + S(600));
    }
    assert!(
        stage
            .commits(&mut check, vec![], stale)
            .unwrap_err()
            .contains("with 0 valid votes")
    );
}

#[test]
fn p5_requires_a_delivered_consent_for_each_vote() {
    let (votes, mut stage) = (voted(1, &[0, 2]), Stage::with(6));
    let theirs = &votes[0].suspicions[1].clone();
    let table = stage.table.clone();
    let mut death = |prepare: &dyn Fn(&mut Votes, &Stage)| {
        stage.table = table.clone();
        let mut check = Votes::default();
        prepare(&mut check, &stage);
        stage.commits(&mut check, vec![], votes.clone())
    };
    let asked = |about: usize, by: usize, consents: bool| {
        move |c: &mut Votes, s: &Stage| {
            ask(c, s, silo(about), theirs, by);
            reply(c, s, silo(2), silo(1), consents);
        }
    };
    death(&asked(1, 0, true)).unwrap();
    assert!(
        death(&|_, _| {})
            .unwrap_err()
            .contains("with 1 valid votes"),
        "nobody was asked"
    );
    death(&|c, s| reply(c, s, silo(2), silo(1), true)).unwrap_err();
    death(&asked(1, 0, false)).unwrap_err();
    death(&asked(3, 0, true)).unwrap_err();
    death(&asked(1, 3, true)).unwrap_err();
    // A question of an older call was held up, and arrives after that of this one.
    death(&|c, s| {
        ask(c, s, silo(1), theirs, 0);
        ask_in(c, s, 6, (silo(3), theirs, 0));
        reply(c, s, silo(2), silo(1), true);
    })
    .unwrap();
    death(&|c, s| {
        ask_in(c, s, 6, (silo(1), theirs, 0));
        ask(c, s, silo(3), theirs, 0);
        reply(c, s, silo(2), silo(1), true);
    })
    .unwrap_err();
    // A vote that was written long before the death is not valid either.
    stage.table = table;
    let mut check = Votes::default();
    let mut early = entry(1, SiloStatus::Active);
    early.suspicions = votes[0].suspicions.clone();
    stage.commits(&mut check, vec![], vec![early]).unwrap();
    stage.commits(&mut check, vec![], votes).unwrap_err();
}

#[test]
fn p5_requires_an_order_for_an_eviction() {
    let mut stage = Stage::with(3);
    let table = stage.table.clone();
    assert!(
        stage
            .commits(&mut Votes::default(), vec![], evicted(1))
            .unwrap_err()
            .contains("no operator ordered it")
    );
    stage.table = table;
    stage.truth.evictions.insert((silo(1), silo(0).to_string()));
    stage
        .commits(&mut Votes::default(), vec![], evicted(1))
        .unwrap();
}

#[test]
fn p5_finds_the_order_of_many_deaths() {
    // Each silo is accused by the next one and by silo 0, and the last one by the first: in such a
    // ring the silo that dies first takes a vote from another one.
    let death = |first_accuser_of_the_last: usize| {
        let rows: Vec<MembershipEntry> = (1..=8)
            .map(|n| {
                dead(
                    n,
                    CauseOfDeath::Voted,
                    &[
                        0,
                        if n == 8 {
                            first_accuser_of_the_last
                        } else {
                            n + 1
                        },
                    ],
                )
            })
            .collect();
        let mut stage = Stage::with(12);
        stage.commits(&mut after_consents(&stage, &rows), vec![], rows)
    };
    death(9).unwrap();
    assert!(
        death(1)
            .unwrap_err()
            .contains("is voted out with 1 valid votes")
    );
}

/// Computes the same as `in_some_order`, by trying all orders.
fn by_trying(
    dying: &[usize],
    voters: &BTreeSet<SiloAddress>,
    enough: &dyn Fn(usize, &BTreeSet<SiloAddress>) -> bool,
) -> bool {
    dying.is_empty()
        || dying.iter().any(|i| {
            let left: Vec<usize> = dying.iter().copied().filter(|d| d != i).collect();
            let alive = voters.iter().copied().filter(|v| *v != silo(*i)).collect();
            enough(*i, voters) && by_trying(&left, &alive, enough)
        })
}

#[test]
fn finds_an_order_exactly_if_one_exists() {
    let mut rng = Rng::new(5);
    let mut found = [0, 0];
    for _ in 0..2_000 {
        let (silos, deaths) = (4 + rng.below(5), 1 + rng.below(5));
        let accused: Vec<BTreeSet<SiloAddress>> = (0..deaths)
            .map(|i| {
                (0..silos)
                    .filter(|n| *n != i && rng.chance(0.45))
                    .map(silo)
                    .collect()
            })
            .collect();
        // A Joining silo can be voted out, but has no vote.
        let voters: BTreeSet<SiloAddress> =
            (0..silos).filter(|_| rng.chance(0.9)).map(silo).collect();
        let enough =
            |i: usize, voters: &BTreeSet<SiloAddress>| accused[i].intersection(voters).count() >= 2;
        let all: Vec<usize> = (0..deaths).collect();
        let dying: Vec<SiloAddress> = all.iter().copied().map(silo).collect();
        let there_is_one = by_trying(&all, &voters, &enough);
        assert_eq!(
            in_some_order(&dying, &voters, enough).is_ok(),
            there_is_one,
            "{accused:?}"
        );
        found[usize::from(there_is_one)] += 1;
    }
    assert!(found.iter().all(|n| *n > 200), "{found:?}");
}

/// Runs a cluster of five of these machines in which the first two cannot reach each other.
fn with_two_blocked(machines: MachineFactory) -> Result<Cluster, Violation> {
    let mut cluster = Cluster::builder()
        .seed(3)
        .silos(5)
        .machines(machines)
        .build()
        .unwrap();
    cluster.run_until_agreed(S(60))?;
    // Until every silo has written heartbeats: before, fewer votes could be enough.
    cluster.run_for(S(60))?;
    let all = cluster.running();
    cluster.block_both(all[0], all[1]);
    cluster.run_for(S(300))?;
    Ok(cluster)
}

#[test]
fn p5_detects_a_forged_consent() {
    let cluster = with_two_blocked(protocols()).unwrap();
    assert_eq!(cluster.stats().voted_out, 0);
    let violation = with_two_blocked(with_changed_inputs(protocols(), |input| {
        if let Input::Message { body, .. } = input
            && let Message::RollAnswer { call, findings, .. } = &**body
        {
            // Whoever reaches the suspect is said to have failed, by a silo that was not asked.
            let forged = |(silo, _): &(SiloAddress, Finding)| {
                let finding = Finding::Failed {
                    silent_ms: 60_000,
                    heard_ms: None,
                    refused: false,
                    consent: Some(CONSENT),
                };
                (*silo, finding)
            };
            *body = Message::RollAnswer {
                call: *call,
                findings: findings.iter().map(forged).collect(),
                missed: Vec::new(),
            }
            .into();
        }
    }));
    let violation = violation.unwrap_err();
    assert_eq!(violation.invariant(), "P5", "{violation}");
    assert!(
        violation.what().contains("with 1 valid votes"),
        "{violation}"
    );
}

#[test]
fn p5_detects_a_death_by_votes_that_is_reported_as_an_eviction() {
    let machines = tampered(protocols(), |_, effects| {
        for effect in effects {
            let Effect::Commit { request, .. } = effect else {
                continue;
            };
            for change in &mut request.changes {
                let RowChange::Update(row) = change else {
                    continue;
                };
                let Some(mut entry) = row.entry().cloned() else {
                    continue;
                };
                if let Some(death) = entry
                    .death
                    .as_mut()
                    .filter(|d| d.cause == CauseOfDeath::Voted)
                {
                    death.cause = CauseOfDeath::Evicted {
                        by: "nobody".to_owned(),
                        reason: String::new(),
                    };
                    *row = Row::encode(entry);
                }
            }
        }
    });
    let mut cluster = Cluster::builder()
        .seed(3)
        .silos(5)
        .machines(machines)
        .build()
        .unwrap();
    cluster.run_until_agreed(S(60)).unwrap();
    let victim = cluster.running()[1];
    cluster.kill(victim);
    let violation = cluster.run_for(S(120)).unwrap_err();
    assert_eq!(violation.invariant(), "P5", "{violation}");
    assert!(
        violation.what().contains("evicted by nobody"),
        "{violation}"
    );
}

#[test]
fn p5_accepts_an_eviction_that_an_operator_ordered() {
    let mut cluster = Cluster::builder().seed(3).silos(5).build().unwrap();
    cluster.run_until_agreed(S(60)).unwrap();
    cluster.run_for(NOON / 10).unwrap();
    let all = cluster.running();
    let silo = cluster.address(all[1]).unwrap();
    cluster.command(
        all[0],
        Command::Evict {
            request: RequestId(1),
            silo,
            reason: "too old".to_owned(),
        },
    );
    cluster.run_for(S(30)).unwrap();
    assert!(!cluster.is_running(all[1]));
    cluster.settle().unwrap();
}
