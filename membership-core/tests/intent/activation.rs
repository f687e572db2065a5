//! Becoming Active: contact with every silo that must be reached (P9).

use super::*;

fn with_joining(
    ports: impl IntoIterator<Item = u16>,
    joining: impl IntoIterator<Item = u16>,
) -> Snapshot {
    let mut t = actives(ports);
    t.extend(
        joining
            .into_iter()
            .map(|p| entry(silo(p), SiloStatus::Joining)),
    );
    table(t)
}

#[test]
fn every_live_active_silo_must_have_been_contacted() {
    let t = with_joining(1..=3, [7]);
    assert_eq!(
        run(&t, &[activate(silo(7), [1])]).answers,
        [refused(Refusal::NotContacted(vec![silo(2), silo(3)]))]
    );
    let applied = run(&t, &[activate(silo(7), [1, 2, 3])]);
    assert_eq!(applied.answers, [DONE]);
    assert_eq!(
        (applied.updates[0].status, applied.updates[0].active_since),
        (SiloStatus::Active, Some(10))
    );
    let mut observed = Observed::default();
    observed.stale = [silo(2), silo(3)].into();
    assert_eq!(
        run_seen(&t, &observed, &[activate(silo(7), [1])]).answers,
        [DONE]
    );
    observed.answered = [silo(3)].into();
    assert_eq!(
        run_seen(&t, &observed, &[activate(silo(7), [1])]).answers,
        [refused(Refusal::NotContacted(vec![silo(3)]))]
    );
}

#[test]
fn silos_that_die_in_the_same_commit_need_not_be_contacted() {
    let t = with_joining(1..=3, [7]);
    assert_eq!(
        run(&t, &[activate(silo(7), [1, 2]), evict(silo(3))]).answers,
        [DONE, DONE]
    );
    assert_eq!(
        run(&t, &[activate(silo(7), [1, 2]), leave(silo(3))]).answers,
        [DONE, DONE]
    );
    let votes = [
        activate(silo(7), [1, 2]),
        suspect(silo(1), silo(3)),
        suspect(silo(2), silo(3)),
    ];
    assert_eq!(run(&t, &votes).answers, [DONE, DONE, DONE]);
}

#[test]
fn undecodable_rows_and_joining_silos_do_not_delay_an_activation() {
    let mut t = with_joining(1..=1, [7, 8]);
    t.rows.insert(Row::decode("10.0.0.9:1@1", "{"));
    assert_eq!(run(&t, &[activate(silo(7), [1])]).answers, [DONE]);
}

#[test]
fn silos_activated_by_one_commit_must_have_contacted_each_other() {
    let t = with_joining([], [7, 8]);
    assert_eq!(
        run(&t, &[activate(silo(7), [8]), activate(silo(8), [7])]).answers,
        [DONE, DONE]
    );
    for (a, b) in [(vec![8], vec![]), (vec![], vec![])] {
        let applied = run(&t, &[activate(silo(7), a), activate(silo(8), b.clone())]);
        assert_eq!(
            (applied.answers, applied.rest.len()),
            (vec![DONE, Answer::Queued], 1)
        );
        let next = run(
            &after(&t, &run(&t, &[activate(silo(7), [])]), &LIMITS),
            &applied.rest,
        );
        let expected = refused(Refusal::NotContacted(vec![silo(7)]));
        assert_eq!(next.answers, [expected]);
    }
}

#[test]
fn whoever_has_met_most_becomes_active_first() {
    let t = with_joining([], [7, 8]);
    let applied = run(&t, &[activate(silo(7), []), activate(silo(8), [7])]);
    assert_eq!(applied.answers, [Answer::Queued, DONE]);
    let next = run(&after(&t, &applied, &LIMITS), &applied.rest);
    let expected = refused(Refusal::NotContacted(vec![silo(8)]));
    assert_eq!(next.answers, [expected]);
}

#[test]
fn who_has_met_the_one_that_becomes_active_follows_in_the_next_commit() {
    let t = with_joining([], [7, 8]);
    let first = run(&t, &[activate(silo(7), [])]);
    let next = run(&after(&t, &first, &LIMITS), &[activate(silo(8), [7])]);
    assert_eq!(next.answers, [Answer::Applied { version: 11 }]);
}

#[test]
fn a_silo_that_becomes_active_votes_in_the_next_commit() {
    let t = with_joining([], [7, 8, 9]);
    let applied = run(&t, &[activate(silo(7), []), suspect(silo(7), silo(8))]);
    assert_eq!(applied.answers, [DONE, Answer::Queued]);
    let next = run(&after(&t, &applied, &LIMITS), &applied.rest);
    assert_eq!(cause(&next, silo(8)), Some(CauseOfDeath::Voted));
}

#[test]
fn only_joining_rows_become_active() {
    use SiloStatus::{Active, ShuttingDown, Stopping};
    for status in [ShuttingDown, Stopping] {
        let t = table([entry(silo(7), status)]);
        assert_eq!(
            run(&t, &[activate(silo(7), [])]).answers,
            [refused(Refusal::WrongStatus {
                silo: silo(7),
                status
            })]
        );
    }
    assert_eq!(
        run(&table([entry(silo(7), Active)]), &[activate(silo(7), [])]).answers,
        [Answer::Moot]
    );
    let t = table([died(silo(7), CauseOfDeath::Left, Duration::ZERO)]);
    assert_eq!(
        run(&t, &[activate(silo(7), [])]).answers,
        [refused(Refusal::Dead(silo(7)))]
    );
    assert_eq!(
        run(&t, &[activate(silo(8), [])]).answers,
        [refused(Refusal::NoSuchSilo(silo(8)))]
    );
    let t = table([entry(silo_at(7, 2), Active)]);
    assert_eq!(
        run(&t, &[activate(silo(7), [])]).answers,
        [refused(Refusal::Superseded(silo_at(7, 2)))]
    );
}
