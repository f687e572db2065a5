//! A version row that a store keeps as several values, so that a commit writes what it must without
//! knowing the rest.
//!
//! What this build does not know is read into the version row's unknown fields and never
//! overwritten (clause T10).

use membership_core::encoding::encode_version_row;
use membership_core::{
    CommitRequest, Operation, RECENT_COMMITS, TableError, TableErrorKind, VersionRow, VersionToken,
};
use serde::Serialize;
use serde_json::{Map, Value};

/// A part of a version row as text. Plain data with string keys: it cannot fail, and an empty text
/// would be refused as damaged.
///
/// ```
/// use membership_core::SharedSettings;
/// assert!(membership_provider::json(&SharedSettings::default()).starts_with('{'));
/// ```
#[must_use]
pub fn json<T: Serialize + ?Sized>(part: &T) -> String {
    serde_json::to_string(part).unwrap_or_default()
}

/// In which of the sixteen places the record of this version stands; they are used in turn.
///
/// ```
/// use membership_provider::recent_slot;
/// assert_eq!((recent_slot(3), recent_slot(19)), (3, 3));
/// ```
#[must_use]
pub const fn recent_slot(version: u64) -> u64 {
    version % RECENT_COMMITS as u64
}

/// The stored parts of a version row, put together again.
///
/// ```
/// use membership_core::{SharedSettings, TableId, VersionRow, usable_version_row, Operation};
/// use membership_provider::{VersionRowParts, json};
///
/// let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
/// let mut parts = VersionRowParts::default();
/// parts.text("table_id", row.table_id.to_string());
/// for (name, value) in [("version", "0"), ("row_count", "0"), ("layout", "1"), ("min_layout", "1")] {
///     parts.json(name, value);
/// }
/// parts.json("settings", &json(&row.settings));
/// let text = parts.into_text();
/// assert_eq!(usable_version_row(Some(&text), None, None, Operation::Read, "mystore")?, row);
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone, Default, PartialEq)]
pub struct VersionRowParts {
    fields: Map<String, Value>,
    recent: Vec<Value>,
}

/// Without values: one of them is the cluster's secret.
impl std::fmt::Debug for VersionRowParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionRowParts")
            .field("fields", &self.fields.keys().collect::<Vec<_>>())
            .field("recent", &self.recent.len())
            .finish()
    }
}

