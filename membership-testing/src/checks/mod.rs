//! Checkers for the invariants of the protocol, which run while a simulated cluster runs.
//!
//! Each checker gets [`Fact`]s: what silos did and what really happened in the table. A checker
//! sees only the effects of a silo, never its internal state. The invariants are numbered P1 to P16
//! as in the documentation of the protocol, and T1, T3 and T6 as in the contract of the table:
//! these three check every answer of the table that a silo receives.

mod contact;
mod death;
mod end;
mod flood;
mod history;
mod joins;
mod load;
mod majority;
mod one_side;
mod outage;
mod reached;
mod recovery;
mod split;
mod strangers;
mod table_conflicts;
mod table_reads;
mod table_versions;
mod views;
mod votes;

#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vote_tests;

pub use contact::Contact;
pub use death::DeadIsFinal;
pub use end::Silence;
pub use flood::Flood;
pub use joins::BlockedJoins;
pub use load::Load;
pub use majority::Majority;
pub use one_side::OneSide;
pub use outage::Outage;
pub use reached::Reached;
pub use recovery::Recovery;
pub use split::LargerSide;
pub(crate) use strangers::Strange;
pub use strangers::Strangers;
pub use table_conflicts::TableConflicts;
pub use table_reads::TableReads;
pub use table_versions::TableVersions;
pub use views::{Rising, SameVersionSameMembers};
pub use votes::Votes;

use crate::ground_truth::{GroundTruth, ProcessId};
use membership_core::protocol::{Effect, Input, Message};
use membership_core::{
    CauseOfDeath, ClusterView, CommitRequest, Death, MembershipEntry, SiloAddress, SiloStatus,
    Snapshot,
};

/// Something that really happened.
#[derive(Clone, Copy, Debug)]
pub enum Fact<'a> {
    /// The table was initialized, restored or rolled back. One history ends and another begins.
    Created(&'a Snapshot),
    /// A commit was applied to the table.
    Committed {
        /// The table before.
        before: &'a Snapshot,
        /// The table after.
        after: &'a Snapshot,
        /// The commit.
        request: &'a CommitRequest,
    },
    /// A process is about to handle an input.
    Input {
        /// The process.
        process: ProcessId,
        /// The input.
        input: &'a Input,
    },
    /// A process returned an effect. For a publication, [`Fact::Published`] follows.
    Effect {
        /// The process.
        process: ProcessId,
        /// The effect.
        effect: &'a Effect,
    },
    /// A process published a view.
    Published {
        /// The process.
        process: ProcessId,
        /// The view.
        view: &'a ClusterView,
    },
    /// A process is about to handle a message from another process.
    Delivered {
        /// The sender.
        from: ProcessId,
        /// The receiver.
        to: ProcessId,
        /// The message.
        body: &'a Message,
    },
    /// A process is about to handle a message that a member that lies sends beside what its protocol
    /// says.
    Lied {
        /// The member that lies.
        from: ProcessId,
        /// The receiver.
        to: ProcessId,
        /// The message.
        body: &'a Message,
    },
    /// A process has handled a message of somebody who was not alive in its confirmed view.
    Strange {
        /// The process.
        process: ProcessId,
        /// What the message changed and should not have.
        changed: Option<&'a str>,
    },
    /// All faults ended long enough ago for the cluster to have recovered.
    Settled {
        /// Every running process, with the view that it published last.
        live: &'a [(ProcessId, Option<ClusterView>)],
        /// The table; none when there is none.
        table: Option<&'a Snapshot>,
    },
}

/// Checks one invariant.
pub trait Check {
    /// The invariant: `P1` to `P16`, `T1`, `T3` or `T6`.
    fn invariant(&self) -> &'static str;

    /// Handles a fact.
    ///
    /// # Errors
    /// How the invariant is violated, as a sentence.
    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String>;

    /// How many cases it judged. Only for the checkers whose cases are rare: a checker that never
    /// judged has proven nothing. [`Stats`](crate::Stats) says what each one counts.
    fn judged(&self) -> u64 {
        0
    }
}

/// Every checker that applies to any run. ([`Load`] compares runs of two sizes and has a test of
/// its own.)
#[must_use]
pub fn all() -> Vec<Box<dyn Check>> {
    vec![
        Box::new(SameVersionSameMembers::default()),
        Box::new(Rising::default()),
        Box::new(DeadIsFinal::default()),
        Box::new(Silence::default()),
        Box::new(Votes::default()),
        Box::new(Outage::default()),
        Box::new(Recovery),
        Box::new(Contact::default()),
        Box::new(Reached::default()),
        Box::new(LargerSide::default()),
        Box::new(Majority::default()),
        Box::new(OneSide::default()),
        Box::new(BlockedJoins::default()),
        Box::new(Flood::default()),
        Box::new(Strangers::default()),
        Box::new(TableVersions::default()),
        Box::new(TableConflicts::default()),
        Box::new(TableReads::default()),
    ]
}

/// A row that a commit set to Dead.
struct NewlyDead<'a> {
    before: Option<&'a MembershipEntry>,
    after: &'a MembershipEntry,
    death: &'a Death,
}

impl NewlyDead<'_> {
    fn silo(&self) -> SiloAddress {
        self.after.address
    }

    /// Whether other silos declared it dead because they believed that it had failed. Invariant P5
    /// checks that the other causes are true: it left, a newer silo took over its address, its join
    /// was stuck, or an operator evicted it.
    fn is_verdict(&self, truth: &GroundTruth) -> bool {
        match &self.death.cause {
            CauseOfDeath::Left | CauseOfDeath::Superseded | CauseOfDeath::Stuck => false,
            CauseOfDeath::Evicted { by, .. } => {
                !truth.evictions.contains(&(self.silo(), by.clone()))
            }
            _ => true,
        }
    }
}

/// The silos whose rows a commit changed, in the order of the changes.
fn changed(request: &CommitRequest) -> impl Iterator<Item = SiloAddress> {
    request
        .changes
        .iter()
        .filter_map(|change| change.key().parse().ok())
}

fn newly_dead<'a>(
    before: &'a Snapshot,
    after: &'a Snapshot,
    request: &'a CommitRequest,
) -> impl Iterator<Item = NewlyDead<'a>> {
    changed(request).filter_map(|silo| {
        let (old, new) = (before.rows.get(&silo), after.rows.get(&silo)?);
        let was_dead = old.is_some_and(|e| e.status == SiloStatus::Dead);
        let death = new
            .death
            .as_ref()
            .filter(|_| new.status == SiloStatus::Dead && !was_dead)?;
        Some(NewlyDead {
            before: old,
            after: new,
            death,
        })
    })
}

fn active(snapshot: &Snapshot) -> impl Iterator<Item = &MembershipEntry> {
    snapshot
        .rows
        .entries()
        .filter(|e| e.status == SiloStatus::Active)
}
