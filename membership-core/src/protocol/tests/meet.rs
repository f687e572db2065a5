//! Two silos that join at the same time: one asks, and both have contact. Invariant P9.

use std::collections::BTreeSet;

use super::super::callers::Met;
use super::super::contacts::{Contacts, PassedOver};
use super::super::io::{LinkId, PeerIdentity};
use super::super::machine::Protocol;
use super::super::message::Header;
use super::*;
use crate::hooks::ProtocolVariant;
use crate::model::place::place;

const LINK: LinkId = LinkId(4);

/// A silo that joins beside others.
struct Joining {
    ctx: Ctx,
    contacts: Contacts,
}

impl Joining {
    fn new(n: u8, all: impl Fn() -> Vec<MembershipEntry>) -> Self {
        let mut ctx = ctx();
        ctx.variant = ProtocolVariant::SCRIBE;
        ctx.me = silo(n);
        ctx.identity.advertise = silo(n).endpoint();
        ctx.status = SiloStatus::Joining;
        believe(&mut ctx, snapshot(5, all()));
        ctx.out.clear();
        let contacts = Contacts::default();
        Self { ctx, contacts }
    }

    /// Whom it asks now, and how.
    fn asks(&mut self) -> Vec<(SiloAddress, Message)> {
        self.contacts.follow(&self.ctx, true);
        let (stale, challenged) = (BTreeSet::new(), BTreeSet::new());
        let passed = PassedOver {
            stale: &stale,
            beats: &crate::Heartbeats::default(),
            challenged: &challenged,
        };
        let required = self.contacts.required(&self.ctx, &passed);
        self.contacts.try_again(&mut self.ctx, &required, ms(500));
        let named = |(to, message): (Option<SiloAddress>, Message)| Some((to?, message));
        sent(&mut self.ctx).into_iter().filter_map(named).collect()
    }

    fn both_ways(&self) -> Vec<SiloAddress> {
        self.contacts.both_ways()
    }
}

/// Silos 1 and 2, which join: first the one that asks.
fn two() -> (Joining, Joining) {
    let all = || {
        vec![
            entry(silo(1), SiloStatus::Joining),
            entry(silo(2), SiloStatus::Joining),
        ]
    };
    let (a, b) = (Joining::new(1, all), Joining::new(2, all));
    if place(&silo(1)) < place(&silo(2)) {
        (a, b)
    } else {
        (b, a)
    }
}

