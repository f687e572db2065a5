//! Items of DynamoDB ⇄ version rows, rows and heartbeats.
//!
//! The version row has an attribute for each of its parts, so that a commit changes what it must without knowing the rest. Attributes that
//! this build does not know are never written, and so survive; they are read into the version row's unknown fields (clause T10).
//!
//! The order of the items of a partition is that of their names' bytes: heartbeats, the version row, rows. So one request can ask for the
//! first two or for the last two, and the version row always comes before the rows.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use membership_core::{
    CommitRequest, Heartbeat, Heartbeats, Operation, RECENT_COMMITS, Row, RowChange, Rows,
    SharedSettings, TableError, TableErrorKind, VersionRow, VersionToken, WallTime,
    usable_version_row,
};
use serde_json::{Map, Value as Json};

use crate::STORE;
use crate::error::error;
use crate::fence::Version;
use crate::link::Item;

/// The partition key: which cluster.
pub(crate) const CLUSTER: &str = "cluster";
/// The sort key: which of its items.
pub(crate) const ITEM: &str = "item";

/// The version row's name; after all heartbeats and before all rows.
pub(crate) const VERSION_ROW: &str = "row.version";
/// What the names of rows begin with.
pub(crate) const ROW: &str = "row/";
/// What the names of the version row and of rows begin with.
pub(crate) const ROWS: &str = "row";
/// What the names of heartbeats begin with.
pub(crate) const HEARTBEAT: &str = "heartbeat/";
/// What the names of heartbeats and of the cluster's cell begin with.
pub(crate) const HEARTBEATS: &str = "heartbeat";
/// The cluster's own cell.
pub(crate) const CELL: &str = "heartbeat.cluster";

/// A row's text.
pub(crate) const BODY: &str = "body";
/// A heartbeat's text.
pub(crate) const BEAT: &str = "heartbeat";
/// The text of the cluster's cell.
pub(crate) const TEXT: &str = "text";
/// At which version a heartbeat's item was made.
pub(crate) const SINCE: &str = "since";

/// Where the record of a version stands: sixteen places, used in turn.
pub(crate) fn record_attribute(version: u64) -> String {
    format!("recent_{}", version % RECENT_COMMITS as u64)
}

/// What a record says besides what the contract knows: which of the changed rows are gone. Without it a reader could not tell a row that
/// was removed from one that it does not see yet.
const REMOVED: &str = "removed";

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
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

/// The record that a commit leaves in the version row.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn record(request: &CommitRequest) -> Result<String, TableError> {
    let mut base = VersionRow::initial(request.expected.table_id(), SharedSettings::default());
    base.version = request.expected.version();
    let next = request.next_version_row(&base);
    let wrong = |e| {
        error(
            TableErrorKind::InvalidRequest,
            format!("this cannot be written as JSON ({e})"),
        )
    };
    let mut record = serde_json::to_value(next.recent.last()).map_err(wrong)?;
    if let Json::Object(fields) = &mut record {
        let removed = request
            .changes
            .iter()
            .filter(|change| matches!(change, RowChange::Remove(_)));
        fields.insert(REMOVED.to_owned(), removed.map(RowChange::key).collect());
    }
    json(&record)
}

/// The attributes of a new table's version row.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn initial(row: &VersionRow) -> Result<Item, TableError> {
    let attribute = |name: &str, value: AttributeValue| (name.to_owned(), value);
    Ok(HashMap::from([
        attribute("table_id", text(row.table_id.to_string())),
        attribute("version", number(row.version)),
        attribute("commit", text(row.last_commit().to_string())),
        attribute("row_count", number(row.row_count)),
        attribute("layout", number(row.layout)),
        attribute("min_layout", number(row.min_layout)),
        attribute("settings", text(json(&row.settings)?)),
    ]))
}

/// A version row as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// As the contract knows it.
    text: String,
    /// The last commit, which is kept beside its record so that conditions can compare it.
    commit: Option<String>,
    /// Whether the cluster is being deleted; known of a damaged row, too.
    pub(crate) deleting: bool,
    /// Which rows the last commits removed, by version; none where a record does not say.
    removed: BTreeMap<u64, BTreeSet<String>>,
}

