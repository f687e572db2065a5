//! Keys and values of etcd ⇄ version rows, rows and heartbeats.
//!
//! The version row is several values: what a commit changes of it can be written by whoever holds a token, without having read the rest. The
//! first of them is a JSON object with fields in a fixed order, so that its text can be told from a token alone, and compared; fields that
//! this build does not know are kept in it (clause T10).

use std::collections::HashSet;
use std::sync::Arc;

use membership_core::{
    ChangedKeys, CommitRecord, CommitRequest, Heartbeat, Heartbeats, Operation, Row, RowChange,
    Rows, SharedSettings, Snapshot, TableError, TableErrorKind, VersionRow, VersionToken, WallTime,
    usable_version_row,
};
use serde_json::{Map, Value as Json};

use crate::STORE;
use crate::error::error;
use crate::keys::{CELL, Keys};
use crate::wire::Pair;

/// What helps where a part of a table is gone.
const RESTORE: &str = "restore a backup, or `membership delete` the cluster and restart all silos";

/// A part of a version row as text.
///
/// # Errors
/// Plain data with string keys; cannot fail.
pub(crate) fn json<T: serde::Serialize>(part: &T) -> Result<String, TableError> {
    serde_json::to_string(part).map_err(|e| {
        error(
            TableErrorKind::InvalidRequest,
            format!("this cannot be written as JSON ({e})"),
        )
    })
}

/// The value of `table/version`.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn version_text(row: &VersionRow) -> Result<String, TableError> {
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
        extra: &'a std::collections::BTreeMap<String, Json>,
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

/// The token of a version: it carries how many rows there are, so that whoever holds it can write the next version without reading.
pub(crate) fn token(row: &VersionRow) -> VersionToken {
    row.token(&row.row_count.to_be_bytes())
}

/// The token of the version that a commit makes out of one with so many rows.
pub(crate) fn next_token(request: &CommitRequest, rows_before: Option<u64>) -> VersionToken {
    match rows_before {
        Some(rows) => request.next_token(&rows.saturating_add_signed(adds(request)).to_be_bytes()),
        None => request.next_token(&[]),
    }
}

/// How many rows a token says there are.
pub(crate) fn rows_of(token: &VersionToken) -> Option<u64> {
    token.store().try_into().ok().map(u64::from_be_bytes)
}

/// How many rows there are more afterwards.
pub(crate) fn adds(request: &CommitRequest) -> i64 {
    let of = |change: &RowChange| match change {
        RowChange::Insert(_) => 1,
        RowChange::Update(_) => 0,
        RowChange::Remove(_) => -1,
    };
    request.changes.iter().map(of).sum()
}

/// The version row of a token as far as the token knows it, which is as far as `table/version` shows it, unless somebody newer wrote that.
pub(crate) fn guess(token: &VersionToken) -> Option<VersionRow> {
    let mut row = VersionRow::initial(token.table_id(), SharedSettings::default());
    row.row_count = rows_of(token)?;
    row.version = token.version();
    if row.version > 0 {
        let changed = ChangedKeys::Count(0);
        row.recent.push(CommitRecord {
            version: row.version,
            id: token.commit(),
            committer: None,
            changed,
        });
    }
    Some(row)
}

/// A version row as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The value of `table/version`.
    pub(crate) raw: String,
    /// The revision that last changed it.
    pub(crate) revision: i64,
    /// All of it, as the contract knows it.
    text: String,
    /// The last commit, which stands in `table/version` beside its record.
    commit: Option<String>,
}

/// What a request brought, sorted.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) version: Option<Stored>,
    /// Key and text.
    pub(crate) rows: Vec<(String, String)>,
    /// With the revision that wrote it last.
    beats: Vec<(String, String, i64)>,
    cell: Option<(String, i64)>,
    /// That of the answer: what a transaction has written, it has written at this one.
    pub(crate) revision: i64,
}

