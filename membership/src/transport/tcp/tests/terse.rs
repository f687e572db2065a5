//! What the handshake fixed is left out, what differs is not, and nothing is lost.

use membership_core::protocol::{Header, Message};
use membership_core::{InstanceId, SiloAddress, TableId};
use proptest::prelude::*;

use super::super::frame::{self, Assembler, Kind, Taken};
use super::super::handshake::{self, Agreed};
use super::super::terse::{put, restore};
use super::{header, me, samples, silo};
use crate::transport::header::Fixed;
use crate::transport::{DecodeError, EncodedMessage, Lane, decode, encode};

/// All that a header says.
fn fixed(header: &Header) -> Fixed {
    Fixed {
        cluster: header.cluster,
        protocol: header.protocol,
        from: header.from,
        instance: header.instance,
        to: header.to,
        table_id: header.table_id,
    }
}

/// The kind and the content of the frame of a message.
fn framed(header: &Header, body: &Message, fixed: &Fixed) -> (Kind, Vec<u8>) {
    framed_bytes(encode(header, body).unwrap(), fixed)
}

fn framed_bytes(message: Vec<u8>, fixed: &Fixed) -> (Kind, Vec<u8>) {
    let mut frames = Vec::new();
    let message = EncodedMessage::new(Lane::Probe, message.into(), "".into());
    put(&mut frames, &message, fixed);
    let kind = if frames[4] == Kind::Terse as u8 {
        Kind::Terse
    } else {
        Kind::Message
    };
    (kind, frames.split_off(5))
}

/// Ways in which a header differs from what is fixed, each with the bytes that it costs.
fn differences() -> Vec<(&'static str, Header, usize)> {
    let change = |change: fn(&mut Header)| {
        let mut header = header();
        change(&mut header);
        header
    };
    vec![
        ("nothing", header(), 0),
        ("a cluster", change(|h| h.cluster = 1), 2),
        ("a protocol", change(|h| h.protocol = 2), 10),
        ("an epoch", change(|h| h.from = silo("10.0.3.9:7100@5")), 8),
        (
            "an instance",
            change(|h| h.instance = InstanceId::new(1)),
            1,
        ),
        ("no receiver", change(|h| h.to = None), 1),
        (
            "a receiver",
            change(|h| h.to = Some(silo("10.0.3.8:7100@5"))),
            9,
        ),
        ("no table", change(|h| h.table_id = None), 1),
        ("a table", change(|h| h.table_id = Some(TableId::new(1))), 2),
    ]
}

#[test]
fn what_differs_is_there_and_nothing_else() {
    let (fixed, body) = (fixed(&header()), Message::Probe { nonce: 2 });
    let least = framed(&header(), &body, &fixed).1.len();
    for (what, header, costs) in differences() {
        let (kind, content) = framed(&header, &body, &fixed);
        assert_eq!(
            (kind, content.len()),
            (Kind::Terse, least + costs),
            "{what}"
        );
        let whole = restore(&content, &fixed).unwrap();
        assert_eq!(whole, encode(&header, &body).unwrap(), "{what}");
        assert_eq!(decode(&whole).unwrap(), (header, body.clone()), "{what}");
    }
}

#[test]
fn a_probe_and_its_answer_have_some_twenty_bytes() {
    let mut header = header();
    header.version = u64::from(u32::MAX);
    header.digest = u64::MAX;
    let nonce = u64::from(u32::MAX);
    for body in [Message::Probe { nonce }, Message::ProbeAck { nonce }] {
        let (_, content) = framed(&header, &body, &fixed(&header));
        assert!(content.len() + 5 <= 25, "{} bytes", content.len() + 5);
    }
}

#[test]
fn a_terse_message_means_nothing_elsewhere() {
    for (name, header, body) in samples() {
        let whole = encode(&header, &body).unwrap();
        let (_, content) = framed(&header, &body, &fixed(&header));
        assert!(content.len() + 20 < whole.len(), "{name}");
        assert_eq!(decode(&content), Err(DecodeError::Incomplete), "{name}");
        // What is whole means the same everywhere.
        assert_eq!(restore(&whole, &fixed(&header)).unwrap(), whole, "{name}");
    }
}

#[test]
fn another_connection_gives_its_own_names_to_what_is_left_out() {
    let body = Message::Probe { nonce: 2 };
    let (_, content) = framed(&header(), &body, &fixed(&header()));
    let mut other = fixed(&header());
    other.instance = InstanceId::new(0xbad);
    let whole = restore(&content, &other).unwrap();
    assert_eq!(decode(&whole).unwrap().0.instance, other.instance);
    // It cannot name another sender without saying so.
    let (_, content) = framed(&header(), &body, &other);
    let whole = restore(&content, &other).unwrap();
    assert_eq!(decode(&whole).unwrap().0.instance, header().instance);
}

#[test]
fn what_a_layer_above_has_changed_arrives_as_it_was() {
    let message = encode(&header(), &Message::Probe { nonce: 2 }).unwrap();
    let mut bytes = message.clone();
    bytes[0] = !bytes[0];
    let fixed = fixed(&header());
    assert_eq!(framed_bytes(bytes.clone(), &fixed), (Kind::Message, bytes));
    // A number in more bytes than it needs: the same message, but not the same bytes.
    let cluster = u64::from(0x7f_u8);
    let mut small = header();
    small.cluster = cluster;
    let mut longer = encode(&small, &Message::Probe { nonce: 2 }).unwrap();
    longer.splice(1..2, [0xff, 0]);
    assert_eq!(
        framed_bytes(longer.clone(), &fixed),
        (Kind::Message, longer)
    );
    for odd in [Vec::new(), vec![0], b"text".to_vec(), message[..9].to_vec()] {
        assert_eq!(framed_bytes(odd.clone(), &fixed), (Kind::Message, odd));
    }
}

