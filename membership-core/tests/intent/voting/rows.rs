//! Which votes a row keeps.

use super::*;

#[test]
fn a_row_keeps_the_needed_votes_and_three_more() {
    let long_ago = |s: u64| NOW.wall.minus(Duration::from_secs(1000 + s));
    let mut t = actives(1..=10);
    t[9] = accused(
        silo(10),
        (2..=9).map(|p| vote_at(silo(p), long_ago(u64::from(p)))),
    );
    let applied = run(&table(t.clone()), &[suspect(silo(1), silo(10))]);
    let kept: Vec<u16> = applied.updates[0]
        .suspicions
        .iter()
        .map(|s| s.accuser.port())
        .collect();
    assert_eq!(kept, [5, 4, 3, 2, 1], "oldest first, and the oldest gone");
    // The vote that counts is kept, also when its accuser's clock is far behind.
    let lagging = accuse(
        silo(1),
        silo(10),
        vec![vote_at(silo(1), WallTime::from_millis(5))],
    );
    let applied = run(&table(t), &[lagging]);
    assert!(
        applied.updates[0]
            .suspicions
            .iter()
            .any(|s| s.accuser == silo(1))
    );
    assert_eq!(applied.updates[0].suspicions.len(), 5);
}

#[test]
fn a_silo_with_a_full_row_can_still_die() {
    let idle = |port| vote_at(silo(port), WallTime::from_millis(u64::from(port)));
    let mut e = accused(silo(5), [idle(3), idle(4), vote(silo(1))]);
    e.info.host_name = "x".repeat(400);
    let mut limits = LIMITS;
    limits.bytes_per_row = Row::encode(e.clone()).size();
    let t = table(actives(1..=4).into_iter().chain([e]));
    for killer in [
        suspect(silo(2), silo(5)),
        evict(silo(5)),
        leave(silo(5)),
        join(silo_at(5, 2)),
    ] {
        let applied = run_within(
            &t,
            &Observed::default(),
            std::slice::from_ref(&killer),
            &limits,
        );
        assert_eq!(applied.answers, [DONE], "{killer:?}");
        let row = &applied.updates[0];
        assert!(
            row.death.is_some() && row.suspicions.iter().any(|v| v.accuser == silo(1)),
            "the votes that count are the last to go"
        );
        after(&t, &applied, &limits);
    }
    // A vote that would displace one that counts does not fit.
    let mut e = accused(silo(5), [vote_at(silo(1), NOW.wall)]);
    e.info.host_name = "x".repeat(400);
    let mut limits = LIMITS;
    limits.bytes_per_row = Row::encode(e.clone()).size();
    let t = table(actives(1..=4).into_iter().chain([e]));
    let applied = run_within(
        &t,
        &Observed::default(),
        &[suspect(silo(2), silo(5))],
        &limits,
    );
    assert!(matches!(
        applied.answers[0],
        Answer::Refused(Refusal::TooLarge(_))
    ));
}
