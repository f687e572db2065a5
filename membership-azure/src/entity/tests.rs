//! Keys, long rows, and version rows made by merges.

use super::*;
use membership_core::{CommitId, InstanceId, MembershipEntry, SiloAddress, TableId};

#[test]
fn every_key_has_a_row_key_that_the_service_takes_and_comes_back() {
    let keys = [
        "10.0.0.1:7100@1763000000000",
        "[2001:db8::1]:65535@1",
        "no silo's key",
        "a/b\\c#d?e",
        "ü☃😀",
        "",
        "~",
        "~41",
        "!version",
        "!cell",
        "~heartbeat:x",
        "rowkey:",
        "rowkey:a",
        "rowkey:~",
        "rowkey:a b",
        "rowkey:rowkey:a b",
        "a%2Fb",
        "\u{7f}\u{80}\t\n",
    ];
    let mut stored = std::collections::BTreeSet::new();
    for key in keys {
        let row = row_key(key);
        assert_eq!(row_name(&row), key, "{row}");
        assert!(stored.insert(row.clone()), "{key} collides");
        if !key.starts_with(RAW) {
            assert!(
                row.bytes()
                    .all(|b| b.is_ascii_graphic() && !b"/\\#?%'!".contains(&b)),
                "{row}"
            );
            assert!(row.as_str() < AFTER_ROWS, "{row} is not among the rows");
        }
    }
    assert_eq!(
        row_key("10.0.0.1:7100@17"),
        "10.0.0.1:7100@17",
        "as people know it"
    );
}

#[test]
fn rows_that_somebody_else_named_can_be_named() {
    for stored in [
        "a b",
        "it's",
        "~zz",
        "~4",
        "10-0-0-1",
        "rowkey:a",
        "rowkey:a b",
        "~72owkey:~zz",
        "~72owkey:~7ezz",
        "ü",
        "~FF",
        "~41",
    ] {
        let name = row_name(stored);
        assert_eq!(row_key(&name), stored, "{name}");
    }
}

#[test]
fn partitions_differ_and_fit() {
    let long = "☃".repeat(150);
    let mut all = std::collections::BTreeSet::new();
    for (service, cluster) in [
        ("a", "b"),
        ("a", "b2"),
        ("it's", "/#?"),
        (long.as_str(), "a"),
        (long.as_str(), "b"),
        ("a", long.as_str()),
    ] {
        let key = partition(&ClusterName::new(service, cluster).unwrap());
        assert!(
            key.len() <= MAX_PARTITION_KEY
                && key
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b)),
            "{key}"
        );
        assert!(all.insert(key));
    }
}

fn stored(row_key: &str, properties: Properties) -> Entity {
    Entity {
        row_key: row_key.to_owned(),
        etag: Some("W/\"1\"".to_owned()),
        properties,
    }
}

#[test]
fn long_rows_are_cut_at_the_services_limit_and_put_together() {
    let silo: SiloAddress = "10.0.0.1:7100@17".parse().unwrap();
    for (c, count) in [('x', 10), ('x', 100_000), ('ü', 70_000), ('😀', 40_000)] {
        let mut entry = MembershipEntry::new(silo, InstanceId::new(1), WallTime::from_millis(5));
        entry.silo_name = c.to_string().repeat(count);
        entry.written_at = 7;
        let row = Row::encode(entry);
        let properties = row_properties(&row);
        assert_eq!(properties[WRITTEN_AT], "0000000000000007");
        for (name, value) in &properties {
            assert!(
                value.as_str().unwrap().encode_utf16().count() <= UNITS_PER_PROPERTY,
                "{name}"
            );
        }
        assert_eq!(stored(&row_key(row.key()), properties).row(None), row);
    }
}

#[test]
fn a_version_row_made_by_merges_reads_as_the_core_makes_it() {
    let mut expected = VersionRow::initial(TableId::new(7), SharedSettings::default());
    let mut entity = stored(VERSION, initial(&expected).unwrap());
    assert_eq!(entity.version_row().unwrap(), expected);
    // A newer build's property stays.
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
        request.core = (n == 20).then(|| "{\"looks\":\"like JSON\"}".to_owned());
        let base = Base {
            etag: "W/\"1\"".to_owned(),
            row_count: expected.row_count,
            layout: expected.layout,
        };
        entity
            .properties
            .extend(commit_properties(&request, &base).unwrap());
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
fn what_is_not_ours_is_told() {
    // A version row as Orleans writes it.
    let orleans = Properties::from_iter([
        ("DeploymentId".to_owned(), "blue".into()),
        ("MembershipVersion".to_owned(), "7".into()),
    ]);
    assert_eq!(
        stored(VERSION, orleans).version_row().unwrap_err().kind(),
        TableErrorKind::ForeignTable
    );
    let mut newer = initial(&VersionRow::initial(
        TableId::new(7),
        SharedSettings::default(),
    ))
    .unwrap();
    newer.insert("MinLayout".to_owned(), "900".into());
    assert_eq!(
        stored(VERSION, newer).version_row().unwrap_err().kind(),
        TableErrorKind::NewerLayout
    );
}

#[test]
fn a_token_carries_what_a_commit_needs_and_nothing_that_is_no_etag() {
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
        "what does not fit is left out, not cut"
    );
    // Tokens come from messages: what would put another header into a request, or match any state, is no ETag.
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
fn an_entity_without_an_etag_has_that_of_its_time() {
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
