//! Rows of answers as rows of the contract.
//!
//! The version row is stored in columns, so that one statement can make the next one out of it; what this build does not know stands in
//! `extra`. Here the parts become the JSON object that core knows how to read.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use membership_core::encoding::{VersionRowError, decode_version_row};
use membership_core::{
    Discontinuity, Heartbeat, Heartbeats, Row, Rows, Snapshot, TableError, TableErrorKind,
    VersionRow, VersionToken, WallTime, check_token,
};

use super::error::error;
use super::sql::kind;

/// What was read last. Texts are always read and compared, so that a row changed by hand is noticed; only decoding is spared.
#[derive(Default)]
pub(super) struct Cache(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    version: Option<(Vec<Option<String>>, Arc<VersionRow>)>,
    rows: Rows,
}

/// A stored version row.
#[derive(Clone)]
pub(super) struct StoredVersion {
    pub(super) row: Arc<VersionRow>,
    pub(super) deleting: bool,
}

/// Everything that one answer holds.
#[derive(Default)]
pub(super) struct Answer<'a> {
    /// The parts of the version row, in the order of [`VERSION_PARTS`] and then the recent commits.
    parts: Option<Vec<Option<String>>>,
    pub(super) rows: Vec<(&'a str, &'a str)>,
    beats: Vec<(&'a str, i64, Option<&'a str>)>,
    cell: Option<&'a str>,
    orphan: Option<&'a str>,
    /// The commit was carried out.
    pub(super) done: bool,
}

/// What comes before the recent commits in the parts of a version row.
const VERSION_PARTS: usize = 10;

/// Sorts an answer.
///
/// # Errors
/// `Damaged`: columns that are not what they should be.
pub(super) fn sort(rows: &[tokio_postgres::Row]) -> Result<Answer<'_>, TableError> {
    let mut answer = Answer::default();
    for row in rows {
        sort_one(row, &mut answer).map_err(|e| {
            error(
                TableErrorKind::Damaged,
                "the server's answer has another shape",
            )
            .with_source(e)
        })?;
    }
    Ok(answer)
}

fn sort_one<'a>(
    row: &'a tokio_postgres::Row,
    answer: &mut Answer<'a>,
) -> Result<(), tokio_postgres::Error> {
    match row.try_get::<_, i16>(0)? {
        kind::VERSION => answer.parts = Some(row.try_get(5)?),
        kind::ROW => answer.rows.push((row.try_get(1)?, row.try_get(2)?)),
        kind::BEAT => answer
            .beats
            .push((row.try_get(1)?, row.try_get(3)?, row.try_get(4)?)),
        kind::CELL => answer.cell = Some(row.try_get(2)?),
        kind::ORPHAN => answer.orphan = Some(row.try_get(1)?),
        kind::DONE => answer.done = true,
        _ => {}
    }
    Ok(())
}