impl Gathered {
    /// Sorts in what was found. What is none of ours is left where it is.
    pub(crate) fn new(keys: &Keys, ranges: impl IntoIterator<Item = Vec<Pair>>) -> Self {
        let (mut all, mut version, mut parts) = (Self::default(), None, Vec::new());
        for pair in ranges.into_iter().flatten() {
            let (key, value) = (pair.key.text(), pair.value.text());
            if let Some(name) = keys.name(&key, "rows") {
                all.rows.push((name.to_owned(), value));
            } else if let Some(name) = keys.name(&key, "heartbeats") {
                match name {
                    CELL => all.cell = Some((value, pair.mod_revision)),
                    name => all.beats.push((name.to_owned(), value, pair.mod_revision)),
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

    /// Any row's key.
    pub(crate) fn stray(&self) -> Option<&str> {
        self.rows.first().map(|(key, _)| key.as_str())
    }

    /// The row with this key, as text.
    pub(crate) fn row(&self, key: &str) -> Option<&str> {
        self.rows
            .iter()
            .find(|(of, _)| of == key)
            .map(|(_, body)| body.as_str())
    }

    /// The heartbeat of one silo.
    pub(crate) fn heartbeat_of(&self, key: &str) -> Option<Heartbeat> {
        self.beats
            .iter()
            .find(|(of, ..)| of == key)
            .map(|(_, text, _)| heartbeat(text))
    }

    /// Heartbeats and the cluster's cell; orphans are not shown (clause T8).
    pub(crate) fn heartbeats(&self, rows: &Rows) -> Heartbeats {
        let shown = self
            .beats
            .iter()
            .filter(|(key, ..)| rows.by_key(key).is_some());
        let silos = shown
            .filter_map(|(key, text, _)| Some((key.parse().ok()?, heartbeat(text))))
            .collect();
        Heartbeats {
            silos,
            cluster: self.cell.as_ref().map(|(text, _)| text.clone()),
        }
    }

    /// Which revision wrote each heartbeat that was found last, by its name.
    pub(crate) fn beaten(&self) -> impl Iterator<Item = (&str, i64)> {
        let cell = self.cell.iter().map(|(_, revision)| (CELL, *revision));
        self.beats
            .iter()
            .map(|(name, _, revision)| (name.as_str(), *revision))
            .chain(cell)
    }

    /// Which revision wrote this one last; 0 where it was not found.
    pub(crate) fn beaten_at(&self, name: &str) -> i64 {
        self.beaten()
            .find(|(of, _)| *of == name)
            .map_or(0, |(_, revision)| revision)
    }

    /// That there are as many rows as the version row counts.
    ///
    /// # Errors
    /// `Damaged`. (What a user may not read is no reason: etcd refuses the whole request then.)
    pub(crate) fn complete(&self, row: &VersionRow) -> Result<(), TableError> {
        let (there, counted) = (self.rows.len() as u64, row.row_count);
        if there >= counted {
            return Ok(());
        }
        let message = format!(
            "{} of {counted} rows are gone: were they removed by hand? {RESTORE}",
            counted - there
        );
        Err(error(TableErrorKind::Damaged, message))
    }

    /// The version row of a table that may be used, and that `known` can be of. Clauses T12 and T16.
    ///
    /// # Errors
    /// As [`usable_version_row`].
    pub(crate) fn usable(
        &self,
        known: Option<&VersionToken>,
        during: Operation,
    ) -> Result<VersionRow, TableError> {
        let stored = self.version.as_ref();
        let row = usable_version_row(
            stored.map(|stored| stored.text.as_str()),
            self.stray(),
            known,
            during,
            STORE,
        )?;
        agrees(row, stored).map_err(|e| e.during(during))
    }

    /// All of it, with a version row that is in it. Rows with the text that is known already are not decoded again.
    pub(crate) fn snapshot(&self, row: VersionRow, known: &Rows) -> Snapshot {
        let rows = rows(&self.rows, known);
        Snapshot {
            token: token(&row),
            version_row: Arc::new(row),
            rows,
        }
    }
}

impl Stored {
    fn new(raw: String, revision: i64, parts: Vec<(String, String)>) -> Self {
        let Ok(Json::Object(mut row)) = serde_json::from_str::<Json>(&raw) else {
            return Self {
                text: raw.clone(),
                raw,
                revision,
                commit: None,
            };
        };
        let commit = row
            .remove("commit")
            .and_then(|commit| commit.as_str().map(str::to_owned));
        let parsed = |value: String| serde_json::from_str(&value).unwrap_or(Json::String(value));
        let mut recent = Vec::new();
        for (name, value) in parts {
            match name.as_str() {
                "settings" => drop(row.insert(name, parsed(value))),
                "core" => drop(row.insert(name, Json::String(value))),
                name if name.starts_with("recent/") => recent.push(parsed(value)),
                _ => {}
            }
        }
        recent.sort_by_key(|record| record.get("version").and_then(Json::as_u64));
        let mut whole = Map::new();
        whole.extend(row);
        whole.insert("recent".to_owned(), Json::Array(recent));
        Self {
            text: Json::Object(whole).to_string(),
            raw,
            revision,
            commit,
        }
    }

    /// The version row in whatever state its cluster is.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`.
    pub(crate) fn any(&self) -> Result<VersionRow, TableError> {
        use membership_core::encoding::{VersionRowError, decode_version_row};
        let row = decode_version_row(&self.text).map_err(|e| {
            let kind = match e {
                VersionRowError::Foreign(_) => TableErrorKind::ForeignTable,
                VersionRowError::NewerLayout { .. } => TableErrorKind::NewerLayout,
                _ => TableErrorKind::Damaged,
            };
            error(kind, e.to_string())
        })?;
        agrees(row, Some(self))
    }
}

fn agrees(row: VersionRow, stored: Option<&Stored>) -> Result<VersionRow, TableError> {
    if stored.and_then(|stored| stored.commit.as_deref())
        != Some(row.last_commit().to_string().as_str())
    {
        let message = "the version row is damaged: its last commit is not the one it names; run `membership doctor`";
        return Err(error(TableErrorKind::Damaged, message));
    }
    Ok(row)
}

/// Rows, of which those with the text that is known already are not decoded again.
fn rows(stored: &[(String, String)], known: &Rows) -> Rows {
    let mut all = known.clone();
    for (key, body) in stored {
        if all.by_key(key).is_none_or(|row| row.body() != body) {
            all.insert(Row::decode(key, body));
        }
    }
    if all.len() != stored.len() {
        let keys: HashSet<&str> = stored.iter().map(|(key, _)| key.as_str()).collect();
        let gone: Vec<String> = all
            .iter()
            .map(Row::key)
            .filter(|key| !keys.contains(key))
            .map(str::to_owned)
            .collect();
        for key in gone {
            all.remove(&key);
        }
    }
    all
}

/// Only the counter decides anything; what somebody made unreadable is shown as never, and as 1970.
fn heartbeat(text: &str) -> Heartbeat {
    text.parse().unwrap_or_else(|_| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        Heartbeat {
            counter: digits.parse().unwrap_or(0),
            at: WallTime::from_millis(0),
        }
    })
}

#[cfg(test)]
mod tests;
