//! The join, from Created to Active. Invariant P9.

use std::collections::BTreeSet;

use super::super::contacts::{Contacts, PassedOver};
use super::super::io::CallId;
use super::super::joiner::{Joiner, Step};
use super::super::notice::JoinError;
use super::super::timers::Timer;
use super::super::writer::Writer;
use super::*;
use crate::intent::Action;
use crate::{Heartbeat, Heartbeats};

fn newcomer() -> Ctx {
    let mut ctx = ctx();
    ctx.me = SiloAddress::at(silo(1).endpoint(), 0);
    ctx.status = SiloStatus::Created;
    ctx
}

/// A silo that has started, has reached itself, and is about to read a table with these rows.
fn first_read(rows: Vec<MembershipEntry>, beats: &Heartbeats) -> (Ctx, Joiner, Writer) {
    let (mut joiner, mut writer) = (Joiner::default(), Writer::default());
    let ctx = first_read_by(newcomer(), &mut joiner, &mut writer, rows, beats);
    (ctx, joiner, writer)
}

fn first_read_by(
    mut ctx: Ctx,
    joiner: &mut Joiner,
    writer: &mut Writer,
    rows: Vec<MembershipEntry>,
    beats: &Heartbeats,
) -> Ctx {
    joiner.start(&mut ctx);
    let Some((None, Message::Identify { nonce })) = sent(&mut ctx).pop() else {
        panic!("it asks who is there")
    };
    joiner.on_met_myself(&mut ctx, writer, nonce);
    joiner.on_initialized(&mut ctx, writer, CallId(1), Ok(()));
    believe(&mut ctx, snapshot(5, rows));
    let sent = ctx.now.mono;
    assert!(matches!(
        joiner.on_read(&mut ctx, writer, sent, Some(beats)),
        Step::Nothing
    ));
    ctx
}

fn inserts(writer: &Writer) -> bool {
    writer.has(|a| matches!(a, Action::Join(_)))
}

fn stranger(epoch: u64) -> (MembershipEntry, Heartbeats) {
    let mut e = entry(silo(1).with_epoch(epoch), SiloStatus::Active);
    e.instance_id = InstanceId::new(5);
    e.info.host_name = "elsewhere".to_owned();
    let beats = Heartbeats::new(
        [(
            e.address,
            Heartbeat {
                counter: 7,
                at: NOON,
            },
        )]
        .into(),
        None,
    );
    (e, beats)
}

#[test]
fn only_an_answer_to_the_own_question_shows_an_address_in_use() {
    let (mut ctx, mut joiner) = (newcomer(), Joiner::default());
    joiner.start(&mut ctx);
    let Some((None, Message::Identify { nonce })) = sent(&mut ctx).pop() else {
        panic!()
    };
    let other = InstanceId::new(5);
    assert!(
        matches!(
            joiner.on_identity(&mut ctx, nonce ^ 1, other, None, "h"),
            Step::Nothing
        ),
        "forged"
    );
    let Step::Failed(JoinError::AddressInUse { host, .. }) =
        joiner.on_identity(&mut ctx, nonce, other, None, "h")
    else {
        panic!()
    };
    assert_eq!(host, "h");
}

#[test]
fn a_host_whose_clock_was_set_back_can_join() {
    let mut old = entry(silo(1).with_epoch(NOON.as_millis() + 5), SiloStatus::Dead);
    old.info.host_name = "host-1".to_owned();
    let (ctx, _, writer) = first_read(vec![old], &Heartbeats::default());
    assert_eq!(ctx.me.epoch(), NOON.as_millis() + 6);
    assert!(inserts(&writer));
}

