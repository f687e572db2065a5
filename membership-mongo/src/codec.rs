//! Documents of MongoDB ⇄ version rows, rows and heartbeats. No input or output.
//!
//! The version row is a document within the cluster's, so that an update can compare and change its parts without knowing the rest: fields
//! that this build does not know are never written, and so survive (clause T10). Rows are texts, kept as they are.

use std::collections::HashSet;

use membership_core::{
    Heartbeat, Heartbeats, Row, Rows, SiloAddress, TableError, TableErrorKind, WallTime,
};
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Map, Number, Value as Json};

use crate::error::error;

/// The field that makes a document one of ours, and its value: the layout of the document itself. Rows and version row carry their own.
pub(crate) const MARK: &str = "membership";
const LAYOUT: i64 = 1;

/// What may not stand in the name of a field, and what stands there instead.
const CODES: [(char, &str); 3] = [('.', "2E"), ('$', "24"), ('\0', "00")];
/// The code of the percent sign itself.
const PERCENT: &str = "25";

/// Whether a percent sign before this would be taken for the beginning of a code.
fn is_code(text: &str) -> bool {
    let rest = text.trim_start_matches(PERCENT);
    CODES.iter().any(|(_, code)| rest.starts_with(code))
}

/// The name of a row's field. Every key has one, and every name that MongoDB takes is that of one key.
pub(crate) fn name(key: &str) -> String {
    let mut name = String::with_capacity(key.len() + 8);
    for (at, c) in key.char_indices() {
        match CODES.iter().find(|(special, _)| *special == c) {
            Some((_, code)) => name.extend(["%", code]),
            None if c == '%' && is_code(&key[at + 1..]) => name.extend(["%", PERCENT]),
            None => name.push(c),
        }
    }
    name
}

/// The key of the row in a field.
pub(crate) fn key(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = after;
        if c != '%' {
            key.push(c);
        } else if let Some((special, code)) = CODES.iter().find(|(_, code)| after.starts_with(code))
        {
            key.push(*special);
            rest = &after[code.len()..];
        } else {
            key.push('%');
            if after.starts_with(PERCENT) && is_code(&after[PERCENT.len()..]) {
                rest = &after[PERCENT.len()..];
            }
        }
    }
    key
}

/// A part of a version row as MongoDB keeps it.
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

/// And back. What only MongoDB has is shown as its text.
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

/// Plain data as MongoDB keeps it.
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
    /// The version row, whatever stands in its place; none where there is none.
    pub(crate) version_row: Option<Bson>,
    /// Rows by the names of their fields; none where the read left them out.
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
                    "the cluster's document has something else in the place of its rows",
                ));
            }
        };
        Ok(Self {
            version_row: document.remove("version_row"),
            members,
        })
    }

    /// The text of the version row, as the core reads it.
    pub(crate) fn version_text(&self) -> Option<String> {
        self.version_row
            .as_ref()
            .map(|row| to_json(row).to_string())
    }

    /// The key of any row.
    pub(crate) fn stray(&self) -> Option<String> {
        self.members.as_ref()?.keys().next().map(|name| key(name))
    }
}

/// Only documents of ours are used.
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
            "the document of the cluster's name is not one of ours: use another collection",
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
    Ok(doc! { "_id": id, MARK: LAYOUT, "version_row": plain(row)?, "members": {} })
}

/// The document of its heartbeats. `table_id` says for which life of the table it was made.
pub(crate) fn new_beats(id: &str, table_id: &str) -> Document {
    doc! { "_id": id, MARK: LAYOUT, "table_id": table_id, "beats": {} }
}

/// What a document that comes into being by an update is marked with.
pub(crate) fn marks(table_id: Option<&str>) -> Document {
    let mut marks = doc! { MARK: LAYOUT };
    if let Some(table_id) = table_id {
        marks.insert("table_id", table_id);
    }
    marks
}

