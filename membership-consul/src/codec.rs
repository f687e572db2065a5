//! Values of Consul ⇄ version rows, rows and heartbeats.
//!
//! The version row has a key for each of its parts, so that a commit writes what it must without knowing the rest. What this build does not
//! know is never written, and so survives; it is read into the version row's unknown fields (clause T10). Version, table and last commit
//! stand in the name of the mark, and nowhere else: it is what commits depend on.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use membership_core::{
    CommitRequest, Heartbeat, Heartbeats, Operation, Row, Rows, SharedSettings, TableError,
    TableErrorKind, VersionRow, VersionToken, WallTime, usable_version_row,
};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::STORE;
use crate::error::error;
use crate::keys::{DELETING, Keys, Part};

/// One key as Consul tells it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Pair {
    pub(crate) key: String,
    /// In base64; none for an empty value.
    pub(crate) value: Option<String>,
    /// When it was written last, in writes of the whole store.
    #[serde(default)]
    pub(crate) modify_index: u64,
}

/// A value as Consul takes it.
pub(crate) fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// What is no text is shown as one all the same: rows that cannot be decoded are rows (clause T12).
fn decoded(value: Option<String>) -> String {
    let bytes = value
        .map(|value| STANDARD.decode(value).unwrap_or_default())
        .unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
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
    json(&request.next_version_row(&base).recent.last())
}

/// What the mark says besides its name.
pub(crate) fn mark(row_count: u64) -> String {
    format!("{{\"row_count\":{row_count}}}")
}

/// What the table's own key says: the part of the version row that no commit changes.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn table(row: &VersionRow) -> Result<String, TableError> {
    let mut fields = match serde_json::to_value(row) {
        Ok(Json::Object(fields)) => fields,
        _ => {
            return Err(error(
                TableErrorKind::InvalidRequest,
                "this cannot be written as JSON",
            ));
        }
    };
    for of_others in [
        "table_id",
        "version",
        "recent",
        "row_count",
        "settings",
        "core",
        "deleting",
    ] {
        fields.remove(of_others);
    }
    json(&fields)
}

/// The number of rows that a token brings along, so that whoever has it can commit without reading first.
pub(crate) fn rows_in(token: &VersionToken) -> Option<u64> {
    token.store().try_into().ok().map(u64::from_be_bytes)
}

/// The token of a version with so many rows.
pub(crate) fn token(row: &VersionRow) -> VersionToken {
    row.token(&row.row_count.to_be_bytes())
}

/// What an answer brought, sorted.
#[derive(Debug, Default)]
pub(crate) struct Found {
    table: Option<String>,
    /// When the table's own key was written; it never is again.
    since: Option<u64>,
    settings: Option<String>,
    core: Option<String>,
    recent: Vec<String>,
    /// Name and text.
    marks: Vec<(String, String)>,
    /// Whether there is anything of a version row.
    any: bool,
    /// Key and text.
    pub(crate) rows: Vec<(String, String)>,
    /// With the index at which it was written last.
    beats: Vec<(String, String, u64)>,
    cell: Option<String>,
    /// A key that nobody of ours writes.
    foreign: Option<String>,
}

