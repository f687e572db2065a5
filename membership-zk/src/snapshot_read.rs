//! Observations of a cluster, and the snapshot that several of them make. Clause T6.
//!
//! One observation is one request with several reads, which the server answers from one moment.
//! Which rows to read is a guess: those of the last snapshot. The content of a row is valid at the
//! version of the same observation, and at any other one unless a commit in between changed the
//! row; each version row lists the keys of the last sixteen commits. Observations are repeated with
//! the missing rows until one of the observed versions is complete.

use std::collections::BTreeMap;

use membership_core::{
    ChangedKeys, CommitRecord, Heartbeat, Heartbeats, Row, Rows, Snapshot, TableError,
    TableErrorKind, TableId, VersionRow,
};
use membership_provider::{decode_row, shown_heartbeats};
use zookeeper_client::{Error, MultiReadResult};

use crate::client::{Inner, Session};
use crate::error::{error, failed};
use crate::keys::{Paths, is_key};

/// The largest request: a quarter of what ZooKeeper takes.
const LARGEST_REQUEST: usize = 256 << 10;
/// About the largest answer.
const LARGEST_ANSWER: usize = 4 << 20;
/// The assumed size of an unknown row.
const UNKNOWN_SIZE: usize = 1 << 10;
/// The bytes of a read in a request besides the path.
const EACH: usize = 14;

/// What to read besides the version row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) children: bool,
    pub(crate) rows: Vec<String>,
    pub(crate) heartbeats: Vec<String>,
    pub(crate) cell: bool,
}

/// The answer to one query.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    /// The text of the version row; none without a znode or without data.
    text: Option<String>,
    /// The data version of the znode, if there is one.
    pub(crate) znode: Option<i32>,
    pub(crate) children: Vec<String>,
    /// The queried keys with the text of the row, if there is one.
    pub(crate) rows: Vec<(String, Option<String>)>,
    pub(crate) heartbeats: Vec<(String, Heartbeat)>,
    pub(crate) cell: Option<String>,
}

impl Observation {
    /// The key of any row, for errors.
    pub(crate) fn any_key(&self) -> Option<&str> {
        self.children
            .iter()
            .map(String::as_str)
            .find(|name| is_key(name))
    }

