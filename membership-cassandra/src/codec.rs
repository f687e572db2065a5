//! Rows of Cassandra ⇄ version rows, rows and heartbeats.
//!
//! The version row has a column for each of its parts, so that a commit changes some of them
//! without knowing the others. Columns that this build does not know are never written, and so
//! survive (clause T10).

use std::collections::HashMap;
use std::sync::Arc;

use membership_core::{
    Operation, Rows, Snapshot, TableError, TableErrorKind, VersionRow, VersionToken,
    stored_version_row, usable_version_row,
};
use membership_provider::{
    StoredHeartbeats, VersionRowParts, check_last_commit, counted_token, merge_rows,
};
use scylla::errors::RowsError;
use scylla::response::query_result::QueryResult;
use scylla::value::{CqlValue, MaybeUnset, Row as Columns};

use crate::STORE;
use crate::error::error;
use crate::keys::{CELL, FENCE, VERSION};

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

/// A version row as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    /// In the contract's encoding.
    text: String,
    /// The last commit, which is stored beside its record so that conditions can compare it.
    commit: Option<String>,
    /// Who decides transactions on this table.
    pub(crate) serial: Option<String>,
    /// Whether the cluster is being deleted; known even if the row is damaged.
    pub(crate) deleting: bool,
    /// The columns of [`FENCE`], which distinguish this row from another one, readable or not.
    pub(crate) fence: Vec<Option<CqlValue>>,
}

/// One row of an answer, by the names of its columns.
pub(crate) type Named = HashMap<String, CqlValue>;

impl Stored {
    /// From the columns, readable or not.
    pub(crate) fn new(columns: &Named) -> Self {
        let mut parts = VersionRowParts::default();
        let (mut commit, mut serial, mut deleting) = (None, None, false);
        for (name, value) in columns {
            match (name.as_str(), value) {
                ("commit_id", CqlValue::Text(id)) => commit = Some(id.clone()),
                ("serial", CqlValue::Text(by)) => serial = Some(by.clone()),
                // A row that was inserted by hand is not counted, and may be removed by a commit.
                ("row_count", CqlValue::BigInt(count)) => parts.value(name, (*count).max(0)),
                ("version", CqlValue::BigInt(n)) => parts.value(name, *n),
                ("layout" | "min_layout", CqlValue::Int(n)) => parts.value(name, *n),
                ("deleting", CqlValue::Boolean(flag)) => {
                    deleting = *flag;
                    parts.value(name, *flag);
                }
                ("table_id" | "core", CqlValue::Text(it)) => parts.text(name, it),
                ("settings", CqlValue::Text(it)) => parts.json(name, it),
                ("extra", CqlValue::Text(it)) => parts.unknown_fields(it),
                ("recent", CqlValue::Map(slots)) => {
                    let records = slots.iter().filter_map(|(_, record)| record.as_text());
                    records.for_each(|record| parts.record(record));
                }
                _ => {}
            }
        }
        let fence = FENCE.iter().map(|name| columns.get(*name).cloned());
        Self {
            text: parts.into_text(),
            commit,
            serial,
            deleting,
            fence: fence.collect(),
        }
    }
}

/// The version row of a usable table, which can be the one that `known` is from. `stray` is the key
/// of any row. Clauses T12 and T16.
///
/// # Errors
/// As [`usable_version_row`]; `Configuration` if the table has another serial consistency.
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

/// A version row, whatever the state of its cluster.
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `Damaged`, `Configuration`.
pub(crate) fn any_version(
    stored: &Stored,
    decided_by: &str,
) -> Result<Arc<VersionRow>, TableError> {
    let row = stored_version_row(&stored.text, Operation::Connect, STORE)
        .map_err(|e| ours_without_layout(e, Some(stored)))?;
    checked(row, Some(stored), decided_by)
}

