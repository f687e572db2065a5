//! News that is passed on over the probe rings.

use std::collections::BTreeSet;

use super::super::disseminator::Disseminator;
use super::super::flood::{Flood, News};
use super::super::rings::{Rings, Successors};
use super::*;
use crate::hooks::ProtocolVariant;
use crate::{ClusterView, Delta};

/// A silo among a hundred that passes news on.
fn here() -> (Ctx, Successors) {
    let mut ctx = ctx();
    ctx.variant = ProtocolVariant {
        scribe: true,
        flood_above: Some(24),
        ..ProtocolVariant::STANDARD
    };
    believe(&mut ctx, snapshot(5, actives(1..=100)));
    let (mut successors, me) = (Successors::default(), ctx.me);
    let rings = Rings {
        silos: 10,
        one: false,
    };
    successors.follow(me, &ctx.members, None, rings);
    (ctx, successors)
}

/// The view after a commit of silo 2 that adds these.
fn six(ctx: &Ctx, new: std::ops::RangeInclusive<u8>) -> Snapshot {
    let five = ctx.base.as_ref().unwrap().snapshot();
    let author = Some(silo(2));
    let token = five.token.clone();
    let commit = crate::CommitRequest::new(token, commit_id(6), author, actives(new), [], []);
    commit.apply_to(five, commit.next_token(&[]))
}

fn receivers(ctx: &mut Ctx, name: &str) -> BTreeSet<SiloAddress> {
    let all = sent(ctx);
    assert!(all.iter().all(|(_, message)| message.name() == name));
    all.into_iter().filter_map(|(to, _)| to).collect()
}

#[test]
fn the_author_tells_its_neighbours_alone() {
    for (new, name) in [(101..=101, "news"), (101..=200, "announce")] {
        let (mut ctx, _) = here();
        let before = ctx.base.clone();
        let six = six(&ctx, new);
        believe(&mut ctx, six);
        Disseminator::default().on_commit(&mut ctx, before.as_ref());
        let told = receivers(&mut ctx, name);
        assert!((15..=20).contains(&told.len()), "{}", told.len());
    }
}

#[test]
fn news_leaves_out_what_its_receivers_have() {
    let (ctx, _) = here();
    let five = ctx.base.as_ref().unwrap().snapshot();
    let six = six(&ctx, 101..=101);
    let whole = ClusterView::new(six.clone()).delta_since(5).unwrap();
    assert_eq!(whole.version_row.recent.len(), 6);
    let short = whole.clone().without_known_records();
    assert_eq!(short.version_row.recent.len(), 1);
    assert_eq!(short.with_records_of(five), Some(whole.clone()));
    assert_eq!(whole.with_records_of(five), Some(whole.clone()));
    assert_eq!(short.with_records_of(&six), None);
}

#[test]
fn few_silos_are_told_by_the_author() {
    let (mut ctx, _) = here();
    ctx.variant.flood_above = Some(1_000);
    let before = ctx.base.clone();
    let six = six(&ctx, 101..=101);
    believe(&mut ctx, six);
    Disseminator::default().on_commit(&mut ctx, before.as_ref());
    assert_eq!(receivers(&mut ctx, "delta").len(), 100);
}

#[test]
fn news_is_passed_on_once_it_is_adopted_and_only_once() {
    let (mut ctx, successors) = here();
    let six = six(&ctx, 101..=101);
    let delta = ClusterView::new(six.clone()).delta_since(5).unwrap();
    let mut flood = Flood::default();
    assert!(flood.hear(&mut ctx, News::told(silo(3), &delta)));
    assert!(!flood.hear(&mut ctx, News::told(silo(4), &delta)));
    flood.pass_on(&mut ctx, &successors);
    assert!(sent(&mut ctx).is_empty());
    announce(&mut ctx, six);
    flood.pass_on(&mut ctx, &successors);
    let next = receivers(&mut ctx, "news");
    let mut expected: Vec<SiloAddress> = successors.silos().take(4).collect();
    expected.retain(|s| ![silo(2), silo(3)].contains(s));
    assert_eq!(next, BTreeSet::from_iter(expected));
    flood.hear(&mut ctx, News::told(silo(5), &delta));
    flood.pass_on(&mut ctx, &successors);
    assert!(sent(&mut ctx).is_empty());
}

