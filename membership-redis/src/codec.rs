//! Hashes and strings of Redis ⇄ version rows, rows and heartbeats.
//!
//! The version row is a hash, so that a script can compare and change its parts without knowing the
//! rest. A commit never writes fields that this build does not know, so they survive; they are read
//! into the version row's unknown fields (clause T10).

use std::sync::Arc;

use membership_core::{
    Heartbeats, Operation, Rows, TableError, TableErrorKind, VersionRow, VersionToken,
    stored_version_row, usable_version_row,
};
use membership_provider::{
    VersionRowParts, check_last_commit, json, recent_slot, shown_heartbeats, stored_heartbeat,
};
use redis::Value;

use crate::STORE;
use crate::error::error;

/// A pair of strings, as HGETALL has them.
pub(crate) type Pair = (String, String);

/// The field that a read with a barrier writes, so that replicas have something to confirm.
const BARRIER: &str = "barrier";

/// The field with the record of a version.
pub(crate) fn record_field(version: u64) -> String {
    format!("recent:{}", recent_slot(version))
}

/// The fields of a new table's version row.
pub(crate) fn initial(row: &VersionRow) -> Vec<Pair> {
    let field = |name: &str, value: String| (name.to_owned(), value);
    vec![
        field("table_id", row.table_id.to_string()),
        field("version", row.version.to_string()),
        field("commit", row.last_commit().to_string()),
        field("row_count", row.row_count.to_string()),
        field("layout", row.layout.to_string()),
        field("min_layout", row.min_layout.to_string()),
        field("settings", json(&row.settings)),
        field("core", row.core.stored().to_owned()),
    ]
}

/// The text of a version row and the commit that is stored beside its version; `None` without a
/// hash.
fn version_text(fields: &[Pair]) -> Option<(String, Option<&str>)> {
    if fields.is_empty() {
        return None;
    }
    let (mut parts, mut commit) = (VersionRowParts::default(), None);
    for (name, value) in fields {
        match name.as_str() {
            BARRIER => {}
            "commit" => commit = Some(value.as_str()),
            "table_id" | "core" => parts.text(name, value),
            "deleting" => parts.value(name, value == "1"),
            name if name.starts_with("recent:") => parts.record(value),
            name => parts.json(name, value),
        }
    }
    Some((parts.into_text(), commit))
}

/// The version row that a hash means, in whatever state its cluster is; `None` without a hash.
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `Damaged`.
pub(crate) fn any_version_row(fields: &[Pair]) -> Result<Option<VersionRow>, TableError> {
    let Some((text, commit)) = version_text(fields) else {
        return Ok(None);
    };
    let row = stored_version_row(&text, Operation::Connect, STORE)?;
    check_last_commit(STORE, row, commit).map(Some)
}

/// The version row of a table that may be used, and that `known` can be of. `rows` is the number of
/// rows, and `stray` the key of one of them. Clauses T12 and T16.
///
/// # Errors
/// As [`usable_version_row`]; `Damaged` where rows are missing.
pub(crate) fn version_row(
    fields: &[Pair],
    known: Option<&VersionToken>,
    rows: usize,
    stray: Option<&str>,
) -> Result<Arc<VersionRow>, TableError> {
    let stored = version_text(fields);
    if stored.is_none() && known.is_none() && stray.is_none() && rows > 0 {
        return Err(rows_without_version());
    }
    let (text, commit) = stored.unzip();
    let row = usable_version_row(text.as_deref(), stray, known, Operation::Connect, STORE)?;
    let row = check_last_commit(STORE, row, commit.flatten())?;
    check_rows(&row, rows)?;
    Ok(Arc::new(row))
}

/// That there are rows and no version row.
pub(crate) fn rows_without_version() -> TableError {
    error(
        TableErrorKind::Damaged,
        "the cluster has rows but no version row",
    )
}

/// Refuses a table with fewer rows than its version row counts: a key was evicted, or removed by
/// hand.
///
/// # Errors
/// `Damaged`
pub(crate) fn check_rows(row: &VersionRow, rows: usize) -> Result<(), TableError> {
    let (there, counted) = (rows as u64, row.row_count);
    if there >= counted {
        return Ok(());
    }
    let message = format!(
        "{} of {counted} rows are gone: were they evicted (maxmemory-policy) or removed by hand? restore a backup, or `membership delete` \
         the cluster and restart all silos",
        counted - there
    );
    Err(error(TableErrorKind::Damaged, message))
}

/// What the cell holds as long as nobody has written it; before a text that begins with it, it only
/// tells the two apart.
const NO_CELL: char = '\0';

/// The cluster's cell as it is stored.
pub(crate) fn stored_cell(text: &str) -> String {
    match text.starts_with(NO_CELL) {
        true => format!("{NO_CELL}{text}"),
        false => text.to_owned(),
    }
}

fn cell(stored: String) -> Option<String> {
    match stored.strip_prefix(NO_CELL) {
        Some("") => None,
        Some(text) => Some(text.to_owned()),
        None => Some(stored),
    }
}

