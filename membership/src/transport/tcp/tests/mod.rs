//! The frozen corpus, damaged bytes, queues, and what messages leave out.

mod again;
mod corpus;
mod damage;
mod proofs;
mod queues;
mod sizes;
mod terse;

use std::time::Duration;

use membership_core::protocol::{
    Consent, Finding, Header, Message, NotReached, OwnChange, Standing,
};
use membership_core::{
    ChangedKeys, CommitId, CommitRecord, Delta, Evidence, Extra, InstanceId, IntentId,
    MembershipEntry, RollCount, Row, Rows, SharedSettings, SiloAddress, Suspicion, SuspicionReason,
    TableId, VersionRow, WallTime,
};

use super::handshake::{Introduction, Me};
use crate::transport::Hello;

fn silo(text: &str) -> SiloAddress {
    text.parse().unwrap()
}

fn header() -> Header {
    let from = silo("10.0.3.9:7100@1763000000000");
    let mut header = Header::new(0x0123_4567_89ab_cdef, from, InstanceId::new(0xfeed));
    header.to = Some(silo("[2001:db8::1]:65535@9007199254740992"));
    header.table_id = Some(TableId::new(u128::MAX));
    header.version = 300;
    header.digest = 1 << 60;
    header
}

/// The header of a silo that has no row and no view yet.
fn first_header() -> Header {
    let mut it = header();
    it.from = silo("10.0.3.9:7100@0");
    it.to = None;
    it.table_id = None;
    it.version = 0;
    it.digest = 0;
    it
}

fn counted() -> RollCount {
    RollCount {
        asked: 300,
        failed: 2,
        reached: 297,
        silent: 1,
    }
}

fn suspicion() -> Suspicion {
    let (accuser, at) = (
        silo("10.0.3.8:7100@5"),
        WallTime::from_millis(1_763_000_000_123),
    );
    let mut evidence = Evidence::missed(3, 5000);
    evidence.last_answer = Some(WallTime::from_millis(1_763_000_000_000));
    evidence.via = Some(silo("10.0.3.9:7100@1763000000000"));
    evidence.stale = true;
    let mut vote = Suspicion::new(accuser, at, SuspicionReason::Silent, evidence);
    let newer = serde_json::json!({ "field": [1, "two"] });
    vote.extra.0.insert("newer".to_owned(), newer);
    vote
}

fn rows(count: u16) -> Vec<Row> {
    (0..count)
        .map(|i| {
            let [high, low] = i.to_be_bytes();
            let address = SiloAddress::new([10, 1, high, low].into(), 7100, 1_763_000_000_000);
            let mut entry = MembershipEntry::new(
                address,
                InstanceId::new(u128::from(i) << 64),
                WallTime::from_millis(1_763_000_000_000),
            );
            entry.info.host_name = "höst".to_owned();
            entry.info.metadata.insert("k\"".to_owned(), "v".to_owned());
            entry.suspicions = vec![suspicion()];
            entry.written_at = 299;
            entry.extra = Extra([("colour".to_owned(), serde_json::json!("deep"))].into());
            Row::encode(entry)
        })
        .collect()
}

fn delta(from: Option<u64>, count: u16) -> Delta {
    let mut settings = SharedSettings::default();
    settings.failure_window = Duration::from_secs(15);
    let mut version_row = VersionRow::initial(TableId::new(7), settings);
    version_row.version = 300;
    version_row.recent = (299..=300)
        .map(|version| {
            CommitRecord::new(
                version,
                CommitId::new(u128::from(version)),
                Some(silo("10.0.3.8:7100@5")),
                if version == 299 {
                    ChangedKeys::Count(100)
                } else {
                    ChangedKeys::Keys(vec!["10.1.0.0:7100@1763000000000".to_owned()])
                },
            )
        })
        .collect();
    version_row.extra = Extra([("moon".to_owned(), serde_json::json!(1))].into());
    let mut all = Rows::new();
    rows(count).into_iter().for_each(|r| all.insert(r));
    let mut changed: Vec<Row> = all.iter().cloned().collect();
    if from.is_some() {
        changed.push(Row::decode("10.1.9.9:7100@1", "not JSON"));
    }
    let removed = if from.is_some() {
        vec!["10.0.0.1:1@1".to_owned()]
    } else {
        Vec::new()
    };
    let token = version_row.token(b"etag");
    Delta::new(from, version_row, token, all.digest(), changed, removed)
}

/// A failure to reach a suspect, with when it last answered and, if the silo consents to a vote,
/// when it last answered by its clock.
fn failed(heard_ms: Option<u64>, consent: Option<Option<u64>>) -> Finding {
    Finding::Failed {
        silent_ms: 4_750,
        heard_ms,
        refused: heard_ms.is_none(),
        consent: consent.map(|last_answer_ms| Consent {
            misses: 2,
            timeout_ms: 1_500,
            last_answer_ms,
        }),
    }
}

