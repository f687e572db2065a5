//! What comes by a connection: the introduction of who is at its other end, frames, messages.

use std::sync::LazyLock;

use membership::ClusterView;
use membership::protocol::{Header, Message};
use membership::transport::fuzzing::{End, Handshaken, Heard, read, write, write_all};
use membership::transport::{Encoder, Hello, SiloKey, decode, encode};
use membership_core::{Delta, DeltaError, InstanceId, Rows};

use super::{Outcome, Target, check_line};
use crate::samples::{self, BASE, ME, MEMBER, NEWCOMER};

/// The longest introduction that is read, with its mark and head.
const MAX_INTRODUCTION: usize = 8 + 4 + 2048;
/// The longest message of who is no member.
const MAX_OF_OTHERS: usize = 4096;
/// The most of a header that a handshake, or the message before, makes known.
const MAX_FIXED: usize = 256;

/// What the handshake of the connection has fixed that messages come by.
static HANDSHAKE: LazyLock<Handshaken> = LazyLock::new(|| Handshaken::from(&samples::header()));

/// The keys of the silo that reads and of the other one, where certificates are shown.
static KEYS: LazyLock<[SiloKey; 2]> =
    LazyLock::new(|| [(); 2].map(|()| SiloKey::generate().expect("random numbers")));

fn hello(instance: InstanceId) -> Hello {
    let own = instance == KEYS[0].instance();
    let number = u8::try_from(instance.get()).unwrap_or(if own { 11 } else { 12 });
    let cluster = "billing/blue".parse().expect("a valid name");
    Hello::new(cluster, samples::silo(number).endpoint(), instance)
}

/// The end that an input is for: plain, within TLS with a member, with a newcomer that needs a
/// secret besides, and with one that has shown a certificate.
fn end(of: InstanceId, kind: u8, peer: InstanceId) -> End {
    match kind {
        0 => End::plain(&hello(of)),
        1 => End::secured(&hello(of), BASE.clone(), None, peer),
        3 => {
            let key = &KEYS[usize::from(of != ME)];
            End::certified(&hello(key.instance()), BASE.clone(), key)
        }
        _ => End::secured(&hello(of), BASE.clone(), Some(samples::secret()), peer),
    }
}

const fn peer(kind: u8) -> InstanceId {
    if kind >= 2 { NEWCOMER } else { MEMBER }
}

/// What this end makes of the bytes, as the side that was dialled or as the one that dialled.
fn meet(kind: u8, dials: bool, bytes: &[u8]) -> Heard {
    let me = end(ME, kind, peer(kind));
    if dials {
        me.dial(bytes)
    } else {
        me.accept(bytes)
    }
}

pub(super) const HELLO: Target = Target {
    name: "hello",
    about: "the introduction of another silo, before anybody is believed",
    seeds: || {
        let mut all = Vec::new();
        for kind in 0..4 {
            let other = end(peer(kind), kind, ME);
            let asks = other.dial(&[]).said;
            let answers = other.accept(&meet(kind, true, &[]).said).said;
            for (dials, said) in [(0, asks), (1, answers)] {
                let heard = meet(kind, dials == 1, &said);
                assert!(heard.peer.is_ok(), "what is valid is believed: {heard:?}");
                all.push([&[2 * kind + dials][..], &said].concat());
            }
        }
        for kept in samples::frozen() {
            all.push([&[0], &kept[..]].concat());
        }
        all
    },
    words: &[
        "\u{1}silo\r\n\u{1}",
        "GET / HTTP/1.1\r\n\r\n",
        "\0\0\u{8}\0",
        "\0\0\0\u{1}",
    ],
    longest: 3000,
    read: |bytes| {
        let (choice, bytes) = bytes.split_first().unwrap_or((&0, &[]));
        let (kind, dials) = ((choice / 2) % 4, choice % 2 == 1);
        let heard = meet(kind, dials, bytes);
        assert!(heard.taken <= MAX_INTRODUCTION, "{} bytes", heard.taken);
        assert!(heard.said.len() <= MAX_INTRODUCTION, "{:?}", heard.said);
        match heard.peer {
            Ok((endpoint, instance)) => {
                let is_possible = match kind {
                    0 => true,
                    // Whose key it proves, but for those that nobody has.
                    3 => samples::is_no_member(instance),
                    kind => instance == peer(kind),
                };
                assert!(is_possible, "believed: {instance}");
                assert!(
                    kind != 1 || endpoint == samples::silo(2).endpoint(),
                    "a member at another address is believed: {endpoint}"
                );
                Outcome::sized("believed", usize::from(2 * kind + u8::from(dials)))
            }
            Err(line) => {
                check_line(&line);
                let told = String::from_utf8_lossy(&heard.said);
                let named = ["billing", "blue", "secret", "10.0.0"];
                assert!(
                    dials || !named.iter().any(|name| told.contains(name)),
                    "a stranger learns {told:?}"
                );
                Outcome::of("refused", &line)
            }
        }
    },
};

