//! Whom a silo probes.

use super::super::machine::Protocol;
use super::super::timers::Timer;
use super::*;
use crate::hooks::ProtocolVariant;

#[test]
fn active_silos_watch_each_other_while_most_silos_join() {
    let mut rows = actives(1..=6);
    rows.extend((7..90).map(|n| entry(silo(n), SiloStatus::Joining)));
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
        assert_eq!((2..=6).all(watched), scribe);
        let soon = protocol.ctx.mono() + ms(250);
        let is_soon = |n| {
            let timer = Timer::Probe(silo(n));
            protocol.ctx.timers.at(timer).is_some_and(|at| at <= soon)
        };
        assert_eq!((2..=6).all(is_soon), scribe, "and at once");
    }
}