#[test]
fn an_older_row_of_another_host_is_superseded_only_if_it_is_stale() {
    for beats_on in [false, true] {
        let (row, mut beats) = stranger(3);
        let (mut ctx, mut joiner, mut writer) = first_read(vec![row.clone()], &beats);
        assert!(!inserts(&writer));
        pass_time(&mut ctx, secs(10));
        let early = ctx.now.mono;
        pass_time(&mut ctx, secs(2));
        // This read was sent too early to cover the whole period.
        assert!(matches!(
            joiner.on_read(&mut ctx, &mut writer, early, Some(&beats)),
            Step::Nothing
        ));
        assert!(!inserts(&writer));
        if beats_on {
            beats.silos.insert(
                row.address,
                Heartbeat {
                    counter: 8,
                    at: NOON,
                },
            );
        }
        let sent = ctx.now.mono;
        match joiner.on_read(&mut ctx, &mut writer, sent, Some(&beats)) {
            Step::Failed(JoinError::AddressInUse { host, .. }) => {
                assert!(beats_on && host == "elsewhere")
            }
            step => assert!(!beats_on && inserts(&writer), "{step:?}"),
        }
    }
}

/// How long a newcomer watches a row of another host whose heartbeat stands still, in a cluster in which each
/// silo writes one in five minutes. The leader writes for so long, and the row is accused after so long.
fn watches_a_quiet_silo(leads: Duration, accused: Option<Duration>) -> Duration {
    let (row, mut beats) = stranger(3);
    let mut rows = actives(2..=6);
    rows[0].active_since = Some(1);
    rows.push(row.clone());
    let (mut ctx, mut joiner, mut writer) = (newcomer(), Joiner::default(), Writer::default());
    ctx.variant.heartbeat_spacing = Some(secs(50));
    ctx = first_read_by(ctx, &mut joiner, &mut writer, rows.clone(), &beats);
    let began = ctx.mono();
    while !inserts(&writer) {
        pass_time(&mut ctx, secs(1));
        let time = ctx.mono().since(began);
        if time <= leads {
            let beat = Heartbeat {
                counter: time.as_secs(),
                at: NOON,
            };
            beats.silos.insert(silo(2), beat);
        }
        if accused.is_some_and(|after| time == after) {
            let mut vote = vote(3, ctx.now.wall);
            vote.reason = crate::SuspicionReason::Challenge;
            rows[5].suspicions = vec![vote];
            believe(&mut ctx, snapshot(6, rows.clone()));
        }
        let sent = ctx.now.mono;
        let step = joiner.on_read(&mut ctx, &mut writer, sent, Some(&beats));
        assert!(matches!(step, Step::Nothing), "{step:?}");
    }
    ctx.mono().since(began)
}

#[test]
fn a_quiet_silo_of_another_host_is_superseded_only_if_it_should_have_written() {
    let usual = secs(10)..=secs(13);
    let nobody_leads = watches_a_quiet_silo(secs(0), None);
    assert!(usual.contains(&nobody_leads), "{nobody_leads:?}");
    let accused = watches_a_quiet_silo(secs(400), Some(secs(20)));
    let after = accused.saturating_sub(secs(20));
    assert!(usual.contains(&after), "{accused:?}");
    let never = watches_a_quiet_silo(secs(400), None);
    assert!(never >= secs(300) && never <= secs(315), "{never:?}");
}

#[test]
fn a_row_inserted_first_at_the_same_address_is_watched_too() {
    let (mut ctx, mut joiner, mut writer) = first_read(Vec::new(), &Heartbeats::default());
    assert!(inserts(&writer));
    // A conflict: meanwhile another process inserted a row at this silo's address with an older
    // epoch.
    let (row, beats) = stranger(3);
    believe(&mut ctx, snapshot(6, vec![row]));
    joiner.poll(
        &mut ctx,
        &mut writer,
        &PassedOver {
            stale: &BTreeSet::new(),
            beats: &Heartbeats::default(),
            challenged: &BTreeSet::new(),
        },
    );
    assert!(!inserts(&writer), "nothing is superseded unwatched");
    for _ in 0..2 {
        let sent = ctx.now.mono;
        joiner.on_read(&mut ctx, &mut writer, sent, Some(&beats));
        pass_time(&mut ctx, secs(16));
    }
    joiner.poll(
        &mut ctx,
        &mut writer,
        &PassedOver {
            stale: &BTreeSet::new(),
            beats: &Heartbeats::default(),
            challenged: &BTreeSet::new(),
        },
    );
    assert!(inserts(&writer));
}

