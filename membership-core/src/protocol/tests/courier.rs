//! This silo's own changes that another one is asked to write: what a liar can make it wait for.

use std::collections::BTreeSet;

use super::super::contacts::{Contacts, PassedOver};
use super::super::forward::{OwnChange, Standing};
use super::super::observation::Unwritten;
use super::super::timers::Timer;
use super::super::writer::{Outcome, Writer, WriterState, question};
use super::*;
use crate::intent::Action;
use crate::{CommitRequest, IntentId};

/// The contacts of this silo: silos 2 and 3 have dialled it, and told it words.
fn met(ctx: &mut Ctx, words: bool) -> Contacts {
    let mut contacts = Contacts::default();
    let none = BTreeSet::new();
    let passed = PassedOver {
        stale: &none,
        beats: &crate::Heartbeats::default(),
        challenged: &none,
    };
    let required = contacts.required(ctx, &passed);
    contacts.try_again(ctx, &required, secs(1));
    for (to, message) in sent(ctx) {
        if let (Some(to), Message::DialMe { nonce, .. }) = (to, message) {
            contacts.on_dial_back(to, nonce, words.then(|| word(to)), MonoTime::ZERO);
        }
    }
    assert_eq!(contacts.both_ways(), [silo(2), silo(3)]);
    contacts
}

fn word(of: SiloAddress) -> u64 {
    of.epoch() + u64::from(of.port())
}

/// This silo is Joining, and asks silo 2, the oldest Active one.
struct Sender {
    ctx: Ctx,
    contacts: Contacts,
    writer: Writer,
}

impl Sender {
    fn new() -> Self {
        Self::of_epoch(1)
    }

    /// The other silos have epoch 1.
    fn of_epoch(epoch: u64) -> Self {
        let mut ctx = ctx();
        ctx.me = SiloAddress::at(ctx.me.endpoint(), epoch);
        ctx.status = SiloStatus::Joining;
        ctx.variant.scribe = true;
        let mut rows = actives([2, 3]);
        rows.push(entry(ctx.me, SiloStatus::Joining));
        believe(&mut ctx, snapshot(5, rows));
        let contacts = met(&mut ctx, true);
        Self {
            ctx,
            contacts,
            writer: Writer::default(),
        }
    }

    /// Submits the activation; gives its name if another silo is asked.
    fn forwards(&mut self) -> Option<IntentId> {
        let contacted = vec![silo(2), silo(3)];
        let silo = self.ctx.me;
        let change = Action::BecomeActive { silo, contacted };
        self.writer.submit(&mut self.ctx, change);
        self.asked()
    }

    fn asked(&mut self) -> Option<IntentId> {
        self.asks().map(|(_, id)| id)
    }

    /// Whom it asks to write what.
    fn asks(&mut self) -> Option<(SiloAddress, IntentId)> {
        self.writer
            .forward(&mut self.ctx, &self.contacts, &BTreeSet::new());
        sent(&mut self.ctx).into_iter().find_map(|(to, m)| match m {
            Message::Forward { changes } => Some((to?, changes[0].0)),
            _ => None,
        })
    }

    /// This silo has made a commit, which inserts silo `n`.
    fn sees_a_commit(&mut self, n: u8, by: SiloAddress) {
        let base = self.ctx.base.as_ref().unwrap().snapshot().clone();
        let (token, id) = (base.token.clone(), commit_id(base.version() + 1));
        let commit = CommitRequest::new(token, id, Some(by), actives([n]), vec![], vec![]);
        let after = commit.apply_to(&base, commit.next_token(&[]));
        believe(&mut self.ctx, after);
    }

    /// Whom it would ask, what waits, and whom it has asked.
    fn shows(&self) -> (Option<SiloAddress>, usize, Option<SiloAddress>) {
        let state = self.writer.state(&self.ctx, &BTreeSet::new());
        let WriterState {
            scribe,
            waiting,
            asked,
        } = state;
        (scribe, waiting, asked)
    }

    fn hears(&mut self, id: IntentId, standing: Standing) -> Vec<Outcome> {
        self.writer
            .on_receipt(&mut self.ctx, silo(2), &[(id, standing)], 3, false)
    }
}

#[test]
fn who_says_that_a_change_is_written_is_believed_once() {
    for standing in [
        Standing::Moot,
        Standing::Written { version: 6 },
        Standing::Written { version: u64::MAX },
    ] {
        let mut s = Sender::new();
        let id = s.forwards().unwrap();
        let began = s.ctx.mono();
        while !s.writer.has_queued() {
            assert!(s.ctx.mono().since(began) <= secs(4), "{standing:?}");
            pass_time(&mut s.ctx, ms(500));
            assert!(s.hears(id, standing).is_empty());
            s.writer.on_courier_timer(&mut s.ctx);
        }
        assert!(s.ctx.mono().since(began) >= secs(3), "{standing:?}");
        assert_eq!(s.asked(), None, "it writes the change itself");
    }
}