pub(super) const FRAMES: Target = Target {
    name: "frames",
    about: "the frames of a connection after the introduction",
    seeds: || {
        let mut all = Vec::new();
        for body in [Message::Probe { nonce: 1 }, whole(100), whole(3)] {
            let message = Encoder::default().encode(&samples::header(), &body.into());
            let frames = write(&message.expect("it is encoded"), &HANDSHAKE);
            let ping = [0, 0, 0, 1, 5];
            all.push([&[1], &frames[..], &ping, &frames].concat());
            all.push([&[0], &frames[..]].concat());
        }
        let probe = Message::Probe { nonce: 1 }.into();
        let probe = Encoder::default().encode(&samples::header(), &probe);
        let twice = vec![probe.expect("it is encoded"); 2];
        all.push([&[1], &write_all(&twice)[..]].concat());
        all.extend(
            samples::frozen()
                .into_iter()
                .map(|kept| [&[1], &kept[..]].concat()),
        );
        all
    },
    words: &[
        "\0\0\0\u{1}",
        "\0\0\u{10}\u{2}",
        "\0\u{1}\0\u{3}",
        "\0\0\0\u{5}\u{4}",
        "\0\0\0\u{5}\u{3}",
    ],
    longest: 300_000,
    read: |bytes| {
        let (choice, bytes) = bytes.split_first().unwrap_or((&0, &[]));
        let is_member = choice % 2 == 1;
        let (mut all, mut understood, mut messages) = (0, 0, 0);
        let why = read(bytes, is_member, &HANDSHAKE, |message| {
            all += message.len();
            assert!(
                is_member || message.len() <= MAX_OF_OTHERS + MAX_FIXED,
                "{}",
                message.len()
            );
            understood += usize::from(decode(&message).is_ok());
            messages += 1;
        });
        let most = bytes.len() + messages * MAX_FIXED;
        assert!(all <= most, "{all} bytes of {}", bytes.len());
        check_line(&why);
        Outcome::of(
            if understood > 0 {
                "understood"
            } else {
                "nothing"
            },
            &why,
        )
    },
};

fn whole(rows: u8) -> Message {
    let mut whole = Delta::whole(&BASE);
    whole.rows = (1..=rows)
        .map(|number| membership_core::Row::encode(samples::entry(number)))
        .collect();
    Message::Delta(Box::new(whole))
}

/// Any message must be the same after it was written and read again.
fn message(bytes: &[u8]) -> Result<Message, Outcome> {
    match decode(bytes) {
        Ok((header, body)) => {
            let written = encode(&header, &body).expect("what was read can be written");
            match decode(&written) {
                Ok(again) => assert_eq!(again, (header, body.clone())),
                Err(error) => panic!("{body:?} cannot be read again: {error}"),
            }
            Ok(body)
        }
        Err(error) => {
            let line = error.to_string();
            check_line(&line);
            Err(Outcome::of("refused", &line))
        }
    }
}

/// The same header, but for one part after the other.
fn other_headers() -> Vec<Header> {
    let changes: [fn(&mut Header); 8] = [
        |_| {},
        |header| header.cluster = 1,
        |header| header.protocol = 2,
        |header| header.from = samples::silo(3),
        |header| header.instance = NEWCOMER,
        |header| header.to = None,
        |header| header.table_id = None,
        |header| header.digest = u64::MAX,
    ];
    let change = |change: &fn(&mut Header)| {
        let mut header = samples::header();
        change(&mut header);
        header
    };
    changes.iter().map(change).collect()
}

