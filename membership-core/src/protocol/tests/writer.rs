//! One call to the table at a time: the three outcomes of a commit, and what follows each.

mod unknown;

use std::collections::BTreeSet;

use super::super::io::CallId;
use super::super::notice::TableState;
use super::super::timers::Timer;
use super::super::writer::{Outcome, Writer};
use super::*;
use crate::intent::{Action, Answer, Observed};
use crate::{
    Attempt, ClusterKey, CommitOutcome, CommitRequest, Conflict, InitializeRequest, Operation,
    ReadAnswer, TableError, TableErrorKind,
};

fn evict(n: u8) -> Action {
    Action::Evict {
        silo: silo(n),
        by: "me".to_owned(),
        reason: "test".to_owned(),
    }
}

fn error(kind: TableErrorKind) -> TableError {
    TableError::new(kind, Operation::Commit, "test", "it went wrong")
}

/// A writer whose commit of an eviction of silo 2 is under way.
fn committing() -> (Ctx, Writer, CallId, CommitRequest) {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2, 3])));
    let mut writer = Writer::default();
    writer.submit(&mut ctx, evict(2));
    let (call, request) = commit(&mut ctx, &mut writer).unwrap();
    (ctx, writer, call, request)
}

fn commit(ctx: &mut Ctx, writer: &mut Writer) -> Option<(CallId, CommitRequest)> {
    assert!(
        writer
            .pump(ctx, Vec::new(), &Observed::default())
            .is_empty()
    );
    ctx.out.drain(..).find_map(|e| {
        if let Effect::Commit { call, request } = e {
            Some((call, request))
        } else {
            None
        }
    })
}

fn read(ctx: &mut Ctx, writer: &mut Writer) -> Option<CallId> {
    writer.pump(ctx, Vec::new(), &Observed::default());
    ctx.out.drain(..).find_map(|e| {
        if let Effect::Read { call, .. } = e {
            Some(call)
        } else {
            None
        }
    })
}

fn answers(outcomes: &[Outcome]) -> Vec<Answer> {
    outcomes
        .iter()
        .filter_map(|o| {
            if let Outcome::Answered(_, a) = o {
                Some(a.clone())
            } else {
                None
            }
        })
        .collect()
}

fn read_table(table: Snapshot) -> Result<ReadAnswer, TableError> {
    Ok(ReadAnswer::Snapshot {
        snapshot: table,
        heartbeats: None,
    })
}

#[test]
fn committed_and_conflict() {
    let (mut ctx, mut writer, call, request) = committing();
    let outcomes = writer.on_committed(
        &mut ctx,
        call,
        Ok(CommitOutcome::Committed(request.next_token(&[]))),
    );
    assert_eq!(answers(&outcomes), [Answer::Applied { version: 6 }]);
    let (mut ctx, mut writer, call, _) = committing();
    let outcomes = writer.on_committed(
        &mut ctx,
        call,
        Ok(CommitOutcome::Conflict(Conflict::default())),
    );
    assert_eq!(answers(&outcomes), []);
    assert!(
        read(&mut ctx, &mut writer).is_some(),
        "it is read again before it is tried again"
    );
}

