//! The one pure function that turns intents into changes of the table.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, Intent};
use crate::{Config, MembershipEntry, MonoTime, Now, SiloAddress, Snapshot, TableLimits};

/// What the caller has seen with its own eyes and the table does not say.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Rows whose heartbeat stands still.
    pub stale: BTreeSet<SiloAddress>,
    /// Rows that answered me within the failure window.
    pub answered: BTreeSet<SiloAddress>,
    /// When I first saw each vote in the table (suspect, accuser), by my monotonic clock, while I was reading it.
    pub first_seen: BTreeMap<(SiloAddress, SiloAddress), (crate::WallTime, MonoTime)>,
}

/// What becomes of a batch of intents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// Rows to insert.
    pub inserts: Vec<MembershipEntry>,
    /// Rows to update.
    pub updates: Vec<MembershipEntry>,
    /// Keys of rows to remove.
    pub removes: Vec<String>,
    /// One answer for each intent, in their order.
    pub answers: Vec<Answer>,
    /// What did not fit, in order.
    pub rest: Vec<Intent>,
}

/// Applies a batch to a snapshot.
#[must_use]
pub fn apply(
    _snapshot: &Snapshot,
    _observed: &Observed,
    _intents: &[Intent],
    _now: Now,
    _config: &Config,
    _limits: &TableLimits,
) -> Applied {
    Applied::default()
}