#[test]
fn whoever_says_that_very_many_wait_and_then_nothing_is_left() {
    for commits in [0, 1] {
        let mut s = Sender::new();
        let id = s.forwards().unwrap();
        let began = s.ctx.mono();
        let waits = [(id, Standing::Waiting)];
        s.writer
            .on_receipt(&mut s.ctx, silo(2), &waits, u32::MAX, false);
        if commits > 0 {
            s.sees_a_commit(4, silo(3));
        }
        while !s.writer.has_queued() {
            assert!(s.ctx.mono().since(began) <= secs(15), "{commits}");
            let next = s.ctx.timers.at(Timer::Courier).unwrap();
            s.ctx.now.mono = next.max(s.ctx.mono() + ms(1));
            s.writer.on_courier_timer(&mut s.ctx);
        }
        assert!(s.ctx.mono().since(began) >= secs(5), "{commits}");
    }
}

#[test]
fn an_activation_that_is_refused_for_ten_seconds_is_written_by_its_silo() {
    let mut s = Sender::new();
    for _ in 0..10 {
        let id = s.forwards().unwrap();
        assert_eq!(s.hears(id, Standing::Refused).len(), 1);
        pass_time(&mut s.ctx, secs(1));
    }
    assert_eq!(s.forwards(), None);
    assert!(s.writer.has_queued());
}

#[test]
fn whoever_is_gone_is_not_waited_for() {
    let there = silo(2).endpoint();
    for how in 0..2 {
        let mut s = Sender::of_epoch(2);
        let id = s.forwards().unwrap();
        s.writer.on_gone(&mut s.ctx, silo(3).endpoint());
        assert!(!s.writer.has_queued(), "somebody else");
        if how == 0 {
            s.writer.on_gone(&mut s.ctx, there);
        } else {
            let question = question(id);
            assert!(!s.writer.on_not_me(&mut s.ctx, there, question + 1));
            assert!(s.writer.on_not_me(&mut s.ctx, there, question));
        }
        assert!(!s.writer.is_idle(), "somebody else may have written");
        assert_eq!(s.asks(), Some((silo(3), id)), "the next oldest");
        s.writer.on_gone(&mut s.ctx, silo(3).endpoint());
        assert_eq!(s.asks(), None);
        assert!(s.writer.has_queued());
    }
    let mut oldest = Sender::of_epoch(1);
    oldest.forwards().unwrap();
    oldest.writer.on_gone(&mut oldest.ctx, there);
    assert_eq!(oldest.asks(), None, "the others ask this silo");
}

#[test]
fn after_a_silence_the_silo_that_has_written_since_is_asked() {
    let mut s = Sender::new();
    let id = s.forwards().unwrap();
    pass_time(&mut s.ctx, secs(3));
    s.writer.on_courier_timer(&mut s.ctx);
    assert_eq!(s.asks(), None, "it writes the change itself");
    s.sees_a_commit(4, silo(3));
    assert_eq!(s.asks(), Some((silo(3), id)));
}

#[test]
fn whoever_writes_while_another_one_is_silent_is_asked_at_once() {
    let mut s = Sender::new();
    let id = s.forwards().unwrap();
    s.sees_a_commit(4, silo(3));
    pass_time(&mut s.ctx, secs(3));
    s.writer.on_courier_timer(&mut s.ctx);
    assert_eq!(s.asks(), Some((silo(3), id)));
}

#[test]
fn a_silo_that_says_that_a_change_waits_and_writes_nothing_is_left() {
    // Nobody writes.
    let mut s = Sender::new();
    let id = s.forwards().unwrap();
    pass_time(&mut s.ctx, ms(4_900));
    s.hears(id, Standing::Waiting);
    assert!(!s.writer.has_queued());
    pass_time(&mut s.ctx, ms(5_200));
    s.hears(id, Standing::Waiting);
    assert!(s.writer.has_queued());
    assert_eq!(s.asks(), None, "it writes the change itself");
    // Another silo does.
    let mut s = Sender::new();
    let id = s.forwards().unwrap();
    s.sees_a_commit(4, silo(3));
    pass_time(&mut s.ctx, secs(2));
    s.hears(id, Standing::Waiting);
    assert!(!s.writer.has_queued(), "one commit may have been under way");
    s.sees_a_commit(5, silo(3));
    s.hears(id, Standing::Waiting);
    assert_eq!(s.asks(), Some((silo(3), id)));
    // The silo itself writes: this may be one of many.
    let mut s = Sender::new();
    let id = s.forwards().unwrap();
    for n in 4..10 {
        s.sees_a_commit(n, silo(2));
    }
    pass_time(&mut s.ctx, secs(15));
    s.hears(id, Standing::Waiting);
    assert!(!s.writer.has_queued());
    pass_time(&mut s.ctx, secs(26));
    s.writer.on_courier_timer(&mut s.ctx);
    assert!(s.writer.has_queued(), "but not for ever");
}

