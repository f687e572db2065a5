//! Long rows, and version rows made by merges.

use super::*;
use membership_core::{
    CommitId, InstanceId, MembershipEntry, SharedSettings, SiloAddress, TableId, WallTime,
};

fn stored(row_key: &str, properties: Properties) -> Entity {
    Entity {
        row_key: row_key.to_owned(),
        etag: Some("W/\"1\"".to_owned()),
        properties,
    }
}

#[test]
fn long_rows_are_split_at_the_services_limit_and_joined() {
    let silo: SiloAddress = "10.0.0.1:7100@17".parse().unwrap();
    for (c, count) in [('x', 10), ('x', 100_000), ('ü', 70_000), ('😀', 40_000)] {
        let mut entry = MembershipEntry::new(silo, InstanceId::new(1), WallTime::from_millis(5));
        entry.info.silo_name = c.to_string().repeat(count);
        entry.written_at = 7;
        let row = Row::encode(entry);
        let properties = row_properties(&row);
        assert_eq!(properties[keys::WRITTEN_AT], "0000000000000007");
        for (name, value) in &properties {
            assert!(
                value.as_str().unwrap().encode_utf16().count() <= UNITS_PER_PROPERTY,
                "{name}"
            );
        }
        assert_eq!(
            stored(&keys::row_key(row.key()), properties).row(&Rows::new()),
            row
        );
    }
}

#[test]
fn a_version_row_made_by_merges_matches_the_cores() {
    let mut expected = VersionRow::initial(TableId::new(7), SharedSettings::default());
    let mut entity = stored(keys::VERSION, initial(&expected));
    assert_eq!(entity.version_row().unwrap(), expected);
    // The property of a newer build stays.
    entity
        .properties
        .insert("NewThing".to_owned(), "{\"deep\":[1,2]}".into());
    for n in 1..=40_u64 {
        let silo = SiloAddress::new([10, 0, 0, 1].into(), 7100, n);
        let entry = MembershipEntry::new(silo, InstanceId::new(1), WallTime::from_millis(5));
        let mut request = CommitRequest::new(
            expected.token(&[]),
            CommitId::new(u128::from(n) << 64),
            Some(silo),
            [entry],
            [],
            [],
        );
        request.core = (n == 20).then(|| "{\"looks\":\"like JSON\"}".into());
        let base = Base {
            etag: "W/\"1\"".to_owned(),
            row_count: expected.row_count,
            layout: expected.layout,
        };
        entity.properties.extend(commit_properties(&request, &base));
        let extra = entity.version_row().unwrap().extra;
        expected = request.next_version_row(&expected);
        expected.extra = extra;
        assert_eq!(entity.version_row().unwrap(), expected, "version {n}");
    }
    assert!(
        serde_json::to_string(&expected)
            .unwrap()
            .contains("\"new_thing\":{\"deep\":[1,2]}")
    );
    entity
        .properties
        .insert("Commit".to_owned(), CommitId::new(9).to_string().into());
    assert_eq!(
        entity.version_row().unwrap_err().kind(),
        TableErrorKind::Damaged
    );
    entity.properties.insert("Deleting".to_owned(), true.into());
    entity.properties.insert(
        "Commit".to_owned(),
        expected.last_commit().to_string().into(),
    );
    assert!(entity.version_row().unwrap().deleting);
}

#[test]
fn foreign_and_newer_version_rows_are_refused() {
    // A version row as Orleans writes it.
    let orleans = Properties::from_iter([
        ("DeploymentId".to_owned(), "blue".into()),
        ("MembershipVersion".to_owned(), "7".into()),
    ]);
    assert_eq!(
        stored(keys::VERSION, orleans)
            .version_row()
            .unwrap_err()
            .kind(),
        TableErrorKind::ForeignTable
    );
    let mut newer = initial(&VersionRow::initial(
        TableId::new(7),
        SharedSettings::default(),
    ));
    newer.insert("MinLayout".to_owned(), "900".into());
    assert_eq!(
        stored(keys::VERSION, newer)
            .version_row()
            .unwrap_err()
            .kind(),
        TableErrorKind::NewerLayout
    );
}

#[test]
fn a_token_carries_only_valid_etags() {
    let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
    let base = Base {
        etag: "W/\"datetime'2026-11-21T09%3A09%3A05.6665154Z'\"".to_owned(),
        row_count: 12_345,
        layout: 3,
    };
    assert_eq!(Base::of(&row.token(&base.to_bytes())), Some(base.clone()));
    assert_eq!(Base::of(&row.token(&[])), None);
    assert_eq!(
        Base {
            etag: "x".repeat(60),
            ..base.clone()
        }
        .to_bytes(),
        Vec::<u8>::new(),
        "a token that is too long is left out, not cut"
    );
    // Tokens come from messages: an ETag must not add a header to a request, or match any state.
    for etag in ["*", "", "W/\"a\"\r\nX: y", "W/\"ü\""] {
        assert_eq!(
            Base::of(
                &row.token(
                    &Base {
                        etag: etag.to_owned(),
                        ..base.clone()
                    }
                    .to_bytes()
                )
            ),
            None,
            "{etag:?}"
        );
    }
}

#[test]
fn an_entity_without_an_etag_gets_that_of_its_timestamp() {
    let value = serde_json::json!({ "RowKey": "a", "PartitionKey": "p", "Timestamp": "2026-11-21T09:09:05.6665154Z", "Body": "x" });
    let entity = Entity::from_answer(value).unwrap();
    assert_eq!(
        entity.etag.as_deref(),
        Some("W/\"datetime'2026-11-21T09%3A09%3A05.6665154Z'\"")
    );
    assert_eq!(entity.properties.len(), 1);
    assert_eq!(
        Entity::from_answer(serde_json::json!({ "PartitionKey": "p" })),
        None
    );
}
