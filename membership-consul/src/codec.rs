//! Values of Consul ⇄ version rows, rows and heartbeats.
//!
//! The version row has a key for each of its parts, so that a commit writes what it must without
//! knowing the rest. A commit never writes parts that this build does not know, so they survive;
//! they are read into the version row's unknown fields (clause T10). Version, table and last commit
//! are in the name of the mark, on which commits depend.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use membership_core::{
    Heartbeat, Heartbeats, Operation, Rows, TableError, TableErrorKind, VersionRow, VersionToken,
    stored_version_row, usable_version_row,
};
use membership_provider::{
    VersionRowParts, check_last_commit, json, shown_heartbeats, stored_heartbeat,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::STORE;
use crate::error::error;
use crate::keys::{DELETING, Keys, Part};

/// The fields of a version row that have a key of their own.
const SEPARATE: &[&str] = &[
    "table_id",
    "version",
    "recent",
    "row_count",
    "settings",
    "core",
    "deleting",
];

/// One key of an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Pair {
    pub(crate) key: String,
    /// In base64; none for an empty value.
    pub(crate) value: Option<String>,
    /// When it was last written, in writes of the whole store.
    #[serde(default)]
    pub(crate) modify_index: u64,
}

/// A value in Consul's encoding.
pub(crate) fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// A value as text. What is not UTF-8 is kept, and cannot be decoded (clause T12).
fn decoded(value: Option<String>) -> String {
    let bytes = value.and_then(|value| STANDARD.decode(value).ok());
    String::from_utf8(bytes.unwrap_or_default())
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// The value of the mark.
pub(crate) fn mark(row_count: u64) -> String {
    format!("{{\"row_count\":{row_count}}}")
}

/// The keys and values of a new version row.
pub(crate) fn initial(keys: &Keys, row: &VersionRow) -> BTreeMap<String, String> {
    let mark_key = keys.mark(row.version, row.table_id, row.last_commit());
    BTreeMap::from([
        (keys.table(), VersionRowParts::constant(row, SEPARATE)),
        (keys.settings(), json(&row.settings)),
        (keys.core(), row.core.stored().to_owned()),
        (mark_key, mark(row.row_count)),
    ])
}

/// What an answer contained, by kind.
#[derive(Debug, Default)]
pub(crate) struct Found {
    table: Option<String>,
    /// When the table's own key was created; it is never written again.
    created: Option<u64>,
    settings: Option<String>,
    core: Option<String>,
    recent: Vec<String>,
    /// Names and values.
    marks: Vec<(String, String)>,
    /// Whether there is any part of a version row.
    any: bool,
    /// Keys and texts.
    pub(crate) rows: Vec<(String, String)>,
    /// Keys, texts, and the index at which each was last written.
    heartbeats: Vec<(String, String, u64)>,
    cell: Option<String>,
    /// A key that no build writes.
    foreign: Option<String>,
}

impl Found {
    pub(crate) fn new(keys: &Keys, pairs: Vec<Pair>) -> Self {
        let mut found = Self::default();
        for Pair {
            key,
            value,
            modify_index,
        } in pairs
        {
            let Some(part) = keys.part(&key) else {
                continue;
            };
            let text = || decoded(value);
            found.any |= !matches!(
                part,
                Part::Row(_) | Part::Alive(_) | Part::Beside | Part::Cell | Part::Foreign
            );
            match part {
                Part::Table => (found.table, found.created) = (Some(text()), Some(modify_index)),
                Part::Settings => found.settings = Some(text()),
                Part::Core => found.core = Some(text()),
                Part::Recent => found.recent.push(text()),
                Part::Mark(name) => found.marks.push((name.to_owned(), text())),
                Part::Row(key) => found.rows.push((key, text())),
                Part::Alive(key) => found.heartbeats.push((key, text(), modify_index)),
                Part::Cell => found.cell = Some(text()),
                Part::Unknown | Part::Beside => {}
                Part::Foreign => found.foreign = Some(key),
            }
        }
        found
    }

    /// Whether there is no table and no row, or this token may not see them.
    pub(crate) fn is_no_table(&self) -> bool {
        !self.any && self.rows.is_empty() && self.foreign.is_none()
    }

    /// Whether there is nothing at all.
    pub(crate) fn is_nothing(&self) -> bool {
        self.is_no_table() && self.heartbeats.is_empty() && self.cell.is_none()
    }

    /// The index of the table's own key, which differs between two tables of the same name.
    pub(crate) fn created(&self) -> Option<u64> {
        self.created
    }

    /// The parts of the mark's name and its value, if there is exactly one mark.
    fn mark(&self) -> Option<(Vec<&str>, &str)> {
        match self.marks.as_slice() {
            [(name, value)] => Some((name.split('.').collect(), value)),
            _ => None,
        }
    }

    /// The version row in the contract's encoding, readable or not; `None` where there is none.
    fn text(&self) -> Option<String> {
        if !self.any {
            return None;
        }
        let own = self.table.clone().unwrap_or_default();
        let Some(mut row) = VersionRowParts::from_object(&own) else {
            return Some(own);
        };
        if let Some((name, value)) = self.mark() {
            let version = name.first().copied().unwrap_or_default();
            let number = version.parse::<i64>();
            row.value(
                "version",
                number.map_or_else(|_| version.into(), Value::from),
            );
            row.value("table_id", name.get(1).copied());
            if name.get(3) == Some(&DELETING) {
                row.value("deleting", true);
            }
            let more: Map<String, Value> = serde_json::from_str(value).unwrap_or_default();
            for (name, value) in more {
                row.value(name, value);
            }
        }
        if let Some(settings) = &self.settings {
            row.json("settings", settings);
        }
        if let Some(core) = &self.core {
            row.text("core", core);
        }
        for record in &self.recent {
            row.record(record);
        }
        Some(row.into_text())
    }

    /// The version row of a table that may be used, and that `known` can be of. Clauses T12 and
    /// T16.
    ///
    /// # Errors
    /// As [`usable_version_row`].
    pub(crate) fn usable(&self, known: Option<&VersionToken>) -> Result<VersionRow, TableError> {
        let stray = self.rows.first().map(|(key, _)| key.as_str());
        if let (None, Some(key), false) = (stray, &self.foreign, self.any) {
            let message = "this folder contains another program's keys: use another prefix";
            return Err(error(TableErrorKind::ForeignTable, message).with_key(key));
        }
        let text = self.text();
        let row = usable_version_row(text.as_deref(), stray, known, Operation::Connect, STORE)?;
        self.check_mark(row)
    }

    /// The version row in whatever state its cluster is; `None` where there is none.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`.
    pub(crate) fn any_version(&self) -> Result<Option<VersionRow>, TableError> {
        let Some(text) = self.text() else {
            return Ok(None);
        };
        let row = stored_version_row(&text, Operation::Connect, STORE)?;
        self.check_mark(row).map(Some)
    }

    /// Refuses a version row whose last record is not the commit of its mark, or whose mark has
    /// parts that this build does not know.
    fn check_mark(&self, row: VersionRow) -> Result<VersionRow, TableError> {
        let name = self.mark().map(|(name, _)| name).unwrap_or_default();
        let commit = match name[..] {
            [_, _, commit] | [_, _, commit, DELETING] => Some(commit),
            _ => None,
        };
        check_last_commit(STORE, row, commit)
    }

    /// Refuses a table with fewer rows than the version row counts. Consul silently leaves out what
    /// a token may not see.
    ///
    /// # Errors
    /// `Damaged`
    pub(crate) fn check_rows(&self, row: &VersionRow) -> Result<(), TableError> {
        let (there, counted) = (self.rows.len() as u64, row.row_count);
        if there >= counted {
            return Ok(());
        }
        let message = format!(
            "{} of {counted} rows are missing: check that the token's policy covers all keys below the folder; if it does, rows were \
             removed by hand: restore a backup, or `membership delete` the cluster and restart all silos",
            counted - there
        );
        Err(error(TableErrorKind::Damaged, message))
    }

    /// Heartbeats and the cluster's cell; heartbeats without a row are orphans (clause T8).
    pub(crate) fn heartbeats(&self, rows: &Rows) -> Heartbeats {
        let stored = self.heartbeats.iter();
        let stored = stored.map(|(key, text, _)| (key.as_str(), stored_heartbeat(text)));
        shown_heartbeats(stored, self.cell.clone(), rows)
    }

    /// The heartbeat of one silo.
    pub(crate) fn heartbeat(&self, key: &str) -> Option<Heartbeat> {
        let found = self.heartbeats.iter().find(|(of, ..)| of == key);
        found.map(|(_, text, _)| stored_heartbeat(text))
    }

    /// The index at which the heartbeat of each row was last written, 0 for never.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = (&str, u64)> {
        let indexes: HashMap<&str, u64> = self
            .heartbeats
            .iter()
            .map(|(key, _, index)| (key.as_str(), *index))
            .collect();
        self.rows.iter().map(move |(key, _)| {
            (
                key.as_str(),
                indexes.get(key.as_str()).copied().unwrap_or(0),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{
        CommitId, CommitRequest, InstanceId, MembershipEntry, Row, SharedSettings, SiloAddress,
        TableId, WallTime,
    };
    use membership_provider::{counted_token, merge_rows, row_count_of};

    fn keys() -> Keys {
        Keys::new("membership", "billing~-blue")
    }

    fn entry(port: u16) -> MembershipEntry {
        MembershipEntry::new(
            SiloAddress::new([127, 0, 0, 1].into(), port, 1),
            InstanceId::new(1),
            WallTime::default(),
        )
    }

    fn pair(key: impl Into<String>, text: &str) -> Pair {
        Pair {
            key: key.into(),
            value: Some(encoded(text)),
            modify_index: 7,
        }
    }

    fn pairs(parts: &BTreeMap<String, String>) -> Vec<Pair> {
        parts.iter().map(|(key, text)| pair(key, text)).collect()
    }

    fn read(parts: &BTreeMap<String, String>) -> Result<VersionRow, TableErrorKind> {
        Found::new(&keys(), pairs(parts))
            .usable(None)
            .map_err(|e| e.kind())
    }

    #[test]
    fn a_version_row_is_read_as_its_commits_wrote_it() {
        let keys = keys();
        let mut expected = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let mut stored = initial(&keys, &expected);
        assert_eq!(read(&stored), Ok(expected.clone()));
        for n in 1..40_u16 {
            let (inserts, removes) = if n % 3 == 0 {
                (None, Some(entry(n - 1).address.row_key()))
            } else {
                (Some(entry(n)), None)
            };
            let mut commit = CommitRequest::new(
                counted_token(&expected),
                CommitId::new(n.into()),
                None,
                inserts,
                [],
                removes,
            );
            if n == 5 {
                commit.core = Some("cell".to_owned().into());
                stored.insert(keys.core(), "cell".to_owned());
            }
            stored.remove(&keys.mark_of(&commit.expected)).unwrap();
            stored.insert(keys.recent(commit.next_version()), json(&commit.record()));
            expected = commit.next_version_row(&expected);
            stored.insert(
                keys.mark(expected.version, expected.table_id, commit.id),
                mark(expected.row_count),
            );
            assert_eq!(read(&stored), Ok(expected.clone()));
            assert_eq!(
                row_count_of(&counted_token(&expected)),
                Some(expected.row_count)
            );
        }
        assert_eq!(row_count_of(&expected.token(&[])), None);
    }

    #[test]
    fn unknown_parts_are_kept_and_damage_is_found() {
        let keys = keys();
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let good = initial(&keys, &row);
        let with = |key: String, text: &str| {
            let mut stored = good.clone();
            stored.insert(key, text.to_owned());
            read(&stored)
        };
        let own = VersionRowParts::constant(&row, SEPARATE);
        assert_eq!(
            with(keys.table(), &own.replacen('{', "{\"moon\":1,", 1))
                .unwrap()
                .extra
                .0["moon"],
            1
        );
        assert!(with(format!("{}moon", keys.version()), "1").is_ok());
        assert_eq!(
            with(
                keys.table(),
                &own.replace("\"min_layout\":1", "\"min_layout\":900")
            ),
            Err(TableErrorKind::NewerLayout)
        );
        assert_eq!(
            with(keys.table(), "{\"Version\":7}"),
            Err(TableErrorKind::ForeignTable)
        );
        assert_eq!(with(keys.table(), "7"), Err(TableErrorKind::ForeignTable));
        let twice = keys.mark(1, row.table_id, CommitId::new(9));
        for (key, text) in [
            (keys.settings(), "{"),
            (keys.recent(3), "{"),
            (twice, "{\"row_count\":0}"),
        ] {
            assert_eq!(
                with(key.clone(), text),
                Err(TableErrorKind::Damaged),
                "{key}"
            );
        }
        let mark_of_now = keys.mark(0, row.table_id, CommitId::new(0));
        for (more, kind) in [
            (".deleting", TableErrorKind::BeingDeleted),
            (".moon", TableErrorKind::Damaged),
        ] {
            let mut stored = good.clone();
            let count = stored.remove(&mark_of_now).unwrap();
            stored.insert(format!("{mark_of_now}{more}"), count);
            assert_eq!(read(&stored), Err(kind), "{more}");
        }
        for name in [
            "-1.00000000000000000000000000000007.00000000000000000000000000000000",
            "x",
            "0.7.1",
            "",
        ] {
            let mut stored = good.clone();
            stored.remove(&mark_of_now).unwrap();
            assert_eq!(read(&stored), Err(TableErrorKind::Damaged));
            stored.insert(format!("{}{name}", keys.marks()), mark(0));
            assert_eq!(read(&stored), Err(TableErrorKind::Damaged), "{name}");
        }
    }

    #[test]
    fn a_folder_without_a_table_is_recognized() {
        let keys = keys();
        let of = |pairs: Vec<Pair>| Found::new(&keys, pairs).usable(None).unwrap_err();
        assert_eq!(of(vec![]).kind(), TableErrorKind::NotInitialized);
        assert_eq!(
            of(vec![
                pair(keys.alive("10.0.0.1:1@1"), "1"),
                pair(keys.cell(), "x")
            ])
            .kind(),
            TableErrorKind::NotInitialized
        );
        let stray = of(vec![pair(keys.row("10.0.0.1:1@1"), "{}")]);
        assert!(
            stray.kind() == TableErrorKind::Damaged && stray.to_string().contains("10.0.0.1:1@1"),
            "{stray}"
        );
        let foreign = of(vec![pair(format!("{}10.0.0.1:1@1", keys.root()), "{}")]);
        assert!(
            foreign.kind() == TableErrorKind::ForeignTable
                && foreign.to_string().contains("10.0.0.1:1@1"),
            "{foreign}"
        );
    }

    #[test]
    fn rows_and_heartbeats_are_sorted() {
        let keys = keys();
        let body = Row::encode(entry(1)).body().to_owned();
        let key = entry(1).address.row_key();
        let found = Found::new(
            &keys,
            vec![
                pair(keys.row(&key), &body),
                pair(keys.row("a/b"), "no JSON"),
                Pair {
                    key: keys.row("empty"),
                    value: None,
                    modify_index: 7,
                },
                Pair {
                    key: keys.row("bytes"),
                    value: Some(STANDARD.encode([0xff, b'x'])),
                    modify_index: 7,
                },
                pair(keys.alive(&key), "7 nonsense"),
                pair(keys.alive("10.0.0.2:1@1"), "8 nonsense"),
                pair(keys.cell(), "cell"),
                pair("elsewhere", "x"),
            ],
        );
        let rows = merge_rows(&found.rows, &Rows::new());
        assert_eq!((rows.len(), rows.undecodable().count()), (4, 3));
        assert_eq!(rows.by_key("a/b").map(Row::body), Some("no JSON"));
        let shown = found.heartbeats(&rows);
        assert_eq!(
            (shown.silos.len(), shown.cluster.as_deref()),
            (1, Some("cell"))
        );
        assert_eq!(
            found.heartbeat(&key),
            Some(Heartbeat {
                counter: 7,
                at: WallTime::from_millis(0)
            })
        );
        let again = Found::new(&keys, vec![pair(keys.row(&key), &body)]);
        let fewer = merge_rows(&again.rows, &rows);
        assert!(
            fewer.len() == 1
                && fewer
                    .by_key(&key)
                    .unwrap()
                    .is_same(rows.by_key(&key).unwrap())
        );
    }
}