/// Every kind of message, by the name of its file.
fn samples() -> Vec<(&'static str, Header, Message)> {
    let suspect = silo("10.0.3.7:7100@4");
    vec![
        ("identify", first_header(), Message::Identify { nonce: 1 }),
        (
            "identity",
            header(),
            Message::Identity {
                nonce: 1,
                silo: Some(suspect),
                instance: InstanceId::new(9),
                host: "höst".into(),
            },
        ),
        (
            "identity-unknown",
            first_header(),
            Message::Identity {
                nonce: u64::MAX,
                silo: None,
                instance: InstanceId::new(9),
                host: "".into(),
            },
        ),
        ("probe", header(), Message::Probe { nonce: 2 }),
        ("probe-ack", header(), Message::ProbeAck { nonce: 2 }),
        ("not-me", header(), Message::NotMe { nonce: 3 }),
        (
            "roll-call",
            header(),
            Message::RollCall {
                call: 6,
                suspects: vec![(suspect, 4_500), (silo("10.0.3.6:7100@3"), 0)],
            },
        ),
        (
            "roll-answer",
            header(),
            Message::RollAnswer {
                call: 6,
                findings: vec![
                    (suspect, failed(None, None)),
                    (silo("10.0.3.6:7100@3"), Finding::Reached),
                    (silo("10.0.3.5:7100@2"), Finding::Unknown),
                ],
                missed: vec![silo("10.0.3.4:7100@1")],
            },
        ),
        (
            "roll-answer-consent",
            header(),
            Message::RollAnswer {
                call: u64::MAX,
                findings: vec![
                    (suspect, failed(Some(5_000), Some(Some(1_763_000_000_000)))),
                    (silo("10.0.3.6:7100@3"), failed(None, Some(None))),
                ],
                missed: Vec::new(),
            },
        ),
        (
            "roll-result",
            header(),
            Message::RollResult {
                suspects: vec![suspect],
                reached: 40,
                wait: Duration::new(5, 250_000_000),
            },
        ),
        ("ask-reach", header(), Message::AskReach { nonce: 9 }),
        (
            "reach",
            header(),
            Message::Reach {
                nonce: 9,
                unreached: vec![NotReached::new(suspect, counted())],
            },
        ),
        (
            "dial-me",
            header(),
            Message::DialMe {
                nonce: 8,
                endpoint: "[::1]:7100".parse().unwrap(),
            },
        ),
        ("dial-back", header(), Message::DialBack { nonce: 8 }),
        (
            "forward",
            header(),
            Message::Forward {
                changes: vec![(
                    IntentId::new(11),
                    OwnChange::BecomeActive {
                        contacted: vec![(suspect, 77)],
                    },
                )],
            },
        ),
        (
            "receipt",
            header(),
            Message::Receipt {
                changes: vec![(IntentId::new(11), Standing::Written { version: 301 })],
                waiting: 3,
            },
        ),
        (
            "ask-rows",
            first_header(),
            Message::AskRows {
                nonce: 8,
                have: 0,
                want: 300,
            },
        ),
        (
            "ask-them",
            header(),
            Message::AskThem {
                nonce: 8,
                silos: vec![suspect],
            },
        ),
        (
            "rows",
            header(),
            Message::Rows {
                nonce: 8,
                from: Some(299),
                version: 300,
                part: 0,
                parts: 1,
                rows: delta(Some(299), 1).rows,
                removed: vec!["10.0.0.9:7100@1".to_owned()],
            },
        ),
        ("vouch", header(), Message::Vouch { nonce: 8, word: 77 }),
        (
            "meet",
            header(),
            Message::Meet {
                nonce: 8,
                endpoint: suspect.endpoint(),
                word: 77,
            },
        ),
        (
            "ask-vouched",
            header(),
            Message::AskVouched {
                nonce: 8,
                words: vec![(suspect, 77)],
            },
        ),
        (
            "vouched",
            header(),
            Message::Vouched {
                nonce: 8,
                silos: vec![suspect],
            },
        ),
        (
            "ask-delta",
            header(),
            Message::AskDelta {
                table_id: Some(TableId::new(7)),
                have: 298,
            },
        ),
        (
            "ask-everything",
            first_header(),
            Message::AskDelta {
                table_id: None,
                have: 0,
            },
        ),
        (
            "delta",
            header(),
            Message::Delta(Box::new(delta(Some(299), 1))),
        ),
        (
            "snapshot",
            header(),
            Message::Delta(Box::new(delta(None, 3))),
        ),
        (
            "farewell",
            header(),
            Message::Farewell {
                version: 300,
                delta: Some(Box::new(delta(Some(299), 1))),
            },
        ),
        (
            "farewell-unwritten",
            header(),
            Message::Farewell {
                version: 0,
                delta: None,
            },
        ),
        (
            "you-are-dead",
            header(),
            Message::YouAreDead { version: 300 },
        ),
    ]
}

fn introduction() -> Introduction {
    Introduction {
        advertise: "10.0.3.9:7100".parse().unwrap(),
        instance: InstanceId::new(0xfeed),
        silo: Some(silo("10.0.3.9:7100@1763000000000")),
        fingerprint: None,
        proofs: vec![[3; 32], [4; 32]],
        secret: Some([5; 32]),
        table_id: Some(TableId::new(u128::MAX)),
    }
}

/// The one that gets these introductions, without TLS.
fn me() -> Me {
    Me::from(&Hello::new(
        "billing/blue".parse().unwrap(),
        "10.0.3.8:7100".parse().unwrap(),
        InstanceId::new(1),
    ))
}
