//! After a pause longer than the failure window a silo reads the table before anything else.

use super::whole::{World, is_ack, reads};
use super::*;
use membership_core::protocol::{CallId, Input, LinkId, PeerIdentity};
use membership_core::{Operation, TableError, TableErrorKind};

/// The only read that these effects contain.
fn the_read(effects: &[Effect]) -> CallId {
    let reads = reads(effects);
    assert_eq!(reads.len(), 1, "{effects:?}");
    reads[0]
}

fn writes_or_publishes(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Commit { .. } | Effect::WriteHeartbeat { .. } | Effect::Publish(_)
    )
}

fn fail(w: &mut World, call: CallId) -> Vec<Effect> {
    let kind = TableErrorKind::Unavailable;
    let result = Err(TableError::new(kind, Operation::Read, "test", "down"));
    w.take(Input::Read { call, result })
}

fn succeed(w: &mut World, call: CallId) -> Vec<Effect> {
    let answer = w.answer(call);
    w.take(answer)
}

#[test]
fn after_a_long_pause_a_read_precedes_all_answers() {
    let mut w = World::new();
    w.wait(secs(60));
    let effects = w.probe();
    assert!(
        matches!(effects[0], Effect::Read { .. }),
        "{:?}",
        effects[0]
    );
    let forbidden = |e: &Effect| {
        is_ack(e)
            || matches!(
                e,
                Effect::Commit { .. } | Effect::WriteHeartbeat { .. } | Effect::Publish(_)
            )
    };
    assert!(!effects.iter().any(forbidden), "{effects:?}");
    assert!(w.protocol.is_suspended());
    // The read fails: probes are answered again, and the silo stays suspended.
    let error = TableError::new(TableErrorKind::Unavailable, Operation::Read, "test", "down");
    let effects = w.take(Input::Read {
        call: reads(&effects)[0],
        result: Err(error),
    });
    assert!(effects.iter().any(is_ack) && w.protocol.is_suspended());
    assert!(w.probe().iter().any(is_ack));
    w.wait(secs(2));
    let effects = w.take(Input::Wake);
    let answer = w.answer(reads(&effects)[0]);
    w.take(answer);
    assert!(!w.protocol.is_suspended());
}

/// Time passes in steps that are no pause; returns what happened.
fn live(w: &mut World, time: Duration) -> Vec<Effect> {
    let mut all = Vec::new();
    for _ in 0..time.as_millis() / 250 {
        w.wait(ms(250));
        all.append(&mut w.take(Input::Wake));
    }
    all
}

/// The first read may be from before the second stall, and others may have declared this silo dead
/// since.
#[test]
fn a_second_stall_during_the_read_starts_another_read() {
    // The second stall may be a short one.
    for (stall, long) in [(secs(60), true), (secs(3), false)] {
        let mut w = World::new();
        w.wait(secs(60));
        let effects = w.probe();
        let first = the_read(&effects);
        live(&mut w, secs(1));
        w.wait(stall);
        let effects = w.probe();
        let second = the_read(&effects);
        assert!(matches!(effects[0], Effect::Read { .. }), "at once");
        let answered = effects.iter().any(is_ack);
        assert_eq!(answered, !long, "whether the probe waits for longer");
        // The late answer of the first read changes nothing.
        let effects = succeed(&mut w, first);
        assert!(!effects.iter().any(|e| is_ack(e) || writes_or_publishes(e)));
        assert!(w.protocol.is_suspended());
        let effects = succeed(&mut w, second);
        let answers = effects.iter().filter(|e| is_ack(e)).count();
        assert_eq!(answers, usize::from(long), "the probe that waited");
        assert!(!w.protocol.is_suspended());
    }
}