impl Stored {
    /// The version row that an item means, readable or not.
    pub(crate) fn new(item: &Item) -> Self {
        let (mut row, mut recent, mut commit, mut removed) =
            (Map::new(), Vec::new(), None, BTreeMap::new());
        for (name, value) in item {
            match (name.as_str(), value) {
                (CLUSTER | ITEM, _) => {}
                ("commit", AttributeValue::S(id)) => commit = Some(id.clone()),
                // A row can have been put there by hand, and not been counted.
                ("row_count", AttributeValue::N(count)) if count.starts_with('-') => {
                    drop(row.insert(name.clone(), 0.into()))
                }
                (name, AttributeValue::S(record)) if name.starts_with("recent_") => {
                    let mut record: Json = serde_json::from_str(record)
                        .unwrap_or_else(|_| Json::String(record.clone()));
                    let gone = record
                        .as_object_mut()
                        .and_then(|fields| fields.remove(REMOVED));
                    if let (Some(version), Some(Json::Array(keys))) =
                        (record["version"].as_u64(), gone)
                    {
                        removed.insert(
                            version,
                            keys.iter()
                                .filter_map(Json::as_str)
                                .map(str::to_owned)
                                .collect(),
                        );
                    }
                    recent.push(record);
                }
                ("settings", AttributeValue::S(settings)) => {
                    let parsed = serde_json::from_str(settings)
                        .unwrap_or_else(|_| Json::String(settings.clone()));
                    row.insert(name.clone(), parsed);
                }
                (name, value) => drop(row.insert(name.to_owned(), plain(value))),
            }
        }
        recent.sort_by_key(|record| record["version"].as_u64());
        row.insert("recent".to_owned(), Json::Array(recent));
        let deleting = row.get("deleting") == Some(&Json::Bool(true));
        Self {
            text: Json::Object(row).to_string(),
            commit,
            deleting,
            removed,
        }
    }
}

/// An attribute as JSON; sets and bytes, which nobody of ours writes, as nothing.
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

/// The version row of a table that may be used, and that `known` can be of. `stray` is the key of any row. Clauses T12 and T16.
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

/// A version row in whatever state its cluster is.
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `Damaged`.
pub(crate) fn any_version(stored: &Stored) -> Result<Version, TableError> {
    use membership_core::encoding::{VersionRowError, decode_version_row};
    let row = decode_version_row(&stored.text).map_err(|e| {
        let kind = match e {
            VersionRowError::Foreign(_) => TableErrorKind::ForeignTable,
            VersionRowError::NewerLayout { .. } => TableErrorKind::NewerLayout,
            _ => TableErrorKind::Damaged,
        };
        error(kind, e.to_string())
    })?;
    version(row, Some(stored))
}

fn version(row: VersionRow, stored: Option<&Stored>) -> Result<Version, TableError> {
    if stored.and_then(|stored| stored.commit.as_deref())
        != Some(row.last_commit().to_string().as_str())
    {
        let message = "the version row is damaged: its last commit is not the one it names; run `membership doctor`";
        return Err(error(TableErrorKind::Damaged, message));
    }
    Ok(Version {
        row: Arc::new(row),
        removed: stored
            .map(|stored| stored.removed.clone())
            .unwrap_or_default(),
    })
}

/// What a request brought, sorted.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) version: Option<Stored>,
    /// The version row as it was found later, along with further pages.
    pub(crate) later: Vec<Option<Stored>>,
    /// Key and text.
    pub(crate) rows: Vec<(String, String)>,
    beats: Vec<(String, String)>,
    cell: Option<String>,
}

impl Gathered {
    /// The version row alone.
    pub(crate) fn of(version: Option<Stored>) -> Self {
        Self {
            version,
            ..Self::default()
        }
    }

    /// Sorts an item in. What is none of ours is left where it is.
    pub(crate) fn take(&mut self, mut item: Item) {
        let Some(AttributeValue::S(name)) = item.remove(ITEM) else {
            return;
        };
        let string = |value: Option<AttributeValue>| match value {
            Some(AttributeValue::S(text)) => Some(text),
            _ => None,
        };
        if name == VERSION_ROW {
            self.version = Some(Stored::new(&item));
        } else if name == CELL {
            self.cell = string(item.remove(TEXT));
        } else if let Some(key) = name.strip_prefix(ROW) {
            // A row without a text is still there, and cannot be decoded (clause T12).
            self.rows.push((
                key.to_owned(),
                string(item.remove(BODY)).unwrap_or_default(),
            ));
        } else if let (Some(key), Some(beat)) =
            (name.strip_prefix(HEARTBEAT), string(item.remove(BEAT)))
        {
            self.beats.push((key.to_owned(), beat));
        }
    }

