//! The order of a batch, which intents wait, and which never fit.

use super::*;

fn remove(author: SiloAddress, ports: impl IntoIterator<Item = u16>) -> Intent {
    intent(
        author,
        Action::RemoveDefunct {
            silos: ports.into_iter().map(silo).collect(),
        },
    )
}

fn numbered(mut intents: Vec<Intent>) -> Vec<Intent> {
    for (id, intent) in (1u128..).zip(&mut intents) {
        intent.id = IntentId::new(id);
    }
    intents
}

/// Room for `rows` changes.
fn rows(rows: usize) -> TableLimits {
    let mut limits = LIMITS;
    limits.rows_per_commit = rows;
    limits
}

#[test]
fn two_hundred_joins_take_two_commits() {
    let t = table([]);
    let joins = numbered((1..=200).map(|p| join(silo(p))).collect());
    let first = run(&t, &joins);
    assert_eq!((first.inserts.len(), first.rest.len()), (100, 100));
    assert!(
        first.answers[..100].iter().all(|a| *a == DONE)
            && first.answers[100..].iter().all(|a| *a == Answer::Queued)
    );
    assert_eq!(first.rest, joins[100..]);
    let t = after(&t, &first, &LIMITS);
    let second = run(&t, &first.rest);
    assert_eq!((second.inserts.len(), second.rest.len()), (100, 0));
    let t = after(&t, &second, &LIMITS);
    assert_eq!(
        (t.rows.len(), t.version(), t.version_row.row_count),
        (200, 11, 200)
    );
    let again = run(&t, &joins);
    assert!(again.is_empty() && again.answers.iter().all(|a| *a == Answer::Moot));
}

#[test]
fn joins_that_wait_unseen_wait_as_others_do() {
    let limits = rows(3);
    let mut unseen = Observed::default();
    unseen.stops_when_full = true;
    let t = table(actives(1..=2));
    let mut batch: Vec<Intent> = (10..16).map(|n| join(silo(n))).collect();
    batch.push(activate(silo(1), [2]));
    batch.push(suspect(silo(1), silo(2)));
    let batch = numbered(batch);
    let seen = run_within(&t, &Observed::default(), &batch, &limits);
    let applied = run_within(&t, &unseen, &batch, &limits);
    assert_eq!(
        (&applied.inserts, &applied.updates),
        (&seen.inserts, &seen.updates)
    );
    let waits = |a: &&Answer| **a == Answer::Queued;
    assert!(applied.answers.iter().filter(waits).count() >= 3);
    after(&t, &applied, &limits);
    // What is moot is answered later, once the commit has room.
    let moot = numbered(vec![
        join(silo(10)),
        join(silo(11)),
        join(silo(12)),
        join(silo(10)),
    ]);
    let answers = |observed| run_within(&t, observed, &moot, &limits).answers;
    let usual = Observed::default();
    assert_eq!(answers(&usual)[3], Answer::Moot);
    assert_eq!(answers(&unseen)[3], Answer::Queued);
    let next = after(&t, &run_within(&t, &unseen, &moot, &limits), &limits);
    let rest = run_within(&next, &unseen, &moot[3..], &limits);
    assert_eq!(rest.answers, [Answer::Moot]);
}

#[test]
fn deaths_come_first_and_removals_last() {
    let mut t = actives(1..=5);
    t.push(entry(silo(6), SiloStatus::Joining));
    t.push(died(silo(7), CauseOfDeath::Left, Duration::from_secs(9999)));
    let t = table(t);
    let shut = |p| {
        intent(
            silo(p),
            Action::BeginShutdown {
                silo: silo(p),
                fast: false,
            },
        )
    };
    let batch = numbered(vec![
        remove(silo(1), [7]),
        suspect(silo(1), silo(2)),
        join(silo(8)),
        activate(silo(6), 1..=2),
        shut(4),
        leave(silo(5)),
        evict(silo(3)),
    ]);
    let done: Vec<usize> = (1..=7)
        .map(|n| run_within(&t, &Observed::default(), &batch, &rows(n)))
        .scan(vec![], |before, applied| {
            let now: Vec<usize> = (0..batch.len())
                .filter(|i| applied.answers[*i] == DONE)
                .collect();
            let new = now.iter().copied().find(|i| !before.contains(i));
            *before = now;
            new
        })
        .collect();
    // With room for one row, the activation would lack contact with silo 4, which is still Active,
    // and is refused.
    assert_eq!(done, [6, 5, 4, 3, 2, 1, 0]);
}

