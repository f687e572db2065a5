//! The majority of a roll call is counted again in the snapshot that its votes are applied to.
//! Invariants P10 to P13.

use super::*;
use membership_core::intent::is_majority;

fn silos(ports: impl IntoIterator<Item = u16>) -> Vec<SiloAddress> {
    ports.into_iter().map(silo).collect()
}

/// Two votes against a silo after this call.
fn votes_of_two(against: u16, call: Call) -> Intent {
    let mut consent = vote(silo(2));
    consent.evidence.via = Some(silo(1));
    called(silo(1), silo(against), vec![vote(silo(1)), consent], call)
}

fn dies(t: &Snapshot, observed: &Observed, against: u16, call: Call) -> bool {
    let applied = run_seen(t, observed, &[votes_of_two(against, call)]);
    let died = cause(&applied, silo(against)).is_some();
    let answer = if died { DONE } else { Answer::Moot };
    assert_eq!(
        applied.answers,
        [answer],
        "without a death nothing is written"
    );
    died
}

fn is_lost(t: &Snapshot, against: u16, failed: impl IntoIterator<Item = u16>) -> bool {
    dies(t, &Observed::default(), against, call(silos(failed)))
}

#[test]
fn more_than_half_of_the_active_silos_must_fail() {
    let t = table(actives(1..=5));
    assert!(is_lost(&t, 5, 1..=3));
    assert!(!is_lost(&t, 5, 1..=2));
    // Silos that are not Active say nothing, and neither do silos without a row.
    let mut rows = actives(1..=5);
    rows.push(entry(silo(6), SiloStatus::Joining));
    rows.push(entry(silo(7), SiloStatus::ShuttingDown));
    assert!(!is_lost(&table(rows), 5, [1, 2, 6, 7, 8]));
}

#[test]
fn a_silo_that_has_become_active_since_counts_as_reaching() {
    let mut rows = actives(1..=5);
    assert!(is_lost(&table(rows.clone()), 5, 1..=3));
    rows.push(entry(silo(6), SiloStatus::Joining));
    assert!(
        is_lost(&table(rows.clone()), 5, 1..=3),
        "it is not Active yet"
    );
    rows[5] = entry(silo(6), SiloStatus::Active);
    rows.push(entry(silo(7), SiloStatus::Active));
    assert!(!is_lost(&table(rows), 5, 1..=3), "three of seven");
}

#[test]
fn a_silo_that_has_died_since_no_longer_counts() {
    let mut rows = actives(1..=5);
    rows[2] = died(silo(3), CauseOfDeath::Left, Duration::from_secs(1));
    assert!(!is_lost(&table(rows.clone()), 5, [2, 3]));
    assert!(
        is_lost(&table(rows), 5, [1, 2, 3]),
        "two of four with the leader"
    );
}

#[test]
fn of_exactly_half_the_side_of_the_leader_is_the_majority() {
    let mut rows = actives(1..=4);
    assert!(is_lost(&table(rows.clone()), 4, [1, 2]), "silo 1 leads");
    rows[0].active_since = Some(9);
    rows[2].active_since = Some(2);
    assert!(!is_lost(&table(rows.clone()), 4, [1, 2]), "silo 3 leads");
    // Half of two is never a majority.
    let t = table(actives(1..=2));
    for (by, against) in [(1, 2), (2, 1)] {
        let applied = run(&t, &[suspect(silo(by), silo(against))]);
        assert_eq!(
            (applied.answers, applied.updates),
            (vec![Answer::Moot], vec![])
        );
    }
}

#[test]
fn stale_silos_are_not_counted() {
    let t = table(actives(1..=5));
    let mut observed = Observed::default();
    observed.stale = [silo(3), silo(4)].into();
    let failed = || call(silos([1, 2]));
    assert!(dies(&t, &observed, 5, failed()), "two of three");
    observed.answered = [silo(3), silo(4)].into();
    assert!(
        !dies(&t, &observed, 5, failed()),
        "a silo that answers is not stale"
    );
    // They add nothing to a minority either.
    let t = table(actives(1..=7));
    observed.answered.clear();
    assert!(
        !dies(&t, &observed, 5, call(silos([1, 2, 3, 4]))),
        "two of five"
    );
}

#[test]
fn a_stale_suspect_needs_no_majority_if_nobody_reaches_it() {
    let t = table(actives(1..=9));
    let mut observed = Observed::default();
    observed.stale = [silo(9)].into();
    let mut call = call(silos([1, 2]));
    assert!(dies(&t, &observed, 9, call.clone()));
    call.reached = 1;
    assert!(!dies(&t, &observed, 9, call.clone()));
    // One that says that it reaches it does not keep it against a majority.
    call.failed = silos(1..=5);
    assert!(dies(&t, &observed, 9, call.clone()));
    // The silo does not have to be stale any more when the votes are written.
    observed.answered = [silo(9)].into();
    assert!(dies(&t, &observed, 9, call));
}

#[test]
fn a_sample_must_make_sure_of_a_majority() {
    let t = table(actives(1..=12));
    let sampled = |failed, sample| {
        let mut call = call(silos(1..=failed));
        call.sample = Some(sample);
        dies(&t, &Observed::default(), 12, call)
    };
    assert!(sampled(9, 11));
    assert!(!sampled(8, 11), "too near to half for one that is missing");
    assert!(!sampled(6, 6), "six of twelve prove nothing");
    assert!(sampled(7, 12), "all were asked");
    assert!(!sampled(6, 12), "half is not enough, leader or not");
}

