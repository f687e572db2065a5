//! Messages as bytes: what is sent arrives, what anybody sends is read without a panic and without
//! more memory than it is long, and small messages are small.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use membership_core::{FoundingId, InstanceId, SiloAddress, SiloInfo};
use membership_gossip::protocol::{
    Ballot, DecodeError, Header, Message, Refusal, Waiting, decode, encode,
};
use membership_gossip::state::{Flag, Gossip, MemberStatus, Profile, Seen, State};
use proptest::prelude::*;

fn address(i: u32) -> SiloAddress {
    let [_, a, b, c] = i.to_be_bytes();
    SiloAddress::new([10, a, b, c].into(), 7100, 1_763_000_000_000)
}

fn header() -> Header {
    let mut header = Header::new(u64::MAX, address(1), InstanceId::new(u128::MAX));
    header.founding = Some(FoundingId::new(u128::MAX));
    header.to = Some(address(2));
    header
}

fn profile(i: u32) -> Arc<Profile> {
    let mut info = SiloInfo::named(format!("orders-{i}"));
    info.host_name = format!("node-{i}.example.net");
    info.role = "orders".to_owned();
    info.zone = format!("zone-{}", i % 3);
    info.metadata.insert("build".to_owned(), "7".to_owned());
    Arc::new(Profile::new(info))
}

