//! The partition check: which side is the larger one. Invariant P11.

use std::collections::BTreeSet;

use super::super::partition::PartitionCheck;
use super::*;

/// Runs a check against silo `suspect` among these Active silos, with answers from `answering`.
/// Returns whether it may be voted against, if it did not answer.
fn check(leader: u8, active: &[u8], suspect: u8, answering: &[u8], stuck: bool) -> Option<bool> {
    let mut ctx = ctx();
    let mut rows = actives(active.iter().copied());
    if !active.contains(&suspect) {
        rows.push(entry(silo(suspect), SiloStatus::Joining));
    }
    for row in &mut rows {
        row.active_since = row
            .active_since
            .map(|_| u64::from(row.address != silo(leader)));
    }
    believe(&mut ctx, snapshot(5, rows));
    let mut machine = PartitionCheck::default();
    let suspects = BTreeSet::from([silo(suspect)]);
    let named_stuck = if stuck {
        suspects.clone()
    } else {
        BTreeSet::new()
    };
    machine.start(&mut ctx, suspects, named_stuck, secs(5));
    for (to, message) in sent(&mut ctx) {
        let (Some(to), Message::Probe { nonce }) = (to, message) else {
            continue;
        };
        if answering.iter().any(|n| silo(*n) == to) {
            assert!(
                machine.poll(&mut ctx).is_none(),
                "it never ends before everybody has answered or the time is over"
            );
            assert!(machine.on_ack(to, nonce).is_some());
        }
    }
    let mut suspect_probes = 1;
    loop {
        if let Some(verdict) = machine.poll(&mut ctx) {
            assert!(verdict.at.since(MonoTime::ZERO + secs(3600)) <= secs(5));
            assert!(answering.contains(&suspect) || suspect_probes == 3);
            return verdict.silent.first().map(|(_, majority)| *majority);
        }
        let by = ctx.timers.next().unwrap().since(ctx.now.mono);
        pass_time(&mut ctx, by);
        ctx.timers.pop_due(ctx.now.mono);
        machine.on_timer(&mut ctx);
        suspect_probes += sent(&mut ctx).len();
    }
}

#[test]
fn a_silo_that_reaches_a_majority_may_vote() {
    assert_eq!(
        check(1, &[1, 2, 3, 4, 5], 5, &[2, 3], false),
        Some(true),
        "three of five, I am one of them"
    );
    assert_eq!(check(1, &[1, 2, 3, 4, 5], 5, &[2], false), Some(false));
}

#[test]
fn of_two_equal_halves_the_one_with_the_leader_votes() {
    assert_eq!(
        check(1, &[1, 2, 3, 4], 4, &[2], false),
        Some(true),
        "I am the leader"
    );
    assert_eq!(
        check(3, &[1, 2, 3, 4], 4, &[2], false),
        Some(false),
        "silo 3 is, on the other side"
    );
}

#[test]
fn one_silo_of_two_never_votes_alone() {
    assert_eq!(check(1, &[1, 2], 2, &[], false), Some(false));
}

#[test]
fn a_suspect_that_answers_is_cleared_unless_it_is_stuck() {
    assert_eq!(check(1, &[1, 2, 3, 4], 4, &[2, 3, 4], false), None);
    assert_eq!(
        check(1, &[1, 2, 3], 9, &[2, 3, 9], true),
        Some(true),
        "a joiner that never gets ready answers all the while"
    );
}

#[test]
fn a_vote_against_a_joining_silo_needs_most_of_active_and_joining() {
    assert_eq!(
        check(1, &[1, 2, 3], 9, &[2], false),
        Some(true),
        "two of four with the leader"
    );
    assert_eq!(check(1, &[1, 2, 3], 9, &[], false), Some(false));
}
