//! A header that is that of the message before is left out, and nothing is lost.

use super::super::again::Written;
use super::super::frame::{self, Assembler, FrameError, Kind, MAX_FROM_OTHERS, Taken};
use crate::transport::{EncodedMessage, Lane};

fn message(head: &str, body: &str) -> EncodedMessage {
    let [head, body] = [head, body].map(|part| part.as_bytes().to_vec().into());
    EncodedMessage::new(Lane::Probe, head, body)
}

/// The frames in these bytes, and what each means at the other end.
async fn heard(mut bytes: &[u8], is_member: bool) -> Vec<(u8, Result<Taken, FrameError>)> {
    let (mut all, mut assembler) = (Vec::new(), Assembler::default());
    while let Some(kind) = bytes.get(4).copied() {
        let next = frame::next(&mut bytes, &mut assembler, 1 << 20, || is_member).await;
        all.push((kind, next.map(|(_, taken)| taken)));
    }
    all
}

#[tokio::test]
async fn the_same_header_travels_once() {
    let (longest, too_long) = ("h".repeat(255), "h".repeat(256));
    let long = "b".repeat(MAX_FROM_OTHERS);
    let sent = [
        ("alone", "1", Kind::Headed),
        ("alone", "2", Kind::Again),
        ("founded", "3", Kind::Headed),
        ("founded", "", Kind::Again),
        ("alone", "4", Kind::Headed),
        ("", "no header", Kind::Message),
        // Who is no member is not heard with so much, so it teaches nothing.
        ("other", &long, Kind::Message),
        ("alone", "5", Kind::Again),
        (&too_long, "6", Kind::Message),
        (&longest, "7", Kind::Headed),
        (&longest, "8", Kind::Again),
    ];
    let (mut written, mut bytes) = (Written::default(), Vec::new());
    for (head, body, _) in &sent {
        written.put(&mut bytes, &message(head, body));
    }
    for is_member in [true, false] {
        let all = heard(&bytes, is_member).await;
        assert_eq!(all.len(), sent.len());
        for ((head, body, kind), (as_kind, taken)) in sent.iter().zip(all) {
            assert_eq!(as_kind, *kind as u8, "{head} {body}");
            let whole = Taken::Message([head.as_bytes(), body.as_bytes()].concat());
            let is_long = body.len() == MAX_FROM_OTHERS;
            let expected = if is_long && !is_member {
                Taken::Dropped
            } else {
                whole
            };
            assert_eq!(taken.unwrap(), expected, "{head} {body}");
        }
    }
}

#[tokio::test]
async fn the_longest_one_that_is_remembered_is_heard_from_everybody() {
    // Around the length from which on a stranger is not heard.
    for length in MAX_FROM_OTHERS - 10..MAX_FROM_OTHERS + 10 {
        let (mut written, mut bytes) = (Written::default(), Vec::new());
        written.put(&mut bytes, &message("head", &"b".repeat(length - 4)));
        written.put(&mut bytes, &message("head", "next"));
        let next = heard(&bytes, false).await.pop().unwrap().1.unwrap();
        assert_eq!(next, Taken::Message(b"headnext".to_vec()), "{length}");
    }
}

#[tokio::test]
async fn a_header_that_never_came_is_garbage() {
    let cases: [(Kind, &[u8]); 5] = [
        (Kind::Again, b"body"),
        (Kind::Again, b""),
        (Kind::Headed, b""),
        (Kind::Headed, b"\0body"),
        (Kind::Headed, b"\x05body"),
    ];
    for (kind, content) in cases {
        let mut bytes = Vec::new();
        frame::put(&mut bytes, kind, &[content]);
        let (_, taken) = heard(&bytes, true).await.pop().unwrap();
        assert!(matches!(taken, Err(FrameError::Garbage(_))), "{taken:?}");
    }
    // A header and no body is a message, if an odd one.
    let mut bytes = Vec::new();
    frame::put(&mut bytes, Kind::Headed, &[b"\x04head"]);
    let (_, taken) = heard(&bytes, true).await.pop().unwrap();
    assert_eq!(taken.unwrap(), Taken::Message(b"head".to_vec()));
}

#[cfg(feature = "gossip")]
#[test]
fn a_heartbeat_has_some_ten_bytes() {
    use membership_core::{FoundingId, InstanceId};
    use membership_gossip::protocol::{Header, Message};

    use super::silo;
    use crate::gossip::GossipWire;
    use crate::transport::WireEncoder;

    let from = silo("10.0.3.9:7100@1763000000000");
    let mut header = Header::new(u64::MAX, from, InstanceId::new(u128::MAX));
    header.to = Some(silo("10.0.3.8:7100@1763000000000"));
    header.founding = Some(FoundingId::new(u128::MAX));
    let encoder = WireEncoder::<GossipWire>::default();
    let mut written = Written::default();
    let nonce = u32::MAX;
    let sizes = [
        (Message::Heartbeat { nonce }, 84),
        (Message::HeartbeatReply { nonce }, 11),
    ];
    for (body, bytes) in sizes {
        let mut frames = Vec::new();
        written.put(&mut frames, &encoder.encode(&header, &body.into()).unwrap());
        assert_eq!(frames.len(), bytes);
    }
}