impl Found {
    pub(crate) fn sort(keys: &Keys, pairs: Vec<Pair>) -> Self {
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
                Part::Table => (found.table, found.since) = (Some(text()), Some(modify_index)),
                Part::Settings => found.settings = Some(text()),
                Part::Core => found.core = Some(text()),
                Part::Recent => found.recent.push(text()),
                Part::Mark(name) => found.marks.push((name.to_owned(), text())),
                Part::Row(key) => found.rows.push((key, text())),
                Part::Alive(key) => found.beats.push((key, text(), modify_index)),
                Part::Cell => found.cell = Some(text()),
                Part::Unknown | Part::Beside => {}
                Part::Foreign => found.foreign = Some(key),
            }
        }
        found
    }

    /// Whether there is no table and no row, or nothing that shows to this token.
    pub(crate) fn is_no_table(&self) -> bool {
        !self.any && self.rows.is_empty() && self.foreign.is_none()
    }

    /// Whether there is nothing at all.
    pub(crate) fn is_nothing(&self) -> bool {
        self.is_no_table() && self.beats.is_empty() && self.cell.is_none()
    }

    /// The index of the table's own key, which tells one life of the table from the next.
    pub(crate) fn since(&self) -> Option<u64> {
        self.since
    }

    /// The name of the mark, where there is one and no other.
    pub(crate) fn mark(&self) -> Option<&str> {
        match self.marks.as_slice() {
            [(name, _)] => Some(name),
            _ => None,
        }
    }

    /// The version row as the contract knows it, readable or not; none where there is none.
    fn text(&self) -> Option<String> {
        if !self.any {
            return None;
        }
        let own = self.table.clone().unwrap_or_default();
        // Whatever stands there instead is judged as it is.
        let Ok(Json::Object(mut row)) = serde_json::from_str(&own) else {
            return Some(own);
        };
        if let Some((name, text)) = self.mark().and_then(|_| self.marks.first()) {
            let mut words = name.split('.');
            let number = words.next().map(|version| {
                version
                    .parse::<i64>()
                    .map_or_else(|_| version.into(), Json::from)
            });
            row.insert("version".to_owned(), number.unwrap_or_default());
            row.insert("table_id".to_owned(), words.next().into());
            if words.nth(1) == Some(DELETING) {
                row.insert("deleting".to_owned(), true.into());
            }
            let Json::Object(more) = parsed(text) else {
                return Some(Json::Object(row).to_string());
            };
            row.extend(more);
        }
        if let Some(settings) = &self.settings {
            row.insert("settings".to_owned(), parsed(settings));
        }
        if let Some(core) = &self.core {
            row.insert("core".to_owned(), Json::String(core.clone()));
        }
        let mut recent: Vec<Json> = self.recent.iter().map(|record| parsed(record)).collect();
        recent.sort_by_key(|record| record["version"].as_u64());
        row.insert("recent".to_owned(), Json::Array(recent));
        Some(Json::Object(row).to_string())
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
        let stray = self.rows.first().map(|(key, _)| key.as_str());
        if let (None, Some(key), false) = (stray, &self.foreign, self.any) {
            let message = "something stands under this name that is no table: use another prefix";
            return Err(error(TableErrorKind::ForeignTable, message)
                .during(during)
                .with_key(key.clone()));
        }
        let row = usable_version_row(self.text().as_deref(), stray, known, during, STORE)?;
        self.fits(row).map_err(|e| e.during(during))
    }

    /// The version row in whatever state its cluster is; none where there is none.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`.
    pub(crate) fn any_version(&self) -> Result<Option<VersionRow>, TableError> {
        use membership_core::encoding::{VersionRowError, decode_version_row};
        let Some(text) = self.text() else {
            return Ok(None);
        };
        let row = decode_version_row(&text).map_err(|e| {
            let kind = match e {
                VersionRowError::Foreign(_) => TableErrorKind::ForeignTable,
                VersionRowError::NewerLayout { .. } => TableErrorKind::NewerLayout,
                _ => TableErrorKind::Damaged,
            };
            error(kind, e.to_string())
        })?;
        self.fits(row).map(Some)
    }

    /// The mark names the commit whose record is the last.
    fn fits(&self, row: VersionRow) -> Result<VersionRow, TableError> {
        let words: Vec<&str> = self
            .mark()
            .map(|name| name.split('.').collect())
            .unwrap_or_default();
        if let [_, _, commit] | [_, _, commit, DELETING] = words[..]
            && commit == row.last_commit().to_string()
        {
            return Ok(row);
        }
        let message = "the version row is damaged: its last commit is not the one that its mark names; run `membership doctor`";
        Err(error(TableErrorKind::Damaged, message))
    }

    /// That there are as many rows as the version row counts. Consul leaves out what a token may not see, and says nothing of it.
    ///
    /// # Errors
    /// `Damaged`.
    pub(crate) fn complete(&self, row: &VersionRow) -> Result<(), TableError> {
        let (there, counted) = (self.rows.len() as u64, row.row_count);
        if there >= counted {
            return Ok(());
        }
        let message = format!(
            "{} of {counted} rows do not show: let the token's policy show all keys below the folder; if it does, rows were removed by hand: \
             restore a backup, or `membership delete` the cluster and restart all silos",
            counted - there
        );
        Err(error(TableErrorKind::Damaged, message))
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
            cluster: self.cell.clone(),
        }
    }

    /// The heartbeat of one silo.
    pub(crate) fn heartbeat_of(&self, key: &str) -> Option<Heartbeat> {
        self.beats
            .iter()
            .find(|(of, ..)| of == key)
            .map(|(_, text, _)| heartbeat(text))
    }

    /// At which index the heartbeat of each row was written last, 0 where it never was.
    pub(crate) fn beaten_at(&self) -> impl Iterator<Item = (&str, u64)> {
        let beats: HashMap<&str, u64> = self
            .beats
            .iter()
            .map(|(key, _, index)| (key.as_str(), *index))
            .collect();
        self.rows
            .iter()
            .map(move |(key, _)| (key.as_str(), beats.get(key.as_str()).copied().unwrap_or(0)))
    }

    /// All rows, of which those with the text that is known already are not decoded again.
    pub(crate) fn take_rows(&mut self, known: &Rows) -> Rows {
        let mut all = known.clone();
        let stored = std::mem::take(&mut self.rows);
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
}

