//! The document as text: one JSON object with its own layout number, the version row, and the rows
//! as their stored texts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Row;
use crate::encoding::{VersionRowError, decode_version_row, encode_version_row};
use crate::table::state::TableState;

/// The layout of the document itself; rows and the version row have their own layouts.
const DOCUMENT: u32 = 1;

#[derive(Deserialize)]
struct Mark {
    membership_document: u32,
}

#[derive(Serialize, Deserialize)]
struct Document<'a> {
    membership_document: u32,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    version_row: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    rows: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

/// Encodes a state whose version row can be read. An unreadable version row is never written back.
pub(super) fn encode(state: &TableState) -> String {
    let version_row = state
        .version_row
        .as_ref()
        .and_then(|row| row.as_ref().ok())
        .map(|row| Cow::Owned(encode_version_row(row)));
    let rows = state
        .rows
        .iter()
        .map(|row| (Cow::Borrowed(row.key()), Cow::Borrowed(row.body())))
        .collect();
    // Serializing plain data with string keys cannot fail. An empty text would read as foreign and
    // be refused.
    serde_json::to_string(&Document {
        membership_document: DOCUMENT,
        version_row,
        rows,
    })
    .unwrap_or_default()
}

/// Decodes the text of a document.
pub(super) fn decode(text: &str) -> Result<TableState, VersionRowError> {
    let mark: Mark = serde_json::from_str(text)
        .map_err(|e| VersionRowError::Foreign(format!("the document has no layout mark ({e})")))?;
    if mark.membership_document > DOCUMENT {
        return Err(VersionRowError::NewerLayout {
            layout: mark.membership_document,
            min_layout: mark.membership_document,
        });
    }
    let document: Document<'_> =
        serde_json::from_str(text).map_err(|e| VersionRowError::Damaged(e.to_string()))?;
    let rows = document
        .rows
        .into_iter()
        .map(|(key, body)| Row::decode(key, body))
        .collect();
    Ok(TableState {
        version_row: document
            .version_row
            .map(|text| decode_version_row(&text).map(Arc::new)),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SharedSettings, TableId, VersionRow};

    #[test]
    fn rows_are_stored_unchanged() {
        let mut state = TableState {
            version_row: Some(Ok(Arc::new(VersionRow::initial(
                TableId::new(1),
                SharedSettings::default(),
            )))),
            ..Default::default()
        };
        state
            .rows
            .insert(Row::decode("j\"unk", "{ not json \u{1F980}"));
        let again = decode(&encode(&state)).unwrap();
        assert_eq!(again.rows, state.rows);
        assert_eq!(again.version_row, state.version_row);
    }

    #[test]
    fn foreign_documents_are_reported() {
        assert!(matches!(decode("{}"), Err(VersionRowError::Foreign(_))));
        assert!(matches!(
            decode("{\"membership_document\":2}"),
            Err(VersionRowError::NewerLayout { .. })
        ));
        assert!(matches!(
            decode("{\"membership_document\":1,\"rows\":3}"),
            Err(VersionRowError::Damaged(_))
        ));
    }
}
