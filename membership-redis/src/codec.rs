//! Hashes and strings of Redis ⇄ version rows, rows and heartbeats.
//!
//! The version row is a hash, so that a script can compare and change its parts without knowing the rest. Fields that this build does not
//! know are never written, and so survive; they are read into the version row's unknown fields (clause T10).

use std::collections::HashSet;
use std::sync::Arc;

use membership_core::{
    CommitRequest, Heartbeat, Heartbeats, RECENT_COMMITS, Row, Rows, SharedSettings, TableError,
    TableErrorKind, VersionRow, WallTime,
    encoding::{VersionRowError, decode_version_row},
};
use redis::Value;
use serde_json::{Map, Value as Json};

use crate::error::error;

/// A pair of strings, as HGETALL has them.
pub(crate) type Pair = (String, String);

/// Written by a read with a barrier, so that there is something for replicas to confirm.
const BARRIER: &str = "barrier";

/// Where the record of a version stands: sixteen places, used in turn.
pub(crate) fn record_field(version: u64) -> String {
    format!("recent:{}", version % RECENT_COMMITS as u64)
}

/// The record that a commit leaves in the version row.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn record(request: &CommitRequest) -> Result<String, TableError> {
    let mut base = VersionRow::initial(request.expected.table_id(), SharedSettings::default());
    base.version = request.expected.version();
    let next = request.next_version_row(&base);
    json(&next.recent.last())
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

/// The fields of a new table's version row.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn initial(row: &VersionRow) -> Result<Vec<Pair>, TableError> {
    let field = |name: &str, value: String| (name.to_owned(), value);
    Ok(vec![
        field("table_id", row.table_id.to_string()),
        field("version", row.version.to_string()),
        field("commit", row.last_commit().to_string()),
        field("row_count", row.row_count.to_string()),
        field("layout", row.layout.to_string()),
        field("min_layout", row.min_layout.to_string()),
        field("settings", json(&row.settings)?),
    ])
}

/// The version row that a hash means; none when there is no such hash.
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `Damaged`.
pub(crate) fn version_row(fields: &[Pair]) -> Result<Option<Arc<VersionRow>>, TableError> {
    if fields.is_empty() {
        return Ok(None);
    }
    let text = |value: &str| Json::String(value.to_owned());
    let parsed = |value: &str| serde_json::from_str::<Json>(value).unwrap_or_else(|_| text(value));
    let (mut row, mut recent, mut commit) = (Map::new(), Vec::new(), None);
    for (name, value) in fields {
        match name.as_str() {
            BARRIER => {}
            "commit" => commit = Some(value.as_str()),
            "table_id" | "core" => drop(row.insert(name.clone(), text(value))),
            "deleting" => drop(row.insert(name.clone(), Json::Bool(value == "1"))),
            name if name.starts_with("recent:") => recent.push(parsed(value)),
            name => drop(row.insert(name.to_owned(), parsed(value))),
        }
    }
    recent.sort_by_key(|record| record.get("version").and_then(Json::as_u64));
    row.insert("recent".to_owned(), Json::Array(recent));
    let row = decode_version_row(&Json::Object(row).to_string()).map_err(|e| {
        let kind = match e {
            VersionRowError::Foreign(_) => TableErrorKind::ForeignTable,
            VersionRowError::NewerLayout { .. } => TableErrorKind::NewerLayout,
            _ => TableErrorKind::Damaged,
        };
        error(kind, e.to_string())
    })?;
    if commit != Some(row.last_commit().to_string().as_str()) {
        return Err(error(
            TableErrorKind::Damaged,
            "the version row is damaged: its last commit is not the one it names; run `membership doctor`",
        ));
    }
    Ok(Some(Arc::new(row)))
}

