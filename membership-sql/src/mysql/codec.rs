//! Rows of answers as rows of the contract.

use std::sync::Arc;

use membership_core::{
    Heartbeats, Operation, Rows, Snapshot, TableError, TableErrorKind as Kind, VersionRow,
    VersionToken, check_version_row, missing_version_row, stored_version_row,
};

use super::STORE;
use super::columns::{number, text};
use super::connection::Set;
use super::error::error;
use super::server::is_read_only;
use crate::shared::{DecodeCache, add, heartbeat};

/// What a read returned, undecoded except for the version row.
#[derive(Default)]
pub(super) struct Found {
    /// None if there is no version row.
    pub(super) version: Option<Result<Arc<VersionRow>, TableError>>,
    /// Keys and texts.
    pub(super) rows: Vec<(String, String)>,
    pub(super) heartbeats: Heartbeats,
    read_only: bool,
}

impl Found {
    /// From the answer to a read; empty without an answer.
    pub(super) fn of(set: Option<&Set>, cache: &DecodeCache) -> Self {
        let mut found = Self::default();
        for row in set.into_iter().flat_map(|set| &set.rows) {
            match number(row, 0) {
                Some(0) => {
                    let body = text(row, 2).unwrap_or_default();
                    let marked = number(row, 3).unwrap_or(0) != 0;
                    found.read_only = text(row, 5).is_some_and(|value| is_read_only(&value));
                    let decoded = cache.version(&body, |body| {
                        stored_version_row(body, Operation::Read, STORE)
                    });
                    found.version = Some(decoded.map(|row| with_mark(row, marked)));
                }
                Some(1) => found.rows.push((
                    text(row, 1).unwrap_or_default(),
                    text(row, 2).unwrap_or_default(),
                )),
                Some(kind @ (2 | 4)) => {
                    let (key, at) = (text(row, 1).unwrap_or_default(), text(row, 4));
                    let value = heartbeat(number(row, 3).unwrap_or(0), at.as_deref());
                    add(&mut found.heartbeats, &key, value, kind == 2);
                }
                _ => found.heartbeats.cluster = text(row, 2),
            }
        }
        found
    }

    /// The version row, if there is one.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`; `Unavailable` from a server that has become
    /// read-only.
    pub(super) fn version(&self) -> Result<Option<Arc<VersionRow>>, TableError> {
        if self.read_only {
            // A former primary may be behind the current one.
            return Err(no_primary());
        }
        self.version.clone().transpose()
    }

    /// The version row of a table that may be used and that `known` may be from. Clauses T12, T16.
    ///
    /// # Errors
    /// As [`usable_version_row`](membership_core::usable_version_row). `NotInitialized` also if
    /// there may be rows that were not looked for.
    pub(super) fn usable(
        &self,
        known: Option<&VersionToken>,
    ) -> Result<Arc<VersionRow>, TableError> {
        let any_key = self.rows.first().map(|(key, _)| key.as_str());
        let missing = || missing_version_row(any_key, known, Operation::Read, STORE);
        let row = self.version()?.ok_or_else(missing)?;
        check_version_row(&row, known, Operation::Read, STORE)?;
        Ok(row)
    }

    /// The table that was found.
    pub(super) fn snapshot(&self, row: Arc<VersionRow>, cache: &DecodeCache) -> Snapshot {
        let rows: Rows = cache.merge(&self.rows);
        cache.snapshot(row, rows)
    }
}

/// A version row with the mark of its column.
fn with_mark(row: Arc<VersionRow>, deleting: bool) -> Arc<VersionRow> {
    match deleting && !row.deleting {
        true => Arc::new({
            let mut it = VersionRow::clone(&row);
            it.deleting = deleting;
            it
        }),
        false => row,
    }
}

/// The error of a server that no longer accepts writes.
pub(super) fn no_primary() -> TableError {
    let message = "the server has become read-only: another server may be the primary";
    error(Kind::Unavailable, message)
}
