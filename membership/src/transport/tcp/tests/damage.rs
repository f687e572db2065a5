//! Damaged bytes are refused, without side effects.

use super::super::frame::{self, Assembler, Content, FrameError, Kind, MAX_FRAME, Taken};
use super::super::handshake::{self, Side};
use super::{delta, header, introduction, me, samples};
use crate::transport::{decode, encode};
use membership_core::protocol::Message;

/// A small generator with a fixed seed, so that a failure repeats.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.0.to_le_bytes()[7]),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => {
                    let piece = bytes[at..(at + self.below(20)).min(bytes.len())].to_vec();
                    bytes.extend(piece);
                }
                4 if at < bytes.len() => bytes[at] = [0, 0x7f, 0x80, 0xff][self.below(4)],
                _ if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
    }
}

/// Reads as a connection does: how many messages are understood, and why it ends.
async fn receive(mut from: &[u8]) -> (usize, FrameError) {
    let (mut assembler, mut understood) = (Assembler::default(), 0);
    loop {
        match frame::next(&mut from, &mut assembler, 1 << 20, || true).await {
            Ok((_, Taken::Message(message))) => understood += usize::from(decode(&message).is_ok()),
            Ok(_) => {}
            Err(error) => return (understood, error),
        }
    }
}

#[tokio::test]
async fn a_hundred_thousand_damaged_frames_do_no_harm() {
    let me = me();
    let mut originals: Vec<Vec<u8>> = Vec::new();
    for (_, header, body) in samples() {
        let message = encode(&header, &body).unwrap();
        let mut frames = Vec::new();
        frame::put(&mut frames, Kind::Message, &[&message]);
        let (first, second) = message.split_at(message.len() / 2);
        frame::put(
            &mut frames,
            Kind::Start,
            &[&u32::try_from(message.len()).unwrap().to_be_bytes(), first],
        );
        frame::put(&mut frames, Kind::Ping, &[]);
        frame::put(&mut frames, Kind::More, &[second]);
        assert!(matches!(receive(&frames).await, (2, FrameError::Ended)));
        originals.push(frames);
        originals.push(message);
    }
    originals.push(
        handshake::encode(
            crate::transport::Kind::Table,
            handshake::Versions::MINE,
            &introduction(),
            None,
        )
        .unwrap()[13..]
            .to_vec(),
    );

    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let mut refused = 0_u32;
    for _ in 0..100_000 {
        let mut bytes = originals[rng.below(originals.len())].clone();
        rng.mutate(&mut bytes);
        let understood =
            decode(&bytes).is_ok() || handshake::check(&bytes, &me, Side::Dialled, None).is_ok();
        let as_frames = receive(&bytes).await;
        refused += u32::from(!understood && !matches!(as_frames, (_, FrameError::Ended)));
    }
    assert!(
        refused > 50_000,
        "only {refused} were refused: the mutations do too little"
    );
}

#[test]
fn claimed_lengths_allocate_nothing() {
    // A delta whose number of rows is 2^60: what follows the header and the variant is `from`, then
    // the version row.
    let mut message = encode(&header(), &Message::Delta(Box::new(delta(None, 0)))).unwrap();
    let removed = message.len() - 1;
    message[removed - 1] = 0xff;
    message.splice(
        removed..,
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0],
    );
    assert!(decode(&message).is_err());
}

#[test]
fn more_rows_than_any_cluster_has_are_refused() {
    let mut message = encode(&header(), &Message::Delta(Box::new(delta(None, 0)))).unwrap();
    message.truncate(message.len() - 2);
    // 2^17 + 1 rows of an empty key and an empty text, then no removed ones.
    let (exactly, one_more) = ([0x80, 0x80, 0x08], [0x81, 0x80, 0x08]);
    let rows = |count: [u8; 3], n: usize| [&message[..], &count, &vec![0; 2 * n + 1]].concat();
    assert!(decode(&rows(exactly, 1 << 17)).is_ok());
    assert!(decode(&rows(one_more, (1 << 17) + 1)).is_err());
}

