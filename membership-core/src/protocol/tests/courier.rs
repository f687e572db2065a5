//! This silo's own changes that another one is asked to write: what a liar can make it wait for.

use std::collections::BTreeSet;

use super::super::forward::Standing;
use super::super::writer::{Outcome, Writer};
use super::*;
use crate::IntentId;
use crate::intent::Action;

/// This silo is Joining, and asks silo 2, the oldest Active one.
struct Sender {
    ctx: Ctx,
    writer: Writer,
}

impl Sender {
    fn new() -> Self {
        let mut ctx = ctx();
        ctx.status = SiloStatus::Joining;
        ctx.variant.scribe = true;
        let mut rows = actives([2, 3]);
        rows.push(entry(silo(1), SiloStatus::Joining));
        believe(&mut ctx, snapshot(5, rows));
        Self {
            ctx,
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
        self.writer.forward(&mut self.ctx, &BTreeSet::new());
        sent(&mut self.ctx).into_iter().find_map(|(_, m)| match m {
            Message::Forward { changes } => Some(changes[0].0),
            _ => None,
        })
    }

    fn hears(&mut self, id: IntentId, standing: Standing) -> Vec<Outcome> {
        self.writer
            .on_receipt(&mut self.ctx, silo(2), &[(id, standing)], 3)
    }
}

#[test]
fn nobody_keeps_a_change_waiting_for_ever() {
    for standing in [
        Standing::Waiting,
        Standing::Moot,
        Standing::Written { version: 6 },
        Standing::Written { version: u64::MAX },
    ] {
        let mut s = Sender::new();
        let id = s.forwards().unwrap();
        let began = s.ctx.mono();
        while !s.writer.has_queued() {
            assert!(s.ctx.mono().since(began) <= secs(41), "{standing:?}");
            pass_time(&mut s.ctx, ms(500));
            assert!(s.hears(id, standing).is_empty());
            s.writer.on_courier_timer(&mut s.ctx);
        }
        assert!(s.ctx.mono().since(began) >= secs(20), "{standing:?}");
        assert_eq!(s.asked(), None, "it writes the change itself");
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
