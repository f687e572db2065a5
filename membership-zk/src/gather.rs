//! Looks at a cluster, and what several looks add up to. Clause T6.
//!
//! One look is one request of several reads, which the server answers as of one moment. Which rows to ask for is a guess: those of the last
//! time. What a look shows of a row holds at the version that the same look shows; and at another one, later or earlier, unless one of the commits
//! in between has changed it, and each version row lists the keys of the last sixteen. Looks are repeated with what is missing until one of the
//! versions that were seen is complete: rows that came while one look was answered are in the next one, and the version before them is whole.

use std::collections::BTreeMap;

use membership_core::{
    ChangedKeys, CommitRecord, Heartbeat, Heartbeats, Row, Rows, Snapshot, TableError,
    TableErrorKind, TableId, VersionRow,
};
use tokio::time::Instant;
use zookeeper_client::{Error, MultiReadResult};

use crate::error::{error, failed};
use crate::link::{Link, Session};
use crate::place::{Place, is_key};

/// What a request may hold: a quarter of what ZooKeeper takes.
const LARGEST_REQUEST: usize = 256 << 10;
/// About what an answer should hold.
const LARGEST_ANSWER: usize = 4 << 20;
/// What a row is taken for that nobody has seen.
const UNSEEN: usize = 1 << 10;
/// What a read takes in a request besides the path.
const EACH: usize = 14;

/// What to look at, besides the version row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) children: bool,
    pub(crate) rows: Vec<String>,
    pub(crate) beats: Vec<String>,
    pub(crate) cell: bool,
}

/// What one look showed.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// The text of the version row, and how often the data of its znode were changed. None where there is no znode, or nothing in it.
    pub(crate) version: Option<(String, i32)>,
    /// Whether there is a znode, and how often its data were changed.
    pub(crate) znode: Option<i32>,
    pub(crate) children: Vec<String>,
    /// The keys that were asked for; none where there is no such row.
    pub(crate) rows: Vec<(String, Option<String>)>,
    pub(crate) beats: Vec<(String, Heartbeat)>,
    pub(crate) cell: Option<String>,
}

impl Look {
    /// Any row, for errors.
    pub(crate) fn stray(&self) -> Option<&str> {
        self.children
            .iter()
            .map(String::as_str)
            .find(|name| is_key(name))
    }

    pub(crate) fn text(&self) -> Option<&str> {
        self.version.as_ref().map(|(text, _)| text.as_str())
    }
}

/// One look.
///
/// # Errors
/// What the server says; `PermissionDenied` with the key of what may not be read.
pub(crate) async fn look(
    link: &Link,
    session: &Session,
    place: &Place,
    ask: Ask,
    deadline: Instant,
) -> Result<Look, TableError> {
    let mut reader = session.client.new_multi_reader();
    reader.add_get_data(place.cluster()).map_err(failed)?;
    if ask.children {
        reader.add_get_children(place.cluster()).map_err(failed)?;
    }
    if ask.cell {
        reader.add_get_data(&place.cell()).map_err(failed)?;
    }
    for key in &ask.rows {
        reader.add_get_data(&place.row(key)).map_err(failed)?;
    }
    for key in &ask.beats {
        reader.add_get_data(&place.alive(key)).map_err(failed)?;
    }
    let mut answers = link.read(session, deadline, reader).await?.into_iter();
    let mut next = || {
        answers.next().ok_or_else(|| {
            error(
                TableErrorKind::Unavailable,
                "an answer of the server is not whole",
            )
        })
    };
    let mut look = Look::default();
    if let Some((text, version)) = data(next()?, None)? {
        look.znode = Some(version);
        look.version = (!text.is_empty()).then_some((text, version));
    }
    if ask.children {
        look.children = match next()? {
            MultiReadResult::Children { children } => children,
            other => data(other, None).map(|_| Vec::new())?,
        };
    }
    if ask.cell {
        look.cell = data(next()?, None)?.map(|(text, _)| text);
    }
    for key in ask.rows {
        let body = data(next()?, Some(&key))?.map(|(text, _)| text);
        look.rows.push((key, body));
    }
    for key in ask.beats {
        if let Some(beat) = data(next()?, Some(&key))?.and_then(|(text, _)| text.parse().ok()) {
            look.beats.push((key, beat));
        }
    }
    Ok(look)
}

/// The text of a znode, if there is one, and how often it was changed.
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
            "an answer of the server is not what was asked for",
        )),
    }
}

