//! Rows of Cassandra ⇄ version rows, rows and heartbeats.
//!
//! The version row has a column for each of its parts, so that a commit changes what it must without knowing the rest. Columns that this
//! build does not know are never written, and so survive (clause T10).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use membership_core::{
    CommitRequest, Heartbeat, Heartbeats, MAX_SAFE_INTEGER, Operation, RECENT_COMMITS, Row,
    RowChange, Rows, SharedSettings, Snapshot, TableError, TableErrorKind, VersionRow,
    VersionToken, WallTime, usable_version_row,
};
use scylla::errors::RowsError;
use scylla::response::query_result::QueryResult;
use scylla::value::{CqlValue, MaybeUnset, Row as Columns};
use serde_json::{Map, Value as Json};

use crate::error::error;
use crate::{STORE, schema};

/// A value to be bound.
pub(crate) type Value = MaybeUnset<Option<CqlValue>>;

pub(crate) fn text(value: impl Into<String>) -> Value {
    MaybeUnset::Set(Some(CqlValue::Text(value.into())))
}

pub(crate) fn big(value: u64) -> Value {
    MaybeUnset::Set(Some(CqlValue::BigInt(
        i64::try_from(value).unwrap_or(i64::MAX),
    )))
}

pub(crate) fn int(value: u32) -> Value {
    MaybeUnset::Set(Some(CqlValue::Int(
        i32::try_from(value).unwrap_or(i32::MAX),
    )))
}

/// A list of keys, for `IN`.
pub(crate) fn keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Value {
    MaybeUnset::Set(Some(CqlValue::List(
        keys.into_iter()
            .map(|key| CqlValue::Text(key.to_owned()))
            .collect(),
    )))
}

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

/// Where the record of a version stands: sixteen places, used in turn.
pub(crate) fn place(version: u64) -> u32 {
    u32::try_from(version % RECENT_COMMITS as u64).unwrap_or(0)
}

/// The record that a commit leaves in the version row.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn record(request: &CommitRequest) -> Result<String, TableError> {
    let mut base = VersionRow::initial(request.expected.table_id(), SharedSettings::default());
    base.version = request.expected.version();
    json(&request.next_version_row(&base).recent.last())
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

/// What a token carries for this store: how many rows its version has, which a commit must know to count on.
pub(crate) fn count_in(token: &VersionToken) -> Option<u64> {
    token.store().try_into().ok().map(u64::from_be_bytes)
}

pub(crate) fn token_of(row: &VersionRow) -> VersionToken {
    row.token(&row.row_count.to_be_bytes())
}

pub(crate) fn count_after(count: u64, request: &CommitRequest) -> u64 {
    count
        .saturating_add_signed(adds(request))
        .min(MAX_SAFE_INTEGER)
}

/// A version row as it was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    /// As the contract knows it.
    text: String,
    /// The last commit, which is kept beside its record so that conditions can compare it.
    commit: Option<String>,
    /// Who decides transactions on this table.
    pub(crate) serial: Option<String>,
    /// The deletion of the cluster was begun. Known also of a row that cannot be read otherwise.
    pub(crate) deleting: bool,
    /// The columns of [`FENCE`](schema::FENCE) as they are, by which this row, readable or not, is told from another one.
    pub(crate) fence: Vec<Option<CqlValue>>,
}

/// One row of an answer by its columns' names.
pub(crate) type Named = HashMap<String, CqlValue>;