/// JSON, or the text itself where it is none, which then is refused for what it is.
fn parsed(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.to_owned()))
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

/// A version row's parts as keys and texts: what `initialize` writes.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn parts(keys: &Keys, row: &VersionRow) -> Result<Map<String, Json>, TableError> {
    let mut parts = Map::new();
    parts.insert(keys.table(), table(row)?.into());
    parts.insert(keys.settings(), json(&row.settings)?.into());
    parts.insert(
        keys.mark(row.version, row.table_id, row.last_commit()),
        mark(row.row_count).into(),
    );
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{CommitId, InstanceId, MembershipEntry, SiloAddress, TableId};

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

    fn pairs(parts: &Map<String, Json>) -> Vec<Pair> {
        parts
            .iter()
            .map(|(key, text)| pair(key, text.as_str().unwrap()))
            .collect()
    }

    fn read(parts: &Map<String, Json>) -> Result<VersionRow, TableErrorKind> {
        Found::sort(&keys(), pairs(parts))
            .usable(None, Operation::Read)
            .map_err(|e| e.kind())
    }

    #[test]
    fn a_version_row_is_what_its_commits_made_it() {
        let keys = keys();
        let mut expected = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let mut stored = parts(&keys, &expected).unwrap();
        assert_eq!(read(&stored), Ok(expected.clone()));
        for n in 1..40_u16 {
            let (inserts, removes) = if n % 3 == 0 {
                (None, Some(entry(n - 1).address.row_key()))
            } else {
                (Some(entry(n)), None)
            };
            let mut commit = CommitRequest::new(
                token(&expected),
                CommitId::new(n.into()),
                None,
                inserts,
                [],
                removes,
            );
            if n == 5 {
                commit.core = Some("cell".to_owned());
                stored.insert(keys.core(), "cell".into());
            }
            stored.remove(&keys.mark_of(&commit.expected)).unwrap();
            stored.insert(keys.recent(commit.makes()), record(&commit).unwrap().into());
            expected = commit.next_version_row(&expected);
            stored.insert(
                keys.mark(expected.version, expected.table_id, commit.id),
                mark(expected.row_count).into(),
            );
            assert_eq!(read(&stored), Ok(expected.clone()));
            assert_eq!(rows_in(&token(&expected)), Some(expected.row_count));
        }
        assert_eq!(rows_in(&expected.token(&[])), None);
    }

    #[test]
    fn unknown_parts_are_kept_and_damage_is_told() {
        let keys = keys();
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let good = parts(&keys, &row).unwrap();
        let with = |key: String, text: &str| {
            let mut stored = good.clone();
            stored.insert(key, text.into());
            read(&stored)
        };
        let own = table(&row).unwrap();
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
        for mark in [
            "-1.00000000000000000000000000000007.00000000000000000000000000000000",
            "x",
            "0.7.1",
            "",
        ] {
            let mut stored = good.clone();
            stored.remove(&mark_of_now).unwrap();
            assert_eq!(read(&stored), Err(TableErrorKind::Damaged));
            stored.insert(
                format!("{}{mark}", keys.marks()),
                "{\"row_count\":0}".into(),
            );
            assert_eq!(read(&stored), Err(TableErrorKind::Damaged), "{mark}");
        }
    }

    #[test]
    fn what_is_no_table_is_told() {
        let keys = keys();
        let of = |pairs: Vec<Pair>| {
            Found::sort(&keys, pairs)
                .usable(None, Operation::Read)
                .unwrap_err()
        };
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
        let mut found = Found::sort(
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
        let rows = found.take_rows(&Rows::new());
        assert_eq!((rows.len(), rows.undecodable().count()), (4, 3));
        assert_eq!(rows.by_key("a/b").map(Row::body), Some("no JSON"));
        let beats = found.heartbeats(&rows);
        assert_eq!(
            (beats.silos.len(), beats.cluster.as_deref()),
            (1, Some("cell"))
        );
        assert_eq!(
            found.heartbeat_of(&key),
            Some(Heartbeat {
                counter: 7,
                at: WallTime::from_millis(0)
            })
        );
        let mut again = Found::sort(&keys, vec![pair(keys.row(&key), &body)]);
        let fewer = again.take_rows(&rows);
        assert!(
            fewer.len() == 1
                && fewer
                    .by_key(&key)
                    .unwrap()
                    .is_same(rows.by_key(&key).unwrap())
        );
    }
}
