//! Lines of answers as rows of the contract.

use std::sync::Arc;

use membership_core::{
    Heartbeats, Operation, Snapshot, TableError, VersionRow, VersionToken, check_version_row,
    missing_version_row, stored_version_row,
};
use membership_provider::{VersionRowParts, check_last_commit};

use super::STORE;
use super::checks::secondary;
use super::connection::Line;
use super::sql::kind;
use crate::shared::{DecodeCache, add, heartbeat};

/// What an answer holds, undecoded.
#[derive(Default)]
pub(super) struct Found {
    version: Option<String>,
    /// Keys and texts.
    pub(super) rows: Vec<(String, String)>,
    pub(super) heartbeats: Heartbeats,
    /// The number of the last line of this kind; 0 without one.
    pub(super) done: Option<i64>,
    read_only: bool,
}

impl Found {
    pub(super) fn of(lines: Vec<Line>) -> Self {
        let mut found = Self::default();
        for line in lines {
            let silo = line.silo.unwrap_or_default();
            match line.kind {
                kind::VERSION => found.version = line.body,
                kind::ROW => found.rows.push((silo, line.body.unwrap_or_default())),
                kind::HEARTBEAT | kind::ROWLESS => {
                    let counter = line.number.and_then(|n| u64::try_from(n).ok());
                    let value = heartbeat(counter.unwrap_or(0), line.at.as_deref());
                    let has_row = line.kind == kind::HEARTBEAT;
                    add(&mut found.heartbeats, &silo, value, has_row);
                }
                kind::CELL => found.heartbeats.cluster = line.body,
                kind::DONE => found.done = Some(line.number.unwrap_or(0)),
                kind::READ_ONLY => found.read_only = true,
                _ => {}
            }
        }
        found
    }

    /// The version row, if there is one.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`; `Unavailable` from a secondary.
    pub(super) fn version(
        &self,
        cache: &DecodeCache,
    ) -> Result<Option<Arc<VersionRow>>, TableError> {
        if self.read_only {
            // A former primary may be behind the current one.
            return Err(secondary());
        }
        let stored = self.version.as_ref();
        stored
            .map(|it| cache.version(it, |it| decode(it)))
            .transpose()
    }

    /// The version row of a table that may be used and that `known` may be from. Clauses T12, T16.
    ///
    /// # Errors
    /// As [`usable_version_row`](membership_core::usable_version_row).
    pub(super) fn usable(
        &self,
        cache: &DecodeCache,
        known: Option<&VersionToken>,
    ) -> Result<Arc<VersionRow>, TableError> {
        let any_key = self.rows.first().map(|(key, _)| key.as_str());
        let missing = || missing_version_row(any_key, known, Operation::Read, STORE);
        let row = self.version(cache)?.ok_or_else(missing)?;
        check_version_row(&row, known, Operation::Read, STORE)?;
        Ok(row)
    }

    /// The table that this answer shows.
    pub(super) fn snapshot(&self, cache: &DecodeCache, row: Arc<VersionRow>) -> Snapshot {
        cache.snapshot(row, cache.merge(&self.rows))
    }
}

/// From the columns as a JSON object, in which a column without a value is absent.
fn decode(stored: &str) -> Result<VersionRow, TableError> {
    let Some(mut columns) = VersionRowParts::from_object(stored) else {
        return stored_version_row(stored, Operation::Read, STORE);
    };
    let text = |value: Option<serde_json::Value>| value?.as_str().map(str::to_owned);
    let commit = text(columns.remove("commit_id"));
    if columns.remove("deleting") == Some(true.into()) {
        columns.value("deleting", true);
    }
    for name in ["settings", "core"] {
        match text(columns.remove(name)) {
            Some(value) if value != "\"\"" => columns.json(name, &value),
            _ => {}
        }
    }
    if let Some(extra) = text(columns.remove("extra")) {
        columns.unknown_fields(&extra);
    }
    for slot in 0..16 {
        if let Some(record) = text(columns.remove(&format!("recent_{slot}"))) {
            columns.record(&record);
        }
    }
    let row = stored_version_row(&columns.into_text(), Operation::Read, STORE)?;
    check_last_commit(STORE, row, commit.as_deref())
}

#[cfg(test)]
mod tests {
    use membership_core::{SharedSettings, TableErrorKind as Kind, TableId};

    use super::*;

    #[test]
    fn columns_are_a_version_row() {
        let initial = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let settings = serde_json::to_string(&SharedSettings::default()).unwrap();
        let columns = serde_json::json!({
            "table_id": TableId::new(7).to_string(), "version": 0, "commit_id": format!("{:032x}", 0), "deleting": false,
            "row_count": 0, "layout": 1, "min_layout": 1, "settings": settings, "core": "\"\"", "extra": "{\"moon\":1}",
        });
        let row = decode(&columns.to_string()).unwrap();
        assert_eq!(row.token(&[]), initial.token(&[]));
        assert!(membership_core::encoding::encode_version_row(&row).contains("\"moon\":1"));
        let change = |name: &str, value: serde_json::Value| {
            let mut columns = columns.clone();
            columns[name] = value;
            decode(&columns.to_string()).map_err(|e| e.kind())
        };
        assert!(change("deleting", true.into()).unwrap().deleting);
        assert_eq!(change("min_layout", 900.into()), Err(Kind::NewerLayout));
        assert_eq!(change("commit_id", "x".into()), Err(Kind::Damaged));
        assert_eq!(change("version", "junk".into()), Err(Kind::Damaged));
        assert!(decode("junk").is_err());
    }
}