impl Stored {
    /// The version row that columns mean, readable or not.
    pub(crate) fn new(columns: &Named) -> Self {
        let (mut row, mut recent, mut commit, mut serial) = (Map::new(), Vec::new(), None, None);
        for (name, value) in columns {
            match (name.as_str(), value) {
                ("commit_id", CqlValue::Text(id)) => commit = Some(id.clone()),
                ("serial", CqlValue::Text(by)) => serial = Some(by.clone()),
                // A row can have been put there by hand, and not been counted.
                ("row_count", CqlValue::BigInt(count)) => {
                    drop(row.insert(name.clone(), (*count).max(0).into()))
                }
                ("version", CqlValue::BigInt(n)) => drop(row.insert(name.clone(), (*n).into())),
                ("layout" | "min_layout", CqlValue::Int(n)) => {
                    drop(row.insert(name.clone(), (*n).into()))
                }
                ("deleting", CqlValue::Boolean(flag)) => {
                    drop(row.insert(name.clone(), (*flag).into()))
                }
                ("table_id" | "core", CqlValue::Text(it)) => {
                    drop(row.insert(name.clone(), it.clone().into()))
                }
                ("settings", CqlValue::Text(it)) => drop(row.insert(name.clone(), parsed(it))),
                ("extra", CqlValue::Text(it)) => {
                    if let Json::Object(more) = parsed(it) {
                        for (name, value) in more {
                            row.entry(name).or_insert(value);
                        }
                    }
                }
                ("recent", CqlValue::Map(places)) => {
                    recent.extend(
                        places
                            .iter()
                            .filter_map(|(_, record)| Some(parsed(record.as_text()?))),
                    );
                }
                _ => {}
            }
        }
        recent.sort_by_key(|record| record["version"].as_u64());
        row.insert("recent".to_owned(), Json::Array(recent));
        let deleting = row.get("deleting") == Some(&Json::Bool(true));
        let fence = schema::FENCE
            .iter()
            .map(|name| columns.get(*name).cloned())
            .collect();
        Self {
            text: Json::Object(row).to_string(),
            commit,
            serial,
            deleting,
            fence,
        }
    }
}

fn parsed(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.to_owned()))
}

/// The version row of a table that may be used, and that `known` can be of. `stray` is the key of any row. Clauses T12 and T16.
///
/// # Errors
/// As [`usable_version_row`]; `Configuration` where others decide about it in another way.
pub(crate) fn usable(
    stored: Option<&Stored>,
    stray: Option<&str>,
    known: Option<&VersionToken>,
    during: Operation,
    decided_by: &str,
) -> Result<Arc<VersionRow>, TableError> {
    let row = usable_version_row(
        stored.map(|stored| stored.text.as_str()),
        stray,
        known,
        during,
        STORE,
    )
    .map_err(|e| ours_without_layout(e, stored))?;
    checked(row, stored, decided_by).map_err(|e| e.during(during))
}

/// A version row in whatever state its cluster is.
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `Damaged`, `Configuration`.
pub(crate) fn any_version(
    stored: &Stored,
    decided_by: &str,
) -> Result<Arc<VersionRow>, TableError> {
    use membership_core::encoding::{VersionRowError, decode_version_row};
    let row = decode_version_row(&stored.text).map_err(|e| {
        let kind = match e {
            VersionRowError::Foreign(_) => TableErrorKind::ForeignTable,
            VersionRowError::NewerLayout { .. } => TableErrorKind::NewerLayout,
            _ => TableErrorKind::Damaged,
        };
        ours_without_layout(error(kind, e.to_string()), Some(stored))
    })?;
    checked(row, Some(stored), decided_by)
}

/// Nobody else's row has the parts of ours: one that only lacks its layout is damaged, so that it can be deleted.
fn ours_without_layout(e: TableError, stored: Option<&Stored>) -> TableError {
    let ours = stored.is_some_and(|stored| stored.fence.iter().take(3).all(Option::is_some));
    if ours && e.kind() == TableErrorKind::ForeignTable {
        damaged("it has no layout mark").during(e.operation())
    } else {
        e
    }
}

fn damaged(what: &str) -> TableError {
    error(
        TableErrorKind::Damaged,
        format!("the version row is damaged: {what}; run `membership doctor`"),
    )
}

/// # Errors
/// `Configuration` where a version row, readable or not, says that others decide about it in another way.
pub(crate) fn decided(serial: Option<&str>, decided_by: &str) -> Result<(), TableError> {
    match serial {
        Some(serial) if serial != decided_by => {
            let message = format!(
                "this table is decided by {serial}, and this configuration says {decided_by}: both at once would let two silos win; set \
                 `serial` and `datacenter` to what the table has"
            );
            Err(error(TableErrorKind::Configuration, message))
        }
        _ => Ok(()),
    }
}