fn cluster(members: u32) -> Gossip {
    let mut state = State::default();
    state.edit(address(0), |edit| {
        for i in 0..members {
            // Ids are random: they do not get smaller by compression.
            let id = u128::from(i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            edit.admit(address(i), InstanceId::new(id), profile(i));
        }
        edit.remove(&address(3));
        edit.flag(&address(2), Some(Flag::Unreachable));
    });
    state.edit(address(0), |edit| {
        for i in 0..members {
            edit.advance(&address(i), MemberStatus::Up, Some(u64::from(i)));
        }
    });
    let mut gossip = Gossip::new(state);
    gossip.mark_seen(&address(0));
    gossip
}

fn all() -> Vec<Message> {
    let gossip = cluster(30);
    let (version, seen) = (gossip.version(), gossip.seen().clone());
    let base = cluster(20).state().base();
    let delta = Arc::new(gossip.state().delta_since(&base).unwrap());
    let clock = Arc::new(gossip.state().clock().clone());
    let ballot = Ballot {
        round: 3,
        proposer: address(1),
    };
    let settings = vec![("strategy".to_owned(), "keep-majority".to_owned())];
    let (member, founding) = (address(5), FoundingId::new(9));
    let digest = seen.digest();
    let mut waiting = Waiting::default();
    waiting.answered.push(address(1).endpoint());
    // Too long to be sent as it is, and of characters of two bytes.
    waiting.failed(address(2).endpoint(), &format!("a{}", "ä".repeat(300)));
    waiting.needed = Some(2);
    waiting.asked = Some(member);
    vec![
        Message::InitJoin {
            settings: settings.clone(),
        },
        Message::InitJoinAck { established: true },
        Message::InitJoinNack,
        Message::Join {
            profile: profile(1),
            settings,
        },
        Message::Welcome(Arc::new(gossip.clone())),
        Message::Refused(Refusal::EpochTooLow { least: 7 }),
        Message::Propose { ballot },
        Message::Promise {
            ballot,
            accepted: Some((ballot, founding)),
        },
        Message::Accept { ballot, founding },
        Message::Accepted { ballot },
        Message::Outbid { ballot },
        Message::Status {
            version,
            seen: digest,
            answer: true,
            clock: None,
        },
        Message::Status {
            version,
            seen: digest,
            answer: true,
            clock: Some(Arc::clone(&clock)),
        },
        Message::Ask {
            version,
            floor: 4,
            clock,
        },
        Message::State(Arc::new(gossip)),
        Message::Delta {
            delta,
            seen: seen.clone(),
        },
        Message::Seen { version, seen },
        Message::Heartbeat { nonce: 1 },
        Message::HeartbeatReply { nonce: 1 },
        Message::Relay { subject: member },
        Message::Relayed { subject: member },
        Message::Leave { member },
        Message::Down { member },
        Message::Gone { member },
        Message::Waiting { nonce: 1, waiting },
        Message::Refused(Refusal::OtherProcess { process: member }),
        Message::Refused(Refusal::Unanswered),
        Message::Refused(Refusal::NotReached { by: 2, of: 4 }),
        Message::Vouch {
            joiner: member,
            nonce: u64::MAX,
        },
        Message::Vouched {
            nonce: u64::MAX,
            reached: true,
        },
        Message::Identify { nonce: u64::MAX },
        Message::Identity {
            nonce: u64::MAX,
            profile: profile(1),
        },
    ]
}

#[test]
fn every_message_arrives_as_it_was_sent() {
    let mut names = std::collections::BTreeSet::new();
    for message in all() {
        let bytes = encode(&header(), &message).unwrap();
        let read = decode(&bytes).unwrap_or_else(|e| panic!("{}: {e}", message.name()));
        assert_eq!(read, (header(), message.clone()));
        names.insert(message.name());
        for length in 0..bytes.len().min(400) {
            assert!(decode(&bytes[..length]).is_err(), "{}", message.name());
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(decode(&longer).is_err());
    }
    assert_eq!(names.len(), 28, "every kind of message");
}

/// An exchange is a status and, between members that agree, no answer.
#[test]
fn a_status_exchange_takes_at_most_200_bytes_in_a_cluster_of_any_size() {
    for members in [5, 10_000] {
        let gossip = cluster(members);
        let status = Message::Status {
            version: gossip.version(),
            seen: gossip.seen().digest(),
            answer: false,
            clock: None,
        };
        let bytes = encode(&header(), &status).unwrap().len();
        // One in each direction.
        assert!(2 * bytes <= 200, "{bytes}");
    }
}

#[test]
fn a_heartbeat_without_its_header_takes_at_most_6_bytes() {
    let message = Message::Heartbeat { nonce: u32::MAX };
    let with = encode(&header(), &message).unwrap().len();
    let mut nothing = header();
    nothing.founding = None;
    let least = encode(&nothing, &Message::InitJoinNack).unwrap().len() - 1;
    assert!(with - least <= 6 + 19, "{with} {least}");
}

#[test]
fn a_bomb_is_refused_before_it_is_inflated() {
    // 40 MB of zeros, deflated to some 40 KB, in the place of a state.
    let bomb = miniz_oxide::deflate::compress_to_vec(&vec![0; 40 << 20], 6);
    let state = encode(&header(), &Message::State(Arc::new(cluster(2)))).unwrap();
    let head = encode(&header(), &Message::InitJoinNack).unwrap().len() - 1;
    let mut bytes = state[..=head].to_vec();
    bytes.push(1);
    let mut length = bomb.len();
    while length >= 0x80 {
        bytes.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap());
    bytes.extend(bomb);
    assert!(
        matches!(decode(&bytes), Err(DecodeError::TooLong(_))),
        "{:?}",
        decode(&bytes)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        drop(decode(&bytes));
    }

    #[test]
    fn no_damage_makes_the_reader_panic(
        which in any::<prop::sample::Index>(),
        at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let messages = encoded();
        let mut bytes = which.get(messages).clone();
        for (place, byte) in at {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok((header, message)) = decode(&bytes) {
            // What was read can be sent, and is the same again.
            let again = encode(&header, &message).unwrap();
            prop_assert_eq!(decode(&again), Ok((header, message)));
        }
    }
}

fn encoded() -> &'static [Vec<u8>] {
    static ENCODED: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    ENCODED.get_or_init(|| {
        all()
            .iter()
            .map(|message| encode(&header(), message).unwrap())
            .collect()
    })
}

/// A reason is shown to people: it is no longer than settings are.
#[test]
fn a_refusal_has_no_long_text() {
    for (length, is_good) in [(256, true), (257, false), (1 << 20, false)] {
        let refusal = Refusal::Settings {
            name: "founding".to_owned(),
            value: "x".repeat(length),
            yours: "y".to_owned(),
        };
        let bytes = encode(&header(), &Message::Refused(refusal)).unwrap();
        assert_eq!(decode(&bytes).is_ok(), is_good, "{length}");
    }
}

/// Counters and flags of those who are no members and never were: nobody could ever forget them.
#[test]
fn nothing_is_kept_of_those_of_whom_nothing_is_known() {
    let honest = cluster(5);
    let mut state = State::clone(honest.state());
    for i in 1_000..1_100 {
        state.edit(address(i), |edit| {
            edit.flag(&address(0), Some(Flag::Unreachable))
        });
    }
    let lie = Gossip::new(state);
    let delta = lie.state().delta_since(&honest.state().base()).unwrap();
    let message = Message::State(Arc::new(lie));
    let bytes = encode(&header(), &message).unwrap();
    let (_, Message::State(read)) = decode(&bytes).unwrap() else {
        panic!("another message");
    };
    let mut applied = honest.clone();
    applied.apply(&delta, &Seen::default());
    for state in [read.state(), applied.state()] {
        assert_eq!(state.clock().len(), honest.state().clock().len());
        let observers = state.reachability().observers().count();
        assert_eq!(observers, honest.state().reachability().observers().count());
    }
}
