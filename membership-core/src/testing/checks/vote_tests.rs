//! P5, proven by votes that do not count and by machines that make votes up.

use std::collections::BTreeSet;
use std::time::Duration;

use super::tests::{NOON, Stage, dead, entry, evicted, silo, voted};
use super::votes::in_some_order;
use super::*;
use crate::protocol::{Command, IndirectOutcome, RequestId};
use crate::testing::fake::{misheard, tampered};
use crate::testing::machine::{MachineFactory, protocols};
use crate::testing::{Cluster, Dice, Violation};
use crate::{Evidence, Extra, Grounds, Row, RowChange, Suspicion, WallTime};

const S: fn(u64) -> Duration = Duration::from_secs;

/// Silo 0 asks each accuser of these rows but itself, and each consents.
fn told(stage: &Stage, entries: &[MembershipEntry]) -> Votes {
    let mut check = Votes::default();
    for dead in entries {
        for vote in dead.suspicions.iter().filter(|v| v.accuser != silo(0)) {
            ask(&mut check, stage, dead.address, vote, 0);
            reply(&mut check, stage, vote.accuser, Some(vote.clone()));
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
    let body = Message::IndirectProbe {
        round: 7,
        suspect,
        timeout: S(5),
    };
    let fact = Fact::Delivered {
        from: ProcessId(asker),
        to: process(stage, vote.accuser),
        body: &body,
    };
    check.see(&fact, &stage.truth).unwrap();
}

fn reply(check: &mut Votes, stage: &Stage, from: SiloAddress, consent: Option<Suspicion>) {
    let body = Message::IndirectReply {
        round: 7,
        outcome: IndirectOutcome::No { consent },
    };
    check
        .see(
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
        stage.commits(&mut told(&stage, &entries), vec![], entries)
    };
    good(voted(1, &[0, 2])).unwrap();
    good(voted(1, &[0])).unwrap_err();
    good(voted(1, &[0, 0])).unwrap_err();
    good(voted(1, &[0, 1])).unwrap_err();
    good(voted(1, &[0, 9])).unwrap_err();
    // Two that accuse each other: the one taken first has lost its vote.
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
    let mut check = told(&stage, &stale);
    let mut early = entry(1, SiloStatus::Active);
    early.suspicions.clone_from(&stale[0].suspicions);
    stage.commits(&mut check, vec![], vec![early]).unwrap();
    stage.truth.now += S(600);
    for beat in stage.truth.beats.values_mut().flatten() {
        *beat = beat.map(|t| t + S(600));
    }
    assert!(
        stage
            .commits(&mut check, vec![], stale)
            .unwrap_err()
            .contains("with 0 votes")
    );
}

#[test]
fn p5_wants_to_have_heard_each_consent() {
    let (votes, mut stage) = (voted(1, &[0, 2]), Stage::with(6));
    let theirs = votes[0].suspicions[1].clone();
    let table = stage.table.clone();
    let mut death = |prepare: &dyn Fn(&mut Votes, &Stage)| {
        stage.table = table.clone();
        let mut check = Votes::default();
        prepare(&mut check, &stage);
        stage.commits(&mut check, vec![], votes.clone())
    };
    death(&|c, s| {
        (
            ask(c, s, silo(1), &theirs, 0),
            reply(c, s, silo(2), Some(theirs.clone())),
        )
            .1
    })
    .unwrap();
    assert!(
        death(&|_, _| {}).unwrap_err().contains("with 1 votes"),
        "nobody was asked"
    );
    death(&|c, s| reply(c, s, silo(2), Some(theirs.clone()))).unwrap_err();
    death(&|c, s| (ask(c, s, silo(1), &theirs, 0), reply(c, s, silo(2), None)).1).unwrap_err();
    death(&|c, s| {
        (
            ask(c, s, silo(3), &theirs, 0),
            reply(c, s, silo(2), Some(theirs.clone())),
        )
            .1
    })
    .unwrap_err();
    death(&|c, s| {
        (
            ask(c, s, silo(1), &theirs, 3),
            reply(c, s, silo(2), Some(theirs.clone())),
        )
            .1
    })
    .unwrap_err();
    let sick = Suspicion {
        evidence: Evidence {
            accuser_health: 1,
            ..theirs.evidence.clone()
        },
        ..theirs.clone()
    };
    death(&|c, s| {
        (
            ask(c, s, silo(1), &theirs, 0),
            reply(c, s, silo(2), Some(sick.clone())),
        )
            .1
    })
    .unwrap_err();
    // Written long before it kills, it was no better.
    stage.table = table;
    let mut check = Votes::default();
    let early = MembershipEntry {
        suspicions: votes[0].suspicions.clone(),
        ..entry(1, SiloStatus::Active)
    };
    stage.commits(&mut check, vec![], vec![early]).unwrap();
    stage.commits(&mut check, vec![], votes).unwrap_err();
}

#[test]
fn p5_asks_who_ordered_an_eviction() {
    let mut stage = Stage::with(3);
    let table = stage.table.clone();
    assert!(
        stage
            .commits(&mut Votes::default(), vec![], evicted(1))
            .unwrap_err()
            .contains("nobody told to")
    );
    stage.table = table;
    stage.truth.evictions.insert((silo(1), silo(0).to_string()));
    stage
        .commits(&mut Votes::default(), vec![], evicted(1))
        .unwrap();
}

#[test]
fn p5_finds_the_order_of_many_deaths() {
    // Each accused by the next and by silo 0, the last by the first: in a ring, whoever dies first has taken a vote from another.
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
        stage.commits(&mut told(&stage, &rows), vec![], rows)
    };
    death(9).unwrap();
    assert!(death(1).unwrap_err().contains("is voted out with 1 votes"));
}

/// As `in_some_order`, by trying all orders.
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
fn an_order_is_found_exactly_where_there_is_one() {
    let mut dice = Dice::new(5);
    let mut found = [0, 0];
    for _ in 0..2_000 {
        let (silos, deaths) = (4 + dice.below(5), 1 + dice.below(5));
        let accused: Vec<BTreeSet<SiloAddress>> = (0..deaths)
            .map(|i| {
                (0..silos)
                    .filter(|n| *n != i && dice.chance(0.45))
                    .map(silo)
                    .collect()
            })
            .collect();
        // A Joining silo may be voted out, and has no vote.
        let voters: BTreeSet<SiloAddress> =
            (0..silos).filter(|_| dice.chance(0.9)).map(silo).collect();
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

/// A cluster of five of these machines, of which the first two do not hear each other.
fn behind_a_wall(machines: MachineFactory) -> Result<Cluster, Violation> {
    let mut cluster = Cluster::builder()
        .seed(3)
        .silos(5)
        .machines(machines)
        .build()
        .unwrap();
    cluster.run_until_agreed(S(60))?;
    let all = cluster.running();
    cluster.block_both(all[0], all[1]);
    cluster.run_for(S(300))?;
    Ok(cluster)
}

#[test]
fn p5_sees_a_consent_that_was_made_up() {
    let cluster = behind_a_wall(protocols()).unwrap();
    assert_eq!(cluster.stats().voted_out, 0);
    let violation = behind_a_wall(misheard(protocols(), |input| {
        if let Input::Message { header, body, .. } = input
            && let Message::IndirectReply { round, .. } = **body
        {
            let evidence = Evidence {
                misses: 2,
                ..Evidence::default()
            };
            let at = WallTime::default();
            let vote = Suspicion {
                accuser: header.from,
                at,
                grounds: Grounds::Silent,
                evidence,
                extra: Extra::default(),
            };
            *body = Message::IndirectReply {
                round,
                outcome: IndirectOutcome::No {
                    consent: Some(vote),
                },
            }
            .into();
        }
    }));
    let violation = violation.unwrap_err();
    assert_eq!(violation.invariant(), "P5", "{violation}");
    assert!(violation.what().contains("with 1 votes"), "{violation}");
}

#[test]
fn p5_sees_a_death_by_votes_that_is_called_an_eviction() {
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
fn an_eviction_that_an_operator_orders_breaks_nothing() {
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
