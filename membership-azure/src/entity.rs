//! Entities ⇄ version rows, rows and heartbeats.
//!
//! A cluster is one partition. In the order of row keys: `!cell` (the cluster's own cell), `!version` (the version row), the rows under their
//! silos' names, and `~heartbeat:` with the same names. The version row has a property for each of its parts, so that a commit changes some of
//! them by a merge without having read the others; properties that this build does not know stay where they are (clause T10).

use std::collections::BTreeMap;

use membership_core::encoding::{VersionRowError, decode_version_row};
use membership_core::{
    ClusterName, CommitRequest, Heartbeat, Heartbeats, RECENT_COMMITS, Row, SharedSettings,
    TableError, TableErrorKind, VersionRow, VersionToken, WallTime,
};
use serde_json::{Map, Value};

use crate::batch::Properties;
use crate::error::error;

/// The row key of the version row.
pub(crate) const VERSION: &str = "!version";
/// That of the cluster's own cell.
pub(crate) const CELL: &str = "!cell";
/// Before the name of a silo: its heartbeat.
pub(crate) const HEARTBEAT: &str = "~heartbeat:";
/// Every row comes before this, every heartbeat after it: names of rows that begin with `~` go on with a hexadecimal digit.
pub(crate) const AFTER_ROWS: &str = "~h";
/// The version that a row was written at, as text of one length, so that it can be compared in filters.
pub(crate) const WRITTEN_AT: &str = "WrittenAt";
/// The text of a heartbeat.
const BEAT: &str = "Heartbeat";
/// The text of the cluster's own cell.
const TEXT: &str = "Text";
/// Key and text of a row; further parts of a long text are `Body1` and so on.
const BODY: &str = "Body";
/// A property takes 64 KiB of UTF-16.
const UNITS_PER_PROPERTY: usize = 32 << 10;
/// A partition key takes 1 KiB of UTF-16.
const MAX_PARTITION_KEY: usize = 512;

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
            // Where it is not sent it follows from the time of the last change.
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

    /// The silo's row, under the key that the contract knows it by.
    pub(crate) fn row(&self, known: Option<&Row>) -> Row {
        let mut body = self.text(BODY).unwrap_or_default().to_owned();
        for part in 1_u32.. {
            match self.text(&format!("{BODY}{part}")) {
                Some(text) => body.push_str(text),
                None => break,
            }
        }
        match known {
            Some(row) if row.body() == body => row.clone(),
            _ => Row::decode(row_name(&self.row_key), body),
        }
    }

    /// The silo's heartbeat, if it has beaten.
    pub(crate) fn heartbeat(&self) -> Option<Heartbeat> {
        self.text(BEAT).map(heartbeat)
    }

    /// The text of the cluster's own cell.
    pub(crate) fn cell(&self) -> Option<String> {
        self.text(TEXT).map(str::to_owned)
    }

    /// The version row.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`.
    pub(crate) fn version_row(&self) -> Result<VersionRow, TableError> {
        let (mut row, mut recent, mut commit) = (Map::new(), Vec::new(), None);
        for (name, value) in &self.properties {
            match (name.as_str(), value) {
                ("Commit", Value::String(text)) => commit = Some(text.as_str()),
                // Texts as they are; everything else is JSON within a text.
                ("TableId" | "Core", _) => drop(row.insert(field(name), value.clone())),
                (name, Value::String(text)) => {
                    let parsed = serde_json::from_str(text).unwrap_or_else(|_| value.clone());
                    match name.strip_prefix("Recent") {
                        Some(_) => recent.push(parsed),
                        None => drop(row.insert(field(name), parsed)),
                    }
                }
                (name, value) => drop(row.insert(field(name), value.clone())),
            }
        }
        recent.sort_by_key(|record: &Value| record.get("version").and_then(Value::as_u64));
        row.insert("recent".to_owned(), Value::Array(recent));
        let row = decode_version_row(&Value::Object(row).to_string()).map_err(|why| {
            let kind = match why {
                VersionRowError::Foreign(_) => TableErrorKind::ForeignTable,
                VersionRowError::NewerLayout { .. } => TableErrorKind::NewerLayout,
                _ => TableErrorKind::Damaged,
            };
            error(kind, why.to_string())
        })?;
        if commit != Some(row.last_commit().to_string().as_str()) {
            let message = "the version row is damaged: its last commit is not the one it names; run `membership doctor`";
            return Err(error(TableErrorKind::Damaged, message));
        }
        Ok(row)
    }
}

