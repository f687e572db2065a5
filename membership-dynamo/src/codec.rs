//! Items of DynamoDB ⇄ version rows, rows and heartbeats.
//!
//! The version row has an attribute for each of its parts, so that a commit changes some of them
//! without knowing the others. Attributes that this build does not know are never written, and so
//! survive; they are read into the version row's unknown fields (clause T10).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use membership_core::{
    CommitRequest, Operation, RowChange, TableError, VersionRow, VersionToken, stored_version_row,
    usable_version_row,
};
use membership_provider::{StoredHeartbeats, VersionRowParts, check_last_commit, json};
use serde_json::Value as Json;

use crate::STORE;
use crate::client::Item;
use crate::fence::Version;
use crate::keys;

/// The field of a record that names the removed rows, in addition to what the contract records.
/// Without it a reader could not tell a removed row from one that it does not see yet.
const REMOVED: &str = "removed";

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// The record that a commit leaves in the version row.
pub(crate) fn record(request: &CommitRequest) -> String {
    let mut record = serde_json::to_value(request.record()).unwrap_or_default();
    if let Json::Object(fields) = &mut record {
        let changes = request.changes.iter();
        let removed = changes.filter(|change| matches!(change, RowChange::Remove(_)));
        fields.insert(REMOVED.to_owned(), removed.map(RowChange::key).collect());
    }
    json(&record)
}

/// The attributes of a new table's version row.
pub(crate) fn initial(row: &VersionRow) -> Item {
    let attribute = |name: &str, value: AttributeValue| (name.to_owned(), value);
    HashMap::from([
        attribute("table_id", text(row.table_id.to_string())),
        attribute("version", number(row.version)),
        attribute("commit", text(row.last_commit().to_string())),
        attribute("row_count", number(row.row_count)),
        attribute("layout", number(row.layout)),
        attribute("min_layout", number(row.min_layout)),
        attribute("settings", text(json(&row.settings))),
        attribute("core", text(row.core.stored())),
    ])
}

/// A version row as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// In the contract's encoding.
    text: String,
    /// The last commit, which is stored beside its record so that conditions can compare it.
    commit: Option<String>,
    /// Whether the cluster is being deleted; known even if the row is damaged.
    pub(crate) deleting: bool,
    /// The rows that the last commits removed, by version; none where a record does not say.
    removed: BTreeMap<u64, BTreeSet<String>>,
}

impl Stored {
    /// From an item, readable or not.
    pub(crate) fn new(item: &Item) -> Self {
        let mut parts = VersionRowParts::default();
        let (mut commit, mut removed) = (None, BTreeMap::new());
        for (name, value) in item {
            match (name.as_str(), value) {
                (keys::CLUSTER | keys::ITEM, _) => {}
                ("commit", AttributeValue::S(id)) => commit = Some(id.clone()),
                // A row that was inserted by hand is not counted, and may be removed by a commit.
                ("row_count", AttributeValue::N(count)) if count.starts_with('-') => {
                    parts.value("row_count", 0);
                }
                ("settings", AttributeValue::S(settings)) => parts.json("settings", settings),
                (name, AttributeValue::S(stored)) if name.starts_with("recent_") => {
                    parts.record(stored);
                    removed.extend(removed_rows(stored));
                }
                (name, value) => parts.value(name, plain(value)),
            }
        }
        Self {
            text: parts.into_text(),
            commit,
            deleting: item.get("deleting") == Some(&AttributeValue::Bool(true)),
            removed,
        }
    }
}

/// The version of a record and the rows that its commit removed, if the record says so.
fn removed_rows(stored: &str) -> Option<(u64, BTreeSet<String>)> {
    let record: Json = serde_json::from_str(stored).ok()?;
    let removed = record.get(REMOVED)?.as_array()?.iter();
    let removed = removed.filter_map(Json::as_str).map(str::to_owned);
    Some((record.get("version")?.as_u64()?, removed.collect()))
}

/// An attribute as JSON; sets and bytes, which this crate never writes, as null.
fn plain(value: &AttributeValue) -> Json {
    match value {
        AttributeValue::S(text) => Json::String(text.clone()),
        AttributeValue::N(number) => {
            serde_json::from_str(number).unwrap_or_else(|_| Json::String(number.clone()))
        }
        AttributeValue::Bool(flag) => Json::Bool(*flag),
        AttributeValue::L(list) => list.iter().map(plain).collect(),
        AttributeValue::M(map) => Json::Object(
            map.iter()
                .map(|(name, value)| (name.clone(), plain(value)))
                .collect(),
        ),
        _ => Json::Null,
    }
}

