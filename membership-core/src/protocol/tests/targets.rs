//! Whom a silo probes.

use super::super::machine::Protocol;
use super::super::timers::Timer;
use super::*;
use crate::hooks::ProtocolVariant;

#[test]
fn active_silos_watch_each_other_while_most_silos_join() {
    let mut rows = actives(1..=9);
    rows.extend((10..90).map(|n| entry(silo(n), SiloStatus::Joining)));
    let table = snapshot(5, rows);
    for scribe in [true, false] {
        let variant = ProtocolVariant {
            scribe,
            ..ProtocolVariant::STANDARD
        };
        let mut protocol = Protocol::with_variant(setup(), variant);
        (protocol.ctx.now, protocol.ctx.me) = (ctx().now, silo(1));
        protocol.ctx.status = SiloStatus::Active;
        believe(&mut protocol.ctx, table.clone());
        protocol.retarget();
        let watched = |n: u8| protocol.aimed_at.0.contains(&silo(n));
        assert_eq!((2..=9).all(watched), scribe);
        let soon = protocol.ctx.mono() + ms(250);
        let is_soon = |n| {
            let timer = Timer::Probe(silo(n));
            protocol.ctx.timers.at(timer).is_some_and(|at| at <= soon)
        };
        assert_eq!((2..=9).all(is_soon), scribe, "and at once");
    }
}

/// One that keeps all others out is missed by those who may vote, also without scribe.
#[test]
fn where_few_vote_each_probes_all_that_are_active() {
    for few in [2, 8] {
        let mut rows = actives(1..=few);
        rows.extend((few + 1..90).map(|n| entry(silo(n), SiloStatus::Joining)));
        let mut protocol = Protocol::new(setup());
        (protocol.ctx.now, protocol.ctx.me) = (ctx().now, silo(1));
        protocol.ctx.status = SiloStatus::Active;
        believe(&mut protocol.ctx, snapshot(5, rows));
        protocol.retarget();
        assert!(
            (2..=few).all(|n| protocol.aimed_at.0.contains(&silo(n))),
            "{few}"
        );
    }
}

/// Everybody probes a few accused silos; of many, as after a network that was down, each has its share.
#[test]
fn many_accused_silos_are_shared() {
    for (accused, most) in [(3, 3), (30, 10)] {
        let mut rows = actives(1..=60);
        for row in &mut rows[60 - accused..] {
            row.suspicions = vec![vote(2, NOON)];
        }
        let table = snapshot(5, rows);
        let mut besides = Vec::new();
        let mut probers = vec![0; accused];
        for me in 1..=60 {
            let mut protocol = Protocol::new(setup());
            (protocol.ctx.now, protocol.ctx.me) = (ctx().now, silo(me));
            protocol.ctx.status = SiloStatus::Active;
            believe(&mut protocol.ctx, table.clone());
            protocol.retarget();
            let (usual, aimed_at) = (protocol.successors.silos().count(), &protocol.aimed_at.0);
            besides.push(aimed_at.len() - usual);
            assert!(!aimed_at.contains(&silo(me)));
            for (i, probers) in probers.iter_mut().enumerate() {
                *probers += usize::from(aimed_at.contains(&silo((60 - accused + 1 + i) as u8)));
            }
        }
        assert!(*besides.iter().max().unwrap() <= most, "{besides:?}");
        if accused == 3 {
            assert_eq!(probers, [59, 59, 59]);
        } else {
            // Each has some ten that probe it anyway.
            assert!(besides.iter().sum::<usize>() <= 4 * accused, "{besides:?}");
            assert!(probers.iter().all(|n| (4..=30).contains(n)), "{probers:?}");
        }
    }
}