fn checked(
    row: VersionRow,
    stored: Option<&Stored>,
    decided_by: &str,
) -> Result<Arc<VersionRow>, TableError> {
    let serial = stored.and_then(|stored| stored.serial.as_deref());
    decided(serial, decided_by)?;
    if serial.is_none() {
        return Err(damaged("it does not say who decides"));
    }
    if stored.and_then(|stored| stored.commit.as_deref())
        != Some(row.last_commit().to_string().as_str())
    {
        return Err(damaged("its last commit is not the one it names"));
    }
    Ok(Arc::new(row))
}

/// The rows of an answer, by the names of their columns; without those that are null.
///
/// # Errors
/// When it is none.
pub(crate) fn named(answer: QueryResult) -> Result<Vec<Named>, TableError> {
    let nonsense = |e: &dyn std::fmt::Display| {
        error(
            TableErrorKind::Unavailable,
            format!("the answer cannot be read ({e})"),
        )
    };
    if !answer.is_rows() {
        return Ok(Vec::new());
    }
    let rows = answer.into_rows_result().map_err(|e| nonsense(&e))?;
    let names: Vec<String> = rows
        .column_specs()
        .iter()
        .map(|column| column.name().to_owned())
        .collect();
    let all = rows
        .rows::<Columns>()
        .map_err(|e: RowsError| nonsense(&e))?;
    all.map(|row| {
        let row = row.map_err(|e| nonsense(&e))?;
        Ok(names
            .iter()
            .cloned()
            .zip(row.columns)
            .filter_map(|(name, value)| Some((name, value?)))
            .collect())
    })
    .collect()
}

fn take(row: &mut Named, name: &str) -> Option<String> {
    match row.remove(name) {
        Some(CqlValue::Text(text)) => Some(text),
        _ => None,
    }
}

/// What a transaction says: whether it was applied; if not, the version row if the answer holds it whole.
pub(crate) fn verdict(rows: Vec<Named>) -> (bool, Option<Stored>) {
    let applied =
        rows.first().and_then(|row| row.get("[applied]")) == Some(&CqlValue::Boolean(true));
    let version = |row: &&Named| {
        row.get("silo")
            .and_then(CqlValue::as_text)
            .is_some_and(|key| key == schema::VERSION)
    };
    // A server may name the columns of the conditions alone.
    let stored = rows
        .iter()
        .find(version)
        .filter(|row| row.contains_key("settings"))
        .map(Stored::new);
    (applied, stored)
}

/// The rows of a cluster, sorted.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) version: Option<Stored>,
    /// Key and text.
    pub(crate) rows: Vec<(String, String)>,
}

impl Gathered {
    pub(crate) fn new(rows: Vec<Named>) -> Self {
        let mut gathered = Self::default();
        for mut row in rows {
            let Some(key) = take(&mut row, "silo") else {
                continue;
            };
            if key == schema::VERSION {
                gathered.version = Some(Stored::new(&row));
            } else {
                // A row without a text is still there, and cannot be decoded (clause T12).
                gathered
                    .rows
                    .push((key, take(&mut row, "body").unwrap_or_default()));
            }
        }
        gathered
    }

    pub(crate) fn stray(&self) -> Option<&str> {
        self.rows.first().map(|(key, _)| key.as_str())
    }

    /// The snapshot that all of it is.
    ///
    /// # Errors
    /// As [`usable`]; `Damaged` where rows are gone.
    pub(crate) fn snapshot(
        self,
        known: Option<&VersionToken>,
        before: &Rows,
        decided_by: &str,
    ) -> Result<Snapshot, TableError> {
        let row = usable(
            self.version.as_ref(),
            self.stray(),
            known,
            Operation::Read,
            decided_by,
        )?;
        let there = self.rows.len() as u64;
        if there < row.row_count {
            let message = format!(
                "{} of {} rows are gone, by hand perhaps, and no command knows what they were: restore a backup, or `membership delete` the \
                 cluster and restart all silos",
                row.row_count - there,
                row.row_count
            );
            return Err(error(TableErrorKind::Damaged, message));
        }
        Ok(Snapshot {
            token: token_of(&row),
            version_row: row,
            rows: rows(self.rows, before),
        })
    }
}