#[tokio::test]
async fn lengths_are_checked_before_anything_is_read() {
    let far_too_long = [0xff; 5];
    assert!(matches!(
        frame::read(&mut far_too_long.as_slice(), MAX_FRAME).await,
        Err(FrameError::Oversized(0xffff_ffff))
    ));
    let empty = [0; 5];
    assert!(matches!(
        frame::read(&mut empty.as_slice(), MAX_FRAME).await,
        Err(FrameError::Garbage(_))
    ));
    let cut = [0, 0, 0, 9, 2, 1];
    assert!(matches!(
        frame::read(&mut cut.as_slice(), MAX_FRAME).await,
        Err(FrameError::Io(_))
    ));
}

#[tokio::test]
async fn a_long_refusal_is_shown_as_one_line() {
    let mut bytes = handshake::MARK.to_vec();
    frame::put(&mut bytes, Kind::Refuse, &["☃\n".repeat(500).as_bytes()]);
    let mut stream = tokio::io::join(bytes.as_slice(), Vec::new());
    let error = handshake::dial(&mut stream, &me(), None).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains('☃') && text.len() < 1024, "{text}");
    assert!(!text.chars().any(char::is_control), "{text}");
}

#[test]
fn pieces_that_do_not_fit_are_refused() {
    let mut a = Assembler::default();
    assert!(matches!(a.more(b"x"), Err(FrameError::Garbage(_))));
    assert!(matches!(
        a.start(&[0, 0, 1], 100),
        Err(FrameError::Garbage(_))
    ));
    assert!(matches!(
        a.start(&[0, 0, 0, 101, 1], 100),
        Err(FrameError::Oversized(101))
    ));
    assert!(matches!(a.start(&[0, 0, 0, 3, 1, 2], 100), Ok(None)));
    assert_eq!(a.held(), 2);
    assert!(matches!(
        a.start(&[0, 0, 0, 3, 1, 2], 100),
        Err(FrameError::Garbage(_))
    ));
    assert!(matches!(a.more(&[]), Err(FrameError::Garbage(_))));
    assert!(matches!(a.more(&[3, 4]), Err(FrameError::Garbage(_))));
    assert_eq!(a.more(&[3]).unwrap(), Some(vec![1, 2, 3]));
    assert_eq!(a.held(), 0);
}

#[test]
fn a_message_that_is_skipped_takes_no_memory_to_its_end() {
    let mut a = Assembler::default();
    let first = [&[0, 0, 8, 1][..], &[7; 1024]].concat();
    assert!(matches!(a.start(&first, 9000), Ok(None)));
    // Its sender is no member any more.
    a.skip(None, 1024).unwrap();
    assert!(a.is_skipping());
    assert_eq!(a.held(), 0);
    assert!(matches!(a.skip(None, 2), Err(FrameError::Garbage(_))));
    a.skip(None, 1).unwrap();
    assert!(!a.is_skipping());
    a.skip(Some(&[0, 0, 4, 0]), 1024).unwrap();
    assert!(!a.is_skipping(), "all of it was in its first piece");
    assert!(matches!(a.start(&first, 9000), Ok(None)));
}

#[tokio::test]
async fn a_frame_that_nobody_wants_is_skipped() {
    let mut bytes = Vec::new();
    frame::put(&mut bytes, Kind::Message, &[&[5; 5000]]);
    frame::put(&mut bytes, Kind::Message, &[&[6; 50]]);
    let mut from = bytes.as_slice();
    let read = frame::read_or_skip(&mut from, MAX_FRAME, || 4096).await;
    let (kind, content) = read.unwrap();
    assert_eq!(
        (kind, content),
        (Kind::Message, Content::Skipped(vec![5; 4], 5000))
    );
    let (_, content) = frame::read_or_skip(&mut from, MAX_FRAME, || 4096)
        .await
        .unwrap();
    assert_eq!(content, Content::Whole(vec![6; 50]));
}