/// Divides what is to be looked at into requests that the server takes.
pub(crate) fn portions(
    place: &Place,
    keys: Vec<String>,
    rows: bool,
    beats: bool,
    seen: &Rows,
) -> Vec<Ask> {
    let mut all = Vec::new();
    let (mut ask, mut request, mut answer) = (Ask::default(), 0, 0);
    for key in keys {
        let path = place.cluster().len() + key.len() + 8 + EACH;
        let (asks, answers) = (
            path * (usize::from(rows) + usize::from(beats)),
            if rows { size(seen, &key) } else { 64 },
        );
        if request > 0 && (request + asks > LARGEST_REQUEST || answer + answers > LARGEST_ANSWER) {
            all.push(std::mem::take(&mut ask));
            (request, answer) = (0, 0);
        }
        request += asks;
        answer += answers;
        if beats {
            ask.beats.push(key.clone());
        }
        if rows {
            ask.rows.push(key);
        }
    }
    // The last one shows how it all ended.
    ask.children = true;
    all.push(ask);
    all
}

fn size(seen: &Rows, key: &str) -> usize {
    seen.by_key(key).map_or(UNSEEN, Row::size)
}

/// What several looks have shown so far.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    table: Option<TableId>,
    /// The row, if there was one, and the versions at which that was so.
    rows: BTreeMap<String, Vec<(u64, Option<Row>)>>,
    /// The commits that were listed, with what they have changed.
    changes: BTreeMap<u64, CommitRecord>,
    /// The versions that were seen, oldest first.
    versions: Vec<Candidate>,
    beats: BTreeMap<String, Heartbeat>,
    cell: Option<String>,
}

/// A version that may turn out to be whole.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) row: VersionRow,
    pub(crate) data_version: i32,
    /// The rows that stood there.
    keys: Vec<String>,
}