/// Heartbeats and the cluster's cell, by key.
#[derive(Debug, Default)]
pub(crate) struct Beats {
    beats: Vec<(String, String)>,
    cell: Option<String>,
}

impl Beats {
    pub(crate) fn new(rows: Vec<Named>) -> Self {
        let mut all = Self::default();
        for mut row in rows {
            match (take(&mut row, "silo"), take(&mut row, "beat")) {
                (Some(key), Some(text)) if key == schema::CELL => all.cell = Some(text),
                (Some(key), Some(beat)) => all.beats.push((key, beat)),
                _ => {}
            }
        }
        all
    }

    /// Without orphans (clause T8), if it is known what they are.
    pub(crate) fn shown(self, rows: Option<&Rows>) -> Heartbeats {
        let shown = self
            .beats
            .iter()
            .filter(|(key, _)| rows.is_none_or(|rows| rows.by_key(key).is_some()));
        let silos = shown
            .filter_map(|(key, text)| Some((key.parse().ok()?, heartbeat(text))))
            .collect();
        Heartbeats {
            silos,
            cluster: self.cell,
        }
    }

    /// Keys without a row.
    pub(crate) fn orphans(&self, rows: &Rows) -> Vec<String> {
        self.beats
            .iter()
            .map(|(key, _)| key)
            .filter(|key| rows.by_key(key).is_none())
            .cloned()
            .collect()
    }

