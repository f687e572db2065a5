//! What the silos of one simulation hold in common: the rows of a version and the lists that follow from
//! them. Ten thousand silos that each keep ten thousand rows of their own do not fit into a machine.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::members::Lists;
use super::message::Message;
use crate::{Delta, Rows, Snapshot};

/// How many versions are kept. A silo that is further behind keeps what it has.
const MOST: usize = 64;

/// Views that the silos of one simulation share. Two snapshots with the same version, commit and digest
/// of rows count as the same: not for simulations in which somebody forges rows.
#[derive(Clone, Debug, Default)]
pub struct Interned {
    versions: Arc<Mutex<VecDeque<Version>>>,
    /// The last deltas that were told.
    deltas: Arc<Mutex<VecDeque<Arc<Message>>>>,
}

#[derive(Debug)]
struct Version {
    snapshot: Snapshot,
    lists: Option<Arc<Lists>>,
}

impl Interned {
    fn versions(&self) -> MutexGuard<'_, VecDeque<Version>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deltas(&self) -> MutexGuard<'_, VecDeque<Arc<Message>>> {
        self.deltas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The delta that somebody has told, if this is one of the last.
    pub(crate) fn delta(&self, is_it: impl Fn(&Arc<Message>) -> bool) -> Option<Arc<Message>> {
        self.deltas().iter().rev().find(|told| is_it(told)).cloned()
    }

    /// Keeps a delta that is told.
    pub(crate) fn keep_delta(&self, told: &Arc<Message>) {
        let mut deltas = self.deltas();
        if deltas.len() >= MOST {
            deltas.pop_front();
        }
        deltas.push_back(Arc::clone(told));
    }

    /// The same snapshot, with rows that others have as well.
    pub(crate) fn share(&self, mut snapshot: Snapshot) -> Snapshot {
        let mut versions = self.versions();
        if let Some(known) = versions.iter().rev().find(|v| v.is(&snapshot)) {
            snapshot.rows = known.snapshot.rows.clone();
            if Arc::ptr_eq(&snapshot.version_row, &known.snapshot.version_row) {
                return snapshot;
            }
            if snapshot.version_row == known.snapshot.version_row {
                snapshot.version_row = Arc::clone(&known.snapshot.version_row);
            }
            return snapshot;
        }
        link(&versions, &mut snapshot);
        if versions.len() >= MOST {
            versions.pop_front();
        }
        versions.push_back(Version {
            snapshot: snapshot.clone(),
            lists: None,
        });
        snapshot
    }

    /// The rows of the version to which a delta leads, if somebody has it.
    pub(crate) fn rows_of(&self, delta: &Delta) -> Option<Rows> {
        let versions = self.versions();
        let known = versions.iter().rev().find(|v| v.is_of(delta))?;
        Some(known.snapshot.rows.clone())
    }

    /// The lists for these rows, if somebody has made them.
    pub(crate) fn lists(&self, snapshot: &Snapshot) -> Option<Arc<Lists>> {
        let versions = self.versions();
        let known = versions.iter().rev().find(|v| v.is(snapshot))?;
        known.lists.clone()
    }

    /// Keeps the lists for these rows.
    pub(crate) fn keep(&self, snapshot: &Snapshot, lists: &Arc<Lists>) {
        let mut versions = self.versions();
        if let Some(known) = versions.iter_mut().rev().find(|v| v.is(snapshot)) {
            known.lists.get_or_insert_with(|| Arc::clone(lists));
        }
    }
}

/// Makes the rows of a new version from those of the one before, if they were read from the table: all
/// then know what has changed.
fn link(versions: &VecDeque<Version>, snapshot: &mut Snapshot) {
    let is_before =
        |s: &&Snapshot| s.table_id() == snapshot.table_id() && s.version() < snapshot.version();
    let before = versions.iter().map(|v| &v.snapshot).filter(is_before);
    let Some(before) = before.max_by_key(|s| s.version()) else {
        return;
    };
    if snapshot.rows.changed_since(&before.rows).is_none()
        && let Ok(linked) = Delta::between(before, snapshot).resolve(Some(before))
    {
        snapshot.rows = linked.rows;
    }
}

impl Version {
    fn is_of(&self, delta: &Delta) -> bool {
        self.snapshot.version() == delta.to()
            && self.snapshot.token.same_commit(&delta.token)
            && self.snapshot.rows.digest() == delta.digest
    }

    fn is(&self, snapshot: &Snapshot) -> bool {
        self.snapshot.version() == snapshot.version()
            && self.snapshot.token.same_commit(&snapshot.token)
            && self.snapshot.rows.digest() == snapshot.rows.digest()
    }
}