/// A row with the other parts of ours is not foreign: without a layout it is damaged, so that it
/// can be deleted.
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
/// `Configuration` if a version row, readable or not, has another serial consistency.
pub(crate) fn check_serial(serial: Option<&str>, decided_by: &str) -> Result<(), TableError> {
    match serial {
        Some(serial) if serial != decided_by => {
            let message = format!(
                "this table uses {serial}, and this configuration says {decided_by}: with both at once two silos could win; set `serial` and `datacenter` to those of the table"
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
    check_serial(serial, decided_by)?;
    if serial.is_none() {
        return Err(damaged("it has no serial consistency"));
    }
    let commit = stored.and_then(|stored| stored.commit.as_deref());
    check_last_commit(STORE, row, commit).map(Arc::new)
}

/// The rows of an answer, by the names of their columns, without null values.
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

/// The answer of a transaction: whether it was applied; if not, the version row, if the answer
/// contains it whole.
pub(crate) fn verdict(rows: Vec<Named>) -> (bool, Option<Stored>) {
    let applied =
        rows.first().and_then(|row| row.get("[applied]")) == Some(&CqlValue::Boolean(true));
    let version = |row: &&Named| {
        row.get("silo")
            .and_then(CqlValue::as_text)
            .is_some_and(|key| key == VERSION)
    };
    // Some servers answer only with the columns of the conditions.
    let stored = rows
        .iter()
        .find(version)
        .filter(|row| row.contains_key("settings"))
        .map(Stored::new);
    (applied, stored)
}

/// The rows of a cluster, sorted by kind.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    pub(crate) version: Option<Stored>,
    /// Key and text.
    pub(crate) rows: Vec<(String, String)>,
}

impl Partition {
    fn new(rows: Vec<Named>) -> Self {
        let mut partition = Self::default();
        for mut row in rows {
            let Some(key) = take(&mut row, "silo") else {
                continue;
            };
            if key == VERSION {
                partition.version = Some(Stored::new(&row));
            } else {
                // A row without a text exists, and cannot be decoded (clause T12).
                partition
                    .rows
                    .push((key, take(&mut row, "body").unwrap_or_default()));
            }
        }
        partition
    }

    pub(crate) fn of(answer: QueryResult) -> Result<Self, TableError> {
        named(answer).map(Self::new)
    }

    /// # Errors
    /// As [`usable`].
    pub(crate) fn usable(
        &self,
        known: Option<&VersionToken>,
        during: Operation,
        decided_by: &str,
    ) -> Result<Arc<VersionRow>, TableError> {
        let stray = self.rows.first().map(|(key, _)| key.as_str());
        usable(self.version.as_ref(), stray, known, during, decided_by)
    }

    /// The snapshot of the whole partition.
    ///
    /// # Errors
    /// As [`usable`]; `Damaged` where rows are gone.
    pub(crate) fn snapshot(
        self,
        known: Option<&VersionToken>,
        before: &Rows,
        decided_by: &str,
    ) -> Result<Snapshot, TableError> {
        let row = self.usable(known, Operation::Read, decided_by)?;
        let there = self.rows.len() as u64;
        if there < row.row_count {
            let message = format!(
                "{} of {} rows are gone: were they removed by hand? restore a backup, or `membership delete` the cluster and restart all silos",
                row.row_count - there,
                row.row_count
            );
            return Err(error(TableErrorKind::Damaged, message));
        }
        Ok(Snapshot::new(
            counted_token(&row),
            row,
            merge_rows(&self.rows, before),
        ))
    }
}

/// The heartbeats and the cluster's cell of an answer.
pub(crate) fn heartbeats(answer: QueryResult) -> Result<StoredHeartbeats, TableError> {
    let mut all = StoredHeartbeats::default();
    for mut row in named(answer)? {
        match (take(&mut row, "silo"), take(&mut row, "heartbeat")) {
            (Some(key), Some(text)) if key == CELL => all.cell = Some(text),
            (Some(key), Some(text)) => all.insert(key, &text),
            _ => {}
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{
        CommitId, CommitRequest, InstanceId, MembershipEntry, SharedSettings, SiloAddress, TableId,
        WallTime,
    };
    use membership_provider::{json, recent_slot, row_count_of};

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
            ("silo".to_owned(), text(VERSION)),
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
            ("settings".to_owned(), text(&json(&row.settings))),
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
                counted_token(&expected),
                CommitId::new(n.into()),
                None,
                inserts,
                [],
                removes,
            );
            recent.insert(
                i32::try_from(recent_slot(commit.next_version())).unwrap(),
                json(&commit.record()),
            );
            let slots = recent
                .iter()
                .map(|(slot, record)| (CqlValue::Int(*slot), CqlValue::Text(record.clone())));
            columns.insert("recent".to_owned(), CqlValue::Map(slots.collect()));
            columns.insert("version".to_owned(), CqlValue::BigInt(n.into()));
            columns.insert(
                "commit_id".to_owned(),
                CqlValue::Text(commit.id.to_string()),
            );
            let before = row_count_of(&commit.expected).unwrap();
            let count = before.saturating_add_signed(commit.added_rows());
            columns.insert(
                "row_count".to_owned(),
                CqlValue::BigInt(count.try_into().unwrap()),
            );
            expected = commit.next_version_row(&expected);
            assert_eq!(*read(&columns, "SERIAL").unwrap(), expected);
        }
    }

    #[test]
    fn damage_and_another_serial_consistency_are_refused() {
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
