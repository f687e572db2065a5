//! Entities ⇄ version rows, rows and heartbeats.
//!
//! The version row has a property for each of its parts, so that a commit changes some of them by a
//! merge without having read the others. Properties that this build does not know stay as they are
//! (clause T10).

use membership_core::{
    CommitRequest, Heartbeat, Operation, Row, Rows, TableError, TableErrorKind, VersionRow,
    VersionToken, encoding::LAYOUT, stored_version_row, usable_version_row,
};
use membership_provider::{VersionRowParts, check_last_commit, decode_row, json, recent_slot};
use serde_json::Value;

use crate::STORE;
use crate::batch::Properties;
use crate::error::error;
use crate::keys;

/// A property takes 64 KiB of UTF-16.
const UNITS_PER_PROPERTY: usize = 32 << 10;
/// An entity as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entity {
    pub(crate) row_key: String,
    pub(crate) etag: Option<String>,
    pub(crate) properties: Properties,
}

impl Entity {
    /// From an entry of a query's answer; none when it has no row key.
    pub(crate) fn from_answer(value: Value) -> Option<Self> {
        let Value::Object(mut properties) = value else {
            return None;
        };
        let Some(Value::String(row_key)) = properties.remove("RowKey") else {
            return None;
        };
        let etag = match (properties.remove("odata.etag"), properties.get("Timestamp")) {
            (Some(Value::String(etag)), _) => Some(etag),
            // If it is not sent, it follows from the time of the last change.
            (_, Some(Value::String(time))) => {
                Some(format!("W/\"datetime'{}'\"", time.replace(':', "%3A")))
            }
            _ => None,
        };
        properties.retain(|name, _| {
            !matches!(name.as_str(), "PartitionKey" | "Timestamp") && !name.contains("odata.")
        });
        Some(Self {
            row_key,
            etag,
            properties,
        })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.properties.get(name).and_then(Value::as_str)
    }

    /// The silo's row, under its key in the contract.
    pub(crate) fn row(&self, known: &Rows) -> Row {
        let mut body = self.text(keys::BODY).unwrap_or_default().to_owned();
        for part in 1_u32.. {
            match self.text(&format!("{}{part}", keys::BODY)) {
                Some(text) => body.push_str(text),
                None => break,
            }
        }
        decode_row(&keys::row_name(&self.row_key), &body, known)
    }

    /// The text of the silo's heartbeat, if there was one.
    pub(crate) fn heartbeat(&self) -> Option<&str> {
        self.text(keys::HEARTBEAT_TEXT)
    }

    /// The text of the cluster's own cell.
    pub(crate) fn cell(&self) -> Option<String> {
        self.text(keys::TEXT).map(str::to_owned)
    }

    /// The version row.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`.
    pub(crate) fn version_row(&self) -> Result<VersionRow, TableError> {
        let (mut parts, mut commit) = (VersionRowParts::default(), None);
        for (name, value) in &self.properties {
            match (name.as_str(), value) {
                ("Commit", Value::String(text)) => commit = Some(text.as_str()),
                // These are texts; all others are JSON in a text.
                ("TableId" | "Core", _) => parts.value(field(name), value.clone()),
                (name, Value::String(text)) if name.starts_with("Recent") => parts.record(text),
                (name, Value::String(text)) => parts.json(field(name), text),
                (name, value) => parts.value(field(name), value.clone()),
            }
        }
        let row = stored_version_row(&parts.into_text(), Operation::Connect, STORE)?;
        check_last_commit(STORE, row, commit)
    }
}