#[test]
fn a_superseding_join_is_a_death() {
    let t = table(actives(1..=2));
    let batch = numbered(vec![join(silo(8)), join(silo_at(1, 2))]);
    assert_eq!(
        run_within(&t, &Observed::default(), &batch, &rows(2)).answers,
        [Answer::Queued, DONE]
    );
}

#[test]
fn intents_of_one_author_keep_their_order() {
    let t = table(actives([]));
    let batch = numbered(vec![
        leave(silo(9)),
        join(silo(1)),
        activate(silo(1), []),
        leave(silo(1)),
    ]);
    let applied = run(&t, &batch);
    assert_eq!(applied.answers, [Answer::Moot, DONE, DONE, DONE]);
    let row = &applied.inserts[0];
    assert_eq!(
        (
            row.status,
            row.active_since,
            applied.inserts.len(),
            applied.updates.len()
        ),
        (SiloStatus::Dead, Some(10), 1, 0)
    );
    // An intent that waits makes later intents of its author wait, but not those of others.
    let full = table(actives(1..=3));
    let shut = |p| {
        intent(
            silo(p),
            Action::BeginShutdown {
                silo: silo(p),
                fast: false,
            },
        )
    };
    let batch = numbered(vec![
        evict(silo(3)),
        join(silo_at(1, 2)),
        shut(2),
        activate(silo_at(1, 2), [2]),
    ]);
    let applied = run_within(&full, &Observed::default(), &batch, &rows(2));
    assert_eq!(
        applied.answers,
        [DONE, Answer::Queued, DONE, Answer::Queued]
    );
    assert_eq!(applied.rest, [batch[1].clone(), batch[3].clone()]);
}

#[test]
fn a_removal_is_split_and_delays_no_other_intent() {
    let mut t: Vec<_> = (1..=5)
        .map(|p| died(silo(p), CauseOfDeath::Left, Duration::from_secs(9999)))
        .collect();
    t.extend(actives(6..=9));
    let t = table(t);
    let batch = numbered(vec![
        remove(silo(6), [1, 2, 2, 3, 6, 77, 4, 5]),
        suspect(silo(6), silo(9)),
    ]);
    let applied = run_within(&t, &Observed::default(), &batch, &rows(3));
    assert_eq!(applied.answers, [DONE, DONE]);
    assert_eq!(applied.removes, ["10.0.0.1:1@1", "10.0.0.1:2@1"]);
    assert_eq!(
        applied.rest,
        [{
            let mut it = remove(silo(6), [3, 4, 5]);
            it.id = IntentId::new(1);
            it
        }]
    );
    let t = after(&t, &applied, &LIMITS);
    let last = run(&t, &applied.rest);
    assert_eq!((last.removes.len(), last.rest.len()), (3, 0));
    assert_eq!(
        run(&after(&t, &last, &LIMITS), &batch[..1]).answers,
        [Answer::Moot]
    );
    // No room at all: everything waits.
    let t = table(
        [died(silo(1), CauseOfDeath::Left, Duration::from_secs(9999))]
            .into_iter()
            .chain(actives(6..=9)),
    );
    let batch = numbered(vec![remove(silo(6), [1]), evict(silo(7)), evict(silo(8))]);
    let applied = run_within(&t, &Observed::default(), &batch, &rows(2));
    assert_eq!(
        (applied.answers[0].clone(), &applied.rest[..]),
        (Answer::Queued, &batch[..1])
    );
}

#[test]
fn every_death_is_in_at_least_one_version() {
    let t = table(actives(1..=2));
    let applied = run(&t, &[evict(silo(1)), remove(silo(2), [1])]);
    assert_eq!(applied.answers, [DONE, Answer::Moot]);
    assert!(applied.removes.is_empty() && cause(&applied, silo(1)).is_some());
}

