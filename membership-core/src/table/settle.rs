//! The steps of every provider before and after a commit is judged by the version row. Clauses T3,
//! T5, T11.

use super::error::{Operation, TableError, TableErrorKind};
use super::limits::TableLimits;
use super::{CommitRequest, HeartbeatWrite, Judgement, RowChange};
use crate::encoding::{VersionRowError, decode_version_row};
use crate::model::version::{ChangedKeys, MAX_CLUSTER_CELL_BYTES, MAX_RECORDED_KEYS};
use crate::{CommitRecord, VersionRow};

impl VersionRowError {
    /// The matching kind of [`TableError`].
    #[must_use]
    pub const fn kind(&self) -> TableErrorKind {
        match self {
            Self::Foreign(_) => TableErrorKind::ForeignTable,
            Self::NewerLayout { .. } => TableErrorKind::NewerLayout,
            Self::Damaged(_) => TableErrorKind::Damaged,
        }
    }
}

/// Decodes the text of a version row in any state of its cluster, also one that is being deleted or
/// belongs to another table.
///
/// ```
/// use membership_core::{Operation, TableErrorKind, stored_version_row};
/// let foreign = stored_version_row("{\"Version\":3}", Operation::Commit, "mystore").unwrap_err();
/// assert_eq!(foreign.kind(), TableErrorKind::ForeignTable);
/// ```
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `Damaged`.
pub fn stored_version_row(
    text: &str,
    during: Operation,
    store: &'static str,
) -> Result<VersionRow, TableError> {
    decode_version_row(text).map_err(|e| TableError::new(e.kind(), during, store, e.to_string()))
}

/// What remains to be done with a commit after its [`Judgement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The commit is next: check the rows and write it.
    Apply,
    /// The commit has already happened: answer *committed*.
    Committed,
    /// Another commit was first: answer *conflict*.
    Conflict,
}

impl CommitRequest {
    /// [`judge`](Self::judge), with refusals as errors.
    ///
    /// ```
    /// use membership_core::{
    ///     CommitId, CommitRequest, Settled, SharedSettings, TableErrorKind, TableId, VersionRow,
    /// };
    ///
    /// let mut row = VersionRow::initial(TableId::new(7), SharedSettings::default());
    /// let removed = ["key".to_owned()];
    /// let commit = CommitRequest::new(row.token(&[]), CommitId::new(1), None, [], [], removed);
    /// assert_eq!(commit.settle(&row, "mystore")?, Settled::Apply);
    /// assert_eq!(commit.settle(&commit.next_version_row(&row), "mystore")?, Settled::Committed);
    /// row.deleting = true;
    /// let error = commit.settle(&row, "mystore").unwrap_err();
    /// assert_eq!(error.kind(), TableErrorKind::BeingDeleted);
    /// # Ok::<(), membership_core::TableError>(())
    /// ```
    ///
    /// # Errors
    /// `OutcomeUnknown` when the commit was sent again and the table has moved too far to show its
    /// outcome; `TableReplaced`, `TableRolledBack` or `BeingDeleted` when the table is not the one
    /// of the commit.
    pub fn settle(&self, current: &VersionRow, store: &'static str) -> Result<Settled, TableError> {
        let fail = |kind, message| Err(TableError::new(kind, Operation::Commit, store, message));
        match self.judge(current) {
            Judgement::Apply => Ok(Settled::Apply),
            Judgement::AlreadyCommitted => Ok(Settled::Committed),
            Judgement::Conflict => Ok(Settled::Conflict),
            Judgement::OutcomeUnknown => {
                let (from, to) = (self.expected.version(), current.version);
                let message = format!("the table has moved from version {from} to {to} since");
                fail(TableErrorKind::OutcomeUnknown, message)
            }
            Judgement::Refused(kind @ TableErrorKind::BeingDeleted) => {
                fail(kind, "the cluster is being deleted".to_owned())
            }
            Judgement::Refused(kind) => {
                let version = current.version;
                let message =
                    format!("the table, at version {version}, is not the one the commit is for");
                fail(kind, message)
            }
        }
    }

