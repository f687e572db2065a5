//! The last views of this silo, and the newest version row that the table has shown while no view is
//! known to be it. By these a view is confirmed without a read of its rows, whichever of the two
//! comes first. Only where one silo writes for many ([`scribe`](crate::hooks::ProtocolVariant::scribe)).
//!
//! A version row proves the rows of its version: the hash in it is collision-resistant, and comes from
//! the table.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{MonoTime, RowRead, Rows, Snapshot, VersionRow, VersionToken};

/// A version row that was read from the table.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    token: VersionToken,
    pub(crate) row: Arc<VersionRow>,
    /// When the read was sent.
    pub(crate) sent: MonoTime,
}

impl Shown {
    /// None if the answer has no version row, or its parts are not of one version.
    pub(crate) fn new(read: RowRead, sent: MonoTime) -> Option<Self> {
        let (token, row) = (read.token, read.version_row?);
        let is_its = token.table_id() == row.table_id
            && token.version() == row.version
            && token.commit() == row.last_commit();
        is_its.then_some(Self { token, row, sent })
    }

    pub(crate) fn version(&self) -> u64 {
        self.row.version
    }

    pub(crate) fn token(&self) -> &VersionToken {
        &self.token
    }

    /// The table at this version, if these are its rows.
    pub(crate) fn with_rows(&self, rows: &Rows) -> Option<Snapshot> {
        let are_its = self.row.content_hash() == Some(rows.content_hash());
        are_its.then(|| Snapshot::new(self.token.clone(), self.row.clone(), rows.clone()))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Oldest first, with rising versions.
    views: VecDeque<Snapshot>,
    /// The newest version row that the table has shown, until a view is known to be it.
    pub(crate) shown: Option<Shown>,
}

impl Kept {
    /// Keeps a view instead of one of the same version, and forgets the oldest beyond `most`.
    pub(crate) fn keep(&mut self, view: &Snapshot, most: usize) {
        let at = self.views.partition_point(|v| v.version() < view.version());
        match self.views.get_mut(at) {
            Some(same) if same.version() == view.version() => same.clone_from(view),
            _ => self.views.insert(at, view.clone()),
        }
        while self.views.len() > most {
            self.views.pop_front();
        }
    }

    /// Forgets the views of this version and later ones: they are not the table's.
    pub(crate) fn forget_from(&mut self, version: u64) {
        while self.views.back().is_some_and(|v| v.version() >= version) {
            self.views.pop_back();
        }
    }

    /// The view at this version, if it is kept.
    pub(crate) fn at(&self, version: u64) -> Option<&Snapshot> {
        self.views.iter().rev().find(|v| v.version() == version)
    }

    /// The newest view.
    pub(crate) fn newest(&self) -> Option<&Snapshot> {
        self.views.back()
    }
}