fn request(asked: &[(SiloAddress, Message)]) -> (SiloAddress, u64, u64) {
    match asked {
        [(to, Message::Meet { nonce, word, .. })] => (*to, *nonce, *word),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_request_gives_both_contact_and_the_word_of_the_other() {
    let (mut first, mut second) = two();
    let (one, two) = (first.ctx.me, second.ctx.me);
    let (to, nonce, word) = request(&first.asks());
    assert_eq!((to, word), (two, first.ctx.words.for_silo(&two)));
    assert!(
        second.asks().is_empty(),
        "it leaves the first attempt to the other"
    );

    let met = Met {
        silo: one,
        nonce,
        word,
    };
    second.contacts.on_met(&mut second.ctx, met, ms(500));
    assert!(second.both_ways().is_empty(), "the other may not hear it");
    let answer = second.ctx.words.for_silo(&one);
    let says_so = first
        .contacts
        .on_dial_back(two, nonce, Some(answer), MonoTime::ZERO);
    assert_eq!((says_so, first.both_ways()), (Some(true), vec![two]));
    assert!(second.contacts.on_ack(&mut second.ctx, one, nonce));
    assert_eq!(second.both_ways(), [one]);
    let words = (first.contacts.word(&two), second.contacts.word(&one));
    assert_eq!(words, (Some(answer), Some(word)));
    for silo in [&mut first, &mut second] {
        pass_time(&mut silo.ctx, secs(30));
        assert!(silo.asks().is_empty());
    }
}

#[test]
fn who_is_not_asked_asks_when_the_other_becomes_active() {
    let (mut first, mut second) = two();
    assert!(second.asks().is_empty());
    let (one, two) = (first.ctx.me, second.ctx.me);
    let rows = || {
        vec![
            entry(one, SiloStatus::Active),
            entry(two, SiloStatus::Joining),
        ]
    };
    believe(&mut second.ctx, snapshot(6, rows()));
    pass_time(&mut second.ctx, ms(100));
    second.ctx.out.clear();
    let asked = second.asks();
    assert!(
        matches!(asked[..], [(to, Message::DialMe { .. })] if to == one),
        "{asked:?}"
    );
    // Nor does an Active silo wait for a word.
    let (_, nonce, _) = request(&first.asks());
    assert_eq!(
        first
            .contacts
            .on_dial_back(two, nonce + 1, None, MonoTime::ZERO),
        None
    );
}

#[test]
fn a_silo_that_was_met_and_does_not_say_so_is_probed() {
    let (mut first, mut second) = two();
    let (one, nonce) = (first.ctx.me, request(&first.asks()).1);
    let met = Met {
        silo: one,
        nonce,
        word: 7,
    };
    second.contacts.on_met(&mut second.ctx, met, ms(500));
    assert!(second.asks().is_empty());
    pass_time(&mut second.ctx, ms(600));
    let asked = second.asks();
    let [(to, Message::Probe { nonce })] = asked[..] else {
        panic!("{asked:?}")
    };
    assert!(to == one && second.contacts.on_ack(&mut second.ctx, one, nonce));
    assert_eq!(second.both_ways(), [one]);
}

#[test]
fn few_are_asked_at_once_and_those_that_must_be_reached_first() {
    let all = || {
        let of = |n| match n {
            100.. => entry(silo(n), SiloStatus::Active),
            _ => entry(silo(n), SiloStatus::Joining),
        };
        (1..=119).map(of).collect::<Vec<_>>()
    };
    let mut it = Joining::new(1, all);
    let first = it.asks();
    assert_eq!(first.len(), 16);
    let must = |asked: &[(SiloAddress, Message)]| {
        let is = |m: &Message| matches!(m, Message::DialMe { .. });
        asked.iter().filter(|(_, m)| is(m)).count()
    };
    assert_eq!(must(&first), 16, "20 are Active");
    let now = it.ctx.mono();
    assert!(!it.contacts.may_go_on(&it.ctx) && it.asks().is_empty());

    // Each that answers makes room for itself and one more.
    for (to, message) in &first[..4] {
        let Message::DialMe { nonce, .. } = message else {
            panic!("{message:?}")
        };
        let contacts = &mut it.contacts;
        assert_eq!(contacts.on_dial_back(*to, *nonce, None, now), Some(false));
    }
    assert!(it.contacts.may_go_on(&it.ctx));
    let second = it.asks();
    assert_eq!((second.len(), must(&second)), (8, 4));

    // Those that do not answer lose their places, and are asked again after all others.
    pass_time(&mut it.ctx, ms(600));
    assert!(it.contacts.may_go_on(&it.ctx));
    let third = it.asks();
    let again = |(to, _): &(SiloAddress, Message)| {
        let mut before = first.iter().chain(&second);
        before.any(|(asked, _)| asked == to)
    };
    let (new, old) = (third.iter().filter(|a| !again(a)).count(), third.len());
    assert!(
        (new, old) == (8, 20) && third.is_sorted_by_key(again),
        "{third:?}"
    );
    assert!(!it.contacts.may_go_on(&it.ctx), "they have their time");
    // They have failed once, so that only half as many are asked from now on.
    pass_time(&mut it.ctx, ms(600));
    assert_eq!(it.asks().len(), 10);
}

#[test]
fn a_refused_contact_holds_no_place() {
    let all = || (1..=60).map(|n| entry(silo(n), SiloStatus::Active));
    let mut it = Joining::new(1, || all().collect());
    let asked = it.asks();
    assert_eq!(asked.len(), 16);
    assert!(!it.contacts.may_go_on(&it.ctx));
    for (to, _) in &asked[..3] {
        it.contacts.on_send_failed(to.endpoint(), "refused", true);
    }
    assert!(it.contacts.may_go_on(&it.ctx));
    assert_eq!(it.asks().len(), 3);
    // Where there was room for all, nothing is left to do.
    let all = || (1..=6).map(|n| entry(silo(n), SiloStatus::Active));
    let mut it = Joining::new(1, || all().collect());
    assert_eq!(it.asks().len(), 5);
    assert!(!it.contacts.may_go_on(&it.ctx));
}

#[test]
fn a_word_counts_only_of_a_silo_that_has_proven_who_it_is() {
    let process = instance(silo(2));
    for (peer, met) in [
        (PeerIdentity::Proven(process), 1),
        (PeerIdentity::Unproven, 0),
    ] {
        let all = || {
            vec![
                entry(silo(1), SiloStatus::Joining),
                entry(silo(2), SiloStatus::Joining),
            ]
        };
        let mut it = Protocol::new(setup());
        it.ctx = Joining::new(1, all).ctx;
        let mut header = Header::new(it.ctx.fingerprint, silo(2), process);
        header.to = Some(silo(1));
        let meet = Message::Meet {
            nonce: 9,
            endpoint: silo(2).endpoint(),
            word: 7,
        };
        it.receive(LINK, peer, &header, &meet);
        assert!(matches!(
            sent(&mut it.ctx)[..],
            [(_, Message::Vouch { nonce: 9, .. })]
        ));
        assert_eq!(it.callers.take_met().len(), met);
    }
}

#[test]
fn a_silo_whose_timers_are_late_asks_few_at_a_time_and_gives_them_longer() {
    let all = || (1..=60).map(|n| entry(silo(n), SiloStatus::Active));
    let mut it = Joining::new(1, || all().collect());
    it.ctx.lag.on_late(it.ctx.now.mono, ms(149));
    assert_eq!(it.asks().len(), 16, "not late enough");
    let mut it = Joining::new(1, || all().collect());
    it.ctx.lag.on_late(it.ctx.now.mono, ms(200));
    let first = it.asks();
    assert_eq!(first.len(), 3);
    // They keep their places for four times that longer than usual, and are not asked again before.
    pass_time(&mut it.ctx, ms(1_299));
    assert!(!it.contacts.may_go_on(&it.ctx));
    pass_time(&mut it.ctx, ms(1));
    assert!(it.contacts.may_go_on(&it.ctx));
    let second = it.asks();
    assert_eq!(second.len(), 3);
    let again = |(to, _): &(SiloAddress, Message)| first.iter().any(|(asked, _)| asked == to);
    assert!(!second.iter().any(again));
    // Once timers are in time again, all have room.
    pass_time(&mut it.ctx, secs(5));
    assert!(it.asks().len() > 3);
}

#[test]
fn a_busy_silo_waits_for_those_that_join_as_well_but_not_for_long() {
    let all = || {
        let joining = (1..=3).map(|n| entry(silo(n), SiloStatus::Joining));
        joining
            .chain([entry(silo(4), SiloStatus::Active)])
            .collect()
    };
    let waits = |it: &Joining, since: MonoTime| it.contacts.waits_for_others(&it.ctx, since);
    let mut it = Joining::new(1, all);
    let since = it.ctx.mono();
    assert!(!waits(&it, since), "its timers are in time");
    it.ctx.lag.on_late(since, ms(400));
    assert!(waits(&it, since));
    it.ctx.variant.scribe = false;
    assert!(!waits(&it, since));
    it.ctx.variant.scribe = true;

    // One refuses connections, and the other one has met it.
    it.asks();
    it.contacts
        .on_send_failed(silo(2).endpoint(), "refused", true);
    if place(&silo(3)) < place(&silo(1)) {
        let (nonce, word) = (7, 8);
        let met = Met {
            silo: silo(3),
            nonce,
            word,
        };
        it.contacts.on_met(&mut it.ctx, met, ms(500));
    }
    assert!(waits(&it, since));
    pass_time(&mut it.ctx, ms(3_999));
    assert!(waits(&it, since));
    pass_time(&mut it.ctx, ms(1));
    assert!(!waits(&it, since), "ten times what timers were late");
    it.ctx.lag.on_late(it.ctx.now.mono, secs(9));
    assert!(waits(&it, since));
    pass_time(&mut it.ctx, secs(5));
    it.ctx.lag.on_late(it.ctx.now.mono, secs(9));
    pass_time(&mut it.ctx, secs(5));
    it.ctx.lag.on_late(it.ctx.now.mono, secs(9));
    assert!(waits(&it, since), "fourteen seconds");
    pass_time(&mut it.ctx, secs(1));
    assert!(!waits(&it, since), "fifteen");
}