#[test]
fn a_watched_row_that_is_removed_is_stale() {
    let (row, beats) = stranger(3);
    let (mut ctx, mut joiner, mut writer) = first_read(vec![row], &beats);
    pass_time(&mut ctx, secs(16));
    let sent = ctx.now.mono;
    assert!(matches!(
        joiner.on_read(&mut ctx, &mut writer, sent, Some(&Heartbeats::default())),
        Step::Nothing
    ));
    assert!(inserts(&writer));
}

#[test]
fn a_join_that_is_stopped_before_its_row_was_sent_never_sends_it() {
    let (mut ctx, mut joiner, mut writer) = first_read(Vec::new(), &Heartbeats::default());
    assert!(matches!(
        joiner.fail(&mut ctx, JoinError::Stopped),
        Step::Nothing
    ));
    assert!(matches!(
        joiner.end_row(&mut ctx, &mut writer),
        Step::Failed(JoinError::Stopped)
    ));
    assert!(!writer.has_queued());
}

#[test]
fn an_activation_at_the_deadline_completes_the_join_unless_stopped() {
    for stopped in [false, true] {
        let (mut ctx, mut joiner, mut writer) = first_read(Vec::new(), &Heartbeats::default());
        let mine = Action::Join(Box::new(entry(ctx.me, SiloStatus::Joining)));
        writer.withdraw(|a| matches!(a, Action::Join(_)));
        joiner.on_answer(
            &mut ctx,
            &mut writer,
            &mine,
            &crate::intent::Answer::Applied { version: 6 },
        );
        if stopped {
            joiner.fail(&mut ctx, JoinError::Stopped);
            joiner.end_row(&mut ctx, &mut writer);
        } else {
            joiner.on_deadline(&mut ctx, &mut writer, &BTreeSet::new());
        }
        assert!(joiner.is_failing() && writer.has(|a| matches!(a, Action::Leave { .. })));
        // The commit that was under way has succeeded.
        joiner.on_active(&mut ctx, &mut writer);
        assert_eq!(
            (
                joiner.is_failing(),
                writer.has(|a| matches!(a, Action::Leave { .. }))
            ),
            (stopped, stopped)
        );
    }
}

/// While it waited for the table, another process may have taken its address.
#[test]
fn a_silo_that_waited_for_the_table_asks_again_who_is_at_its_address() {
    let (mut ctx, mut joiner, mut writer) = (newcomer(), Joiner::default(), Writer::default());
    joiner.start(&mut ctx);
    let Some((None, Message::Identify { nonce })) = sent(&mut ctx).pop() else {
        panic!("it asks who is there")
    };
    joiner.on_met_myself(&mut ctx, &mut writer, nonce);
    ctx.now.mono = ctx.now.mono + ctx.failure_window() + secs(1);
    joiner.on_initialized(&mut ctx, &mut writer, CallId(1), Ok(()));
    believe(&mut ctx, snapshot(5, Vec::new()));
    let now = ctx.now.mono;
    joiner.on_read(&mut ctx, &mut writer, now, None);
    assert!(!inserts(&writer));
    let asked = sent(&mut ctx).pop();
    assert!(matches!(asked, Some((None, Message::Identify { .. }))));
    joiner.on_met_myself(&mut ctx, &mut writer, nonce);
    joiner.on_read(&mut ctx, &mut writer, now, None);
    assert!(inserts(&writer));
}

#[test]
fn the_table_sets_the_deadline_of_a_join() {
    let (mut ctx, mut joiner, mut writer) = (newcomer(), Joiner::default(), Writer::default());
    joiner.start(&mut ctx);
    let Some((None, Message::Identify { nonce })) = sent(&mut ctx).pop() else {
        panic!()
    };
    joiner.on_met_myself(&mut ctx, &mut writer, nonce);
    joiner.on_initialized(&mut ctx, &mut writer, CallId(1), Ok(()));
    let settings = SharedSettings {
        max_join_attempt_time: secs(20),
        ..SharedSettings::default()
    };
    believe(&mut ctx, snapshot_with(5, Vec::new(), settings));
    let now = ctx.now.mono;
    joiner.on_read(&mut ctx, &mut writer, now, None);
    let mut found = None;
    while let Some(at) = ctx.timers.next() {
        if ctx.timers.pop_due(at) == Some(Timer::JoinDeadline) {
            found = Some(at.since(now));
        }
    }
    assert_eq!(found, Some(secs(20)));
}