/// Rows, of which those with the text that is known already are not decoded again.
pub(crate) fn rows(stored: Document, known: &Rows) -> Rows {
    let mut all = known.clone();
    let mut keys = HashSet::with_capacity(stored.len());
    for (name, value) in stored {
        let key = key(&name);
        let body = match value {
            Bson::String(body) => body,
            // Somebody's hand: shown as it is, and undecodable (clause T12).
            other => other.to_string(),
        };
        if all.by_key(&key).is_none_or(|row| row.body() != body) {
            all.insert(Row::decode(key.clone(), body));
        }
        keys.insert(key);
    }
    if all.len() != keys.len() {
        let gone: Vec<String> = all
            .iter()
            .map(Row::key)
            .filter(|key| !keys.contains(*key))
            .map(str::to_owned)
            .collect();
        for key in gone {
            all.remove(&key);
        }
    }
    all
}

/// A heartbeat as it is stored. Two of them compare by their counters first: an update that keeps the larger one (`$max`) never moves a
/// heartbeat back.
pub(crate) fn beat(heartbeat: &Heartbeat) -> Bson {
    let counter = i64::try_from(heartbeat.counter).unwrap_or(i64::MAX);
    let at = i64::try_from(heartbeat.at.as_millis()).unwrap_or(i64::MAX);
    Bson::Document(doc! { "counter": counter, "at": DateTime::from_millis(at) })
}

/// Only the counter decides anything; what somebody made unreadable is shown as never, and as 1970.
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

/// Heartbeats and the cluster's cell; orphans are not shown (clause T8).
pub(crate) fn heartbeats(stored: Option<&Document>, rows: &Rows) -> Heartbeats {
    let Some(stored) = stored else {
        return Heartbeats::default();
    };
    let shown = stored
        .get_document("beats")
        .into_iter()
        .flatten()
        .filter_map(|(name, beat)| {
            let silo: SiloAddress = key(name).parse().ok()?;
            rows.get(&silo).is_some().then(|| (silo, heartbeat(beat)))
        });
    Heartbeats {
        silos: shown.collect(),
        cluster: stored.get_str("cell").ok().map(str::to_owned),
    }
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
        InstanceId, MembershipEntry, SharedSettings, TableId, VersionRow,
        encoding::encode_version_row,
    };

    #[test]
    fn keys_and_names_are_each_others_only_one() {
        assert_eq!(name("10.0.0.1:7100@17"), "10%2E0%2E0%2E1:7100@17");
        assert_eq!(name("[fe80::1]:7100@17"), "[fe80::1]:7100@17");
        // Everything up to five characters of those that matter, as a key and as a name.
        let letters = ['%', '2', '5', '4', 'E', '0', '.', '$', '\0'];
        let mut texts = vec![String::new()];
        let mut begun = 0;
        for _ in 0..5 {
            let end = texts.len();
            for at in begun..end {
                for letter in letters {
                    texts.push(format!("{}{letter}", texts[at]));
                }
            }
            begun = end;
        }
        for text in &texts {
            let made = name(text);
            assert!(
                !made.contains(['.', '$', '\0']),
                "{text:?} becomes {made:?}"
            );
            assert_eq!(&key(&made), text, "by way of {made:?}");
            if !text.contains(['.', '$', '\0']) {
                assert_eq!(&name(&key(text)), text, "by way of {:?}", key(text));
            }
        }
    }

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
    fn what_is_not_ours_is_told() {
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
        // The shell writes whole numbers with a point.
        assert_eq!(kind(doc! { MARK: 1_i32 }), Ok(()));
    }

    #[test]
    fn rows_are_decoded_once_and_damage_is_shown() {
        let body = |port: u16, text: &str| {
            let mut e = MembershipEntry::new(
                SiloAddress::new([127, 0, 0, 1].into(), port, 1),
                InstanceId::new(1),
                WallTime::default(),
            );
            e.silo_name = text.to_owned();
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
    fn beats_are_readable_or_never() {
        let beat_at = Heartbeat {
            counter: 5,
            at: WallTime::from_millis(1_763_000_000_123),
        };
        assert_eq!(heartbeat(&beat(&beat_at)), beat_at);
        assert_eq!(heartbeat(&Bson::String("5 o'clock".to_owned())).counter, 0);
        assert_eq!(
            heartbeat(&Bson::Document(doc! { "counter": 7_i32 })).counter,
            7
        );
    }
}
