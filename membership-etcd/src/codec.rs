//! Keys and values of etcd ⇄ version rows, rows and heartbeats.
//!
//! The version row is several values, so that the holder of a token can write what a commit changes
//! without reading the rest. The first value is a JSON object with fields in a fixed order: its
//! text follows from a token alone, and can be compared. Fields that this build does not know are
//! kept in it (clause T10).

use std::collections::BTreeMap;

use membership_core::{
    ChangedKeys, CommitRecord, Heartbeat, Heartbeats, Operation, Rows, SharedSettings, Snapshot,
    TableError, TableErrorKind, VersionRow, VersionToken, stored_version_row, usable_version_row,
};
use membership_provider::{
    VersionRowParts, check_last_commit, counted_token, json, merge_rows, row_count_of,
    shown_heartbeats, stored_heartbeat,
};
use serde_json::Value;

use crate::STORE;
use crate::error::error;
use crate::keys::{CELL, Keys};
use crate::wire::Pair;

/// The advice in errors about a missing part of a table.
const RESTORE: &str = "restore a backup, or `membership delete` the cluster and restart all silos";

/// The value of `table/version`.
pub(crate) fn version_text(row: &VersionRow) -> String {
    #[derive(serde::Serialize)]
    struct Written<'a> {
        layout: u32,
        min_layout: u32,
        table_id: String,
        version: u64,
        commit: String,
        row_count: u64,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        deleting: bool,
        #[serde(flatten)]
        extra: &'a BTreeMap<String, Value>,
    }
    json(&Written {
        layout: row.layout,
        min_layout: row.min_layout,
        table_id: row.table_id.to_string(),
        version: row.version,
        commit: row.last_commit().to_string(),
        row_count: row.row_count,
        deleting: row.deleting,
        extra: &row.extra.0,
    })
}

/// The version row of a token, as far as `table/version` shows it. `None` for a token that does not
/// carry the number of rows. Wrong if a newer build or an operator has written `table/version`.
pub(crate) fn guess(token: &VersionToken) -> Option<VersionRow> {
    let mut row = VersionRow::initial(token.table_id(), SharedSettings::default());
    row.row_count = row_count_of(token)?;
    row.version = token.version();
    if row.version > 0 {
        row.recent.push(CommitRecord::new(
            row.version,
            token.commit(),
            None,
            ChangedKeys::Count(0),
        ));
    }
    Some(row)
}

/// A stored version row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The value of `table/version`.
    pub(crate) raw: String,
    /// The revision that last changed it.
    pub(crate) revision: i64,
    /// All of it, in the contract's encoding.
    text: String,
    /// The last commit, which is in `table/version` beside its record.
    commit: Option<String>,
}

impl Stored {
    fn new(raw: String, revision: i64, parts: Vec<(String, String)>) -> Self {
        let Some(mut row) = VersionRowParts::from_object(&raw) else {
            return Self {
                text: raw.clone(),
                raw,
                revision,
                commit: None,
            };
        };
        let commit = row.remove("commit");
        for (name, value) in parts {
            match name.as_str() {
                "settings" => row.json(name, &value),
                "core" => row.text(name, value),
                name if name.starts_with("recent/") => row.record(&value),
                _ => {}
            }
        }
        Self {
            text: row.into_text(),
            raw,
            revision,
            commit: commit.and_then(|commit| commit.as_str().map(str::to_owned)),
        }
    }

    /// The version row in whatever state its cluster is.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`.
    pub(crate) fn any(&self) -> Result<VersionRow, TableError> {
        let row = stored_version_row(&self.text, Operation::Connect, STORE)?;
        check_last_commit(STORE, row, self.commit.as_deref())
    }
}

/// What a request found, by kind.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) version: Option<Stored>,
    /// Keys and texts.
    pub(crate) rows: Vec<(String, String)>,
    /// Names, texts, and the revisions that last wrote them.
    heartbeats: Vec<(String, String, i64)>,
    cell: Option<(String, i64)>,
    /// The revision of the answer: what a transaction writes, it writes at this one.
    pub(crate) revision: i64,
}