    /// Heartbeats and the cluster's cell; orphans are not shown (clause T8).
    pub(crate) fn heartbeats(&self, rows: Option<&Rows>) -> Heartbeats {
        let shown = self
            .beats
            .iter()
            .filter(|(key, _)| rows.is_none_or(|rows| rows.by_key(key).is_some()));
        let silos = shown
            .filter_map(|(key, text)| Some((key.parse().ok()?, heartbeat(text))))
            .collect();
        Heartbeats {
            silos,
            cluster: self.cell.clone(),
        }
    }

    /// The heartbeat of one silo.
    pub(crate) fn heartbeat_of(&self, key: &str) -> Option<Heartbeat> {
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
pub(crate) fn rows(stored: Vec<(String, String)>, known: &Rows) -> Rows {
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

    fn read(item: &Item) -> Result<Version, TableErrorKind> {
        usable(Some(&Stored::new(item)), None, None, Operation::Read).map_err(|e| e.kind())
    }

    #[test]
    fn a_version_row_is_what_its_commits_made_it() {
        let mut expected = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let mut item = initial(&expected).unwrap();
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
                record_attribute(commit.makes()),
                text(record(&commit).unwrap()),
            );
            item.insert("version".to_owned(), number(commit.makes()));
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
    fn unknown_attributes_are_kept_and_damage_is_told() {
        let good = initial(&VersionRow::initial(
            TableId::new(7),
            SharedSettings::default(),
        ))
        .unwrap();
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
            CELL,
            "heartbeat/10.0.0.1:1@1",
            VERSION_ROW,
            "row/10.0.0.1:1@1",
        ];
        assert!(
            names.is_sorted(),
            "one request asks for heartbeats and version row, another for version row and rows"
        );
        let mut all = Gathered::default();
        for (name, attribute, value) in [
            ("row/10.0.0.1:1@1", BODY, "{}"),
            ("row/no silo's", "other", "x"),
            ("heartbeat/10.0.0.1:1@1", BEAT, "7 nonsense"),
            ("heartbeat/10.0.0.2:1@1", BEAT, "8 nonsense"),
            ("heartbeat/10.0.0.3:1@1", SINCE, "nothing yet"),
            (CELL, TEXT, "cell"),
            ("strange", BODY, "x"),
        ] {
            all.take(HashMap::from([
                (ITEM.to_owned(), text(name)),
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
        let rows = rows(
            vec![(
                "10.0.0.1:1@1".to_owned(),
                Row::encode(entry(1)).body().to_owned(),
            )],
            &Rows::new(),
        );
        assert_eq!(all.heartbeats(None).silos.len(), 2);
        assert_eq!(
            (
                all.heartbeats(Some(&rows)).silos.len(),
                all.heartbeats(Some(&rows)).cluster.as_deref()
            ),
            (1, Some("cell"))
        );
        assert_eq!(
            all.heartbeat_of("10.0.0.1:1@1"),
            Some(Heartbeat {
                counter: 7,
                at: WallTime::from_millis(0)
            })
        );
    }

    #[test]
    fn rows_are_decoded_once() {
        let body = |port: u16| {
            (
                entry(port).address.row_key(),
                Row::encode(entry(port)).body().to_owned(),
            )
        };
        let first = rows(
            vec![body(1), body(2), ("junk".to_owned(), "{".to_owned())],
            &Rows::new(),
        );
        assert_eq!((first.len(), first.undecodable().count()), (3, 1));
        let second = rows(vec![body(1), body(3)], &first);
        assert_eq!(second, rows(vec![body(1), body(3)], &Rows::new()));
        let key = entry(1).address.row_key();
        assert!(
            first
                .by_key(&key)
                .unwrap()
                .is_same(second.by_key(&key).unwrap())
        );
    }
}
