//! Rows of answers as rows of the contract.
//!
//! The version row is stored in columns, so that one statement can compute the next one; fields
//! that this build does not know are in `extra`. Here the columns become the JSON object that core
//! decodes.

use std::sync::Arc;

use membership_core::{
    Heartbeats, Operation, Snapshot, TableError, TableErrorKind as Kind, VersionRow, VersionToken,
    check_version_row, missing_version_row, stored_version_row,
};
use membership_provider::{VersionRowParts, check_last_commit};

use super::STORE;
use super::client::Parts;
use super::error::error;
use super::sql::kind;
use crate::shared::{DecodeCache, add, heartbeat};

/// Everything that one answer holds.
#[derive(Default)]
pub(super) struct Answer<'a> {
    /// The columns of the version row, then the recent commits.
    parts: Option<Parts>,
    /// Keys and texts.
    pub(super) rows: Vec<(&'a str, &'a str)>,
    pub(super) heartbeats: Heartbeats,
    /// The key of a row without a version row.
    orphan: Option<&'a str>,
    /// Whether standbys have confirmed the statement, and how many there are.
    pub(super) barrier: (bool, i64),
    /// Whether the commit was executed, and then whether standbys have it on their disks.
    pub(super) done: Option<bool>,
}

/// How many columns a version row has before its recent commits.
const COLUMNS: usize = 10;

/// Sorts an answer.
///
/// # Errors
/// `Damaged`: columns of another type.
pub(super) fn sort(rows: &[tokio_postgres::Row]) -> Result<Answer<'_>, TableError> {
    let mut answer = Answer::default();
    for row in rows {
        let sorted = sort_one(row, &mut answer);
        let damaged =
            |e| error(Kind::Damaged, "the server's answer has another shape").with_source(e);
        sorted.map_err(damaged)?;
    }
    Ok(answer)
}

/// Whether this row says that a standby has answered.
pub(super) fn is_standby(row: &tokio_postgres::Row) -> bool {
    matches!(row.try_get(0), Ok(kind::STANDBY))
}

fn sort_one<'a>(
    row: &'a tokio_postgres::Row,
    answer: &mut Answer<'a>,
) -> Result<(), tokio_postgres::Error> {
    match row.try_get::<_, i16>(0)? {
        kind::VERSION => answer.parts = Some(row.try_get(5)?),
        kind::ROW => answer.rows.push((row.try_get(1)?, row.try_get(2)?)),
        kind @ (kind::HEARTBEAT | kind::ROWLESS) => {
            let counter = u64::try_from(row.try_get::<_, i64>(3)?).unwrap_or(0);
            let value = heartbeat(counter, row.try_get(4)?);
            let has_row = kind == kind::HEARTBEAT;
            add(&mut answer.heartbeats, row.try_get(1)?, value, has_row);
        }
        kind::CELL => answer.heartbeats.cluster = Some(row.try_get(2)?),
        kind::ORPHAN => answer.orphan = Some(row.try_get(1)?),
        kind::BARRIER => {
            let confirmed: Option<&str> = row.try_get(1)?;
            answer.barrier = (confirmed.is_some(), row.try_get(3)?);
        }
        kind::DONE => answer.done = Some(row.try_get::<_, &str>(2)? == "true"),
        _ => {}
    }
    Ok(())
}

impl Answer<'_> {
    /// The version row of a table that may be used and that `known` may be from. Clauses T12, T16.
    ///
    /// # Errors
    /// As [`usable_version_row`](membership_core::usable_version_row).
    pub(super) fn usable(
        &self,
        cache: &DecodeCache<Parts>,
        known: Option<&VersionToken>,
    ) -> Result<Arc<VersionRow>, TableError> {
        let any_key = self.orphan.or(self.rows.first().map(|(key, _)| *key));
        let missing = || missing_version_row(any_key, known, Operation::Read, STORE);
        let row = self.version(cache)?.ok_or_else(missing)?;
        check_version_row(&row, known, Operation::Read, STORE)?;
        Ok(row)
    }

    /// The version row, if there is one.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`.
    pub(super) fn version(
        &self,
        cache: &DecodeCache<Parts>,
    ) -> Result<Option<Arc<VersionRow>>, TableError> {
        let parts = self.parts.as_ref();
        parts.map(|parts| cache.version(parts, decode)).transpose()
    }

    /// The table that this answer shows.
    pub(super) fn snapshot(&self, cache: &DecodeCache<Parts>, row: Arc<VersionRow>) -> Snapshot {
        cache.snapshot(row, cache.merge(&self.rows))
    }
}

/// Without tables, a known table is gone.
pub(super) fn replaced_if_known(known: Option<&VersionToken>) -> impl Fn(TableError) -> TableError {
    move |e| match known {
        Some(_) if e.kind() == Kind::NotInitialized => {
            missing_version_row(None, known, Operation::Read, STORE)
        }
        _ => e,
    }
}

fn decode(parts: &Parts) -> Result<VersionRow, TableError> {
    let damaged = |why| error(Kind::Damaged, format!("the version row is damaged: {why}"));
    let Some((columns, recent)) = parts.split_first_chunk::<COLUMNS>() else {
        return Err(damaged("columns are missing"));
    };
    let [
        table,
        version,
        commit,
        deleting,
        row_count,
        layout,
        min_layout,
        settings,
        core,
        extra,
    ] = columns.each_ref().map(Option::as_deref);
    let Some(mut row) = VersionRowParts::from_object(extra.unwrap_or_default()) else {
        return Err(damaged("`extra` is not a JSON object"));
    };
    row.text("table_id", table.unwrap_or_default());
    for (name, value) in [
        ("version", version),
        ("row_count", row_count),
        ("layout", layout),
        ("min_layout", min_layout),
        ("settings", settings),
        ("core", core.filter(|core| *core != "\"\"")),
        ("deleting", deleting.filter(|deleting| *deleting != "false")),
    ] {
        if let Some(value) = value {
            row.json(name, value);
        }
    }
    for record in recent {
        row.record(record.as_deref().unwrap_or("null"));
    }
    let row = stored_version_row(&row.into_text(), Operation::Read, STORE)?;
    check_last_commit(STORE, row, commit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{SharedSettings, TableId};

    fn parts(extra: &str) -> Parts {
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
    fn an_unreadable_version_row_has_the_right_kind() {
        let change = |n: usize, to: Option<&str>| {
            let mut all = parts("{}");
            all[n] = to.map(str::to_owned);
            decode(&all).unwrap_err().kind()
        };
        assert_eq!(change(5, None), Kind::ForeignTable);
        assert_eq!(change(6, Some("900")), Kind::NewerLayout);
        assert_eq!(change(1, Some("-1")), Kind::Damaged);
        assert_eq!(change(2, Some("x")), Kind::Damaged);
        assert_eq!(change(9, Some("junk")), Kind::Damaged);
        assert_eq!(decode(&Parts::new()).unwrap_err().kind(), Kind::Damaged);
    }
}