impl Answer<'_> {
    /// The version row of a table that may be used, and that `known` can be of.
    ///
    /// # Errors
    /// Every way of not being usable: clauses T12 and T16.
    pub(super) fn current(
        &self,
        cache: &Cache,
        known: Option<&VersionToken>,
    ) -> Result<Arc<VersionRow>, TableError> {
        let Some(version) = self.version(cache)? else {
            return Err(match (known, self.orphan()) {
                (None, Some(key)) => rows_without_version(key),
                _ => absent(known),
            });
        };
        let continuity = known.map_or(Ok(()), |known| check_token(known, &version.row));
        if continuity == Err(Discontinuity::Replaced) {
            return Err(error(
                TableErrorKind::TableReplaced,
                "the table has another id than the one that was known",
            ));
        }
        if version.deleting {
            return Err(being_deleted());
        }
        if continuity.is_err() {
            return Err(error(
                TableErrorKind::TableRolledBack,
                format!("the table is at version {}", version.row.version),
            ));
        }
        Ok(version.row)
    }

    /// The version row, decoded unless it is the one that was read last.
    ///
    /// # Errors
    /// What [`VersionRowError`] says.
    pub(super) fn version(&self, cache: &Cache) -> Result<Option<StoredVersion>, TableError> {
        let Some(parts) = &self.parts else {
            return Ok(None);
        };
        let known = cache
            .lock()
            .version
            .as_ref()
            .filter(|(known, _)| known == parts)
            .map(|(_, row)| Arc::clone(row));
        let row = match known {
            Some(row) => row,
            None => {
                let row = Arc::new(decode(parts)?);
                cache.lock().version = Some((parts.clone(), Arc::clone(&row)));
                row
            }
        };
        Ok(Some(StoredVersion {
            deleting: row.deleting,
            row,
        }))
    }

    /// Some row, to be named where there is no version row.
    pub(super) fn orphan(&self) -> Option<&str> {
        self.orphan
            .or_else(|| self.rows.first().map(|(key, _)| *key))
    }

    /// The table that this answer shows.
    pub(super) fn snapshot(&self, cache: &Cache, row: Arc<VersionRow>) -> Snapshot {
        Snapshot {
            token: row.token(&[]),
            version_row: row,
            rows: self.all_rows(cache),
        }
    }

    /// Rows with the same text as before are the same objects again, and the set changes by what changed.
    fn all_rows(&self, cache: &Cache) -> Rows {
        let mut set = cache.lock().rows.clone();
        for (key, body) in &self.rows {
            if set.by_key(key).is_none_or(|row| row.body() != *body) {
                set.insert(Row::decode(*key, *body));
            }
        }
        if set.len() != self.rows.len() {
            let there: HashSet<&str> = self.rows.iter().map(|(key, _)| *key).collect();
            let gone: Vec<String> = set
                .iter()
                .map(Row::key)
                .filter(|key| !there.contains(key))
                .map(str::to_owned)
                .collect();
            for key in gone {
                set.remove(&key);
            }
        }
        cache.lock().rows = set.clone();
        set
    }

    /// The row of this key, if the answer has it.
    pub(super) fn row(&self, cache: &Cache, key: &str) -> Option<Row> {
        let (_, body) = self.rows.iter().find(|(k, _)| *k == key)?;
        let known = cache
            .lock()
            .rows
            .by_key(key)
            .filter(|row| row.body() == *body)
            .cloned();
        Some(known.unwrap_or_else(|| Row::decode(key, *body)))
    }

    /// The heartbeats; one under a key that is no silo's belongs to a row that cannot be decoded.
    pub(super) fn heartbeats(&self) -> Heartbeats {
        let silos = self
            .beats
            .iter()
            .filter_map(|(key, counter, at)| Some((key.parse().ok()?, beat(*counter, *at))));
        Heartbeats {
            silos: silos.collect(),
            cluster: self.cell.map(str::to_owned),
        }
    }

    /// The only heartbeat of an answer about one row.
    pub(super) fn heartbeat(&self) -> Option<Heartbeat> {
        self.beats
            .first()
            .map(|(_, counter, at)| beat(*counter, *at))
    }
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What is in it is replaced as a whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Only the counter decides anything; a time that somebody made unreadable is shown as 1970.
fn beat(counter: i64, at: Option<&str>) -> Heartbeat {
    let at = at
        .and_then(|t| t.parse().ok())
        .unwrap_or(WallTime::from_millis(0));
    Heartbeat {
        counter: u64::try_from(counter).unwrap_or(0),
        at,
    }
}

/// The error for no version row.
pub(super) fn absent(known: Option<&VersionToken>) -> TableError {
    match known {
        None => error(
            TableErrorKind::NotInitialized,
            "the database has no such cluster",
        ),
        Some(_) => error(
            TableErrorKind::TableReplaced,
            "the table that was known is gone",
        ),
    }
}

/// The same for an error that says that there is no table at all.
pub(super) fn absent_to(known: Option<&VersionToken>) -> impl Fn(TableError) -> TableError {
    move |e| match known {
        Some(_) if e.kind() == TableErrorKind::NotInitialized => absent(known),
        _ => e,
    }
}

/// The error for rows that stand without a version row.
pub(super) fn rows_without_version(key: &str) -> TableError {
    error(
        TableErrorKind::Damaged,
        "the cluster has rows but no version row",
    )
    .with_key(key)
}