impl VersionRowParts {
    /// Begins with the fields of a JSON object; `None` for another text, which is then judged as it
    /// is.
    #[must_use]
    pub fn from_object(text: &str) -> Option<Self> {
        match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Some(Self {
                fields,
                recent: Vec::new(),
            }),
            _ => None,
        }
    }

    /// A field that is stored as JSON. What is no JSON is taken for a text, and then refused for
    /// what it is.
    pub fn json(&mut self, name: impl Into<String>, stored: &str) {
        self.fields.insert(name.into(), parsed(stored));
    }

    /// A field that is stored as it is.
    pub fn text(&mut self, name: impl Into<String>, stored: impl Into<String>) {
        self.fields
            .insert(name.into(), Value::String(stored.into()));
    }

    /// A field with this value.
    pub fn value(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.fields.insert(name.into(), value.into());
    }

    /// The fields of a JSON object that this build does not know; fields with a known name stay as
    /// they are.
    pub fn unknown_fields(&mut self, stored: &str) {
        if let Value::Object(fields) = parsed(stored) {
            for (name, value) in fields {
                self.fields.entry(name).or_insert(value);
            }
        }
    }

    /// Takes a field out.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name)
    }

    /// The record of a recent commit, as JSON, in any order.
    pub fn record(&mut self, stored: &str) {
        self.recent.push(parsed(stored));
    }

    /// The text that [`decode_version_row`](membership_core::encoding::decode_version_row) reads.
    #[must_use]
    pub fn into_text(mut self) -> String {
        self.recent
            .sort_by_key(|record| record.get("version").and_then(Value::as_u64));
        self.fields
            .insert("recent".to_owned(), Value::Array(self.recent));
        Value::Object(self.fields).to_string()
    }

    /// The fields of a version row that `names` do not list, as a JSON object: what no commit
    /// changes.
    #[must_use]
    pub fn constant(row: &VersionRow, names: &[&str]) -> String {
        let mut parts = Self::from_object(&encode_version_row(row)).unwrap_or_default();
        for name in names {
            parts.remove(name);
        }
        Value::Object(parts.fields).to_string()
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Refuses a version row whose last record is not the commit that stands beside the version:
/// somebody changed one of them by hand.
///
/// ```
/// use membership_core::{SharedSettings, TableId, VersionRow};
/// use membership_provider::check_last_commit;
///
/// let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
/// let commit = row.last_commit().to_string();
/// assert!(check_last_commit("mystore", row.clone(), Some(&commit)).is_ok());
/// assert!(check_last_commit("mystore", row, None).is_err());
/// ```
///
/// # Errors
/// `Damaged`
pub fn check_last_commit(
    store: &'static str,
    row: VersionRow,
    commit: Option<&str>,
) -> Result<VersionRow, TableError> {
    if commit == Some(row.last_commit().to_string().as_str()) {
        return Ok(row);
    }
    let message = "the version row is damaged: its last commit is not the one it names; run `membership doctor`";
    Err(TableError::new(
        TableErrorKind::Damaged,
        Operation::Connect,
        store,
        message,
    ))
}

/// A token that carries the number of rows, so that its holder can write the next version without
/// reading.
///
/// ```
/// use membership_core::{SharedSettings, TableId, VersionRow};
/// use membership_provider::{counted_token, row_count_of};
///
/// let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
/// assert_eq!(row_count_of(&counted_token(&row)), Some(0));
/// assert_eq!(row_count_of(&row.token(&[])), None);
/// ```
#[must_use]
pub fn counted_token(row: &VersionRow) -> VersionToken {
    row.token(&row.row_count.to_be_bytes())
}

/// The token of the version that a commit makes of one with `rows_before` rows; without them it
/// carries no number.
///
/// ```
/// use membership_core::{CommitId, CommitRequest, SharedSettings, TableId, VersionRow};
/// use membership_provider::{counted_next_token, counted_token, row_count_of};
///
/// let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
/// let removal = CommitRequest::new(counted_token(&row), CommitId::new(1), None, [], [], ["key".to_owned()]);
/// assert_eq!(row_count_of(&counted_next_token(&removal, Some(5))), Some(4));
/// ```
#[must_use]
pub fn counted_next_token(request: &CommitRequest, rows_before: Option<u64>) -> VersionToken {
    match rows_before {
        Some(rows) => request.next_token(
            &rows
                .saturating_add_signed(request.added_rows())
                .to_be_bytes(),
        ),
        None => request.next_token(&[]),
    }
}

/// The number of rows that a token carries.
///
/// ```
/// # use membership_core::{SharedSettings, TableId, VersionRow};
/// let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
/// assert_eq!(membership_provider::row_count_of(&row.token(&7_u64.to_be_bytes())), Some(7));
/// ```
#[must_use]
pub fn row_count_of(token: &VersionToken) -> Option<u64> {
    token.store().try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use membership_core::encoding::decode_version_row;
    use membership_core::{
        CommitId, InstanceId, MembershipEntry, SharedSettings, SiloAddress, TableId, WallTime,
    };

    use super::*;

    #[test]
    fn the_parts_of_a_version_row_make_it_again() {
        let mut row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let mut records = vec![String::new(); RECENT_COMMITS];
        for n in 1..40_u16 {
            let silo = SiloAddress::new([127, 0, 0, 1].into(), n, 1);
            let entry = MembershipEntry::new(silo, InstanceId::new(1), WallTime::default());
            let id = CommitId::new(n.into());
            let commit = CommitRequest::new(row.token(&[]), id, None, [entry], [], []);
            let slot = usize::try_from(recent_slot(commit.next_version())).unwrap();
            records[slot] = json(&commit.record());
            row = commit.next_version_row(&row);
            let constant = VersionRowParts::constant(&row, &["recent", "version"]);
            let mut parts = VersionRowParts::from_object(&constant).unwrap();
            parts.value("version", row.version);
            records
                .iter()
                .filter(|r| !r.is_empty())
                .for_each(|r| parts.record(r));
            let read = decode_version_row(&parts.into_text()).unwrap();
            assert_eq!(
                check_last_commit("test", read, Some(&id.to_string())).unwrap(),
                row
            );
        }
    }

    #[test]
    fn a_part_that_is_no_json_is_damage() {
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let mut parts = VersionRowParts::from_object(&encode_version_row(&row)).unwrap();
        parts.json("settings", "{");
        assert!(decode_version_row(&parts.into_text()).is_err());
        assert_eq!(VersionRowParts::from_object("7"), None);
    }

    #[test]
    fn unknown_fields_stay_and_replace_none_that_is_known() {
        let mut parts = VersionRowParts::default();
        parts.value("version", 3);
        parts.unknown_fields(r#"{"version":1,"colour":"red"}"#);
        let text = parts.into_text();
        assert!(text.contains(r#""colour":"red""#) && text.contains(r#""version":3"#));
    }

    #[test]
    fn another_last_commit_is_damage() {
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        for commit in [None, Some("another")] {
            let error = check_last_commit("test", row.clone(), commit).unwrap_err();
            assert_eq!(error.kind(), TableErrorKind::Damaged);
        }
    }
}