#[test]
fn a_split_removal_is_answered_once() {
    let removal = |silos: &[u8]| Action::RemoveDefunct {
        silos: silos.iter().map(|n| silo(*n)).collect(),
    };
    let removed = |request: &CommitRequest| {
        request
            .changes
            .iter()
            .map(|change| change.key().to_owned())
            .collect::<Vec<_>>()
    };
    let keys = |silos: &[u8]| silos.iter().map(|n| silo(*n).row_key()).collect::<Vec<_>>();
    let mut ctx = ctx();
    ctx.limits.rows_per_commit = 2;
    let status = |n: u8| {
        if n == 1 {
            SiloStatus::Active
        } else {
            SiloStatus::Dead
        }
    };
    let table = |version| {
        snapshot(
            version,
            (1..=5).map(|n| entry(silo(n), status(n))).collect(),
        )
    };
    believe(&mut ctx, table(5));
    let mut writer = Writer::default();
    writer.submit(&mut ctx, removal(&[2, 3, 4, 5]));
    for version in 6..12 {
        let (call, request) = commit(&mut ctx, &mut writer).unwrap();
        assert_eq!(removed(&request), keys(&[2, 3]));
        // Refused with certainty, or of unknown outcome until the table has moved without it.
        let lost = version % 2 == 0;
        let told = if lost {
            Err(error(TableErrorKind::OutcomeUnknown))
        } else {
            Ok(CommitOutcome::Conflict(Conflict::default()))
        };
        writer.on_committed(&mut ctx, call, told);
        pass_time(&mut ctx, secs(4));
        let call = read(&mut ctx, &mut writer).unwrap();
        writer.on_read(&mut ctx, call, read_table(table(version)));
        believe(&mut ctx, table(version));
        pass_time(&mut ctx, secs(4));
        assert_eq!(
            writer.waiting(),
            1,
            "the whole removal, and nothing beside it"
        );
    }
    let (call, request) = commit(&mut ctx, &mut writer).unwrap();
    assert_eq!(removed(&request), keys(&[2, 3]));
    let base = ctx.view.clone().unwrap().snapshot().clone();
    writer.on_committed(
        &mut ctx,
        call,
        Ok(CommitOutcome::Committed(request.next_token(&[]))),
    );
    believe(&mut ctx, request.apply_to(&base, request.next_token(&[])));
    let (call, request) = commit(&mut ctx, &mut writer).unwrap();
    assert_eq!(removed(&request), keys(&[4, 5]));
    let outcomes = writer.on_committed(
        &mut ctx,
        call,
        Ok(CommitOutcome::Committed(request.next_token(&[]))),
    );
    assert_eq!(answers(&outcomes).len(), 1);
    assert_eq!(writer.waiting(), 0);
    // A batch of which the store accepts no part is refused as a whole.
    let (mut ctx, mut writer) = (self::ctx(), Writer::default());
    ctx.limits.rows_per_commit = 2;
    believe(&mut ctx, table(5));
    writer.submit(&mut ctx, removal(&[2, 3, 4, 5]));
    let (call, _) = commit(&mut ctx, &mut writer).unwrap();
    let outcomes = writer.on_committed(&mut ctx, call, Err(error(TableErrorKind::LimitExceeded)));
    assert!(matches!(answers(&outcomes)[..], [Answer::Refused(_)]));
    assert_eq!(writer.waiting(), 0);
}

#[test]
fn conflicts_without_a_new_version_cause_a_full_read() {
    let (mut ctx, mut writer, mut call, _) = committing();
    let known = |ctx: &mut Ctx| {
        let asked = |e| {
            if let Effect::Read { call, request } = e {
                Some((call, request))
            } else {
                None
            }
        };
        ctx.out.drain(..).find_map(asked).unwrap()
    };
    let mut round = |ctx: &mut Ctx, writer: &mut Writer, all: bool| {
        writer.on_committed(ctx, call, Ok(CommitOutcome::Conflict(Conflict::default())));
        writer.pump(ctx, Vec::new(), &Observed::default());
        let (read, request) = known(ctx);
        assert_eq!((request.known.is_none(), request.barrier), (all, all));
        let answer = if all {
            read_table(snapshot(5, actives([1, 2, 3])))
        } else {
            Ok(ReadAnswer::Unchanged { heartbeats: None })
        };
        writer.on_read(ctx, read, answer);
        pass_time(ctx, secs(4));
        call = commit(ctx, writer).unwrap().0;
    };
    for all in [false, false, true, false, false, true] {
        round(&mut ctx, &mut writer, all);
    }
    // A version that moves is the usual case.
    let (mut ctx, mut writer, mut call, _) = committing();
    for version in 6..12 {
        writer.on_committed(
            &mut ctx,
            call,
            Ok(CommitOutcome::Conflict(Conflict::default())),
        );
        writer.pump(&mut ctx, Vec::new(), &Observed::default());
        let (read, request) = known(&mut ctx);
        assert!(request.known.is_some());
        let moved = snapshot(version, actives([1, 2, 3]));
        writer.on_read(&mut ctx, read, read_table(moved.clone()));
        believe(&mut ctx, moved);
        pass_time(&mut ctx, secs(4));
        call = commit(&mut ctx, &mut writer).unwrap().0;
    }
}

