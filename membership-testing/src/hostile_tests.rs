//! The check of P16 finds planted bugs.

use std::time::Duration;

use membership_core::protocol::{Effect, Input, Message, Protocol, Setup};
use membership_core::{ClusterView, MonoTime, Now, SiloAddress, SiloStatus};

use crate::machine::Machine;
use crate::{Cluster, Violation};

/// How a silo is too trusting.
#[derive(Clone, Copy)]
enum Believes {
    /// It publishes what anybody announces.
    Views,
    /// It stops when anybody says that it is dead.
    Deaths,
}

struct Trusting {
    protocol: Protocol,
    believes: Believes,
}

impl Machine for Trusting {
    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if let Input::Message { body, .. } = &input
            && self.protocol.status() == SiloStatus::Active
        {
            match (self.believes, &**body) {
                (Believes::Views, Message::Delta(delta)) => {
                    let view = self.protocol.view().map(ClusterView::snapshot);
                    if let Ok(snapshot) = delta.resolve(view) {
                        effects.push(Effect::Publish(ClusterView::new(snapshot)));
                    }
                }
                (Believes::Deaths, Message::YouAreDead { .. }) => {
                    let end = membership_core::protocol::Termination::Left { clean: false };
                    effects.push(Effect::Stop(end));
                }
                _ => {}
            }
        }
        self.protocol.handle(now, input, effects);
    }
    fn next_wakeup(&self) -> Option<MonoTime> {
        self.protocol.next_wakeup()
    }
    fn me(&self) -> Option<SiloAddress> {
        self.protocol.me()
    }
    fn status(&self) -> SiloStatus {
        self.protocol.status()
    }
    fn view(&self) -> Option<&ClusterView> {
        self.protocol.view()
    }
    fn confirmed_view(&self) -> Option<&ClusterView> {
        self.protocol.confirmed_view()
    }
}

fn run(believes: Option<Believes>) -> Result<u64, Violation> {
    let machines = move |setup: Setup| -> Box<dyn Machine> {
        let protocol = Protocol::new(setup);
        match believes {
            Some(believes) => Box::new(Trusting { protocol, believes }),
            None => Box::new(protocol),
        }
    };
    let mut cluster = Cluster::builder()
        .seed(3)
        .silos(5)
        .machines(Box::new(machines))
        .build()
        .unwrap();
    cluster.run_for(Duration::from_secs(60))?;
    cluster.add_hostile_peers(false);
    cluster.run_for(Duration::from_secs(120))?;
    Ok(cluster.stats().strange)
}

#[test]
fn a_silo_that_believes_strangers_is_found() {
    for believes in [Believes::Views, Believes::Deaths] {
        let violation = run(Some(believes)).unwrap_err();
        assert_eq!(violation.invariant(), "P16", "{violation}");
    }
}

#[test]
fn a_silo_that_believes_members_alone_is_not() {
    assert!(run(None).unwrap() > 300);
}
