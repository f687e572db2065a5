//! The differences between two views.

use super::ClusterView;
use crate::{MembershipEntry, SiloStatus};

/// How a silo changed between two views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// It was not in the older view, and it is not Dead.
    Joined,
    /// Its status changed.
    StatusChanged,
    /// It is Dead now, or its row is gone. In both cases it does not return.
    Died,
    /// Another field changed (suspicions, metadata).
    Updated,
}

/// The change of one silo between two views.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The kind of change.
    pub kind: ChangeKind,
    /// The entry in the newer view; if its row is gone, the entry in the older view.
    pub entry: MembershipEntry,
}

impl ClusterView {
    /// The changes from `older` to this view, by address. A silo whose row vanished before it was
    /// Dead is reported as died; a Dead silo whose row was removed is not reported. Costs one
    /// comparison for each row that the two views do not share.
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