fn suspicion(n: u8) -> crate::intent::Intent {
    let action = Action::Suspect {
        suspect: silo(n),
        votes: vec![vote(1, NOON)],
        call: Some(crate::intent::Call {
            failed: (1..=4).map(silo).collect(),
            ..crate::intent::Call::default()
        }),
    };
    crate::intent::Intent::new(crate::IntentId::new(u128::from(n)), Some(silo(1)), action)
}

fn pump(
    ctx: &mut Ctx,
    writer: &mut Writer,
    votes: Vec<crate::intent::Intent>,
) -> Option<(CallId, CommitRequest)> {
    writer.pump(ctx, votes, &Observed::default());
    ctx.out.drain(..).find_map(|e| {
        if let Effect::Commit { call, request } = e {
            Some((call, request))
        } else {
            None
        }
    })
}

#[test]
fn a_refused_intent_does_not_block_others() {
    let mut ctx = ctx();
    let dead = |n| {
        entry(
            silo(n),
            if n == 1 {
                SiloStatus::Active
            } else {
                SiloStatus::Dead
            },
        )
    };
    believe(
        &mut ctx,
        snapshot(5, (1..=3).map(dead).chain(actives(4..=9)).collect()),
    );
    let mut writer = Writer::default();
    writer.submit(
        &mut ctx,
        Action::RemoveDefunct {
            silos: vec![silo(2), silo(3)],
        },
    );
    writer.submit(&mut ctx, evict(4));
    let (call, request) = commit(&mut ctx, &mut writer).unwrap();
    assert_eq!(request.changes.len(), 3);
    writer.on_committed(&mut ctx, call, Err(error(TableErrorKind::PermissionDenied)));
    assert!(
        !writer.has(|a| matches!(a, Action::RemoveDefunct { .. })),
        "who cleans asks again"
    );
    pass_time(&mut ctx, secs(2));
    let (call, request) = commit(&mut ctx, &mut writer).unwrap();
    assert_eq!(request.changes.len(), 1);
    writer.on_committed(&mut ctx, call, Err(error(TableErrorKind::PermissionDenied)));
    // One of five is too large and is refused; the others succeed one after the other.
    for n in 5..=8 {
        writer.submit(&mut ctx, evict(n));
    }
    let (mut refused, mut done) = (Vec::new(), BTreeSet::new());
    for _ in 0..40 {
        pass_time(&mut ctx, secs(60));
        let Some((call, request)) = commit(&mut ctx, &mut writer) else {
            break;
        };
        let keys: BTreeSet<String> = request
            .changes
            .iter()
            .map(|change| change.key().to_owned())
            .collect();
        if keys.contains(&silo(6).row_key()) {
            refused.extend(answers(&writer.on_committed(
                &mut ctx,
                call,
                Err(error(TableErrorKind::LimitExceeded)),
            )));
            continue;
        }
        let base = ctx.view.clone().unwrap().snapshot().clone();
        writer.on_committed(
            &mut ctx,
            call,
            Ok(CommitOutcome::Committed(request.next_token(&[]))),
        );
        believe(&mut ctx, request.apply_to(&base, request.next_token(&[])));
        done.extend(keys);
    }
    assert!(matches!(refused[..], [Answer::Refused(_)]), "{refused:?}");
    assert_eq!(done, [4, 5, 7, 8].map(|n| silo(n).row_key()).into());
    assert_eq!(writer.waiting(), 0);
}