pub(super) const TERSE: Target = Target {
    name: "terse",
    about: "messages without what the handshake of their connection has fixed",
    seeds: || {
        let mut all = Vec::new();
        for header in other_headers() {
            for body in [
                Message::Probe { nonce: 1 },
                Message::Delta(Box::new(samples::next())),
            ] {
                let message = Encoder::default().encode(&header, &body.into());
                let frame = write(&message.expect("it is encoded"), &HANDSHAKE);
                // Without the length and the kind.
                all.push(frame.into_iter().skip(5).collect());
            }
        }
        all
    },
    words: &[
        "10.0.0.2:7100@1763000000000",
        "\u{40}",
        "\u{5f}",
        "\u{7f}",
        "\0",
    ],
    longest: 20_000,
    read: |bytes| match HANDSHAKE.restore(bytes) {
        Ok(whole) => {
            assert!(
                whole.len() <= bytes.len() + MAX_FIXED,
                "{} bytes",
                whole.len()
            );
            match message(&whole) {
                Ok(body) => Outcome::of(
                    "read",
                    &format!("{body:?}").chars().take(24).collect::<String>(),
                ),
                Err(outcome) => outcome,
            }
        }
        Err(error) => {
            let line = error.to_string();
            check_line(&line);
            Outcome::of("incomplete", &line)
        }
    },
};

fn encoded(bodies: impl IntoIterator<Item = Message>) -> Vec<Vec<u8>> {
    bodies
        .into_iter()
        .map(|body| encode(&samples::header(), &body).expect("it is encoded"))
        .collect()
}

pub(super) const MESSAGE: Target = Target {
    name: "message",
    about: "messages of every kind",
    seeds: || {
        let mut all = samples::frozen();
        all.extend(encoded([
            Message::Delta(Box::new(samples::next())),
            whole(3),
        ]));
        all
    },
    words: &[
        "10.0.0.2:7100@1763000000000",
        "{\"layout\":1}",
        "\u{7f}",
        "\u{1}",
        "null",
    ],
    longest: 20_000,
    read: |bytes| match message(bytes) {
        Ok(body) => Outcome::of(
            "read",
            &format!("{body:?}").chars().take(24).collect::<String>(),
        ),
        Err(outcome) => outcome,
    },
};

/// Every row is a member, or cannot be decoded.
fn check_rows(view: &ClusterView) {
    let rows = &view.snapshot().rows;
    let undecodable = rows.undecodable().count();
    assert_eq!(view.members().count() + undecodable, rows.iter().count());
}

pub(super) const DELTA: Target = Target {
    name: "delta",
    about: "changes of a view, applied to one",
    seeds: || {
        let mut other = samples::next();
        other.from = Some(4);
        encoded(
            [samples::next(), other, Delta::whole(&BASE)]
                .map(|delta| Message::Delta(Box::new(delta))),
        )
    },
    words: &[
        "10.0.0.2:7100@1763000000000",
        "10.0.0.3:7100@1763000000000",
        "{}",
        "\"status\":\"Dead\"",
    ],
    longest: 20_000,
    read: |bytes| {
        let mut delta = match message(bytes) {
            Ok(Message::Delta(delta)) => delta,
            Ok(_) => return Outcome::of("another", ""),
            Err(outcome) => return outcome,
        };
        match BASE.apply(&delta) {
            Ok(view) => {
                assert!(!view.is_confirmed(), "nobody has read the table");
                assert_eq!(view.digest(), delta.digest);
                check_rows(&view);
                assert!(view.changes_since(&BASE).len() <= view.len() + BASE.len());
                let whole = Delta::whole(&view);
                let same = BASE.apply(&whole).expect("a whole view can be applied");
                assert_eq!(same.snapshot().rows, view.snapshot().rows);
                Outcome::sized("applied", view.len())
            }
            Err(DeltaError::DigestMismatch) => {
                // Somebody who lies well.
                let mut rows = delta
                    .from
                    .map_or_else(Rows::new, |_| BASE.snapshot().rows.clone());
                for key in &delta.removed {
                    rows.remove(key);
                }
                for row in &delta.rows {
                    rows.insert(row.clone());
                }
                delta.digest = rows.digest();
                let view = BASE.apply(&delta).expect("its digest is right");
                check_rows(&view);
                Outcome::sized("forged", view.changes_since(&BASE).len())
            }
            Err(error) => Outcome::of("refused", &error.to_string()),
        }
    },
};