/// Rows, of which those with the text that is known already are not decoded again.
pub(crate) fn rows(stored: Vec<Pair>, known: &Rows) -> Rows {
    let mut all = known.clone();
    let count = stored.len();
    let keys: Option<HashSet<String>> =
        (!known.is_empty()).then(|| stored.iter().map(|(key, _)| key.clone()).collect());
    for (key, body) in stored {
        if all.by_key(&key).is_none_or(|row| row.body() != body) {
            all.insert(Row::decode(key, body));
        }
    }
    if let Some(keys) = keys
        && all.len() != count
    {
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

/// Heartbeats and the cluster's cell; orphans are not shown (clause T8).
pub(crate) fn heartbeats(
    stored: Vec<Pair>,
    cell: Option<String>,
    rows: Option<&Rows>,
) -> Heartbeats {
    let shown = stored
        .iter()
        .filter(|(key, _)| rows.is_none_or(|rows| rows.by_key(key).is_some()));
    let silos = shown
        .filter_map(|(key, text)| Some((key.parse().ok()?, heartbeat(text))))
        .collect();
    Heartbeats {
        silos,
        cluster: cell,
    }
}

/// Only the counter decides anything; what somebody made unreadable is shown as never, and as 1970.
pub(crate) fn heartbeat(text: &str) -> Heartbeat {
    text.parse().unwrap_or_else(|_| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        Heartbeat {
            counter: digits.parse().unwrap_or(0),
            at: WallTime::from_millis(0),
        }
    })
}

/// Text of the store. What is not UTF-8 is still there, and undecodable (clause T12).
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

/// What HGETALL gave within a script.
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
    use membership_core::{CommitId, InstanceId, MembershipEntry, SiloAddress, TableId};

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
    fn a_version_row_is_what_its_commits_made_it() {
        let mut expected = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let mut fields = initial(&expected).unwrap();
        assert_eq!(*version_row(&fields).unwrap().unwrap(), expected);
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
                &record_field(commit.makes()),
                record(&commit).unwrap(),
            );
            set(&mut fields, "version", commit.makes().to_string());
            set(&mut fields, "commit", commit.id.to_string());
            set(&mut fields, "row_count", n.to_string());
            expected = commit.next_version_row(&expected);
            assert_eq!(*version_row(&fields).unwrap().unwrap(), expected);
        }
    }

    #[test]
    fn unknown_fields_are_kept_and_damage_is_told() {
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let good = initial(&row).unwrap();
        let kind = |name: &str, value: &str| {
            let mut fields = good.clone();
            set(&mut fields, name, value);
            version_row(&fields).map_err(|e| e.kind())
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
            version_row(&[("Version".to_owned(), "7".to_owned())])
                .unwrap_err()
                .kind(),
            TableErrorKind::ForeignTable
        );
        assert!(version_row(&[]).unwrap().is_none());
    }

    #[test]
    fn rows_are_decoded_once() {
        let body = |port: u16, name: &str| {
            let mut e = entry(port);
            e.silo_name = name.to_owned();
            (e.address.row_key(), Row::encode(e).body().to_owned())
        };
        let first = rows(
            vec![
                body(1, "a"),
                body(2, "b"),
                ("junk".to_owned(), "{".to_owned()),
            ],
            &Rows::new(),
        );
        assert_eq!((first.len(), first.undecodable().count()), (3, 1));
        let second = rows(vec![body(1, "a"), body(3, "c")], &first);
        assert_eq!(second, rows(vec![body(1, "a"), body(3, "c")], &Rows::new()));
        let key = entry(1).address.row_key();
        assert!(
            first
                .by_key(&key)
                .unwrap()
                .is_same(second.by_key(&key).unwrap())
        );
    }

    #[test]
    fn beats_are_readable_or_never() {
        assert_eq!(
            heartbeat("17 nonsense"),
            Heartbeat {
                counter: 17,
                at: WallTime::from_millis(0)
            }
        );
        assert_eq!(heartbeat("nonsense").counter, 0);
        let beat = Heartbeat {
            counter: 5,
            at: WallTime::from_millis(1_763_000_000_123),
        };
        assert_eq!(heartbeat(&beat.to_string()), beat);
    }
}
