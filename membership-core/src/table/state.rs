//! The contract as a pure function of a version row and rows in memory. The in-memory table and the
//! document table share it.
//!
//! Nothing here waits or does input or output. The order of the checks is that of
//! [`CommitRequest::judge`]: which table it is, whether it is being deleted, then whether it was
//! rolled back (clauses T3, T5, T12, T16).

use std::sync::Arc;

use super::{
    CommitOutcome, CommitRequest, Conflict, InitializeRequest, Operation, RowChange, Settled,
    TableError, TableErrorKind, TableLimits, check_token,
};
use crate::encoding::VersionRowError;
use crate::{MAX_SAFE_INTEGER, Rows, Snapshot, VersionRow, VersionToken};

/// The stored version row: decoded, or the error.
pub(super) type StoredVersionRow = Result<Arc<VersionRow>, VersionRowError>;

/// The complete table of one cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct TableState {
    /// The version row; `None` when it is missing.
    pub version_row: Option<StoredVersionRow>,
    /// All rows.
    pub rows: Rows,
}

/// The effect of a commit on a state.
#[derive(Debug)]
pub(super) enum Applied {
    /// The state changed and must be stored.
    Now(VersionToken),
    /// The state did not change; this is the answer.
    Not(CommitOutcome),
}

impl TableState {
    /// The version row, if the table exists, can be read, and can be a successor of `known`.
    pub fn current(
        &self,
        known: Option<&VersionToken>,
        during: Operation,
        store: &'static str,
    ) -> Result<&Arc<VersionRow>, TableError> {
        let fail = |kind, message: String| Err(TableError::new(kind, during, store, message));
        let row = match &self.version_row {
            Some(Ok(row)) => row,
            Some(Err(why)) => return fail(why.kind(), why.to_string()),
            None if known.is_some() => {
                return fail(
                    TableErrorKind::TableReplaced,
                    "the version row that was known is gone".to_owned(),
                );
            }
            None => match self.rows.iter().next() {
                None => {
                    return fail(
                        TableErrorKind::NotInitialized,
                        "the cluster has no version row".to_owned(),
                    );
                }
                Some(row) => return Err(self.damaged(row.key(), during, store)),
            },
        };
        if known.is_some_and(|k| k.table_id() != row.table_id) {
            return fail(
                TableErrorKind::TableReplaced,
                format!("the table is {} now", row.table_id),
            );
        }
        if row.deleting {
            return fail(
                TableErrorKind::BeingDeleted,
                "the cluster is being deleted".to_owned(),
            );
        }
        if let Some(known) = known
            && let Err(what) = check_token(known, row)
        {
            return fail(
                what.into(),
                format!(
                    "version {} is not what version {} became",
                    row.version,
                    known.version()
                ),
            );
        }
        Ok(row)
    }

    fn damaged(&self, key: &str, during: Operation, store: &'static str) -> TableError {
        let message = format!("{} rows stand there without a version row", self.rows.len());
        TableError::new(TableErrorKind::Damaged, during, store, message).with_key(key)
    }

    /// The snapshot for `read`, without heartbeats.
    pub fn snapshot(&self, row: &Arc<VersionRow>) -> Snapshot {
        Snapshot::new(row.token(&[]), row.clone(), self.rows.clone())
    }

    /// Creates the version row if there is none; returns whether it was created.
    pub fn initialize(
        &mut self,
        request: &InitializeRequest,
        store: &'static str,
    ) -> Result<bool, TableError> {
        if self.version_row.is_some() {
            return self
                .current(None, Operation::Initialize, store)
                .map(|_| false);
        }
        if let Some(row) = self.rows.iter().next() {
            return Err(self.damaged(row.key(), Operation::Initialize, store));
        }
        self.version_row = Some(Ok(Arc::new(request.version_row())));
        Ok(true)
    }

    /// Judges a validated commit and applies it if it is next.
    pub fn commit(
        &mut self,
        request: &CommitRequest,
        limits: &TableLimits,
        store: &'static str,
    ) -> Result<Applied, TableError> {
        let row = match &self.version_row {
            Some(Ok(row)) => row.clone(),
            _ => self
                .current(Some(&request.expected), Operation::Commit, store)?
                .clone(),
        };
        let conflict = |state: &Self| {
            let conflict = Conflict::new(row.recent.last().cloned(), Some(state.snapshot(&row)));
            Ok(Applied::Not(CommitOutcome::Conflict(conflict)))
        };
        match request.settle(&row, store)? {
            Settled::Apply => {}
            Settled::Committed => {
                return Ok(Applied::Not(CommitOutcome::Committed(
                    request.next_token(&[]),
                )));
            }
            Settled::Conflict => return conflict(self),
        }
        if row.version >= MAX_SAFE_INTEGER {
            let kind = TableErrorKind::LimitExceeded;
            let message = "versions end at 2^53";
            return Err(TableError::new(kind, Operation::Commit, store, message));
        }
        let fits = |change: &RowChange| {
            matches!(change, RowChange::Insert(_)) != self.rows.by_key(change.key()).is_some()
        };
        if !request.changes.iter().all(fits) {
            return conflict(self);
        }
        let token = request.next_token(&[]);
        let next = request.apply_to(&self.snapshot(&row), token.clone());
        request.check_room(self.rows.len() as u64, limits, store)?;
        self.version_row = Some(Ok(next.version_row));
        self.rows = next.rows;
        Ok(Applied::Now(token))
    }

    /// Refuses to remove a foreign table.
    pub fn may_delete(&self, store: &'static str) -> Result<(), TableError> {
        match &self.version_row {
            Some(Err(
                why @ (VersionRowError::Foreign(_) | VersionRowError::NewerLayout { .. }),
            )) => Err(TableError::new(
                why.kind(),
                Operation::Delete,
                store,
                why.to_string(),
            )),
            _ => Ok(()),
        }
    }
}
