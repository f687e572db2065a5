//! What is different between two views.

use super::ClusterView;
use crate::{MembershipEntry, SiloStatus};

/// How a silo changed between two views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// It was not there before, and is not Dead.
    Joined,
    /// It has another status.
    StatusChanged,
    /// It is Dead now, or its row is gone: either way it will not come back.
    Died,
    /// Something else about it changed (suspicions, metadata).
    Updated,
}

/// One silo's change between two views.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// How.
    pub kind: ChangeKind,
    /// The silo as the newer view has it; as the older one had it if its row is gone.
    pub entry: MembershipEntry,
}

impl ClusterView {
    /// What changed from `older` to this view, by address. A silo that vanished without having been Dead is reported as died; one that
    /// was Dead and whose row was cleaned away is not reported. Costs one look at each row that the two views do not share.
    #[must_use]
    pub fn changes_since(&self, older: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let (new, old) = (&self.snapshot().rows, &older.snapshot().rows);
        for row in new.iter() {
            let Some(entry) = row.entry() else { continue };
            let before = old.row(&entry.address);
            if before.is_some_and(|b| b.is_same(row) || b.hash() == row.hash()) {
                continue;
            }
            let kind = match before.and_then(|b| b.entry()).map(|b| b.status) {
                None if entry.status == SiloStatus::Dead => ChangeKind::Died,
                None => ChangeKind::Joined,
                Some(s) if s == entry.status => ChangeKind::Updated,
                Some(_) if entry.status == SiloStatus::Dead => ChangeKind::Died,
                Some(_) => ChangeKind::StatusChanged,
            };
            changes.push(Change {
                kind,
                entry: entry.clone(),
            });
        }
        for entry in old.entries() {
            if entry.status != SiloStatus::Dead && new.get(&entry.address).is_none() {
                changes.push(Change {
                    kind: ChangeKind::Died,
                    entry: entry.clone(),
                });
            }
        }
        changes
    }
}