/// P10: short stalls and a slow table are no reason for a death. Otherwise a silo would say nothing
/// until the read has ended, and together with its stalls that may be a failure window.
#[test]
fn a_silo_whose_read_is_slow_answers_probes_meanwhile() {
    let mut w = World::new();
    w.wait(secs(60));
    let read = the_read(&w.probe());
    let silence = Config::default().probe_timeout() / 8;
    w.wait(silence - ms(1));
    let effects = w.take(Input::Wake);
    assert!(!effects.iter().any(is_ack), "the table may answer soon");
    let next = w.protocol.next_wakeup().unwrap().since(w.now.mono);
    assert_eq!(next, ms(1), "it wakes up in time");
    w.wait(next);
    let effects = w.take(Input::Wake);
    assert!(effects.iter().any(is_ack), "the probe that waited");
    for _ in 0..5 {
        assert!(w.probe().iter().any(is_ack));
        let effects = live(&mut w, secs(2));
        assert!(!effects.iter().any(writes_or_publishes));
        // Another stall that no others can take for a crash makes it say no less.
        w.wait(secs(3));
        let effects = w.probe();
        assert!(effects.iter().any(is_ack) && w.protocol.is_suspended());
        assert!(!effects.iter().any(writes_or_publishes));
    }
    succeed(&mut w, read);
    assert!(
        w.protocol.is_suspended(),
        "that read is from before a stall"
    );
}

#[test]
fn a_second_stall_after_the_read_failed_starts_another_read() {
    let mut w = World::new();
    w.wait(secs(60));
    let first = the_read(&w.take(Input::Wake));
    fail(&mut w, first);
    assert!(w.probe().iter().any(is_ack), "probes are answered again");
    w.wait(secs(3));
    let effects = w.probe();
    let second = the_read(&effects);
    assert!(effects.iter().any(is_ack), "and still are");
    let effects = succeed(&mut w, second);
    assert!(!effects.iter().any(is_ack) && !w.protocol.is_suspended());
}

/// A pause that others could not have taken for a crash costs no read, and neither does waiting.
#[test]
fn a_short_pause_needs_no_read() {
    let mut w = World::new();
    live(&mut w, secs(2));
    for pause in [ms(1_600), ms(4_500)] {
        w.wait(pause);
        let effects = w.probe();
        assert!(effects.iter().any(is_ack), "{pause:?}: {effects:?}");
        assert!(!w.protocol.is_suspended());
    }
    // Lateness counts from the next timer, which is at most a second away.
    w.wait(ms(5_600));
    assert!(!w.probe().iter().any(is_ack));
    assert!(w.protocol.is_suspended());
}

#[test]
fn a_silo_that_was_declared_dead_in_the_second_stall_stops() {
    let mut w = World::new();
    let before = w.table.clone();
    w.wait(secs(60));
    let first = the_read(&w.take(Input::Wake));
    w.wait(secs(60));
    let second = the_read(&w.take(Input::Wake));
    let mut mine = before.rows.get(&w.protocol.me().unwrap()).unwrap().clone();
    mine.status = SiloStatus::Dead;
    mine.death = Some(Death::new(CauseOfDeath::Voted, NOON, None, 1));
    let token = before.token.clone();
    let commit = membership_core::CommitRequest::new(token, commit_id(500), None, [], [mine], []);
    // The first read was answered before that commit.
    succeed(&mut w, first);
    assert!(w.protocol.is_suspended() && !w.protocol.is_stopped());
    w.table = commit.apply_to(&before, commit.next_token(&[]));
    let effects = succeed(&mut w, second);
    assert!(
        matches!(effects.last(), Some(Effect::Stop(_))),
        "{effects:?}"
    );
    assert!(!effects.iter().any(writes_or_publishes));
}

#[test]
fn calls_are_not_answered_while_the_silo_is_suspended() {
    let mut w = World::new();
    let ask = |w: &mut World| {
        let header = w.probe_header();
        let body = Message::RollCall {
            call: 6,
            suspects: vec![(silo(5), 60_000)],
        };
        let effects = w.take(Input::Message {
            link: LinkId(3),
            peer: PeerIdentity::Proven(header.instance),
            header,
            body: Arc::new(body),
        });
        let is_answer = |e: &Effect| {
            matches!(e, Effect::Send { body, .. }
                if matches!(**body, Message::RollAnswer { call: 6, .. }))
        };
        effects.iter().any(is_answer)
    };
    assert!(ask(&mut w));
    w.wait(secs(60));
    assert!(!ask(&mut w));
    assert!(w.protocol.is_suspended());
}