/// The name of a property in the encoding of version rows: `row_count` for `RowCount`.
fn field(property: &str) -> String {
    let mut out = String::with_capacity(property.len() + 4);
    for c in property.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// The properties of a row.
pub(crate) fn row_properties(row: &Row) -> Properties {
    let mut properties = Properties::new();
    let mut rest = row.body();
    for part in 0_u32.. {
        let (first, more) = cut(rest);
        properties.insert(
            if part == 0 {
                keys::BODY.to_owned()
            } else {
                format!("{}{part}", keys::BODY)
            },
            first.into(),
        );
        rest = more;
        if rest.is_empty() {
            break;
        }
    }
    if let Some(entry) = row.entry() {
        properties.insert(
            keys::WRITTEN_AT.to_owned(),
            keys::written_at(entry.written_at).into(),
        );
        // For people who look at the table; no code reads it.
        properties.insert("Status".to_owned(), entry.status.to_string().into());
    }
    properties
}

/// As much as fits into one property, and the rest.
fn cut(text: &str) -> (&str, &str) {
    let mut units = 0;
    let end = text.char_indices().find(|(_, c)| {
        units += c.len_utf16();
        units > UNITS_PER_PROPERTY
    });
    text.split_at(end.map_or(text.len(), |(at, _)| at))
}

/// The properties of a heartbeat.
pub(crate) fn heartbeat_properties(heartbeat: &Heartbeat) -> Properties {
    Properties::from_iter([(
        keys::HEARTBEAT_TEXT.to_owned(),
        heartbeat.to_string().into(),
    )])
}

/// The properties of the cluster's own cell.
pub(crate) fn cell_properties(text: &str) -> Properties {
    Properties::from_iter([(keys::TEXT.to_owned(), text.into())])
}

/// The properties of a new table's version row.
pub(crate) fn initial(row: &VersionRow) -> Properties {
    let property = |name: &str, value: String| (name.to_owned(), Value::String(value));
    Properties::from_iter([
        property("TableId", row.table_id.to_string()),
        property("Version", row.version.to_string()),
        property("Commit", row.last_commit().to_string()),
        property("RowCount", row.row_count.to_string()),
        property("Layout", row.layout.to_string()),
        property("MinLayout", row.min_layout.to_string()),
        property("Settings", json(&row.settings)),
        property("Core", row.core.stored().to_owned()),
    ])
}

/// What a commit changes in the version row. The records of commits are in sixteen properties,
/// which are used in turn.
pub(crate) fn commit_properties(request: &CommitRequest, base: &Base) -> Properties {
    let next = request.next_version();
    let rows = base.row_count.saturating_add_signed(request.added_rows());
    let property = |name: &str, value: String| (name.to_owned(), Value::String(value));
    let mut properties = Properties::from_iter([
        property("Version", next.to_string()),
        property("Commit", request.id.to_string()),
        property("RowCount", rows.to_string()),
        property("Layout", base.layout.max(LAYOUT).to_string()),
        property(
            &format!("Recent{}", recent_slot(next)),
            json(&request.record()),
        ),
    ]);
    if let Some(settings) = &request.settings {
        properties.extend([property("Settings", json(settings))]);
    }
    if let Some(core) = &request.core {
        properties.extend([property("Core", core.stored().to_owned())]);
    }
    properties
}

/// The parts of the version row that a commit needs besides the version. They are in the token, so
/// that a commit needs no read before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) etag: String,
    pub(crate) row_count: u64,
    pub(crate) layout: u32,
}

impl Base {
    /// The store's part of a token. It is empty if it would be too long: then a commit on that
    /// token reads first.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (Ok(rows), Ok(layout)) = (u32::try_from(self.row_count), u16::try_from(self.layout))
        else {
            return Vec::new();
        };
        let bytes = [
            &rows.to_be_bytes()[..],
            &layout.to_be_bytes()[..],
            self.etag.as_bytes(),
        ]
        .concat();
        if bytes.len() > membership_core::MAX_STORE_TOKEN_BYTES {
            Vec::new()
        } else {
            bytes
        }
    }

    /// From a token, which may come from a peer; none if it has no valid part of ours.
    pub(crate) fn of(token: &VersionToken) -> Option<Self> {
        let (rows, rest) = token.store().split_first_chunk::<4>()?;
        let (layout, etag) = rest.split_first_chunk::<2>()?;
        let etag = std::str::from_utf8(etag).ok().filter(|etag| usable(etag))?;
        Some(Self {
            etag: etag.to_owned(),
            row_count: u32::from_be_bytes(*rows).into(),
            layout: u16::from_be_bytes(*layout).into(),
        })
    }
}

/// The version row, and the base of a commit on it.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) row: VersionRow,
    pub(crate) base: Option<Base>,
}

impl Version {
    /// From the entity of a usable table, which can be the one that `known` is from.
    pub(crate) fn of(entity: &Entity, known: Option<&VersionToken>) -> Result<Self, TableError> {
        let row = entity.version_row()?;
        // The core's rules take the text of the row.
        let row = usable_version_row(
            Some(&membership_core::encoding::encode_version_row(&row)),
            None,
            known,
            Operation::Read,
            STORE,
        )?;
        let base = entity
            .etag
            .clone()
            .filter(|etag| usable(etag))
            .map(|etag| Base {
                etag,
                row_count: row.row_count,
                layout: row.layout,
            });
        Ok(Self { row, base })
    }

    pub(crate) fn token(&self) -> VersionToken {
        self.row
            .token(&self.base.as_ref().map(Base::to_bytes).unwrap_or_default())
    }
}

/// The error for a missing version row: it never existed, was removed, or there are rows without
/// it. Clauses T12, T16.
pub(crate) fn no_version_row(stray: Option<&str>, known: Option<&VersionToken>) -> TableError {
    match usable_version_row(None, stray, known, Operation::Read, STORE) {
        Err(why) => why,
        Ok(_) => error(
            TableErrorKind::NotInitialized,
            "the cluster has no version row",
        ),
    }
}

/// Whether an ETag may stand in a header: visible ASCII, and not `*`, which matches any state.
pub(crate) fn usable(etag: &str) -> bool {
    etag.len() > 2 && etag.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests;
