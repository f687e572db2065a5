//! The encoding is frozen: later builds must read what earlier ones sent.
//!
//! Each file of `tests/corpus` has bytes that this or an earlier build sends. They must decode to
//! the expected value, and the value must encode to them. `MEMBERSHIP_BLESS=1` writes missing
//! files. A file that exists is never changed: add another one, under a new protocol version.

use std::path::PathBuf;

use super::super::frame::{self, Assembler, FrameError, Kind};
use super::super::handshake::{self, HandshakeError, Introduction, MARK, Side, Versions};
use super::{delta, header, introduction, me, samples};
use crate::transport::{decode, encode};
use membership_core::protocol::Message;

fn frozen(name: &str, now: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(format!("{name}.bin"));
    if !path.exists() && std::env::var_os("MEMBERSHIP_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, now).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|e| {
        panic!(
            "{}: {e}; a new message? run once with MEMBERSHIP_BLESS=1",
            path.display()
        )
    })
}

#[test]
fn messages() {
    for (name, header, body) in samples() {
        let now = encode(&header, &body).unwrap();
        let frozen = frozen(name, &now);
        assert_eq!(
            decode(&frozen).unwrap(),
            (header, body),
            "{name} decodes differently"
        );
        assert_eq!(now, frozen, "{name} is encoded differently");
    }
}

#[test]
fn handshakes() {
    let now = handshake::encode(
        crate::transport::Kind::Table,
        Versions { min: 1, max: 1 },
        &introduction(),
        None,
    )
    .unwrap();
    let hello = frozen("hello", &now);
    assert_eq!(now, hello);
    let plain = Introduction {
        silo: None,
        fingerprint: Some(me().cluster.fingerprint()),
        proofs: Vec::new(),
        secret: None,
        table_id: None,
        ..introduction()
    };
    let first = handshake::encode(
        crate::transport::Kind::Table,
        Versions { min: 1, max: 1 },
        &plain,
        None,
    )
    .unwrap();
    assert_eq!(first, frozen("hello-plain", &first));
    // The mark, 4 bytes of length, 1 of kind.
    assert_eq!(hello[..8], MARK);
    assert_eq!(hello.get(13..), now.get(13..));
    assert_eq!(
        handshake::check(&first[13..], &me(), Side::Dialled, None).unwrap(),
        (plain, 1)
    );

    let mut refusal = MARK.to_vec();
    frame::put(
        &mut refusal,
        Kind::Refuse,
        &["this silo supports protocol versions 1 to 1, not 2 to 9".as_bytes()],
    );
    assert_eq!(refusal, frozen("refusal", &refusal));
}

#[tokio::test]
async fn frames() {
    let message = encode(&header(), &Message::Delta(Box::new(delta(None, 3)))).unwrap();
    let (first, second) = message.split_at(1000);
    let mut now = Vec::new();
    frame::put(
        &mut now,
        Kind::Start,
        &[&u32::try_from(message.len()).unwrap().to_be_bytes(), first],
    );
    frame::put(&mut now, Kind::Ping, &[]);
    frame::put(&mut now, Kind::Pong, &[]);
    frame::put(&mut now, Kind::More, &[second]);
    let frozen = frozen("frames", &now);
    assert_eq!(now, frozen);

    let mut from = frozen.as_slice();
    let mut assembler = Assembler::default();
    let mut next = async || frame::read(&mut from, 1 << 16).await.unwrap();
    let (kind, content) = next().await;
    assert_eq!(
        (kind, assembler.start(&content, 1 << 20).unwrap()),
        (Kind::Start, None)
    );
    assert_eq!(next().await, (Kind::Ping, Vec::new()));
    assert_eq!(next().await, (Kind::Pong, Vec::new()));
    let (kind, content) = next().await;
    assert_eq!(
        (kind, assembler.more(&content).unwrap()),
        (Kind::More, Some(message))
    );
}

#[tokio::test]
async fn the_last_frame() {
    let mut now = Vec::new();
    frame::put(&mut now, Kind::Close, &[]);
    let frozen = frozen("close", &now);
    assert_eq!(now, frozen);
    let mut from = frozen.as_slice();
    let next = frame::next(&mut from, &mut Assembler::default(), 1 << 20, || true).await;
    assert!(matches!(next, Err(FrameError::Closed)));
}

#[test]
fn a_newer_hello_is_understood_or_refused_by_its_versions() {
    let plain = Introduction {
        fingerprint: Some(me().cluster.fingerprint()),
        ..introduction()
    };
    let check = |bytes: &[u8]| handshake::check(bytes, &me(), Side::Dialled, None);
    let newer = handshake::encode(
        crate::transport::Kind::Table,
        Versions { min: 1, max: 9 },
        &plain,
        None,
    )
    .unwrap();
    let with_more_fields = [&newer[13..], b"and more"].concat();
    assert_eq!(check(&with_more_fields).unwrap(), (plain.clone(), 1));
    // Who is not believed is not told the versions either.
    let alien = handshake::encode(
        crate::transport::Kind::Table,
        Versions { min: 2, max: 9 },
        &plain,
        None,
    )
    .unwrap();
    let stranger = handshake::encode(
        crate::transport::Kind::Table,
        Versions { min: 2, max: 9 },
        &introduction(),
        None,
    )
    .unwrap();
    assert!(matches!(
        check(&stranger[13..]),
        Err(HandshakeError::Cluster)
    ));
    let error = check(&alien[13..]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it supports 2 to 9, this silo 1 to 1"),
        "{error}"
    );
}
