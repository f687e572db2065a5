//! One silo row as JSON.

use serde::{Deserialize, Serialize};

use super::{LAYOUT, foreign};
use crate::model::text::quoted;
use crate::{MAX_SAFE_INTEGER, MembershipEntry, SiloStatus};

#[derive(Serialize)]
struct Write<'a> {
    layout: u32,
    #[serde(flatten)]
    entry: &'a MembershipEntry,
}

#[derive(Deserialize)]
struct Layout {
    layout: u32,
    #[serde(default)]
    min_layout: u32,
}

/// Returns the stored text of an entry.
#[must_use]
pub fn encode_entry(entry: &MembershipEntry) -> String {
    let mut entry = std::borrow::Cow::Borrowed(entry);
    // The layout number of a newer build is replaced by that of this build.
    if entry.extra.0.contains_key("layout") {
        entry.to_mut().extra.0.remove("layout");
    }
    // Serializing plain data with string keys cannot fail. An empty body would be an undecodable
    // row, never a lost one.
    serde_json::to_string(&Write {
        layout: LAYOUT,
        entry: &entry,
    })
    .unwrap_or_default()
}

/// Decodes the stored text of a row into its entry.
///
/// # Errors
/// A sentence for the operator: damaged text, a newer layout, a body that belongs to another key,
/// or a value out of range.
pub fn decode_entry(key: &str, body: &str) -> Result<MembershipEntry, String> {
    let why = |what: &str, e: serde_json::Error| format!("{what}: {}", foreign(&e));
    let layout: Layout = serde_json::from_str(body).map_err(|e| why("not a silo row", e))?;
    if layout.min_layout > LAYOUT {
        return Err(format!(
            "written in layout {}, which needs a reader of layout {} or newer; this build reads {LAYOUT}",
            layout.layout, layout.min_layout
        ));
    }
    let mut entry: MembershipEntry =
        serde_json::from_str(body).map_err(|e| why("damaged silo row", e))?;
    entry.extra.0.remove("layout");
    if entry.address.row_key() != key {
        return Err(format!(
            "the row says that it is {}, but its key is {}",
            entry.address,
            quoted(key, 80)
        ));
    }
    if entry.written_at > MAX_SAFE_INTEGER
        || entry.active_since.is_some_and(|v| v > MAX_SAFE_INTEGER)
    {
        return Err("a version is above 2^53".to_owned());
    }
    if (entry.status == SiloStatus::Dead) != entry.death.is_some() {
        return Err("a row is Dead exactly when it says how it died".to_owned());
    }
    if entry.status == SiloStatus::Created {
        return Err("Created is never written to the table".to_owned());
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CauseOfDeath, Death, Evidence, InstanceId, Suspicion, SuspicionReason, WallTime};

    fn full() -> MembershipEntry {
        let silo = "[2001:db8::1]:65535@9007199254740992".parse().unwrap();
        let mut e = MembershipEntry::new(
            silo,
            InstanceId::new(u128::MAX),
            WallTime::from_millis(1_763_000_000_123),
        );
        e.status = SiloStatus::Dead;
        e.death = Some(Death::new(
            CauseOfDeath::Evicted {
                by: "ops".into(),
                reason: "böse".into(),
            },
            WallTime::from_millis(7),
            Some(silo),
            9,
        ));
        e.suspicions.push(Suspicion::new(
            silo,
            WallTime::from_millis(1),
            SuspicionReason::Silent,
            Evidence {
                misses: 3,
                timeout_ms: 5000,
                last_answer: Some(WallTime::from_millis(2)),
                via: Some(silo),
                accuser_health: 8,
                stale: true,
                roll_call: Some(crate::RollCount {
                    asked: 5,
                    failed: 3,
                    reached: 0,
                    silent: 1,
                }),
            },
        ));
        e.info.metadata.insert("k\"'ü".into(), String::new());
        e.active_since = Some(4);
        e.written_at = 9;
        e
    }

    #[test]
    fn every_field_survives() {
        let e = full();
        let body = encode_entry(&e);
        assert_eq!(decode_entry(&e.address.row_key(), &body), Ok(e));
    }

    #[test]
    fn unknown_fields_survive_a_rewrite() {
        let e = full();
        let body = encode_entry(&e)
            .replacen(
                "{\"layout\":1",
                "{\"layout\":7,\"colour\":{\"deep\":[1,2]}",
                1,
            )
            .replacen("\"misses\"", "\"weather\":1,\"misses\"", 1);
        let read = decode_entry(&e.address.row_key(), &body).unwrap();
        let again = encode_entry(&read);
        assert!(again.contains("\"colour\":{\"deep\":[1,2]}"), "{again}");
        assert!(
            again.contains("\"layout\":1") && !again.contains("\"layout\":7"),
            "{again}"
        );
    }

    #[test]
    fn numbers_that_are_not_known_stay_what_they_are() {
        let e = full();
        let body = encode_entry(&e).replacen('{', "{\"field\":5.475474000000001e-52,", 1);
        for number in ["5.475474000000001e-52", "1.1e-7", "0.1", "1e308"] {
            let body = body.replacen("5.475474000000001e-52", number, 1);
            let read = decode_entry(&e.address.row_key(), &body).unwrap();
            let again = decode_entry(&e.address.row_key(), &encode_entry(&read)).unwrap();
            assert_eq!(read, again);
            let expected: f64 = number.parse().unwrap();
            assert_eq!(again.extra.0["field"], expected);
        }
    }

    #[test]
    fn an_undecodable_row_gives_the_reason() {
        let e = full();
        let (key, body) = (e.address.row_key(), encode_entry(&e));
        for (bad, why) in [
            (String::new(), "not a silo row"),
            (
                body.replacen("\"layout\":1", "\"layout\":9,\"min_layout\":9", 1),
                "layout 9",
            ),
            (body.replacen("\"Dead\"", "\"Zombie\"", 1), "Zombie"),
            (body.replacen("\"Dead\"", "\"Active\"", 1), "exactly when"),
            (
                body.replacen("\"written_at\":9", "\"written_at\":9007199254740993", 1),
                "2^53",
            ),
        ] {
            let error = decode_entry(&key, &bad).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(
            decode_entry("10.0.0.1:1@1", &body)
                .unwrap_err()
                .contains("its key is")
        );
    }
}