#[test]
fn against_a_joining_suspect_the_joining_silos_count_too() {
    let mut rows = actives(1..=3);
    rows.extend((4..=6).map(|p| entry(silo(p), SiloStatus::Joining)));
    let t = table(rows);
    assert!(!is_lost(&t, 6, [1, 2]));
    assert!(is_lost(&t, 6, [1, 2, 4, 5]));
    assert!(is_lost(&t, 6, [1, 2, 5]), "half, with the leader");
    assert!(is_lost(&t, 3, [1, 2]), "an Active suspect: two of three");
}

#[test]
fn a_vote_without_a_call_is_moot() {
    let t = table(actives(1..=5));
    let mut it = suspect(silo(1), silo(5));
    if let Action::Suspect { call, .. } = &mut it.action {
        *call = None;
    }
    assert_eq!(run(&t, &[it.clone()]).answers, [Answer::Moot]);
    // A comparison with a protocol that asks nobody.
    let mut observed = Observed::default();
    observed.without_calls = true;
    assert_eq!(run_seen(&t, &observed, &[it]).answers, [DONE]);
}

#[test]
fn a_call_without_a_majority_adds_no_vote_to_one_that_has_it() {
    let t = table(actives(1..=5));
    let weak = called(silo(2), silo(5), vec![vote(silo(2))], call(silos([1, 2])));
    let strong = suspect(silo(1), silo(5));
    let applied = run(&t, &[strong, weak]);
    assert_eq!(applied.answers, [DONE, Answer::Moot]);
    let accusers = &applied.updates[0].suspicions;
    assert_eq!((accusers.len(), cause(&applied, silo(5))), (1, None));
}

#[test]
fn silos_that_died_together_leave_in_one_commit() {
    let t = table(actives(1..=7));
    let batch: Vec<Intent> = (5..=7)
        .map(|p| votes_of_two(p, call(silos(1..=4))))
        .collect();
    let applied = run(&t, &batch);
    assert_eq!(applied.answers, [DONE, DONE, DONE]);
    for dead in 5..=7 {
        assert_eq!(cause(&applied, silo(dead)), Some(CauseOfDeath::Voted));
    }
    // The deaths of a commit make no other majority: three of seven are not enough before it.
    let mut batch: Vec<Intent> = (6..=7)
        .map(|p| votes_of_two(p, call(silos(1..=4))))
        .collect();
    batch.push(votes_of_two(5, call(silos(1..=3))));
    let applied = run(&t, &batch);
    assert_eq!(applied.answers, [DONE, DONE, Answer::Moot]);
    let t = after(&t, &applied, &LIMITS);
    let next = run(&t, &batch[2..]);
    assert_eq!(
        cause(&next, silo(5)),
        Some(CauseOfDeath::Voted),
        "three of five"
    );
}

#[test]
fn the_public_rule_counts_in_the_same_way() {
    let t = table(actives(1..=5));
    let none = std::collections::BTreeSet::new();
    let majority = |failed: &[u16], sample| {
        let failed = failed.iter().copied().map(silo).collect();
        is_majority(&t, &none, &silo(5), &failed, true, sample)
    };
    assert!(majority(&[1, 2, 3], None) && !majority(&[1, 2], None));
    assert!(majority(&[1, 2, 3], Some(5)) && !majority(&[1, 2], Some(5)));
    assert!(
        !majority(&[1, 2, 3, 4], Some(4)),
        "four of five are too few"
    );
}

#[test]
fn the_last_active_silo_alone_ends_no_silo_that_leaves() {
    let all = |active: u16, status, joining: &[u16]| {
        let mut rows = actives(1..=active);
        rows.push(entry(silo(5), status));
        rows.extend(joining.iter().map(|n| entry(silo(*n), SiloStatus::Joining)));
        table(rows)
    };
    for leaves in [SiloStatus::ShuttingDown, SiloStatus::Stopping] {
        assert!(!is_lost(&all(1, leaves, &[]), 5, [1]), "one of two");
        assert!(!is_lost(&all(1, leaves, &[6]), 5, [1]), "one of three");
        assert!(is_lost(&all(1, leaves, &[6]), 5, [1, 6]), "two of three");
        assert!(is_lost(&all(2, leaves, &[]), 5, [1, 2]), "two of three");
        assert!(is_lost(&all(3, leaves, &[]), 5, [2, 3]), "two of three");
        // It is stale.
        let mut observed = Observed::default();
        observed.stale = silos([5]).into_iter().collect();
        let t = all(1, leaves, &[]);
        assert!(dies(&t, &observed, 5, call(silos([1]))));
    }
}

#[test]
fn the_only_silo_that_writes_heartbeats_needs_no_second_vote() {
    let t = table(actives(1..=5));
    let alone = |challenged: &[u16]| {
        let mut observed = Observed::default();
        observed.challenged = challenged.iter().copied().map(silo).collect();
        let batch = [called(
            silo(1),
            silo(5),
            vec![vote(silo(1))],
            call([silo(1)]),
        )];
        cause(&run_seen(&t, &observed, &batch), silo(5))
    };
    assert_eq!(alone(&[2, 3, 4, 5]), Some(CauseOfDeath::Voted));
    assert_eq!(alone(&[3, 4, 5]), None, "silo 2 writes, too");
    assert_eq!(alone(&[]), None);
}

#[test]
fn newcomers_alone_end_no_newcomer() {
    let joining = (11..=20).map(|port| entry(silo(port), SiloStatus::Joining));
    let t = table(actives(1..=3).into_iter().chain(joining));
    let none = std::collections::BTreeSet::new();
    let majority = |failed: &[u16]| {
        let failed = failed.iter().copied().map(silo).collect();
        is_majority(&t, &none, &silo(20), &failed, true, None)
    };
    let newcomers: Vec<u16> = (11..20).collect();
    assert!(
        !majority(&newcomers),
        "nine of thirteen, none of them Active"
    );
    assert!(majority(&[&newcomers[..], &[1, 2]].concat()));
}
