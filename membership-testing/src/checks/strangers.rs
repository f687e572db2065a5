//! P16: no message from anybody who is not alive in the receiver's confirmed view changes a
//! published view, a status, a token or a vote.

use crate::machine::Machine;
use membership_core::protocol::{Effect, Input, Message, PeerIdentity};
use membership_core::{ClusterView, MonoTime, SiloStatus, TableId};

use super::{Check, Fact};
use crate::ground_truth::GroundTruth;

/// P16. The message must have no effect that only the table, a timer or a member may have.
#[derive(Debug, Default)]
pub struct Strangers {
    judged: u64,
}

impl Check for Strangers {
    fn invariant(&self) -> &'static str {
        "P16"
    }

    fn judged(&self) -> u64 {
        self.judged
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        let Fact::Strange { process, changed } = fact else {
            return Ok(());
        };
        self.judged += 1;
        match changed {
            None => Ok(()),
            Some(what) => Err(format!("{}: {what}", truth.process_name(*process))),
        }
    }
}

/// What a machine shows before it handles a message of somebody strange.
#[derive(Debug)]
pub(crate) struct Strange {
    status: SiloStatus,
    confirmed: Option<(TableId, u64, u128)>,
    what: &'static str,
}

impl Strange {
    /// None for another input, and where what follows may have another cause: a timer that is due.
    pub(crate) fn before(machine: &dyn Machine, now: MonoTime, input: &Input) -> Option<Self> {
        let Input::Message {
            peer, header, body, ..
        } = input
        else {
            return None;
        };
        let proven = match peer {
            PeerIdentity::Proven(instance) => *instance,
            PeerIdentity::Unproven => header.instance,
        };
        let view = machine.confirmed_view()?;
        let alive = view
            .get(&header.from)
            .is_some_and(|e| e.status != SiloStatus::Dead && e.instance_id == proven);
        let due = machine.next_wakeup().is_none_or(|at| at <= now);
        // Who answers at a joining silo's own address says so, whoever it is.
        let at_my_address = matches!(**body, Message::Identity { .. } | Message::Identify { .. });
        (!alive && !due && !at_my_address).then(|| Self {
            status: machine.status(),
            confirmed: machine.confirmed_view().map(name),
            what: body.name(),
        })
    }

    /// What the message changed and should not have.
    pub(crate) fn after(&self, machine: &dyn Machine, effects: &[Effect]) -> Option<String> {
        let by = format!("a {} of somebody who is not alive in its view", self.what);
        for effect in effects {
            let did = match effect {
                Effect::Publish(view) => format!("it published v{}", view.version()),
                Effect::Commit { .. } => "it committed".to_owned(),
                Effect::Stop(end) => format!("it stopped: {end:?}"),
                _ => continue,
            };
            return Some(format!("{did} after {by}"));
        }
        if machine.status() != self.status {
            return Some(format!(
                "its status became {:?} after {by}",
                machine.status()
            ));
        }
        if machine.confirmed_view().map(name) != self.confirmed {
            return Some(format!("its confirmed view changed after {by}"));
        }
        None
    }
}

fn name(view: &ClusterView) -> (TableId, u64, u128) {
    (view.table_id(), view.version(), view.digest())
}
