//! Documents of MongoDB ⇄ version rows, rows and heartbeats. No input or output.
//!
//! The version row is a subdocument, so that an update can compare and change parts of it: it never
//! writes fields that this build does not know, and so they survive (clause T10). Rows are texts.

use membership_core::encoding::encode_version_row;
use membership_core::{
    Heartbeat, Heartbeats, Rows, SiloAddress, TableError, TableErrorKind, WallTime,
};
use membership_provider::{merge_rows, shown_heartbeats};
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Map, Number, Value as Json};

use crate::error::error;
use crate::keys::{key, name};

/// The field that marks our documents, and its value: the layout of the document itself. Rows and
/// the version row have their own layout numbers.
pub(crate) const MARK: &str = "membership";
const LAYOUT: i64 = 1;

/// A part of a version row as MongoDB stores it.
pub(crate) fn to_bson(json: Json) -> Bson {
    match json {
        Json::Null => Bson::Null,
        Json::Bool(value) => Bson::Boolean(value),
        Json::Number(number) => number.as_i64().map_or_else(
            || Bson::Double(number.as_f64().unwrap_or(f64::NAN)),
            Bson::Int64,
        ),
        Json::String(text) => Bson::String(text),
        Json::Array(list) => Bson::Array(list.into_iter().map(to_bson).collect()),
        Json::Object(map) => Bson::Document(
            map.into_iter()
                .map(|(name, value)| (name, to_bson(value)))
                .collect(),
        ),
    }
}

/// The reverse. A type that only MongoDB has becomes its text.
pub(crate) fn to_json(bson: &Bson) -> Json {
    match bson {
        Bson::Null | Bson::Undefined => Json::Null,
        Bson::Boolean(value) => Json::Bool(*value),
        Bson::Int32(number) => Json::from(*number),
        Bson::Int64(number) => Json::from(*number),
        Bson::Double(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Bson::String(text) => Json::String(text.clone()),
        Bson::Array(list) => Json::Array(list.iter().map(to_json).collect()),
        Bson::Document(document) => Json::Object(
            document
                .iter()
                .map(|(name, value)| (name.clone(), to_json(value)))
                .collect::<Map<_, _>>(),
        ),
        other => Json::String(other.to_string()),
    }
}

/// Plain data as MongoDB stores it.
///
/// # Errors
/// Plain data with string keys; cannot fail.
pub(crate) fn plain<T: serde::Serialize>(part: &T) -> Result<Bson, TableError> {
    let json = serde_json::to_value(part);
    json.map(to_bson).map_err(|e| {
        error(
            TableErrorKind::InvalidRequest,
            format!("this cannot be written as JSON ({e})"),
        )
    })
}

/// A cluster's document as it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The value of `version_row`, whatever its type; none where it is missing.
    pub(crate) version_row: Option<Bson>,
    /// Rows by field name; none where the read left them out.
    pub(crate) members: Option<Document>,
}