#[test]
fn damaged_terse_messages_are_refused() {
    let fixed = fixed(&header());
    for (what, header, _) in differences() {
        let body = Message::YouAreDead { version: 300 };
        let (_, content) = framed(&header, &body, &fixed);
        let means = |content: &[u8]| decode(&restore(content, &fixed)?);
        for end in 0..content.len() {
            let cut = means(&content[..end]);
            assert!(
                matches!(cut, Err(DecodeError::Damaged(_))),
                "{what}: {cut:?}"
            );
        }
        let longer = [&content[..], &[0]].concat();
        assert_eq!(means(&longer), Err(DecodeError::Trailing(1)), "{what}");
        for encoding in (0..8).filter(|e| *e != content[0] >> 5) {
            let mut other = content.clone();
            other[0] = encoding << 5 | other[0] & 31;
            assert_eq!(means(&other), Err(DecodeError::Encoding(encoding)));
        }
    }
}

#[tokio::test]
async fn a_terse_frame_is_taken_at_once_or_dropped() {
    let mut bytes = Vec::new();
    frame::put(&mut bytes, Kind::Terse, &[&[7; 5000]]);
    for (is_member, taken) in [(true, Taken::Terse(vec![7; 5000])), (false, Taken::Dropped)] {
        let (mut from, mut assembler) = (bytes.as_slice(), Assembler::default());
        let next = frame::next(&mut from, &mut assembler, 1 << 20, || is_member);
        assert_eq!(next.await.unwrap(), (5000, taken));
    }
}

#[tokio::test]
async fn both_ends_of_a_connection_fix_the_same() {
    let (mut a, mut b) = (me(), me());
    (a.instance, b.instance) = (InstanceId::new(1), InstanceId::new(2));
    a.advertise = "10.0.3.9:7100".parse().unwrap();
    for known in [false, true] {
        if known {
            (a.silo, b.silo) = (Some(silo("10.0.3.9:7100@4")), Some(silo("10.0.3.8:7100@5")));
            (a.view, b.view) = (Some(super::proofs::view(7)), Some(super::proofs::view(8)));
        }
        let (mut near, mut far) = tokio::io::duplex(4096);
        let (dialled, accepted) = tokio::join!(
            handshake::dial(&mut near, &a, None),
            handshake::accept(&mut far, &b, None)
        );
        let (Agreed { sent, received }, there) = (dialled.unwrap().1, accepted.unwrap().1);
        assert_eq!((&sent, &received), (&there.received, &there.sent));
        assert_eq!((sent.protocol, sent.cluster), (1, a.cluster.fingerprint()));
        assert_eq!(sent.from, a.silo.unwrap_or(silo("10.0.3.9:7100@0")));
        assert_eq!((sent.instance, sent.to), (a.instance, b.silo));
        assert_eq!((received.instance, received.to), (b.instance, a.silo));
        // That of the side that accepted: the other one has told nobody.
        assert_eq!(sent.table_id, known.then(|| TableId::new(8)));
        assert_eq!(received.table_id, sent.table_id);
    }
}

fn any_silo() -> impl Strategy<Value = SiloAddress> {
    let any = any::<(std::net::IpAddr, u16, u64)>();
    // Few, so that some are equal.
    let one_of_few = (0..3_u8).prop_map(|n| SiloAddress::new([10, 0, 0, n].into(), 7100, 1));
    prop_oneof![
        any.prop_map(|(ip, port, epoch)| SiloAddress::new(ip, port, epoch)),
        one_of_few
    ]
}

prop_compose! {
    fn any_header()(
        (cluster, protocol) in (prop_oneof![Just(1), any::<u64>()], 1..3_u16),
        (from, to) in (any_silo(), proptest::option::of(any_silo())),
        instance in prop_oneof![Just(1), any::<u128>()],
        table in proptest::option::of(prop_oneof![Just(1), any::<u128>()]),
        (version, digest) in any::<(u64, u64)>(),
    ) -> Header {
        let mut header = Header::new(cluster, from, InstanceId::new(instance));
        (header.protocol, header.to) = (protocol, to);
        header.table_id = table.map(TableId::new);
        (header.version, header.digest) = (version, digest);
        header
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_message_arrives_on_any_connection(header in any_header(), other in any_header(), nonce: u64) {
        let (body, fixed) = (Message::ProbeAck { nonce }, fixed(&other));
        let whole = encode(&header, &body).unwrap();
        let (kind, content) = framed(&header, &body, &fixed);
        prop_assert_eq!(kind, Kind::Terse);
        prop_assert!(content.len() <= whole.len());
        prop_assert_eq!(restore(&content, &fixed).unwrap(), whole);
    }

    #[test]
    fn any_bytes_arrive_as_they_are(bytes: Vec<u8>, other in any_header()) {
        let fixed = fixed(&other);
        match framed_bytes(bytes.clone(), &fixed) {
            (Kind::Terse, content) => prop_assert_eq!(restore(&content, &fixed).unwrap(), bytes),
            (_, content) => prop_assert_eq!(content, bytes),
        }
    }

    #[test]
    fn any_terse_bytes_are_read_or_refused(bytes: Vec<u8>, other in any_header()) {
        let bytes = [&[0x40 | bytes.first().map_or(0, |b| b & 31)][..], &bytes].concat();
        if let Ok(whole) = restore(&bytes, &fixed(&other)) {
            // At most a whole header more.
            prop_assert!(whole.len() <= bytes.len() + 128);
        }
    }
}