#[test]
fn a_row_is_removed_once() {
    let t = table(actives(1..=2).into_iter().chain([died(
        silo(3),
        CauseOfDeath::Left,
        Duration::from_secs(9999),
    )]));
    let applied = run(
        &t,
        &numbered(vec![remove(silo(1), [3]), remove(silo(2), [3])]),
    );
    assert_eq!(
        (applied.answers, applied.removes.len()),
        (vec![DONE, Answer::Moot], 1)
    );
}

#[test]
fn an_intent_that_does_not_fit_alone_is_refused() {
    let too_large = |applied: &Applied, i: usize| {
        matches!(&applied.answers[i], Answer::Refused(Refusal::TooLarge(_)))
    };
    let mut big = entry(silo(1), SiloStatus::Joining);
    big.info.host_name = "x".repeat(60_000);
    let big = intent(silo(1), Action::Join(Box::new(big)));
    // A new row leaves room for votes and the death.
    let mut limits = LIMITS;
    limits.bytes_per_row = 60_800;
    let batch = numbered(vec![join(silo(2)), big.clone(), join(silo(3))]);
    let applied = run_within(&table([]), &Observed::default(), &batch, &limits);
    assert!(too_large(&applied, 1) && applied.inserts.len() == 2 && applied.rest.is_empty());
    assert_eq!(run(&table([]), &batch).inserts.len(), 3);
    // The commit limit is too small for the row, alone and behind others.
    let mut limits = LIMITS;
    limits.bytes_per_commit = 50_000;
    assert!(too_large(
        &run_within(&table([]), &Observed::default(), &batch, &limits),
        1
    ));
    assert!(too_large(
        &run_within(&table([]), &Observed::default(), &[big], &limits),
        0
    ));
    // Three predecessors and the new row are four rows and never fit into two.
    let t = table((1..=3).map(|epoch| entry(silo_at(1, epoch), SiloStatus::Active)));
    assert!(too_large(
        &run_within(&t, &Observed::default(), &[join(silo_at(1, 9))], &rows(2)),
        0
    ));
    // A full table admits no silo, but silos can still end.
    let mut limits = LIMITS;
    limits.rows = 3;
    let t = table(actives(1..=3));
    let applied = run_within(
        &t,
        &Observed::default(),
        &numbered(vec![join(silo(9)), evict(silo(1))]),
        &limits,
    );
    assert!(too_large(&applied, 0) && applied.answers[1] == DONE);
    let t = table(actives(1..=2));
    let applied = run_within(
        &t,
        &Observed::default(),
        &numbered(vec![join(silo(8)), join(silo(9))]),
        &limits,
    );
    assert_eq!(applied.answers, [DONE, Answer::Queued]);
}

#[test]
fn bytes_of_a_commit_are_counted_once_per_row() {
    let t = table(actives(1..=6));
    let one = Row::encode(
        run(&t, &[suspect(silo(1), silo(6)), suspect(silo(2), silo(6))]).updates[0].clone(),
    )
    .size();
    let mut limits = LIMITS;
    limits.bytes_per_commit = one;
    let batch = numbered(vec![
        suspect(silo(1), silo(6)),
        suspect(silo(2), silo(6)),
        evict(silo(3)),
    ]);
    let applied = run_within(&t, &Observed::default(), &batch, &limits);
    assert_eq!(applied.answers, [DONE, DONE, Answer::Queued]);
    after(&t, &applied, &limits);
}

#[test]
fn a_batch_applied_twice_changes_nothing_more() {
    let mut t = actives(1..=6);
    t.push(entry(silo(7), SiloStatus::Joining));
    let t = table(t);
    let batch = numbered(vec![
        suspect(silo(1), silo(2)),
        suspect(silo(3), silo(2)),
        suspect(silo(1), silo(4)),
        leave(silo(5)),
        evict(silo(6)),
        activate(silo(7), 1..=6),
        join(silo(8)),
        intent(
            silo(3),
            Action::BeginShutdown {
                silo: silo(3),
                fast: true,
            },
        ),
    ]);
    let applied = run(&t, &batch);
    assert!(
        applied.answers.iter().all(|a| *a == DONE),
        "{:?}",
        applied.answers
    );
    let again = run(&after(&t, &applied, &LIMITS), &batch);
    assert!(
        again.is_empty() && again.answers.iter().all(|a| *a == Answer::Moot),
        "{:?}",
        again.answers
    );
}