/// Heartbeats and the cluster's cell. Without `rows` the script has left out those of missing rows.
pub(crate) fn heartbeats(stored: &[Pair], cell: Option<String>, rows: Option<&Rows>) -> Heartbeats {
    let stored = stored
        .iter()
        .map(|(key, text)| (key.as_str(), stored_heartbeat(text)));
    let cell = cell.and_then(self::cell);
    shown_heartbeats(stored, cell, rows)
}

/// The known token as a script compares it: table id, version and commit, or three empty texts.
pub(crate) fn token(known: Option<&VersionToken>) -> [String; 3] {
    known.map_or_else(Default::default, |known| {
        [
            known.table_id().to_string(),
            known.version().to_string(),
            known.commit().to_string(),
        ]
    })
}

/// A flag as a script reads it.
pub(crate) const fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

/// The parts of an answer; missing ones are nil.
///
/// # Errors
/// The value, if it is no answer of a script.
pub(crate) fn parts<const N: usize>(value: Value) -> Result<(i64, [Value; N]), Value> {
    let Value::Array(list) = value else {
        return Err(value);
    };
    let mut list = list.into_iter();
    let Some(Value::Int(first)) = list.next() else {
        return Err(Value::Array(Vec::new()));
    };
    Ok((
        first,
        std::array::from_fn(|_| list.next().unwrap_or(Value::Nil)),
    ))
}

/// A number, as a script counts.
pub(crate) fn number(value: &Value) -> usize {
    match value {
        Value::Int(n) => usize::try_from(*n).unwrap_or(0),
        _ => 0,
    }
}

/// A text of the store. What is not UTF-8 is kept, and cannot be decoded (clause T12).
pub(crate) fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(
            String::from_utf8(bytes)
                .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
        ),
        Value::SimpleString(text) => Some(text),
        Value::Okay => Some("OK".to_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// The answer to HGETALL within a script.
pub(crate) fn pairs(value: Value) -> Vec<Pair> {
    let list = match value {
        Value::Array(list) => list,
        Value::Map(map) => {
            return map
                .into_iter()
                .filter_map(|(k, v)| Some((text(k)?, text(v)?)))
                .collect();
        }
        _ => return Vec::new(),
    };
    let mut out = Vec::with_capacity(list.len() / 2);
    let mut list = list.into_iter();
    while let (Some(key), Some(value)) = (list.next(), list.next()) {
        if let (Some(key), Some(value)) = (text(key), text(value)) {
            out.push((key, value));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{
        CommitId, CommitRequest, InstanceId, MembershipEntry, SharedSettings, SiloAddress, TableId,
        WallTime,
    };

    fn set(fields: &mut Vec<Pair>, name: &str, value: impl Into<String>) {
        fields.retain(|(n, _)| n != name);
        fields.push((name.to_owned(), value.into()));
    }

    fn entry(port: u16) -> MembershipEntry {
        MembershipEntry::new(
            SiloAddress::new([127, 0, 0, 1].into(), port, 1),
            InstanceId::new(1),
            WallTime::default(),
        )
    }

    #[test]
    fn a_version_row_is_read_as_its_commits_wrote_it() {
        let mut expected = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let mut fields = initial(&expected);
        assert_eq!(any_version_row(&fields).unwrap().unwrap(), expected);
        for n in 1..40 {
            let commit = CommitRequest::new(
                expected.token(&[]),
                CommitId::new(n),
                None,
                [entry(u16::try_from(n).unwrap())],
                [],
                [],
            );
            set(
                &mut fields,
                &record_field(commit.next_version()),
                json(&commit.record()),
            );
            set(&mut fields, "version", commit.next_version().to_string());
            set(&mut fields, "commit", commit.id.to_string());
            set(&mut fields, "row_count", n.to_string());
            expected = commit.next_version_row(&expected);
            assert_eq!(any_version_row(&fields).unwrap().unwrap(), expected);
        }
    }

    #[test]
    fn unknown_fields_are_kept_and_damage_is_found() {
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let good = initial(&row);
        let kind = |name: &str, value: &str| {
            let mut fields = good.clone();
            set(&mut fields, name, value);
            any_version_row(&fields).map_err(|e| e.kind())
        };
        let newer = kind("moon", "{\"deep\":[1]}").unwrap().unwrap();
        assert_eq!(newer.extra.0["moon"].to_string(), "{\"deep\":[1]}");
        assert!(kind("barrier", "1").unwrap().unwrap().extra.0.is_empty());
        assert!(kind("deleting", "1").unwrap().unwrap().deleting);
        assert_eq!(kind("version", "-1"), Err(TableErrorKind::Damaged));
        assert_eq!(kind("version", "4"), Err(TableErrorKind::Damaged));
        assert_eq!(kind("commit", "x"), Err(TableErrorKind::Damaged));
        assert_eq!(kind("settings", "{"), Err(TableErrorKind::Damaged));
        assert_eq!(kind("recent:3", "{"), Err(TableErrorKind::Damaged));
        assert_eq!(kind("min_layout", "900"), Err(TableErrorKind::NewerLayout));
        assert_eq!(
            any_version_row(&[("Version".to_owned(), "7".to_owned())])
                .unwrap_err()
                .kind(),
            TableErrorKind::ForeignTable
        );
        assert!(any_version_row(&[]).unwrap().is_none());
    }
}