pub(super) fn being_deleted() -> TableError {
    error(TableErrorKind::BeingDeleted, "the cluster is being deleted")
}

/// A whole number of the database that is never negative there.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn decode(parts: &[Option<String>]) -> Result<VersionRow, TableError> {
    let damaged = |why: String| {
        error(
            TableErrorKind::Damaged,
            VersionRowError::Damaged(why).to_string(),
        )
    };
    let row = decode_version_row(&object(parts).map_err(damaged)?).map_err(|e| {
        let kind = match e {
            VersionRowError::Foreign(_) => TableErrorKind::ForeignTable,
            VersionRowError::NewerLayout { .. } => TableErrorKind::NewerLayout,
            _ => TableErrorKind::Damaged,
        };
        error(kind, e.to_string())
    })?;
    if parts.get(2).and_then(|c| c.as_deref()) != Some(row.last_commit().to_string().as_str()) {
        return Err(damaged(
            "its commit id is not that of its last commit".to_owned(),
        ));
    }
    Ok(row)
}

/// The parts as one JSON object.
fn object(parts: &[Option<String>]) -> Result<String, String> {
    let Some((
        [
            table,
            version,
            _,
            deleting,
            count,
            layout,
            min_layout,
            settings,
            core,
            extra,
        ],
        recent,
    )) = parts.split_first_chunk::<VERSION_PARTS>()
    else {
        return Err("columns are missing".to_owned());
    };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut out = String::with_capacity(4096);
    out.push_str("{\"table_id\":");
    out.push_str(&quoted(table.as_deref().unwrap_or_default()));
    for (name, value) in [
        ("version", version.as_deref()),
        ("row_count", count.as_deref()),
        ("layout", layout.as_deref()),
        ("min_layout", min_layout.as_deref()),
        ("settings", settings.as_deref()),
        ("core", core.as_deref().filter(|c| *c != "\"\"")),
        ("deleting", deleting.as_deref().filter(|d| *d != "false")),
    ] {
        if let Some(value) = value {
            out.push_str(&format!(",\"{name}\":{value}"));
        }
    }
    out.push_str(",\"recent\":[");
    for (n, record) in recent.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        out.push_str(record.as_deref().unwrap_or("null"));
    }
    out.push(']');
    let extra = extra.as_deref().unwrap_or_default().trim();
    match extra.strip_prefix('{').map(str::trim_start) {
        None => return Err("`extra` is not a JSON object".to_owned()),
        Some("}") => out.push('}'),
        Some(rest) => {
            out.push(',');
            out.push_str(rest);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{SharedSettings, TableId};

    fn parts(extra: &str) -> Vec<Option<String>> {
        let settings = serde_json::to_string(&SharedSettings::default()).unwrap();
        let id = TableId::new(7).to_string();
        let zero = format!("{:032x}", 0);
        [
            &id, "0", &zero, "false", "0", "1", "1", &settings, "\"\"", extra,
        ]
        .map(|p| Some((*p).to_owned()))
        .to_vec()
    }

    #[test]
    fn columns_are_a_version_row() {
        let initial = VersionRow::initial(TableId::new(7), SharedSettings::default());
        assert_eq!(decode(&parts("{}")).unwrap(), initial);
        let with = decode(&parts("{ \"moon\": 1}")).unwrap();
        assert!(membership_core::encoding::encode_version_row(&with).contains("\"moon\":1"));
    }

    #[test]
    fn what_cannot_be_read_says_what_it_is() {
        let change = |n: usize, to: Option<&str>| {
            let mut all = parts("{}");
            all[n] = to.map(str::to_owned);
            decode(&all).unwrap_err().kind()
        };
        assert_eq!(change(5, None), TableErrorKind::ForeignTable);
        assert_eq!(change(6, Some("900")), TableErrorKind::NewerLayout);
        assert_eq!(change(1, Some("-1")), TableErrorKind::Damaged);
        assert_eq!(change(2, Some("x")), TableErrorKind::Damaged);
        assert_eq!(change(9, Some("junk")), TableErrorKind::Damaged);
        assert_eq!(decode(&[]).unwrap_err().kind(), TableErrorKind::Damaged);
    }
}