#[test]
fn contact_is_needed_both_ways_also_with_an_old_heartbeat() {
    let mut ctx = ctx();
    ctx.status = SiloStatus::Joining;
    believe(&mut ctx, snapshot(5, actives([2, 3])));
    let mut contacts = Contacts::default();
    // By this silo's clock, which may be wrong, the last heartbeat of every silo is an hour old.
    let beat = Heartbeat {
        counter: 7,
        at: NOON.minus(secs(3600)),
    };
    let beats = Heartbeats::new([(silo(2), beat), (silo(3), beat)].into(), None);
    let none = BTreeSet::new();
    let passed = PassedOver {
        stale: &none,
        beats: &beats,
        challenged: &none,
    };
    let required = contacts.required(&ctx, &passed);
    assert!(contacts.lacks_any(&ctx, &passed));
    assert_eq!(required.len(), 2, "nobody was even asked yet");
    contacts.try_again(&mut ctx, &required, secs(1));
    let first = sent(&mut ctx);
    let is_request = |m: &Message| matches!(m, Message::DialMe { .. });
    assert!(
        first.len() == 2 && first.iter().all(|(_, m)| is_request(m)),
        "one message each: the answer shows both directions"
    );
    pass_time(&mut ctx, secs(1));
    contacts.try_again(&mut ctx, &required, secs(1));
    let second = sent(&mut ctx);
    assert_eq!(second.len(), 2, "who does not answer is only probed");
    for (to, message) in second {
        if let (Some(to), Message::Probe { nonce }) = (to, message)
            && to == silo(2)
        {
            let ctx = &mut ctx;
            assert!(!contacts.on_ack(ctx, silo(3), nonce), "of another silo");
            assert!(contacts.on_ack(ctx, silo(2), nonce));
        }
    }
    let asked = sent(&mut ctx);
    assert!(
        asked.len() == 1 && is_request(&asked[0].1),
        "and asked to dial as soon as it does"
    );
    pass_time(&mut ctx, secs(15));
    let required = contacts.required(&ctx, &passed);
    assert!(
        contacts.lacks_any(&ctx, &passed),
        "silo 2 does not reach me"
    );
    assert_eq!(
        required,
        BTreeSet::from([silo(2)]),
        "silo 3 kept silent for a failure window"
    );
    let unreached = contacts.unreached(&required);
    assert_eq!(
        unreached[0].to_string(),
        "10.0.0.2:7100@1 does not reach me, I reach it"
    );
    contacts.try_again(&mut ctx, &required, secs(1));
    let again: Vec<_> = sent(&mut ctx)
        .into_iter()
        .filter(|(_, m)| matches!(m, Message::Probe { .. }))
        .collect();
    assert_eq!(
        again.len(),
        2,
        "silo 3 is still asked, and silo 2 is shown to be alive until it reaches me"
    );
    let Message::Probe { nonce } = again[0].1 else {
        panic!()
    };
    let theirs = contacts.on_dial_back(silo(3), nonce, Some(3), MonoTime::ZERO);
    assert_eq!(theirs, None, "of another silo");
    assert_eq!(
        contacts.on_dial_back(silo(2), nonce, None, MonoTime::ZERO),
        Some(false)
    );
    assert_eq!(contacts.word(&silo(2)), None);
    assert_eq!(
        contacts.on_dial_back(silo(2), nonce, Some(7), MonoTime::ZERO),
        Some(false)
    );
    assert_eq!(contacts.word(&silo(2)), Some(7));
    assert_eq!(
        (contacts.unreached(&required).len(), contacts.both_ways()),
        (0, vec![silo(2)])
    );
    assert!(!contacts.lacks_any(&ctx, &passed));
}