/// `RowCount` as the encoding of version rows calls it: `row_count`.
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

/// The partition of a cluster. A name that is too long for one ends in a hash of it.
pub(crate) fn partition(cluster: &ClusterName) -> String {
    let key = cluster.store_key();
    if key.len() <= MAX_PARTITION_KEY {
        return key;
    }
    // Keyed with nothing: only the hash is wanted. 256 bits do not collide.
    let hash = azure_core::hmac::hmac_sha256(&key, &azure_core::credentials::Secret::new("AA=="))
        .unwrap_or_default();
    let hash: String = hash
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_string()
            } else {
                format!("-{:x}", u32::from(c))
            }
        })
        .collect();
    // No other partition has this: a `~` is followed by a hyphen or a hexadecimal digit.
    format!("{}~~{hash}", key.get(..300).unwrap_or_default())
}

/// What row keys that this crate would not write are shown with.
const RAW: &str = "rowkey:";

/// The row key of the row that the contract knows by this key. Every text has one, and no two have the same.
pub(crate) fn row_key(key: &str) -> String {
    match key.strip_prefix(RAW) {
        Some(raw) if own_name(raw).is_none() => raw.to_owned(),
        _ => plain(key),
    }
}

/// The key by which the contract knows the row with this row key: the reverse of [`row_key`].
pub(crate) fn row_name(stored: &str) -> String {
    own_name(stored).unwrap_or_else(|| format!("{RAW}{stored}"))
}

/// What the row key says, if it is one that this crate writes.
fn own_name(stored: &str) -> Option<String> {
    let name = unescape(stored).filter(|name| plain(name) == stored)?;
    let taken = name
        .strip_prefix(RAW)
        .is_some_and(|raw| own_name(raw).is_none());
    (!taken).then_some(name)
}

/// Escaped, and what begins like the mark of a raw key is not taken for one.
fn plain(key: &str) -> String {
    let escaped = escape(key);
    if key.starts_with(RAW) {
        escaped.replacen('r', "~72", 1)
    } else {
        escaped
    }
}

/// Letters, digits and what stands in addresses remain; every other byte becomes `~hh`. Row keys must not hold `/`, `\`, `#`, `?` or
/// control characters.
fn escape(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 8);
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.:@[]".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("~{byte:02x}"));
        }
    }
    out
}

