use membership_core::{
    CommitId, CommitRequest, InstanceId, MembershipEntry, Row, SiloAddress, TableId, WallTime,
};
use membership_provider::counted_next_token;

use super::*;
use crate::wire::Bytes;

fn keys() -> Keys {
    Keys::new("membership", &"blue".parse().unwrap())
}

fn pair(key: Bytes, value: &str) -> Pair {
    let (key, value) = (key.text(), value.to_owned());
    serde_json::from_value(serde_json::json!({ "key": Bytes::from(key), "value": Bytes::from(value), "mod_revision": "7" })).unwrap()
}

fn entry(port: u16) -> MembershipEntry {
    MembershipEntry::new(
        SiloAddress::new([127, 0, 0, 1].into(), port, 1),
        InstanceId::new(1),
        WallTime::default(),
    )
}

/// The pairs of a version row.
fn stored(row: &VersionRow) -> Vec<Pair> {
    let keys = keys();
    let mut pairs = vec![
        pair(keys.version(), &version_text(row)),
        pair(keys.settings(), &json(&row.settings)),
    ];
    pairs.extend(
        row.recent
            .iter()
            .map(|record| pair(keys.recent(record.version), &json(record))),
    );
    if !row.core.is_empty() {
        pairs.push(pair(keys.core(), row.core.stored()));
    }
    pairs
}

fn found(pairs: Vec<Pair>) -> Found {
    Found::new(&keys(), [pairs])
}

#[test]
fn a_version_row_is_read_as_its_commits_wrote_it_and_its_text_follows_from_a_token() {
    let mut row = VersionRow::initial(TableId::new(7), SharedSettings::default());
    for n in 1..40_u16 {
        let version = found(stored(&row)).version.unwrap();
        assert_eq!((version.any().unwrap(), version.revision), (row.clone(), 7));
        assert_eq!(
            version_text(&guess(&counted_token(&row)).unwrap()),
            version_text(&row)
        );
        let mut commit = CommitRequest::new(
            counted_token(&row),
            CommitId::new(n.into()),
            None,
            [entry(n)],
            [],
            [],
        );
        if n == 20 {
            commit.core = Some("{\"not\":\"parsed\"}".to_owned().into());
        }
        let guessed = commit.next_version_row(&guess(&commit.expected).unwrap());
        row = commit.next_version_row(&row);
        assert_eq!(version_text(&guessed), version_text(&row));
        assert_eq!(guessed.recent.last(), row.recent.last());
        assert_eq!(
            counted_next_token(&commit, row_count_of(&commit.expected)),
            counted_token(&row)
        );
    }
    assert_eq!(
        (row.row_count, row.core.stored()),
        (39, "{\"not\":\"parsed\"}")
    );
    assert!(
        guess(&row.token(&[])).is_none() && guess(&row.token(b"nonsense of some length")).is_none()
    );
}

#[test]
fn unknown_fields_are_kept_and_damage_is_found() {
    let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
    let kind = |from: &str, to: &str| {
        let text = version_text(&row);
        assert!(text.contains(from), "{text}");
        let pairs = vec![
            pair(keys().version(), &text.replacen(from, to, 1)),
            pair(keys().settings(), &json(&row.settings)),
        ];
        found(pairs).version.unwrap().any().map_err(|e| e.kind())
    };
    let newer = kind("{", "{\"moon\":{\"deep\":[1]},").unwrap();
    assert_eq!(newer.extra.0["moon"].to_string(), "{\"deep\":[1]}");
    assert!(version_text(&newer).contains("\"moon\":{\"deep\":[1]}"));
    assert!(
        kind("\"row_count\":0", "\"row_count\":0,\"deleting\":true")
            .unwrap()
            .deleting
    );
    assert_eq!(
        kind("\"version\":0", "\"version\":-1"),
        Err(TableErrorKind::Damaged)
    );
    assert_eq!(
        kind("\"version\":0", "\"version\":4"),
        Err(TableErrorKind::Damaged)
    );
    assert_eq!(
        kind("\"commit\":\"0", "\"commit\":\"1"),
        Err(TableErrorKind::Damaged)
    );
    assert_eq!(
        kind("\"min_layout\":1", "\"min_layout\":900"),
        Err(TableErrorKind::NewerLayout)
    );
    assert_eq!(kind("\"layout\":1,", ""), Err(TableErrorKind::ForeignTable));
    for foreign in ["", "{", "7", "[]", "{\"Version\":7}"] {
        let stored = found(vec![pair(keys().version(), foreign)]);
        assert_eq!(
            stored.version.unwrap().any().unwrap_err().kind(),
            TableErrorKind::ForeignTable,
            "{foreign}"
        );
    }
    let without_settings = found(vec![pair(keys().version(), &version_text(&row))]);
    assert_eq!(
        without_settings.version.unwrap().any().unwrap_err().kind(),
        TableErrorKind::Damaged
    );
}

#[test]
fn a_missing_table_is_distinguished_from_one_without_version_row() {
    let of = |pairs| found(pairs).usable(None).unwrap_err().kind();
    assert_eq!(of(vec![]), TableErrorKind::NotInitialized);
    assert_eq!(
        of(vec![
            pair(keys().heartbeat("127.0.0.1:1@1"), "1 x"),
            pair(keys().settings(), "{}")
        ]),
        TableErrorKind::NotInitialized
    );
    assert_eq!(
        of(vec![pair(keys().row("127.0.0.1:1@1"), "x")]),
        TableErrorKind::Damaged
    );
}

#[test]
fn rows_are_decoded_once_and_heartbeats_without_a_row_are_not_shown() {
    let keys = keys();
    let body = |port: u16, name: &str| {
        let mut e = entry(port);
        e.info.silo_name = name.to_owned();
        pair(keys.row(&e.address.row_key()), Row::encode(e).body())
    };
    let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
    let first = found(vec![
        body(1, "a"),
        body(2, "b"),
        pair(keys.row("junk"), "{"),
    ])
    .snapshot(row.clone(), &Rows::new())
    .unwrap()
    .rows;
    assert_eq!((first.len(), first.undecodable().count()), (3, 1));
    let heartbeats = [
        ("127.0.0.1:1@1", "5 1970-01-01T00:00:00.007Z"),
        ("127.0.0.1:2@1", "6 x"),
        ("junk", "1"),
        ("cluster", "cell"),
    ];
    let mut stored = vec![body(1, "a"), body(3, "c")];
    stored.extend(heartbeats.map(|(key, text)| pair(keys.heartbeat(key), text)));
    let found = found(stored);
    let second = found.snapshot(row, &first).unwrap().rows;
    let key = entry(1).address.row_key();
    assert!(
        first
            .by_key(&key)
            .unwrap()
            .is_same(second.by_key(&key).unwrap())
    );
    assert_eq!(second.len(), 2);
    let shown = found.heartbeats(&second);
    assert_eq!(
        (
            shown.silos.len(),
            shown.counter(&entry(1).address),
            shown.cluster.as_deref()
        ),
        (1, 5, Some("cell"))
    );
    assert_eq!(
        found.heartbeat("127.0.0.1:2@1"),
        Some(Heartbeat {
            counter: 6,
            at: WallTime::from_millis(0)
        })
    );
}
