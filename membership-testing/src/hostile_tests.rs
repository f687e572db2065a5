//! The check of P16 finds planted bugs, and a member that lies about itself gains nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use membership_core::protocol::{Effect, Input, Message, Protocol, Setup};
use membership_core::{
    ClusterView, CommitId, CommitRequest, MonoTime, Now, SiloAddress, SiloStatus,
};

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

/// A silo that answers nobody, and announces its own removal instead of probing others.
struct Deserter(Protocol);

impl Deserter {
    fn removal(&self, now: Now) -> Option<Arc<Message>> {
        let (me, base) = (self.0.me()?, self.0.confirmed_view()?.snapshot());
        let id = CommitId::new(now.mono.as_nanos().into());
        let removed = [me.row_key()];
        let commit = CommitRequest::new(base.token.clone(), id, None, [], [], removed);
        let next = ClusterView::new(commit.apply_to(base, commit.next_token(&[])));
        let delta = next.delta_since(base.version())?;
        Some(Arc::new(Message::Delta(Box::new(delta))))
    }
}

impl Machine for Deserter {
    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        let from = effects.len();
        self.0.handle(now, input, effects);
        if self.0.status() != SiloStatus::Active {
            return;
        }
        let removal = self.removal(now);
        let mut rest = effects.split_off(from);
        for effect in &mut rest {
            if let Effect::Send { body, .. } = effect
                && let (Message::Probe { .. }, Some(removal)) = (&**body, &removal)
            {
                *body = removal.clone();
            }
        }
        rest.retain(|effect| {
            let answers = |body: &Message| {
                matches!(body, Message::ProbeAck { .. } | Message::RollAnswer { .. })
            };
            !matches!(effect, Effect::Send { body, .. } if answers(body))
        });
        effects.extend(rest);
    }
    fn next_wakeup(&self) -> Option<MonoTime> {
        self.0.next_wakeup()
    }
    fn me(&self) -> Option<SiloAddress> {
        self.0.me()
    }
    fn status(&self) -> SiloStatus {
        self.0.status()
    }
    fn view(&self) -> Option<&ClusterView> {
        self.0.view()
    }
    fn confirmed_view(&self) -> Option<&ClusterView> {
        self.0.confirmed_view()
    }
}

#[test]
fn a_member_that_announces_its_own_removal_is_voted_out() {
    let count = AtomicUsize::new(0);
    let machines = move |setup: Setup| -> Box<dyn Machine> {
        let protocol = Protocol::new(setup);
        match count.fetch_add(1, Ordering::Relaxed) {
            2 => Box::new(Deserter(protocol)),
            _ => Box::new(protocol),
        }
    };
    let mut cluster = Cluster::builder()
        .seed(5)
        .silos(5)
        .machines(Box::new(machines))
        .build()
        .unwrap();
    cluster.truth.lies = true;
    cluster.run_for(Duration::from_secs(180)).unwrap();
    assert_eq!(cluster.stats().voted_out, 1);
    assert_eq!(cluster.running().len(), 4);
}