fn unescape(stored: &str) -> Option<String> {
    let mut out = Vec::with_capacity(stored.len());
    let mut bytes = stored.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'~' {
            let mut digit = || {
                bytes
                    .next()
                    .and_then(|b| char::from(b).to_digit(16))
                    .and_then(|d| u8::try_from(d).ok())
            };
            out.push(digit()? << 4 | digit()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// A version as it stands in [`WRITTEN_AT`]: 2^53 has 16 digits.
pub(crate) fn written_at(version: u64) -> String {
    format!("{version:016}")
}

/// The properties of a row.
pub(crate) fn row_properties(row: &Row) -> Properties {
    let mut properties = Properties::new();
    let mut rest = row.body();
    for part in 0_u32.. {
        let (first, more) = cut(rest);
        properties.insert(
            if part == 0 {
                BODY.to_owned()
            } else {
                format!("{BODY}{part}")
            },
            first.into(),
        );
        rest = more;
        if rest.is_empty() {
            break;
        }
    }
    if let Some(entry) = row.entry() {
        properties.insert(WRITTEN_AT.to_owned(), written_at(entry.written_at).into());
        // For people who look into the table; nothing reads it.
        properties.insert("Status".to_owned(), entry.status.to_string().into());
    }
    properties
}

/// As much as one property takes, and the rest.
fn cut(text: &str) -> (&str, &str) {
    let mut units = 0;
    let end = text.char_indices().find(|(_, c)| {
        units += c.len_utf16();
        units > UNITS_PER_PROPERTY
    });
    text.split_at(end.map_or(text.len(), |(at, _)| at))
}

/// The properties of a beat.
pub(crate) fn heartbeat_properties(heartbeat: &Heartbeat) -> Properties {
    Properties::from_iter([(BEAT.to_owned(), heartbeat.to_string().into())])
}

/// The properties of the cluster's own cell.
pub(crate) fn cell_properties(text: &str) -> Properties {
    Properties::from_iter([(TEXT.to_owned(), text.into())])
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

/// Heartbeats as the contract shows them: those of rows that are there, where the rows are known (clause T8).
pub(crate) fn heartbeats(
    beats: &BTreeMap<String, Heartbeat>,
    cell: Option<String>,
    rows: Option<&membership_core::Rows>,
) -> Heartbeats {
    let shown = beats
        .iter()
        .filter(|(name, _)| rows.is_none_or(|rows| rows.by_key(name).is_some()));
    Heartbeats {
        silos: shown
            .filter_map(|(name, beat)| Some((name.parse().ok()?, *beat)))
            .collect(),
        cluster: cell,
    }
}

/// The properties of a new table's version row.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn initial(row: &VersionRow) -> Result<Properties, TableError> {
    let property = |name: &str, value: String| (name.to_owned(), Value::String(value));
    Ok(Properties::from_iter([
        property("TableId", row.table_id.to_string()),
        property("Version", row.version.to_string()),
        property("Commit", row.last_commit().to_string()),
        property("RowCount", row.row_count.to_string()),
        property("Layout", row.layout.to_string()),
        property("MinLayout", row.min_layout.to_string()),
        property("Settings", json(&row.settings)?),
    ]))
}

/// What a commit changes in the version row. The records of commits have sixteen places, which are used in turn.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn commit_properties(
    request: &CommitRequest,
    base: &Base,
) -> Result<Properties, TableError> {
    let mut before = VersionRow::initial(request.expected.table_id(), SharedSettings::default());
    (before.version, before.row_count, before.layout) =
        (request.expected.version(), base.row_count, base.layout);
    let next = request.next_version_row(&before);
    let property = |name: &str, value: String| (name.to_owned(), Value::String(value));
    let mut properties = Properties::from_iter([
        property("Version", next.version.to_string()),
        property("Commit", request.id.to_string()),
        property("RowCount", next.row_count.to_string()),
        property("Layout", next.layout.to_string()),
        property(
            &format!("Recent{}", next.version % RECENT_COMMITS as u64),
            json(&next.recent.last())?,
        ),
    ]);
    if let Some(settings) = &request.settings {
        properties.extend([property("Settings", json(settings)?)]);
    }
    if let Some(core) = &request.core {
        properties.extend([property("Core", core.clone())]);
    }
    Ok(properties)
}

fn json<T: serde::Serialize>(part: &T) -> Result<String, TableError> {
    serde_json::to_string(part).map_err(|e| {
        error(
            TableErrorKind::InvalidRequest,
            format!("this cannot be written as JSON ({e})"),
        )
    })
}

/// What a commit must know of the version row besides its version: it is in the token, so that nothing is read before a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) etag: String,
    pub(crate) row_count: u64,
    pub(crate) layout: u32,
}

impl Base {
    /// What the store adds to a token; nothing if it does not fit, which costs whoever commits on it one read.
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

    /// From a token, wherever that has been; none when it is not there.
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

/// It will stand in a header: visible ASCII, and not the one that any state matches.
pub(crate) fn usable(etag: &str) -> bool {
    etag.len() > 2 && etag.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests;