impl Table {
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`.
    pub(crate) fn from(mut document: Document) -> Result<Self, TableError> {
        check_mark(&document)?;
        let members = match document.remove("members") {
            None => None,
            Some(Bson::Document(members)) => Some(members),
            Some(_) => {
                return Err(error(
                    TableErrorKind::Damaged,
                    "`members` in the cluster's document is not a document",
                ));
            }
        };
        Ok(Self {
            version_row: document.remove("version_row"),
            members,
        })
    }

    /// The text of the version row, as core decodes it.
    pub(crate) fn version_text(&self) -> Option<String> {
        self.version_row
            .as_ref()
            .map(|row| to_json(row).to_string())
    }

    /// The key of any row.
    pub(crate) fn any_key(&self) -> Option<String> {
        self.members.as_ref()?.keys().next().map(|name| key(name))
    }
}

/// Refuses documents that are not ours.
pub(crate) fn check_mark(document: &Document) -> Result<(), TableError> {
    let mark = document
        .get(MARK)
        .map(to_json)
        .and_then(|mark| mark.as_i64());
    match mark {
        Some(LAYOUT) => Ok(()),
        Some(newer) if newer > LAYOUT => Err(error(
            TableErrorKind::NewerLayout,
            format!(
                "the cluster's document has layout {newer}, this build knows {LAYOUT}: update it"
            ),
        )),
        _ => Err(error(
            TableErrorKind::ForeignTable,
            "the document with the cluster's id is not ours: use another collection",
        )),
    }
}

/// A new cluster's document.
///
/// # Errors
/// Plain data; cannot fail.
pub(crate) fn new_table(
    id: &str,
    row: &membership_core::VersionRow,
) -> Result<Document, TableError> {
    // Its stored text: what it shows to others lacks the cluster's secret.
    let stored: serde_json::Value =
        serde_json::from_str(&encode_version_row(row)).unwrap_or_default();
    Ok(doc! { "_id": id, MARK: LAYOUT, "version_row": plain(&stored)?, "members": {} })
}

/// A new document of heartbeats. `table_id` names the table that it was created for.
pub(crate) fn new_heartbeats(id: &str, table_id: &str) -> Document {
    doc! { "_id": id, MARK: LAYOUT, "table_id": table_id, "beats": {} }
}

/// The marks of a document that an update creates.
pub(crate) fn marks(table_id: Option<&str>) -> Document {
    let mut marks = doc! { MARK: LAYOUT };
    if let Some(table_id) = table_id {
        marks.insert("table_id", table_id);
    }
    marks
}

/// Decodes rows. Rows whose text is known are not decoded again.
pub(crate) fn rows(stored: Document, known: &Rows) -> Rows {
    let row = |(name, value): (String, Bson)| match value {
        Bson::String(body) => (key(&name), body),
        // Changed by hand: returned as an undecodable row (clause T12).
        other => (key(&name), other.to_string()),
    };
    let rows: Vec<(String, String)> = stored.into_iter().map(row).collect();
    merge_rows(&rows, known)
}

/// A heartbeat as it is stored. MongoDB compares the counter first, so that `$max` never moves a
/// heartbeat back.
pub(crate) fn heartbeat_value(heartbeat: &Heartbeat) -> Bson {
    let counter = i64::try_from(heartbeat.counter).unwrap_or(i64::MAX);
    let at = i64::try_from(heartbeat.at.as_millis()).unwrap_or(i64::MAX);
    Bson::Document(doc! { "counter": counter, "at": DateTime::from_millis(at) })
}

/// Only the counter matters; unreadable parts become counter 0 and the time 1970.
fn heartbeat(stored: &Bson) -> Heartbeat {
    let part = |name| stored.as_document().and_then(|beat| beat.get(name));
    let counter = part("counter")
        .map(to_json)
        .and_then(|counter| counter.as_u64())
        .unwrap_or(0);
    let at = part("at")
        .and_then(Bson::as_datetime)
        .and_then(|at| u64::try_from(at.timestamp_millis()).ok())
        .unwrap_or(0);
    Heartbeat {
        counter,
        at: WallTime::from_millis(at),
    }
}

/// Heartbeats and the cluster's cell; those without a row are orphans (clause T8).
pub(crate) fn heartbeats(stored: Option<&Document>, rows: &Rows) -> Heartbeats {
    let Some(stored) = stored else {
        return Heartbeats::default();
    };
    let fields = stored.get_document("beats").into_iter().flatten();
    let all: Vec<(String, Heartbeat)> = fields
        .map(|(name, value)| (key(name), heartbeat(value)))
        .collect();
    let all = all
        .iter()
        .map(|(key, heartbeat)| (key.as_str(), *heartbeat));
    shown_heartbeats(all, stored.get_str("cell").ok().map(str::to_owned), rows)
}

/// One silo's heartbeat, if it has one.
pub(crate) fn heartbeat_of(stored: Option<&Document>, silo: &SiloAddress) -> Option<Heartbeat> {
    stored?
        .get_document("beats")
        .ok()?
        .get(name(&silo.row_key()))
        .map(heartbeat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::encoding::decode_version_row;
    use membership_core::{
        InstanceId, MembershipEntry, Row, SharedSettings, TableId, VersionRow,
        encoding::encode_version_row,
    };

    #[test]
    fn a_version_row_survives_with_what_this_build_does_not_know() {
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let text = encode_version_row(&row).replacen(
            '{',
            "{\"moon\":{\"deep\":[1,2.5,null,\"x\",true]},",
            1,
        );
        let expected = decode_version_row(&text).unwrap();
        let stored = Table {
            version_row: Some(to_bson(serde_json::from_str(&text).unwrap())),
            members: None,
        };
        assert_eq!(
            decode_version_row(&stored.version_text().unwrap()),
            Ok(expected)
        );
        let fresh = new_table("a", &row).unwrap();
        assert_eq!(
            decode_version_row(&Table::from(fresh).unwrap().version_text().unwrap()),
            Ok(row)
        );
    }

    #[test]
    fn foreign_documents_are_refused() {
        let kind = |document| Table::from(document).map(|_| ()).map_err(|e| e.kind());
        assert_eq!(
            kind(doc! { "_id": "blue", "Version": 3, "Members": {} }),
            Err(TableErrorKind::ForeignTable)
        );
        assert_eq!(kind(doc! { MARK: "1" }), Err(TableErrorKind::ForeignTable));
        assert_eq!(kind(doc! { MARK: 2 }), Err(TableErrorKind::NewerLayout));
        assert_eq!(
            kind(doc! { MARK: 1, "members": [] }),
            Err(TableErrorKind::Damaged)
        );
        // The shell writes whole numbers as doubles.
        assert_eq!(kind(doc! { MARK: 1_i32 }), Ok(()));
    }

    #[test]
    fn rows_are_decoded_once_and_damaged_rows_are_returned() {
        let body = |port: u16, text: &str| {
            let mut e = MembershipEntry::new(
                SiloAddress::new([127, 0, 0, 1].into(), port, 1),
                InstanceId::new(1),
                WallTime::default(),
            );
            e.info.silo_name = text.to_owned();
            (
                name(&e.address.row_key()),
                Bson::String(Row::encode(e).body().to_owned()),
            )
        };
        let document = |all: &[(String, Bson)]| all.iter().cloned().collect::<Document>();
        let first = rows(
            document(&[
                body(1, "a"),
                body(2, "b"),
                ("junk".to_owned(), Bson::Int32(5)),
            ]),
            &Rows::new(),
        );
        assert_eq!((first.len(), first.undecodable().count()), (3, 1));
        let second = rows(document(&[body(1, "a"), body(3, "c")]), &first);
        assert_eq!(
            second,
            rows(document(&[body(1, "a"), body(3, "c")]), &Rows::new())
        );
        let key = key(&body(1, "a").0);
        assert!(
            first
                .by_key(&key)
                .unwrap()
                .is_same(second.by_key(&key).unwrap())
        );
    }

    #[test]
    fn unreadable_heartbeats_count_as_zero() {
        let beat = Heartbeat {
            counter: 5,
            at: WallTime::from_millis(1_763_000_000_123),
        };
        assert_eq!(heartbeat(&heartbeat_value(&beat)), beat);
        assert_eq!(heartbeat(&Bson::String("5 o'clock".to_owned())).counter, 0);
        assert_eq!(
            heartbeat(&Bson::Document(doc! { "counter": 7_i32 })).counter,
            7
        );
    }
}
