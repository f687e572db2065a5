//! The check of P16 finds planted bugs, and a member that lies about itself gains nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use membership_core::protocol::{Effect, Input, Message, Protocol, Setup};
use membership_core::{ClusterView, CommitId, CommitRequest, Now, SiloStatus};

use crate::machine::{Altered, Machine};
use crate::{Cluster, Violation};

/// How a silo is too trusting.
#[derive(Clone, Copy)]
enum Believes {
    /// It publishes what anybody announces.
    Views,
    /// It stops when anybody says that it is dead.
    Deaths,
}

fn trusting(protocol: Protocol, believes: Believes) -> impl Machine {
    Altered::new(protocol, move |protocol, now, input, effects| {
        if let Input::Message { body, .. } = &input
            && protocol.status() == SiloStatus::Active
        {
            match (believes, &**body) {
                (Believes::Views, Message::Delta(delta)) => {
                    let view = protocol.view().map(ClusterView::snapshot);
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
        protocol.handle(now, input, effects);
    })
}

fn run(believes: Option<Believes>) -> Result<u64, Violation> {
    let machines = move |setup: Setup| -> Box<dyn Machine> {
        let protocol = Protocol::new(setup);
        match believes {
            Some(believes) => Box::new(trusting(protocol, believes)),
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

/// The removal of a silo by its own hand.
fn removal(protocol: &Protocol, now: Now) -> Option<Arc<Message>> {
    let (me, base) = (protocol.me()?, protocol.confirmed_view()?.snapshot());
    let id = CommitId::new(now.mono.as_nanos().into());
    let removed = [me.row_key()];
    let commit = CommitRequest::new(base.token.clone(), id, None, [], [], removed);
    let next = ClusterView::new(commit.apply_to(base, commit.next_token(&[])));
    let delta = next.delta_since(base.version())?;
    Some(Arc::new(Message::Delta(Box::new(delta))))
}

/// A silo that answers nobody, and announces its own removal instead of probing others.
fn deserter(protocol: Protocol) -> impl Machine {
    Altered::new(protocol, |protocol, now, input, effects| {
        let from = effects.len();
        protocol.handle(now, input, effects);
        if protocol.status() != SiloStatus::Active {
            return;
        }
        let removal = removal(protocol, now);
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
    })
}

#[test]
fn a_member_that_announces_its_own_removal_is_voted_out() {
    let count = AtomicUsize::new(0);
    let machines = move |setup: Setup| -> Box<dyn Machine> {
        let protocol = Protocol::new(setup);
        match count.fetch_add(1, Ordering::Relaxed) {
            2 => Box::new(deserter(protocol)),
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