    /// The record of this commit for the version row.
    #[must_use]
    pub fn record(&self) -> CommitRecord {
        let changed = if self.changes.len() > MAX_RECORDED_KEYS {
            ChangedKeys::Count(self.changes.len() as u64)
        } else {
            ChangedKeys::Keys(self.changes.iter().map(|c| c.key().to_owned()).collect())
        };
        CommitRecord {
            at: self.at,
            ..CommitRecord::new(self.next_version(), self.id, self.committer, changed)
        }
    }

    /// The change in the number of rows; negative when there are fewer afterwards.
    #[must_use]
    pub fn added_rows(&self) -> i64 {
        let added = |change: &RowChange| match change {
            RowChange::Insert(_) => 1,
            RowChange::Update(_) => 0,
            RowChange::Remove(_) => -1,
        };
        self.changes.iter().map(added).sum()
    }

    /// Rejects a commit that makes a table of `rows_before` rows larger than the store allows. A
    /// commit that removes more rows than it inserts always fits.
    ///
    /// # Errors
    /// `LimitExceeded`; nothing was sent.
    pub fn check_room(
        &self,
        rows_before: u64,
        limits: &TableLimits,
        store: &'static str,
    ) -> Result<(), TableError> {
        let added = self.added_rows();
        let rows = rows_before.saturating_add_signed(added);
        if added <= 0 || rows <= limits.rows as u64 {
            return Ok(());
        }
        let limit = limits.rows;
        let message = format!("the table would have {rows} rows, the store takes {limit}");
        Err(TableError::new(
            TableErrorKind::LimitExceeded,
            Operation::Commit,
            store,
            message,
        ))
    }
}

impl HeartbeatWrite {
    /// Rejects a cell of the cluster that is too large. Every provider calls it first.
    ///
    /// # Errors
    /// `LimitExceeded`; nothing was sent.
    pub fn validate(&self, store: &'static str) -> Result<(), TableError> {
        match self {
            Self::Cluster { text } if text.len() > MAX_CLUSTER_CELL_BYTES => Err(TableError::new(
                TableErrorKind::LimitExceeded,
                Operation::UpdateIAmAlive,
                store,
                format!("the cluster's cell takes {MAX_CLUSTER_CELL_BYTES} bytes"),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CommitId, InstanceId, MembershipEntry, SharedSettings, SiloAddress, TableId, WallTime,
    };

    fn commit(row: &VersionRow, inserts: u16, removes: usize) -> CommitRequest {
        let entry = |port| {
            let silo = SiloAddress::new([127, 0, 0, 1].into(), port, 1);
            MembershipEntry::new(silo, InstanceId::new(1), WallTime::default())
        };
        let removes = (0..removes).map(|n| format!("key {n}"));
        let id = CommitId::new(1);
        CommitRequest::new(
            row.token(&[]),
            id,
            None,
            (0..inserts).map(entry),
            [],
            removes,
        )
    }

    #[test]
    fn the_record_is_that_of_the_next_version_row() {
        let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        for inserts in [0, 1, 64, 65] {
            let commit = commit(&row, inserts, 3);
            let next = commit.next_version_row(&row);
            assert_eq!(next.recent.last(), Some(&commit.record()), "{inserts}");
        }
    }

    #[test]
    fn a_full_table_rejects_inserts_and_accepts_removals() {
        let limits = TableLimits::new(9, 9, 9, 10);
        let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        let fits = |before, inserts, removes| {
            commit(&row, inserts, removes)
                .check_room(before, &limits, "test")
                .is_ok()
        };
        assert!(fits(9, 1, 0) && fits(10, 1, 1) && fits(12, 0, 1) && fits(12, 1, 1));
        assert!(!fits(10, 1, 0) && !fits(8, 4, 1));
    }

    #[test]
    fn the_clusters_cell_has_a_limit() {
        let write = |bytes| HeartbeatWrite::Cluster {
            text: "x".repeat(bytes),
        };
        assert!(write(MAX_CLUSTER_CELL_BYTES).validate("test").is_ok());
        assert!(write(MAX_CLUSTER_CELL_BYTES + 1).validate("test").is_err());
    }
}