#[test]
fn another_commit_of_that_version_is_not_passed_on() {
    let (mut ctx, successors) = here();
    let (six, mut flood) = (six(&ctx, 101..=101), Flood::default());
    flood.hear(&mut ctx, News::announced(silo(3), 6, commit_id(66)));
    sent(&mut ctx);
    announce(&mut ctx, six);
    flood.pass_on(&mut ctx, &successors);
    assert!(sent(&mut ctx).is_empty());
}

#[test]
fn one_after_the_other_is_asked_for_what_is_announced() {
    let (mut ctx, successors) = here();
    let (six, mut flood) = (six(&ctx, 101..=200), Flood::default());
    for n in 3..=5 {
        flood.hear(&mut ctx, News::announced(silo(n), 6, commit_id(6)));
    }
    assert_eq!(receivers(&mut ctx, "ask-delta"), BTreeSet::from([silo(3)]));
    pass_time(&mut ctx, ms(100));
    flood.on_timer(&mut ctx);
    assert_eq!(receivers(&mut ctx, "ask-delta"), BTreeSet::from([silo(4)]));
    // The changes have come, and the table is asked about them.
    flood.wait_for_the_table(&mut ctx);
    flood.hear(&mut ctx, News::announced(silo(6), 6, commit_id(6)));
    assert!(sent(&mut ctx).is_empty());
    announce(&mut ctx, six);
    flood.on_timer(&mut ctx);
    flood.pass_on(&mut ctx, &successors);
    assert!((2..=4).contains(&receivers(&mut ctx, "announce").len()));
}

#[test]
fn who_announces_what_does_not_come_is_hardly_asked() {
    let (mut ctx, _) = here();
    let mut flood = Flood::default();
    let mut asked = 0;
    for n in 0..100_u8 {
        let news = News::announced(silo(3), u64::MAX, commit_id(u64::from(n) + 50));
        flood.hear(&mut ctx, news);
        pass_time(&mut ctx, ms(50));
        flood.on_timer(&mut ctx);
        asked += sent(&mut ctx).len();
    }
    assert!((4..=5).contains(&asked), "{asked} in five seconds");
    // It is asked at once for what follows news that has come.
    let six = six(&ctx, 101..=101);
    announce(&mut ctx, six);
    flood.hear(&mut ctx, News::announced(silo(3), 7, commit_id(7)));
    assert_eq!(receivers(&mut ctx, "ask-delta"), BTreeSet::from([silo(3)]));
}

#[test]
fn who_had_older_news_is_not_asked_for_newer() {
    let (mut ctx, _) = here();
    let (six, mut flood) = (six(&ctx, 101..=101), Flood::default());
    let delta = ClusterView::new(six.clone()).delta_since(5).unwrap();
    flood.hear(&mut ctx, News::told(silo(3), &delta));
    announce(&mut ctx, six);
    flood.hear(&mut ctx, News::announced(silo(4), 7, commit_id(7)));
    assert_eq!(receivers(&mut ctx, "ask-delta"), BTreeSet::from([silo(4)]));
}

#[test]
fn whoever_has_heard_news_answers_with_it() {
    let (mut ctx, _) = here();
    let six = six(&ctx, 101..=200);
    announce(&mut ctx, six);
    let table = Some(TableId::new(1));
    let link = super::super::LinkId(4);
    Disseminator::default().on_ask(&mut ctx, link, silo(9), table, 5);
    let all: Vec<Message> = sent(&mut ctx).into_iter().map(|(_, m)| m).collect();
    let [Message::Delta(delta)] = &all[..] else {
        panic!("{all:?}");
    };
    let Delta { from, rows, .. } = &**delta;
    assert_eq!((*from, delta.to(), rows.len()), (Some(5), 6, 100));
}
