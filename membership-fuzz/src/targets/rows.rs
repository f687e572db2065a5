//! What a table has: rows and version rows.

use membership_core::Row;
use membership_core::encoding::{decode_version_row, encode_version_row};

use super::{Outcome, Target, check_line};
use crate::samples;

pub(super) const ROW: Target = Target {
    name: "row",
    about: "the rows of silos: a key, a zero byte, JSON",
    seeds: || {
        let row = |number| {
            let row = Row::encode(samples::entry(number));
            [row.key().as_bytes(), &[0], row.body().as_bytes()].concat()
        };
        vec![row(2), row(3), b"key\0{}".to_vec()]
    },
    words: &[
        "\"layout\":1",
        "\"min_layout\":9",
        "\"status\":\"Dead\"",
        "null",
        "{}",
        "[]",
        "\"",
        "1e400",
        "-0.0",
        "9007199254740993",
        "18446744073709551616",
        "\\u0000",
        "\\ud800",
        "\"suspicions\":",
        "\"death\":",
        "\"extra\":",
        "[[[[[[[[",
        "\"10.0.0.2:7100@1\"",
    ],
    longest: 4000,
    read: |bytes| {
        let (key, body) = match bytes.iter().position(|byte| *byte == 0) {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (&[][..], bytes),
        };
        let body = String::from_utf8_lossy(body);
        let row = Row::decode(String::from_utf8_lossy(key), body.clone());
        // A damaged key must not hide what the text would do.
        let own = serde_json::from_str::<serde_json::Value>(&body)
            .ok()
            .and_then(|value| Some(value.get("address")?.as_str()?.to_owned()));
        let row = match own {
            Some(key) if row.entry().is_none() => Row::decode(key, body),
            _ => row,
        };
        if let Some(why) = row.undecodable() {
            check_line(why);
            return Outcome::of("undecodable", why);
        }
        let entry = row.entry().expect("a row has an entry or a reason");
        let again = Row::encode(entry.clone());
        let read = Row::decode(again.key(), again.body());
        assert_eq!(
            read.entry(),
            Some(entry),
            "written again it is {}",
            again.body()
        );
        Outcome::sized("row", entry.suspicions.len())
    },
};

pub(super) const VERSION_ROW: Target = Target {
    name: "version_row",
    about: "version rows",
    seeds: || {
        let row = |version| encode_version_row(&samples::version_row(version)).into_bytes();
        vec![row(0), row(4), row(6)]
    },
    words: &[
        "\"layout\":1",
        "\"min_layout\":2",
        "\"version\":",
        "\"recent\":[]",
        "\"deleting\":true",
        "\"core\":\"",
        "\"settings\":",
        "null",
        "{}",
        "\"",
        "9007199254740993",
        "1e3",
        "-1",
        "\"row_count\":",
        "\\u0000",
        "\"changed\":3",
    ],
    longest: 6000,
    read: |bytes| {
        let row = match decode_version_row(&String::from_utf8_lossy(bytes)) {
            Ok(row) => row,
            Err(error) => {
                let line = error.to_string();
                check_line(&line);
                return Outcome::of("refused", &line);
            }
        };
        let text = encode_version_row(&row);
        match decode_version_row(&text) {
            Ok(again) => {
                assert_eq!(again, row, "{text}");
                assert_eq!(again.core.cluster_keys(), row.core.cluster_keys(), "{text}");
            }
            Err(error) => panic!("written again it is refused, {error}: {text}"),
        }
        Outcome::sized("row", row.recent.len() + 32 * row.core.cluster_keys().len())
    },
};