/// A commit has an unknown outcome, and the table has not changed a minute later. Returns the call in
/// which it is sent again, unchanged: the first few are.
fn fails(ctx: &mut Ctx, writer: &mut Writer, call: CallId) -> Option<CallId> {
    writer.on_committed(ctx, call, Err(error(TableErrorKind::OutcomeUnknown)));
    pass_time(ctx, secs(60));
    let read = read(ctx, writer).unwrap();
    let unchanged = Ok(ReadAnswer::Unchanged { heartbeats: None });
    writer.on_read(ctx, read, unchanged);
    ctx.out.drain(..).find_map(|e| match e {
        Effect::Commit { call, .. } => Some(call),
        _ => None,
    })
}

/// P14: a silo whose commits failed for long writes its votes soon after the table has taken those
/// of others. A vote that waits for longer than a failure window is void.
#[test]
fn that_others_commit_ends_a_long_wait() {
    let (mut ctx, mut writer, mut call, _) = committing();
    for _ in 0..12 {
        call = fails(&mut ctx, &mut writer, call).unwrap_or_else(|| {
            pass_time(&mut ctx, secs(60));
            commit(&mut ctx, &mut writer).unwrap().0
        });
    }
    assert_eq!(fails(&mut ctx, &mut writer, call), None);
    for _ in 0..2 {
        writer.follow(&mut ctx);
        pass_time(&mut ctx, secs(4));
        assert!(!writer.can_commit(&ctx), "nobody has committed");
    }
    believe(&mut ctx, snapshot(6, actives([1, 2, 3])));
    writer.follow(&mut ctx);
    let at = ctx.timers.next().unwrap();
    assert!(at <= ctx.mono() + secs(4), "{at:?}");
    pass_time(&mut ctx, secs(4));
    assert!(writer.can_commit(&ctx));
}

/// A timer in the past would look like a pause of this silo: it would say nothing until it has read
/// the table.
#[test]
fn a_wait_that_is_over_plans_nothing_for_the_past() {
    let (mut ctx, mut writer, mut call, _) = committing();
    while let Some(again) = fails(&mut ctx, &mut writer, call) {
        call = again;
    }
    let ends = ctx.timers.at(Timer::Writer).unwrap();
    // The wait for another commit ends while a slow table is read, which shows a newer version.
    let over = ends.since(ctx.mono()) + secs(9);
    pass_time(&mut ctx, over);
    believe(&mut ctx, snapshot(6, actives([1, 2, 3])));
    writer.follow(&mut ctx);
    assert!(ctx.timers.at(Timer::Writer) >= Some(ctx.mono()));
    assert!(writer.can_commit(&ctx));
}

#[test]
fn constant_read_requests_leave_room_for_commits() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2, 3])));
    let mut writer = Writer::default();
    writer.want_read(false);
    let call = read(&mut ctx, &mut writer).unwrap();
    writer.submit(&mut ctx, evict(2));
    writer.want_read(true);
    writer.on_read(
        &mut ctx,
        call,
        Ok(ReadAnswer::Unchanged { heartbeats: None }),
    );
    assert!(writer.can_commit(&ctx));
    let (call, _) = commit(&mut ctx, &mut writer).unwrap();
    // After a conflict the read precedes the commit.
    writer.want_read(true);
    writer.on_committed(
        &mut ctx,
        call,
        Ok(CommitOutcome::Conflict(Conflict::default())),
    );
    pass_time(&mut ctx, secs(4));
    assert!(!writer.can_commit(&ctx));
    assert!(read(&mut ctx, &mut writer).is_some());
}