/// The version row of a usable table, which can be the one that `known` is from. `stray` is the key
/// of any row. Clauses T12 and T16.
///
/// # Errors
/// As [`usable_version_row`].
pub(crate) fn usable(
    stored: Option<&Stored>,
    stray: Option<&str>,
    known: Option<&VersionToken>,
    during: Operation,
) -> Result<Version, TableError> {
    let row = usable_version_row(
        stored.map(|stored| stored.text.as_str()),
        stray,
        known,
        during,
        STORE,
    )?;
    version(row, stored).map_err(|e| e.during(during))
}

/// A version row, whatever the state of its cluster.
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `Damaged`.
pub(crate) fn any_version(stored: &Stored) -> Result<Version, TableError> {
    let row = stored_version_row(&stored.text, Operation::Connect, STORE)?;
    version(row, Some(stored))
}

fn version(row: VersionRow, stored: Option<&Stored>) -> Result<Version, TableError> {
    let commit = stored.and_then(|stored| stored.commit.as_deref());
    let row = check_last_commit(STORE, row, commit)?;
    let removed = stored.map(|stored| stored.removed.clone());
    Ok(Version {
        row: Arc::new(row),
        removed: removed.unwrap_or_default(),
    })
}

/// The items of an answer, sorted by kind.
#[derive(Debug, Default)]
pub(crate) struct Items {
    pub(crate) version: Option<Stored>,
    /// The version row as it was read later, with further pages.
    pub(crate) later: Vec<Option<Stored>>,
    /// Key and text.
    pub(crate) rows: Vec<(String, String)>,
    pub(crate) heartbeats: StoredHeartbeats,
}

impl Items {
    /// The version row alone.
    pub(crate) fn of(version: Option<Stored>) -> Self {
        Self {
            version,
            ..Self::default()
        }
    }

    pub(crate) fn extend(&mut self, items: impl IntoIterator<Item = Item>) {
        for item in items {
            self.take(item);
        }
    }