#[test]
fn an_activation_goes_with_the_words_of_its_contacts_or_not_at_all() {
    let mut s = Sender::new();
    let contacted = s.contacts.both_ways();
    let silo_1 = s.ctx.me;
    let action = Action::BecomeActive {
        silo: silo_1,
        contacted,
    };
    s.writer.submit(&mut s.ctx, action);
    s.writer.forward(&mut s.ctx, &s.contacts, &BTreeSet::new());
    let told = [silo(2), silo(3)].map(|s| (s, word(s))).to_vec();
    let said = sent(&mut s.ctx);
    let [(_, Message::Forward { changes })] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(changes[0].1, OwnChange::BecomeActive { contacted: told });
    // Its contacts tell no words: it writes the change itself.
    let mut s = Sender::new();
    s.contacts = met(&mut s.ctx, false);
    assert_eq!(s.forwards(), None);
    assert!(s.writer.has_queued());
}

#[test]
fn a_silo_shows_whom_it_would_ask_and_whom_it_has_asked() {
    let (me, there) = (silo(1), silo(2).endpoint());
    let mut s = Sender::new();
    assert_eq!(s.shows(), (Some(silo(2)), 0, None), "the oldest");
    s.forwards().unwrap();
    assert_eq!(s.shows(), (Some(silo(2)), 0, Some(silo(2))));
    s.writer.on_gone(&mut s.ctx, there);
    assert_eq!(
        s.shows(),
        (Some(me), 1, None),
        "it writes the change itself"
    );
    s.sees_a_commit(4, silo(3));
    assert_eq!(s.shows(), (Some(silo(3)), 1, None), "who wrote last");
    s.sees_a_commit(5, me);
    assert_eq!(s.shows(), (Some(me), 1, None));
    s.ctx.variant.scribe = false;
    assert_eq!(s.shows(), (None, 1, None), "without the setting");
}

#[test]
fn a_change_that_is_sent_is_counted_and_so_is_why_it_comes_back() {
    let mut s = Sender::new();
    let action = Action::BecomeActive {
        silo: s.ctx.me,
        contacted: s.contacts.both_ways(),
    };
    s.writer.submit(&mut s.ctx, action);
    s.writer.forward(&mut s.ctx, &s.contacts, &BTreeSet::new());
    let (to, changes) = (silo(2), 1);
    let sent = Observation::ChangesSent { to, changes };
    assert_eq!(observed(&s.ctx), [sent]);
    type Way = fn(&mut Sender, IntentId);
    let ways: [(Unwritten, Way); 5] = [
        (Unwritten::Refused, |s, id| {
            s.hears(id, Standing::Refused);
        }),
        (Unwritten::Elsewhere, |s, id| {
            s.hears(id, Standing::Elsewhere);
        }),
        (Unwritten::Unanswered, |s, _| {
            pass_time(&mut s.ctx, secs(3));
            s.writer.on_courier_timer(&mut s.ctx);
        }),
        (Unwritten::Idle, |s, id| {
            s.sees_a_commit(4, silo(3));
            s.sees_a_commit(5, silo(3));
            pass_time(&mut s.ctx, secs(2));
            s.hears(id, Standing::Waiting);
        }),
        (Unwritten::Gone, |s, _| {
            s.writer.on_gone(&mut s.ctx, silo(2).endpoint());
        }),
    ];
    assert_eq!(ways.map(|(why, _)| why), Unwritten::ALL);
    for (why, way) in ways {
        let mut s = Sender::new();
        let id = s.forwards().unwrap();
        way(&mut s, id);
        let back = Observation::ChangeReturned { from: silo(2), why };
        assert_eq!(observed(&s.ctx), [back]);
    }
}

/// On a machine that is so busy that timers are late, what the other silo has said may wait to be read.
#[test]
fn a_silo_whose_timers_are_late_waits_longer_for_a_word() {
    let wait = |late: u64, ago: u64| {
        let mut s = Sender::new();
        s.ctx.lag.on_late(s.ctx.mono(), ms(late));
        pass_time(&mut s.ctx, secs(ago));
        s.ctx.lag.on_late(s.ctx.mono(), ms(1));
        s.forwards().unwrap();
        let began = s.ctx.mono();
        while !s.writer.has_queued() {
            pass_time(&mut s.ctx, ms(20));
            s.writer.on_courier_timer(&mut s.ctx);
        }
        s.ctx.mono().since(began)
    };
    let usual = wait(0, 0);
    let is = |waited: Duration, more: u64| {
        let more = ms(more);
        // It looks every 20 ms.
        let range = usual + more - ms(20)..=usual + more + ms(20);
        assert!(range.contains(&waited), "{waited:?} {usual:?} {more:?}");
    };
    is(wait(200, 1), 2_000);
    is(wait(200, 6), 10);
    // It counts for five seconds.
    let longest = wait(60_000, 1);
    assert!((ms(3_900)..=ms(4_100)).contains(&longest), "{longest:?}");
}