    pub(crate) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

impl Inner {
    /// Observes the version row and the names of all children.
    ///
    /// # Errors
    /// As [`observe`].
    pub(crate) async fn observe(&self, session: &Session<'_>) -> Result<Observation, TableError> {
        let query = Query {
            children: true,
            ..Query::default()
        };
        observe(session, &self.paths, query).await
    }
}

/// One observation.
///
/// # Errors
/// The error that the server returns; `PermissionDenied` with the key of what may not be read.
pub(crate) async fn observe(
    session: &Session<'_>,
    paths: &Paths,
    query: Query,
) -> Result<Observation, TableError> {
    let mut reader = session.driver().new_multi_reader();
    reader.add_get_data(paths.cluster()).map_err(failed)?;
    if query.children {
        reader.add_get_children(paths.cluster()).map_err(failed)?;
    }
    if query.cell {
        reader.add_get_data(&paths.cell()).map_err(failed)?;
    }
    for key in &query.rows {
        reader.add_get_data(&paths.row(key)).map_err(failed)?;
    }
    for key in &query.heartbeats {
        reader.add_get_data(&paths.heartbeat(key)).map_err(failed)?;
    }
    let mut answers = session.read(reader).await?.into_iter();
    let incomplete = || {
        error(
            TableErrorKind::Unavailable,
            "the server's answer is incomplete",
        )
    };
    let mut next = || answers.next().ok_or_else(incomplete);
    let mut found = Observation::default();
    if let Some((text, version)) = data(next()?, None)? {
        found.znode = Some(version);
        found.text = (!text.is_empty()).then_some(text);
    }
    if query.children {
        found.children = match next()? {
            MultiReadResult::Children { children } => children,
            other => data(other, None).map(|_| Vec::new())?,
        };
    }
    if query.cell {
        found.cell = data(next()?, None)?.map(|(text, _)| text);
    }
    for key in query.rows {
        let body = data(next()?, Some(&key))?.map(|(text, _)| text);
        found.rows.push((key, body));
    }
    for key in query.heartbeats {
        let text = data(next()?, Some(&key))?.map(|(text, _)| text);
        if let Some(heartbeat) = text.and_then(|text| text.parse().ok()) {
            found.heartbeats.push((key, heartbeat));
        }
    }
    Ok(found)
}

/// The text of a znode, if there is one, and its data version.
fn data(answer: MultiReadResult, key: Option<&str>) -> Result<Option<(String, i32)>, TableError> {
    match answer {
        MultiReadResult::Data { data, stat } => Ok(Some((
            String::from_utf8_lossy(&data).into_owned(),
            stat.version,
        ))),
        MultiReadResult::Error { err: Error::NoNode } => Ok(None),
        MultiReadResult::Error { err } => {
            let e = failed(err).of_a_read();
            Err(match key {
                Some(key) => e.with_key(key),
                None => e,
            })
        }
        _ => Err(error(
            TableErrorKind::Unavailable,
            "the server's answer does not match the request",
        )),
    }
}

/// Divides what to read into requests that the server accepts.
pub(crate) fn queries(
    paths: &Paths,
    keys: Vec<String>,
    rows: bool,
    heartbeats: bool,
    seen: &Rows,
) -> Vec<Query> {
    let mut all = Vec::new();
    let (mut query, mut request, mut answer) = (Query::default(), 0, 0);
    for key in keys {
        let path = paths.cluster().len() + key.len() + 8 + EACH;
        let (asks, answers) = (
            path * (usize::from(rows) + usize::from(heartbeats)),
            if rows { size(seen, &key) } else { 64 },
        );
        if request > 0 && (request + asks > LARGEST_REQUEST || answer + answers > LARGEST_ANSWER) {
            all.push(std::mem::take(&mut query));
            (request, answer) = (0, 0);
        }
        request += asks;
        answer += answers;
        if heartbeats {
            query.heartbeats.push(key.clone());
        }
        if rows {
            query.rows.push(key);
        }
    }
    // The last one shows the newest version.
    query.children = true;
    all.push(query);
    all
}

fn size(seen: &Rows, key: &str) -> usize {
    seen.by_key(key).map_or(UNKNOWN_SIZE, Row::size)
}

/// What several observations have shown so far.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRead {
    table: Option<TableId>,
    /// Each key with its row, if there was one, by observed version.
    rows: BTreeMap<String, Vec<(u64, Option<Row>)>>,
    /// The listed commits by version.
    changes: BTreeMap<u64, CommitRecord>,
    /// The observed versions, oldest first.
    versions: Vec<Candidate>,
    heartbeats: BTreeMap<String, Heartbeat>,
    cell: Option<String>,
}

/// An observed version that may become complete.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) row: VersionRow,
    pub(crate) data_version: i32,
    /// Its rows.
    keys: Vec<String>,
}

impl SnapshotRead {
    /// Starts with a known version.
    pub(crate) fn of(base: &Snapshot) -> Self {
        let rows = base
            .rows
            .iter()
            .map(|row| {
                (
                    row.key().to_owned(),
                    vec![(base.version(), Some(row.clone()))],
                )
            })
            .collect();
        Self {
            table: Some(base.token.table_id()),
            rows,
            ..Self::default()
        }
    }

    /// Adds an observation of this version. Rows with a known text are not decoded again.
    pub(crate) fn add(&mut self, version: &VersionRow, found: &mut Observation, seen: &Rows) {
        let another = |commit: &CommitRecord| {
            self.changes
                .get(&commit.version)
                .is_some_and(|known| known.id != commit.id)
        };
        let gone_back = version.recent.iter().any(another);
        if self
            .table
            .replace(version.table_id)
            .is_some_and(|before| before != version.table_id)
            || gone_back
        {
            self.rows.clear();
            self.changes.clear();
            self.versions.clear();
        }
        self.changes.extend(
            version
                .recent
                .iter()
                .map(|commit| (commit.version, commit.clone())),
        );
        for (key, body) in found.rows.drain(..) {
            let row = body.map(|body| decode_row(&key, &body, seen));
            let observed = self.rows.entry(key).or_default();
            observed.push((version.version, row));
        }
        self.heartbeats.extend(found.heartbeats.drain(..));
        if let Some(cell) = found.cell.take() {
            self.cell = Some(cell);
        }
    }