    /// Sorts an item in; ignores foreign items.
    pub(crate) fn take(&mut self, mut item: Item) {
        let Some(AttributeValue::S(name)) = item.remove(keys::ITEM) else {
            return;
        };
        let string = |value: Option<AttributeValue>| match value {
            Some(AttributeValue::S(text)) => Some(text),
            _ => None,
        };
        if name == keys::VERSION_ROW {
            self.version = Some(Stored::new(&item));
        } else if name == keys::CELL {
            self.heartbeats.cell = string(item.remove(keys::TEXT));
        } else if let Some(key) = name.strip_prefix(keys::ROW) {
            // A row without a text exists, and cannot be decoded (clause T12).
            self.rows.push((
                key.to_owned(),
                string(item.remove(keys::BODY)).unwrap_or_default(),
            ));
        } else if let (Some(key), Some(text)) = (
            name.strip_prefix(keys::HEARTBEAT),
            string(item.remove(keys::HEARTBEAT_TEXT)),
        ) {
            self.heartbeats.insert(key, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{
        CommitId, Heartbeat, InstanceId, MembershipEntry, RECENT_COMMITS, Row, Rows,
        SharedSettings, SiloAddress, TableErrorKind, TableId, WallTime,
    };

    fn entry(port: u16) -> MembershipEntry {
        MembershipEntry::new(
            SiloAddress::new([127, 0, 0, 1].into(), port, 1),
            InstanceId::new(1),
            WallTime::default(),
        )
    }

    fn read(item: &Item) -> Result<Version, TableErrorKind> {
        usable(Some(&Stored::new(item)), None, None, Operation::Read).map_err(|e| e.kind())
    }

    #[test]
    fn a_version_row_is_what_its_commits_made_it() {
        let mut expected = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let mut item = initial(&expected);
        assert_eq!(*read(&item).unwrap().row, expected);
        for n in 1..40_u16 {
            let (inserts, removes) = if n % 3 == 0 {
                (None, Some(entry(n - 1).address.row_key()))
            } else {
                (Some(entry(n)), None)
            };
            let commit = CommitRequest::new(
                expected.token(&[]),
                CommitId::new(n.into()),
                None,
                inserts,
                [],
                removes.clone(),
            );
            item.insert(
                keys::record_attribute(commit.next_version()),
                text(record(&commit)),
            );
            item.insert("version".to_owned(), number(commit.next_version()));
            item.insert("commit".to_owned(), text(commit.id.to_string()));
            expected = commit.next_version_row(&expected);
            item.insert("row_count".to_owned(), number(expected.row_count));
            let version = read(&item).unwrap();
            assert_eq!(*version.row, expected);
            assert_eq!(
                version.removed[&u64::from(n)],
                removes.into_iter().collect::<BTreeSet<_>>()
            );
            assert!(version.removed.len() <= RECENT_COMMITS);
        }
    }

    #[test]
    fn unknown_attributes_are_kept_and_damage_is_reported() {
        let good = initial(&VersionRow::initial(
            TableId::new(7),
            SharedSettings::default(),
        ));
        let with = |name: &str, value: AttributeValue| {
            let mut item = good.clone();
            item.insert(name.to_owned(), value);
            read(&item)
        };
        assert_eq!(
            with(
                "moon",
                AttributeValue::M(HashMap::from([("deep".to_owned(), number(1))]))
            )
            .unwrap()
            .row
            .extra
            .0["moon"]["deep"],
            1
        );
        assert_eq!(with("row_count", number(-2)).unwrap().row.row_count, 0);
        assert_eq!(
            with("deleting", AttributeValue::Bool(true)).unwrap_err(),
            TableErrorKind::BeingDeleted
        );
        for (name, value) in [
            ("version", number(-1)),
            ("version", number(4)),
            ("commit", text("x")),
            ("settings", text("{")),
            ("recent_3", text("{")),
        ] {
            assert_eq!(
                with(name, value).unwrap_err(),
                TableErrorKind::Damaged,
                "{name}"
            );
        }
        assert_eq!(
            with("min_layout", number(900)).unwrap_err(),
            TableErrorKind::NewerLayout
        );
        assert_eq!(
            read(&HashMap::from([("Version".to_owned(), number(7))])).unwrap_err(),
            TableErrorKind::ForeignTable
        );
    }

    #[test]
    fn items_are_sorted_by_their_names() {
        let names = [
            keys::CELL,
            "heartbeat/10.0.0.1:1@1",
            keys::VERSION_ROW,
            "row/10.0.0.1:1@1",
        ];
        assert!(
            names.is_sorted(),
            "one request asks for heartbeats and version row, another for version row and rows"
        );
        let mut all = Items::default();
        for (name, attribute, value) in [
            ("row/10.0.0.1:1@1", keys::BODY, "{}"),
            ("row/no silo's", "other", "x"),
            ("heartbeat/10.0.0.1:1@1", keys::HEARTBEAT_TEXT, "7 nonsense"),
            ("heartbeat/10.0.0.2:1@1", keys::HEARTBEAT_TEXT, "8 nonsense"),
            ("heartbeat/10.0.0.3:1@1", keys::SINCE, "nothing yet"),
            (keys::CELL, keys::TEXT, "cell"),
            ("strange", keys::BODY, "x"),
        ] {
            all.take(HashMap::from([
                (keys::ITEM.to_owned(), text(name)),
                (attribute.to_owned(), text(value)),
            ]));
        }
        assert_eq!(
            all.rows,
            [
                ("10.0.0.1:1@1".to_owned(), "{}".to_owned()),
                ("no silo's".to_owned(), String::new())
            ]
        );
        let rows: Rows = [Row::decode("10.0.0.1:1@1", "{}")].into_iter().collect();
        assert_eq!(all.heartbeats.shown(None).silos.len(), 2);
        assert_eq!(
            (
                all.heartbeats.shown(Some(&rows)).silos.len(),
                all.heartbeats.shown(Some(&rows)).cluster.as_deref()
            ),
            (1, Some("cell"))
        );
        assert_eq!(
            all.heartbeats.get("10.0.0.1:1@1"),
            Some(Heartbeat {
                counter: 7,
                at: WallTime::from_millis(0)
            })
        );
    }
}
