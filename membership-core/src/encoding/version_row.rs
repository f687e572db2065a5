//! The version row as JSON.

use serde::{Deserialize, Serialize};

use super::{LAYOUT, foreign};
use crate::{CommitRecord, Extra, MAX_SAFE_INTEGER, SharedSettings, TableId, VersionRow};

/// Why a stored version row cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionRowError {
    /// The text was not written by this library.
    #[error("the table is not one of ours: {0}; use another table, prefix or file")]
    Foreign(String),
    /// The row was written by a newer build; this build must not change it.
    #[error(
        "the table has layout {layout} and needs at least layout {min_layout}; this build knows {LAYOUT}: update it"
    )]
    NewerLayout {
        /// The layout of the last writer.
        layout: u32,
        /// The smallest layout that may read the row.
        min_layout: u32,
    },
    /// The row belongs to this library but is damaged.
    #[error("the version row is damaged: {0}; run `membership doctor`")]
    Damaged(String),
}

#[derive(Deserialize)]
struct Layout {
    layout: u32,
    min_layout: u32,
}

/// A version row as the store has it: with the secret in its core cell.
#[derive(Serialize)]
struct Stored<'a> {
    table_id: TableId,
    version: u64,
    recent: &'a [CommitRecord],
    row_count: u64,
    layout: u32,
    min_layout: u32,
    settings: &'a SharedSettings,
    #[serde(skip_serializing_if = "str::is_empty")]
    core: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleting: bool,
    #[serde(flatten)]
    extra: &'a Extra,
}

/// Returns the stored text of a version row. It has the cluster's secret: it belongs into the store
/// and nowhere else.
#[must_use]
pub fn encode_version_row(row: &VersionRow) -> String {
    let stored = Stored {
        table_id: row.table_id,
        version: row.version,
        recent: &row.recent,
        row_count: row.row_count,
        layout: row.layout,
        min_layout: row.min_layout,
        settings: &row.settings,
        core: row.core.stored(),
        deleting: row.deleting,
        extra: &row.extra,
    };
    // Serializing plain data with string keys cannot fail. An empty text would read as foreign and
    // be refused.
    serde_json::to_string(&stored).unwrap_or_default()
}

/// The text of a version row for others than the store: without the cluster's secret.
pub(crate) fn encode_for_others(row: &VersionRow) -> String {
    serde_json::to_string(row).unwrap_or_default()
}

/// Decodes a version row that another silo sent. What it says to be the cluster's keys is dropped.
pub(crate) fn decode_of_others(text: &str) -> Result<VersionRow, VersionRowError> {
    let mut row = decode_version_row(text)?;
    row.core = row.core.without_secret();
    Ok(row)
}

/// Decodes the stored text of a version row.
///
/// # Errors
/// [`VersionRowError`], classified by what the operator should do.
pub fn decode_version_row(text: &str) -> Result<VersionRow, VersionRowError> {
    let layout: Layout = serde_json::from_str(text).map_err(|e| {
        let why = foreign(&e);
        VersionRowError::Foreign(format!("its version row has no layout mark ({why})"))
    })?;
    if layout.min_layout > LAYOUT {
        return Err(VersionRowError::NewerLayout {
            layout: layout.layout,
            min_layout: layout.min_layout,
        });
    }
    let row: VersionRow =
        serde_json::from_str(text).map_err(|e| VersionRowError::Damaged(foreign(&e)))?;
    let newest = row.recent.last().map_or(0, |r| r.version);
    if row.version > MAX_SAFE_INTEGER {
        return Err(VersionRowError::Damaged(
            "its version is above 2^53".to_owned(),
        ));
    }
    if newest != row.version
        || row
            .recent
            .windows(2)
            .any(|w| w[0].version.checked_add(1) != Some(w[1].version))
    {
        return Err(VersionRowError::Damaged(
            "its recent commits do not lead to its version".to_owned(),
        ));
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterKey, InitializeRequest};

    #[test]
    fn a_round_trip_keeps_unknown_fields() {
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let text = encode_version_row(&row);
        assert_eq!(decode_version_row(&text), Ok(row));
        let newer = text.replacen('{', "{\"moon\":1,", 1);
        assert!(encode_version_row(&decode_version_row(&newer).unwrap()).contains("\"moon\":1"));
    }

    #[test]
    fn the_cluster_key_is_in_the_stored_text_alone() {
        let key = ClusterKey::new([0xab; 32]);
        let settings = SharedSettings::default();
        let row = InitializeRequest::new(TableId::new(7), settings, key).version_row();
        let stored = encode_version_row(&row);
        assert!(stored.contains(&"ab".repeat(32)));
        assert_eq!(decode_version_row(&stored).as_ref(), Ok(&row));
        let sent = encode_for_others(&row);
        for text in [
            &sent,
            &format!("{row:?}"),
            &serde_json::to_string(&row).unwrap(),
        ] {
            assert!(!text.contains("abab"), "{text}");
        }
        for heard in [&sent, &stored] {
            let heard = decode_of_others(heard).unwrap();
            assert!(heard.core.cluster_keys().is_empty());
        }
    }

    #[test]
    fn distinguishes_foreign_newer_and_damaged() {
        let text = encode_version_row(&VersionRow::initial(
            TableId::new(7),
            SharedSettings::default(),
        ));
        assert!(matches!(
            decode_version_row("{\"Version\":3}"),
            Err(VersionRowError::Foreign(_))
        ));
        assert!(matches!(
            decode_version_row(&text.replace("\"min_layout\":1", "\"min_layout\":9")),
            Err(VersionRowError::NewerLayout { .. })
        ));
        assert!(matches!(
            decode_version_row(&text.replace("\"version\":0", "\"version\":5")),
            Err(VersionRowError::Damaged(_))
        ));
    }
}