    pub(crate) fn of(&self, key: &str) -> Option<Heartbeat> {
        self.beats
            .iter()
            .find(|(of, _)| of == key)
            .map(|(_, text)| heartbeat(text))
    }
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

/// A row, decoded unless its text is the one that is known already.
pub(crate) fn row(key: String, body: String, known: &Rows) -> Row {
    match known.by_key(&key) {
        Some(row) if row.body() == body => row.clone(),
        _ => Row::decode(key, body),
    }
}

/// All rows, of which those with the text that is known already are not decoded again.
fn rows(stored: Vec<(String, String)>, known: &Rows) -> Rows {
    let mut all = known.clone();
    let keys: HashSet<String> = stored.iter().map(|(key, _)| key.clone()).collect();
    for (key, body) in stored {
        if all.by_key(&key).is_none_or(|row| row.body() != body) {
            all.insert(Row::decode(key, body));
        }
    }
    if all.len() != keys.len() {
        let gone: Vec<String> = all
            .iter()
            .map(Row::key)
            .filter(|key| !keys.contains(*key))
            .map(str::to_owned)
            .collect();
        for key in gone {
            all.remove(&key);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{CommitId, InstanceId, MembershipEntry, SiloAddress, TableId};

    fn entry(port: u16) -> MembershipEntry {
        MembershipEntry::new(
            SiloAddress::new([127, 0, 0, 1].into(), port, 1),
            InstanceId::new(1),
            WallTime::default(),
        )
    }

    fn columns(row: &VersionRow) -> Named {
        let text = |text: &str| CqlValue::Text(text.to_owned());
        let mut all = Named::from([
            ("silo".to_owned(), text(schema::VERSION)),
            ("table_id".to_owned(), text(&row.table_id.to_string())),
            (
                "version".to_owned(),
                CqlValue::BigInt(row.version.try_into().unwrap()),
            ),
            ("commit_id".to_owned(), text(&row.last_commit().to_string())),
            (
                "row_count".to_owned(),
                CqlValue::BigInt(row.row_count.try_into().unwrap()),
            ),
            (
                "layout".to_owned(),
                CqlValue::Int(row.layout.try_into().unwrap()),
            ),
            (
                "min_layout".to_owned(),
                CqlValue::Int(row.min_layout.try_into().unwrap()),
            ),
            ("settings".to_owned(), text(&json(&row.settings).unwrap())),
            ("serial".to_owned(), text("SERIAL")),
        ]);
        all.insert("extra".to_owned(), text("{\"moon\":{\"deep\":1}}"));
        all
    }

    fn read(columns: &Named, decided_by: &str) -> Result<Arc<VersionRow>, TableErrorKind> {
        usable(
            Some(&Stored::new(columns)),
            None,
            None,
            Operation::Read,
            decided_by,
        )
        .map_err(|e| e.kind())
    }

    #[test]
    fn a_version_row_is_what_its_commits_made_it() {
        let mut expected = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let mut columns = columns(&expected);
        expected
            .extra
            .0
            .insert("moon".to_owned(), serde_json::json!({"deep": 1}));
        assert_eq!(*read(&columns, "SERIAL").unwrap(), expected);
        let mut recent = HashMap::new();
        for n in 1..40_u16 {
            let (inserts, removes) = if n % 3 == 0 {
                (None, Some(entry(n - 1).address.row_key()))
            } else {
                (Some(entry(n)), None)
            };
            let commit = CommitRequest::new(
                token_of(&expected),
                CommitId::new(n.into()),
                None,
                inserts,
                [],
                removes,
            );
            recent.insert(
                i32::try_from(place(commit.makes())).unwrap(),
                record(&commit).unwrap(),
            );
            let places = recent
                .iter()
                .map(|(place, record)| (CqlValue::Int(*place), CqlValue::Text(record.clone())));
            columns.insert("recent".to_owned(), CqlValue::Map(places.collect()));
            columns.insert("version".to_owned(), CqlValue::BigInt(n.into()));
            columns.insert(
                "commit_id".to_owned(),
                CqlValue::Text(commit.id.to_string()),
            );
            let count = count_after(count_in(&commit.expected).unwrap(), &commit);
            columns.insert(
                "row_count".to_owned(),
                CqlValue::BigInt(count.try_into().unwrap()),
            );
            expected = commit.next_version_row(&expected);
            assert_eq!(*read(&columns, "SERIAL").unwrap(), expected);
        }
    }

    #[test]
    fn damage_and_another_way_to_decide_are_told() {
        let good = columns(&VersionRow::initial(
            TableId::new(7),
            SharedSettings::default(),
        ));
        assert_eq!(
            read(&good, "LOCAL_SERIAL dc1").unwrap_err(),
            TableErrorKind::Configuration
        );
        let with = |name: &str, value: CqlValue| {
            let mut columns = good.clone();
            columns.insert(name.to_owned(), value);
            read(&columns, "SERIAL").unwrap_err()
        };
        assert_eq!(
            with("deleting", CqlValue::Boolean(true)),
            TableErrorKind::BeingDeleted
        );
        assert_eq!(
            with("min_layout", CqlValue::Int(900)),
            TableErrorKind::NewerLayout
        );
        for (name, value) in [
            ("version", CqlValue::BigInt(-1)),
            ("version", CqlValue::BigInt(4)),
            ("commit_id", CqlValue::Text("x".to_owned())),
            ("settings", CqlValue::Text("{".to_owned())),
            (
                "recent",
                CqlValue::Map(vec![(CqlValue::Int(3), CqlValue::Text("{".to_owned()))]),
            ),
        ] {
            assert_eq!(with(name, value), TableErrorKind::Damaged, "{name}");
        }
        for name in [
            "layout",
            "min_layout",
            "version",
            "table_id",
            "commit_id",
            "serial",
        ] {
            let mut less = good.clone();
            less.remove(name);
            assert_eq!(
                read(&less, "SERIAL").unwrap_err(),
                TableErrorKind::Damaged,
                "{name}"
            );
        }
        let foreign = Named::from([("serial".to_owned(), CqlValue::Text("SERIAL".to_owned()))]);
        assert_eq!(
            read(&foreign, "SERIAL").unwrap_err(),
            TableErrorKind::ForeignTable
        );
    }

    #[test]
    fn a_refusal_counts_only_with_the_whole_version_row() {
        let mut whole = columns(&VersionRow::initial(
            TableId::new(7),
            SharedSettings::default(),
        ));
        whole.insert("[applied]".to_owned(), CqlValue::Boolean(false));
        assert!(matches!(verdict(vec![whole.clone()]), (false, Some(_))));
        whole.remove("settings");
        assert!(matches!(verdict(vec![whole]), (false, None)));
        assert!(matches!(
            verdict(vec![Named::from([(
                "[applied]".to_owned(),
                CqlValue::Boolean(true)
            )])]),
            (true, None)
        ));
        assert!(matches!(verdict(Vec::new()), (false, None)));
    }
}