impl Found {
    /// Sorts what was found. Keys of others are left out.
    pub(crate) fn new(keys: &Keys, ranges: impl IntoIterator<Item = Vec<Pair>>) -> Self {
        let (mut all, mut version, mut parts) = (Self::default(), None, Vec::new());
        for pair in ranges.into_iter().flatten() {
            let (key, value) = (pair.key.text(), pair.value.text());
            if let Some(name) = keys.name(&key, "rows") {
                all.rows.push((name.to_owned(), value));
            } else if let Some(name) = keys.name(&key, "heartbeats") {
                match name {
                    CELL => all.cell = Some((value, pair.mod_revision)),
                    name => all
                        .heartbeats
                        .push((name.to_owned(), value, pair.mod_revision)),
                }
            } else if let Some(name) = keys.name(&key, "table") {
                match name {
                    "version" => version = Some((value, pair.mod_revision)),
                    name => parts.push((name.to_owned(), value)),
                }
            }
        }
        all.version = version.map(|(raw, revision)| Stored::new(raw, revision, parts));
        all
    }

    /// The text of the row with this key.
    pub(crate) fn row(&self, key: &str) -> Option<&str> {
        let row = self.rows.iter().find(|(of, _)| of == key);
        row.map(|(_, body)| body.as_str())
    }

    /// The heartbeat of one silo.
    pub(crate) fn heartbeat(&self, key: &str) -> Option<Heartbeat> {
        let found = self.heartbeats.iter().find(|(of, ..)| of == key);
        found.map(|(_, text, _)| stored_heartbeat(text))
    }

    /// Heartbeats and the cluster's cell; heartbeats without a row are orphans (clause T8).
    pub(crate) fn heartbeats(&self, rows: &Rows) -> Heartbeats {
        let stored = self.heartbeats.iter();
        let stored = stored.map(|(key, text, _)| (key.as_str(), stored_heartbeat(text)));
        let cell = self.cell.as_ref().map(|(text, _)| text.clone());
        shown_heartbeats(stored, cell, rows)
    }

    /// The revision that last wrote each heartbeat, by its name.
    pub(crate) fn revisions(&self) -> impl Iterator<Item = (&str, i64)> {
        let cell = self.cell.iter().map(|(_, revision)| (CELL, *revision));
        self.heartbeats
            .iter()
            .map(|(name, _, revision)| (name.as_str(), *revision))
            .chain(cell)
    }

    /// The revision that last wrote this heartbeat; 0 if it was not found.
    pub(crate) fn revision_of(&self, name: &str) -> i64 {
        self.revisions()
            .find(|(of, _)| *of == name)
            .map_or(0, |(_, revision)| revision)
    }

    /// The version row of a table that may be used, and that `known` can be of. Clauses T12 and
    /// T16.
    ///
    /// # Errors
    /// As [`usable_version_row`].
    pub(crate) fn usable(&self, known: Option<&VersionToken>) -> Result<VersionRow, TableError> {
        let stored = self.version.as_ref();
        let text = stored.map(|stored| stored.text.as_str());
        let stray = self.rows.first().map(|(key, _)| key.as_str());
        let row = usable_version_row(text, stray, known, Operation::Connect, STORE)?;
        check_last_commit(
            STORE,
            row,
            stored.and_then(|stored| stored.commit.as_deref()),
        )
    }

    /// Everything as a snapshot. Rows with a known text are not decoded again.
    ///
    /// # Errors
    /// `Damaged` where there are fewer rows than the version row counts. (A missing permission is
    /// no reason: etcd then refuses the whole request.)
    pub(crate) fn snapshot(&self, row: VersionRow, known: &Rows) -> Result<Snapshot, TableError> {
        let (there, counted) = (self.rows.len() as u64, row.row_count);
        if there < counted {
            let message = format!(
                "{} of {counted} rows are gone: were they removed by hand? {RESTORE}",
                counted - there
            );
            return Err(error(TableErrorKind::Damaged, message));
        }
        Ok(Snapshot::new(
            counted_token(&row),
            row,
            merge_rows(&self.rows, known),
        ))
    }
}

#[cfg(test)]
mod tests;