impl Gathered {
    /// Begins with what is known of a version.
    pub(crate) fn from(base: &Snapshot) -> Self {
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

    /// What a look at that version showed. Rows that are as they were `seen` need not be decoded again.
    pub(crate) fn take(&mut self, version: &VersionRow, look: &mut Look, seen: &Rows) {
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
        for (key, body) in look.rows.drain(..) {
            let row = body.map(|body| match seen.by_key(&key) {
                Some(row) if row.body() == body => row.clone(),
                _ => Row::decode(key.clone(), body),
            });
            self.rows
                .entry(key)
                .or_default()
                .push((version.version, row));
        }
        self.beats.extend(look.beats.drain(..));
        if let Some(cell) = look.cell.take() {
            self.cell = Some(cell);
        }
    }

    /// A version whose rows stand there.
    pub(crate) fn candidate(&mut self, row: VersionRow, data_version: i32, children: &[String]) {
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

    /// The newest version that is whole, with its rows.
    pub(crate) fn whole(&self) -> Option<(&Candidate, Rows)> {
        self.versions.iter().rev().find_map(|candidate| {
            let mut rows = Rows::new();
            for key in &candidate.keys {
                rows.insert(self.at(key, candidate.row.version)?.clone());
            }
            Some((candidate, rows))
        })
    }

    /// The rows of the newest version whose content at it is not known.
    pub(crate) fn doubtful(&self) -> Vec<String> {
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

    /// The row at this version, as far as that is known.
    fn at(&self, key: &str, version: u64) -> Option<&Row> {
        let known = self
            .rows
            .get(key)?
            .iter()
            .rev()
            .find(|(at, _)| self.unchanged(key, *at, version))?;
        known.1.as_ref()
    }

    /// Whether no commit between these two versions has changed the row, as far as that is listed.
    fn unchanged(&self, key: &str, one: u64, other: u64) -> bool {
        let (first, last) = (one.min(other), one.max(other));
        if first == last {
            return true;
        }
        let spares = |commit: &CommitRecord| match &commit.changed {
            ChangedKeys::Keys(keys) => keys.iter().all(|one| one != key),
            ChangedKeys::Count(_) => false,
        };
        let mut listed = 0;
        for (_, commit) in self.changes.range(first + 1..=last) {
            if !spares(commit) {
                return false;
            }
            listed += 1;
        }
        listed == last - first
    }

    /// The heartbeats of these rows.
    pub(crate) fn heartbeats(&self, rows: &Rows) -> Heartbeats {
        let silo = |(key, beat): (&String, &Heartbeat)| {
            rows.by_key(key)?;
            Some((key.parse().ok()?, *beat))
        };
        Heartbeats {
            silos: self.beats.iter().filter_map(silo).collect(),
            cluster: self.cell.clone(),
        }
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
            row.recent.push(CommitRecord {
                version: *version,
                id,
                committer: None,
                changed: changed.clone(),
            });
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

    fn shows(rows: &[(&str, Option<&str>)]) -> Look {
        let rows = rows
            .iter()
            .map(|(key, body)| ((*key).to_owned(), body.map(str::to_owned)))
            .collect();
        Look {
            rows,
            ..Look::default()
        }
    }

    /// What is doubtful once a look at this version has shown these children.
    fn doubtful(got: &mut Gathered, version: VersionRow, children: &[&str]) -> Vec<String> {
        got.take(&version, &mut shows(&[]), &Rows::new());
        got.candidate(version, 0, &names(children));
        got.doubtful()
    }

    #[test]
    fn what_no_commit_has_changed_still_holds() {
        let begun = || {
            let mut got = Gathered::default();
            got.take(
                &version(&[(5, keys(&["x"]))]),
                &mut shows(&[("a", Some("1")), ("b", Some("2")), ("c", None)]),
                &Rows::new(),
            );
            got
        };
        let all = ["a", "b", "~cell"];
        assert!(doubtful(&mut begun(), version(&[(5, keys(&["x"]))]), &all).is_empty());
        assert_eq!(
            doubtful(
                &mut begun(),
                version(&[(5, keys(&["x"])), (6, keys(&["b"]))]),
                &all
            ),
            ["b"]
        );
        assert_eq!(
            doubtful(
                &mut begun(),
                version(&[(5, keys(&["x"])), (6, ChangedKeys::Count(65))]),
                &all
            ),
            ["a", "b"]
        );
        // A row that was not there, and one that nobody asked for.
        assert_eq!(
            doubtful(
                &mut begun(),
                version(&[(5, keys(&["x"]))]),
                &["a", "c", "d"]
            ),
            ["c", "d"]
        );
        // More commits than are listed.
        assert_eq!(
            doubtful(&mut begun(), version(&[(7, keys(&["x"]))]), &all),
            ["a", "b"]
        );
        // An earlier version, from which no commit has led here but one that changed something else.
        assert!(doubtful(&mut begun(), version(&[(4, keys(&["a", "b"]))]), &all).is_empty());
        let mut got = begun();
        got.candidate(version(&[(5, keys(&["x"]))]), 7, &names(&["a", "~cell"]));
        let (candidate, rows) = got.whole().unwrap();
        assert_eq!(candidate.data_version, 7);
        assert_eq!(rows.iter().map(Row::key).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn the_version_before_the_newest_may_be_whole() {
        let mut got = Gathered::default();
        let (five, six) = (
            version(&[(5, keys(&["b"]))]),
            version(&[(5, keys(&["b"])), (6, keys(&["c"]))]),
        );
        got.take(&five, &mut shows(&[("a", Some("1"))]), &Rows::new());
        got.candidate(five, 50, &names(&["a", "b"]));
        assert!(got.whole().is_none() && got.doubtful() == ["b"]);
        // The row that was missing is there, and another one has come.
        got.take(&six, &mut shows(&[("b", Some("2"))]), &Rows::new());
        got.candidate(six, 60, &names(&["a", "b", "c"]));
        assert_eq!(got.doubtful(), ["c"]);
        let (candidate, rows) = got.whole().unwrap();
        assert_eq!(
            (candidate.row.version, candidate.data_version, rows.len()),
            (5, 50, 2)
        );
        // Had that commit changed it, nobody would know what it was before.
        let mut got = Gathered::default();
        let (five, six) = (
            version(&[(5, keys(&["b"]))]),
            version(&[(5, keys(&["b"])), (6, keys(&["b", "c"]))]),
        );
        got.candidate(five, 50, &names(&["b"]));
        got.take(&six, &mut shows(&[("b", Some("2"))]), &Rows::new());
        got.candidate(six, 60, &names(&["b", "c"]));
        assert!(got.whole().is_none());
    }

    #[test]
    fn another_table_begins_anew() {
        let mut got = Gathered::default();
        got.take(&version(&[]), &mut shows(&[("a", Some("1"))]), &Rows::new());
        let other = VersionRow::initial(TableId::new(2), SharedSettings::default());
        assert_eq!(doubtful(&mut got, other, &["a"]), ["a"]);
        // The same table, in which another commit has made that version.
        let mut got = Gathered::default();
        let mut five = version(&[(5, keys(&["x"]))]);
        got.take(&five, &mut shows(&[("a", Some("1"))]), &Rows::new());
        five.recent[0].id = CommitId::new(55);
        assert_eq!(doubtful(&mut got, five, &["a"]), ["a"]);
    }

    #[test]
    fn requests_stay_below_what_the_server_takes() {
        let cluster: ClusterName = "a/b".parse().unwrap();
        let place = Place::new("/membership", &cluster);
        let many: Vec<String> = (0..5000)
            .map(|i| format!("10.0.0.1:{i}@1764000000000"))
            .collect();
        let all = portions(&place, many.clone(), true, true, &Rows::new());
        assert!(all.len() > 1 && all.iter().all(|ask| ask.rows == ask.beats));
        assert_eq!(
            all.iter()
                .flat_map(|ask| ask.rows.clone())
                .collect::<Vec<_>>(),
            many
        );
        assert_eq!(all.iter().filter(|ask| ask.children).count(), 1);
        assert!(all.last().unwrap().children);
        assert_eq!(
            portions(&place, Vec::new(), true, true, &Rows::new()),
            [Ask {
                children: true,
                ..Ask::default()
            }]
        );
    }
}