#[test]
fn old_conflicts_do_not_lengthen_waits() {
    let (mut ctx, mut writer, mut call, _) = committing();
    let mut waits = Vec::new();
    for round in 0..24 {
        writer.on_committed(
            &mut ctx,
            call,
            Ok(CommitOutcome::Conflict(Conflict::default())),
        );
        let begun = ctx.mono();
        let got = read(&mut ctx, &mut writer).unwrap();
        writer.on_read(
            &mut ctx,
            got,
            read_table(snapshot(6 + round, actives([1, 2, 3]))),
        );
        believe(&mut ctx, snapshot(6 + round, actives([1, 2, 3])));
        call = loop {
            if let Some((call, _)) = commit(&mut ctx, &mut writer) {
                break call;
            }
            let due = ctx.timers.next().expect("nobody else wakes me");
            let by = due.since(ctx.now.mono).max(ms(1));
            pass_time(&mut ctx, by);
            ctx.timers.pop_due(ctx.now.mono);
        };
        waits.push(ctx.mono().since(begun));
        if round == 11 {
            pass_time(&mut ctx, secs(3600));
        }
    }
    assert!(waits[12] <= ms(41), "{waits:?}");
    // Silos that conflicted with each other must not meet again.
    let early = |k: usize| waits[k] + ms(5) < ms(40 << k);
    assert!((0..5).any(early), "no jitter: {waits:?}");
}

#[test]
fn errors_back_off_until_the_table_answers() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2])));
    let mut writer = Writer::default();
    let mut longest = Duration::ZERO;
    writer.want_read(false);
    for _ in 0..40 {
        let Some(call) = read(&mut ctx, &mut writer) else {
            let by = ctx.timers.next().unwrap().since(ctx.now.mono);
            longest = longest.max(by);
            pass_time(&mut ctx, by);
            ctx.timers.pop_due(ctx.now.mono);
            continue;
        };
        writer.on_read(&mut ctx, call, Err(error(TableErrorKind::Unavailable)));
    }
    assert!((secs(30)..=secs(60)).contains(&longest), "{longest:?}");
    writer.hurry(&ctx, Duration::ZERO);
    let call = read(&mut ctx, &mut writer).unwrap();
    writer.on_read(&mut ctx, call, Err(error(TableErrorKind::Unavailable)));
    assert!(read(&mut ctx, &mut writer).is_none());
    writer.hurry(&ctx, Duration::ZERO);
    assert!(read(&mut ctx, &mut writer).is_some());
}

#[test]
fn requests_that_wait_for_a_read_are_all_found() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1])));
    let mut writer = Writer::default();
    writer.wait(super::super::RequestId(1));
    writer.want_read(false);
    read(&mut ctx, &mut writer).unwrap();
    writer.wait(super::super::RequestId(2));
    assert_eq!(writer.take_waiters().len(), 2);
    assert!(writer.take_waiters().is_empty());
}

#[test]
fn waits_shrink_with_time_in_conflicts() {
    use crate::protocol::conflict_backoff;
    let after = |conflicts, seconds, silos, urgent| {
        conflict_backoff(conflicts, Duration::from_secs(seconds), silos, urgent).as_millis()
    };
    assert_eq!([1, 2, 3].map(|n| after(n, 0, 32, false)), [40, 80, 160]);
    assert_eq!(
        [0, 2, 4, 5, 29].map(|s| after(20, s, 32, false)),
        [1250, 750, 250, 0, 0]
    );
    // Silos alone would not cause such a long wait.
    assert_eq!(
        [30, 40, 60, 80, 1_000_000].map(|s| after(20, s, 32, true)),
        [40, 80, 320, 1000, 1000]
    );
    // With many silos the waits stay apart, each with its own bound.
    assert_eq!(
        [320, 3_200, 1_000_000].map(|n| after(20, 60, n, false)),
        [360, 3_960, 4_000]
    );
    assert_eq!(after(20, 60, 1_000_000, true), 2_000);
    assert_eq!(after(0, u64::MAX, usize::MAX, false), 40);
}