    /// Adds a version with its rows.
    pub(crate) fn add_version(&mut self, row: VersionRow, data_version: i32, children: &[String]) {
        let keys = children
            .iter()
            .filter(|name| is_key(name))
            .cloned()
            .collect();
        self.versions.push(Candidate {
            row,
            data_version,
            keys,
        });
    }

    /// The newest complete version, with its rows.
    pub(crate) fn complete(&self) -> Option<(&Candidate, Rows)> {
        self.versions.iter().rev().find_map(|candidate| {
            let mut rows = Rows::new();
            for key in &candidate.keys {
                rows.insert(self.at(key, candidate.row.version)?.clone());
            }
            Some((candidate, rows))
        })
    }

    /// The rows of the newest version with unknown content.
    pub(crate) fn unknown_keys(&self) -> Vec<String> {
        let Some(newest) = self.versions.last() else {
            return Vec::new();
        };
        newest
            .keys
            .iter()
            .filter(|key| self.at(key, newest.row.version).is_none())
            .cloned()
            .collect()
    }

    /// All rows of the newest version.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.versions
            .last()
            .map(|newest| newest.keys.clone())
            .unwrap_or_default()
    }

    /// The row at this version, if it is known.
    fn at(&self, key: &str, version: u64) -> Option<&Row> {
        let known = self
            .rows
            .get(key)?
            .iter()
            .rev()
            .find(|(at, _)| self.unchanged(key, *at, version))?;
        known.1.as_ref()
    }

    /// Whether the listed commits show that none between these two versions changed the row.
    fn unchanged(&self, key: &str, one: u64, other: u64) -> bool {
        let (first, last) = (one.min(other), one.max(other));
        if first == last {
            return true;
        }
        let keeps = |commit: &CommitRecord| match &commit.changed {
            ChangedKeys::Keys(keys) => keys.iter().all(|one| one != key),
            ChangedKeys::Count(_) => false,
        };
        let mut listed = 0;
        for (_, commit) in self.changes.range(first + 1..=last) {
            if !keeps(commit) {
                return false;
            }
            listed += 1;
        }
        listed == last - first
    }

    /// The heartbeats of these rows.
    pub(crate) fn heartbeats(&self, rows: &Rows) -> Heartbeats {
        let observed = self
            .heartbeats
            .iter()
            .map(|(key, value)| (key.as_str(), *value));
        shown_heartbeats(observed, self.cell.clone(), rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{ClusterName, CommitId, SharedSettings};

    fn version(changes: &[(u64, ChangedKeys)]) -> VersionRow {
        let mut row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        for (version, changed) in changes {
            let id = CommitId::new((*version).into());
            row.recent
                .push(CommitRecord::new(*version, id, None, changed.clone()));
            row.version = *version;
        }
        row
    }

    fn keys(keys: &[&str]) -> ChangedKeys {
        ChangedKeys::Keys(names(keys))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn shows(rows: &[(&str, Option<&str>)]) -> Observation {
        let rows = rows
            .iter()
            .map(|(key, body)| ((*key).to_owned(), body.map(str::to_owned)))
            .collect();
        Observation {
            rows,
            ..Observation::default()
        }
    }

    /// The keys with unknown content after an observation of this version with these children.
    fn unknown_keys(
        read: &mut SnapshotRead,
        version: VersionRow,
        children: &[&str],
    ) -> Vec<String> {
        read.add(&version, &mut shows(&[]), &Rows::new());
        read.add_version(version, 0, &names(children));
        read.unknown_keys()
    }

    #[test]
    fn unchanged_rows_are_known_at_other_versions() {
        let started = || {
            let mut read = SnapshotRead::default();
            read.add(
                &version(&[(5, keys(&["x"]))]),
                &mut shows(&[("a", Some("1")), ("b", Some("2")), ("c", None)]),
                &Rows::new(),
            );
            read
        };
        let all = ["a", "b", "~cell"];
        assert!(unknown_keys(&mut started(), version(&[(5, keys(&["x"]))]), &all).is_empty());
        assert_eq!(
            unknown_keys(
                &mut started(),
                version(&[(5, keys(&["x"])), (6, keys(&["b"]))]),
                &all
            ),
            ["b"]
        );
        assert_eq!(
            unknown_keys(
                &mut started(),
                version(&[(5, keys(&["x"])), (6, ChangedKeys::Count(65))]),
                &all
            ),
            ["a", "b"]
        );
        // A row that did not exist, and one that was not read.
        assert_eq!(
            unknown_keys(
                &mut started(),
                version(&[(5, keys(&["x"]))]),
                &["a", "c", "d"]
            ),
            ["c", "d"]
        );
        // More commits than are listed.
        assert_eq!(
            unknown_keys(&mut started(), version(&[(7, keys(&["x"]))]), &all),
            ["a", "b"]
        );
        // An earlier version; only commits on other rows are in between.
        assert!(unknown_keys(&mut started(), version(&[(4, keys(&["a", "b"]))]), &all).is_empty());
        let mut read = started();
        read.add_version(version(&[(5, keys(&["x"]))]), 7, &names(&["a", "~cell"]));
        let (candidate, rows) = read.complete().unwrap();
        assert_eq!(candidate.data_version, 7);
        assert_eq!(rows.iter().map(Row::key).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn the_version_before_the_newest_may_be_complete() {
        let mut read = SnapshotRead::default();
        let (five, six) = (
            version(&[(5, keys(&["b"]))]),
            version(&[(5, keys(&["b"])), (6, keys(&["c"]))]),
        );
        read.add(&five, &mut shows(&[("a", Some("1"))]), &Rows::new());
        read.add_version(five, 50, &names(&["a", "b"]));
        assert!(read.complete().is_none() && read.unknown_keys() == ["b"]);
        // The missing row is read, and another one was inserted.
        read.add(&six, &mut shows(&[("b", Some("2"))]), &Rows::new());
        read.add_version(six, 60, &names(&["a", "b", "c"]));
        assert_eq!(read.unknown_keys(), ["c"]);
        let (candidate, rows) = read.complete().unwrap();
        assert_eq!(
            (candidate.row.version, candidate.data_version, rows.len()),
            (5, 50, 2)
        );
        // If that commit had changed the row, its content before would be unknown.
        let mut read = SnapshotRead::default();
        let (five, six) = (
            version(&[(5, keys(&["b"]))]),
            version(&[(5, keys(&["b"])), (6, keys(&["b", "c"]))]),
        );
        read.add_version(five, 50, &names(&["b"]));
        read.add(&six, &mut shows(&[("b", Some("2"))]), &Rows::new());
        read.add_version(six, 60, &names(&["b", "c"]));
        assert!(read.complete().is_none());
    }

    #[test]
    fn another_table_starts_again() {
        let mut read = SnapshotRead::default();
        read.add(&version(&[]), &mut shows(&[("a", Some("1"))]), &Rows::new());
        let other = VersionRow::initial(TableId::new(2), SharedSettings::default());
        assert_eq!(unknown_keys(&mut read, other, &["a"]), ["a"]);
        // The same table, where another commit made that version.
        let mut read = SnapshotRead::default();
        let mut five = version(&[(5, keys(&["x"]))]);
        read.add(&five, &mut shows(&[("a", Some("1"))]), &Rows::new());
        five.recent[0].id = CommitId::new(55);
        assert_eq!(unknown_keys(&mut read, five, &["a"]), ["a"]);
    }

    #[test]
    fn requests_stay_below_the_limit_of_the_server() {
        let cluster: ClusterName = "a/b".parse().unwrap();
        let paths = Paths::new("/membership", &cluster);
        let many: Vec<String> = (0..5000)
            .map(|i| format!("10.0.0.1:{i}@1764000000000"))
            .collect();
        let all = queries(&paths, many.clone(), true, true, &Rows::new());
        assert!(all.len() > 1 && all.iter().all(|query| query.rows == query.heartbeats));
        assert_eq!(
            all.iter()
                .flat_map(|query| query.rows.clone())
                .collect::<Vec<_>>(),
            many
        );
        assert_eq!(all.iter().filter(|query| query.children).count(), 1);
        assert!(all.last().unwrap().children);
        assert_eq!(
            queries(&paths, Vec::new(), true, true, &Rows::new()),
            [Query {
                children: true,
                ..Query::default()
            }]
        );
    }
}
