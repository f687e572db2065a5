//! The invariants of the protocol, watched while a virtual cluster runs.
//!
//! Each checker sees [`Fact`]s: what silos did, what the table really went through. It never sees what a silo *thinks* beyond what it
//! publishes, and is never asked for advice. The invariants are numbered P1 to P11 as in the documentation of the protocol, and T1, T3
//! and T6 as in the contract of the table: the last three judge every answer of the table that a silo takes.

mod contact;
mod death;
mod end;
mod history;
mod load;
mod outage;
mod reach;
mod recovery;
mod split;
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
pub use load::Load;
pub use outage::Outage;
pub use reach::Reach;
pub use recovery::Recovery;
pub use split::LargerSide;
pub use table_conflicts::TableConflicts;
pub use table_reads::TableReads;
pub use table_versions::TableVersions;
pub use views::{Rising, SameVersionSameMembers};
pub use votes::Votes;

use super::circumstances::{Circumstances, ProcessId};
use crate::protocol::{Effect, Input, Message};
use crate::{
    CauseOfDeath, ClusterView, CommitRequest, Death, MembershipEntry, SiloAddress, SiloStatus,
    Snapshot,
};

/// Something that really happened.
#[derive(Clone, Copy, Debug)]
pub enum Fact<'a> {
    /// The table began, or begins again: initialized, restored, rolled back. One history ends and another begins.
    Founded(&'a Snapshot),
    /// A commit landed in the table.
    Committed {
        /// The table before.
        before: &'a Snapshot,
        /// The table after.
        after: &'a Snapshot,
        /// The commit.
        request: &'a CommitRequest,
    },
    /// A process is about to take an input.
    Takes {
        /// Which process.
        process: ProcessId,
        /// The input.
        input: &'a Input,
    },
    /// A process wants an effect. Publications are told as [`Fact::Published`] as well.
    Wants {
        /// Which process.
        process: ProcessId,
        /// The effect.
        effect: &'a Effect,
    },
    /// A process published a view.
    Published {
        /// Which process.
        process: ProcessId,
        /// The view.
        view: &'a ClusterView,
    },
    /// A message got from one process to another, and that one takes it now.
    Delivered {
        /// The sender.
        from: ProcessId,
        /// The receiver.
        to: ProcessId,
        /// What it says.
        body: &'a Message,
    },
    /// All faults ended long enough ago for everything to be well again.
    Settled {
        /// Every live process, with the view it published last.
        live: &'a [(ProcessId, Option<ClusterView>)],
        /// The table; none when there is none.
        table: Option<&'a Snapshot>,
    },
}

/// Watches over one invariant.
pub trait Check {
    /// Which one: `P1` to `P11`, `T1`, `T3` or `T6`.
    fn invariant(&self) -> &'static str;

    /// Takes note of a fact.
    ///
    /// # Errors
    /// A sentence about how the invariant was broken.
    fn see(&mut self, fact: &Fact<'_>, truth: &Circumstances) -> Result<(), String>;

    /// How often there was something to judge, for the checkers whose circumstances are rare: one that never judged has proven nothing.
    /// See [`Stats`](super::Stats) for what each counts.
    fn judged(&self) -> u64 {
        0
    }
}

/// Every checker that can watch over any run. ([`Load`] compares runs of two sizes and is asked by its own test.)
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
        Box::new(Reach::default()),
        Box::new(LargerSide::default()),
        Box::new(TableVersions::default()),
        Box::new(TableConflicts::default()),
        Box::new(TableReads::default()),
    ]
}

/// One row that a commit turned Dead.
struct NewlyDead<'a> {
    before: Option<&'a MembershipEntry>,
    after: &'a MembershipEntry,
    death: &'a Death,
}

impl NewlyDead<'_> {
    fn silo(&self) -> SiloAddress {
        self.after.address
    }

    /// Whether others ended it for what they believed of it. P5 sees to it that the other causes are what they say: it left, a newer one
    /// took its address, it did not get on with joining, or an operator wanted it gone.
    fn is_verdict(&self, truth: &Circumstances) -> bool {
        match &self.death.cause {
            CauseOfDeath::Left | CauseOfDeath::Superseded | CauseOfDeath::Stuck => false,
            CauseOfDeath::Evicted { by, .. } => {
                !truth.evictions.contains(&(self.silo(), by.clone()))
            }
            CauseOfDeath::Voted => true,
        }
    }
}

/// The silos whose rows a commit changed, in its order.
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
