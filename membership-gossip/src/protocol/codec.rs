//! Messages as bytes: header and body in postcard's format, whole states and deltas deflated where
//! that makes them smaller (specification: messages are compressed).
//!
//! Reading takes bytes of anybody: it never panics, and reserves no memory for a length that the
//! sender claims. What a message becomes in memory is bounded by [`MAX_BYTES`], [`MAX_INFLATED`] and
//! the lengths of lists.

use std::sync::Arc;

use membership_core::encoding::bounded_by;
use membership_core::{FoundingId, SiloAddress};
use serde::{Deserialize, Deserializer, Serialize};

use super::message::{Ballot, Header, Message, Refusal, Settings};
use super::packed::Packed;
use super::waiting::Waiting;
use crate::state::wire::{MAX_LIST, WireProfile, WireState};
use crate::state::{Delta, Seen, VectorClock, Version};

/// The longest message, in bytes.
pub const MAX_BYTES: usize = 16 << 20;
/// The longest state after it is inflated, in bytes.
pub const MAX_INFLATED: usize = 32 << 20;
/// The most settings in a message, and the longest name or value, in bytes.
const MAX_SETTINGS: usize = 32;
const MAX_SETTING_BYTES: usize = 256;

/// The error for bytes that are no message of this build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes do not have the form of a message.
    #[error("the message is damaged, or of another build: {0}")]
    Damaged(#[from] postcard::Error),
    /// The message contradicts itself.
    #[error("the message has {0}")]
    Invalid(&'static str),
    /// The message or what it contains is too long.
    #[error("the message is longer than {0} bytes")]
    TooLong(usize),
}

/// The error for a message that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {0} bytes cannot be sent, at most {MAX_BYTES} can")]
pub struct EncodeError(usize);

type Clock = Vec<(SiloAddress, u64)>;

/// The body in the form of bytes. Variants are only ever added at the end.
#[derive(Debug, Serialize, Deserialize)]
enum Body {
    InitJoin(#[serde(deserialize_with = "settings")] Settings),
    InitJoinAck {
        established: bool,
    },
    InitJoinNack,
    Join {
        profile: WireProfile,
        #[serde(deserialize_with = "settings")]
        settings: Settings,
    },
    Welcome(Packed),
    Refused(#[serde(deserialize_with = "refusal")] Refusal),
    Propose(Ballot),
    Promise {
        ballot: Ballot,
        accepted: Option<(Ballot, FoundingId)>,
    },
    Accept {
        ballot: Ballot,
        founding: FoundingId,
    },
    Accepted(Ballot),
    Outbid(Ballot),
    Status {
        version: Version,
        seen: u64,
        answer: bool,
    },
    StatusWithClock {
        version: Version,
        seen: u64,
        answer: bool,
        #[serde(deserialize_with = "list")]
        clock: Clock,
    },
    Ask {
        version: Version,
        floor: u64,
        #[serde(deserialize_with = "list")]
        clock: Clock,
    },
    State(Packed),
    Delta {
        base: Version,
        version: Version,
        contains_base: bool,
        part: Packed,
    },
    Seen {
        version: Version,
        #[serde(deserialize_with = "list")]
        bits: Vec<u8>,
    },
    Heartbeat(u32),
    HeartbeatReply(u32),
    Relay(SiloAddress),
    Relayed(SiloAddress),
    Leave(SiloAddress),
    Down(SiloAddress),
    Gone(SiloAddress),
    Inspect {
        nonce: u32,
    },
    Inspected {
        nonce: u32,
        leaving_observers_count: bool,
        state: Packed,
    },
    Waiting {
        nonce: u32,
        waiting: Waiting,
    },
    Identify(u64),
    Identity {
        nonce: u64,
        profile: WireProfile,
    },
    Vouch(SiloAddress, u64),
    Vouched(u64, bool),
}

fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    bounded_by::<MAX_LIST, T, D>(d)
}

fn settings<'de, D: Deserializer<'de>>(d: D) -> Result<Settings, D::Error> {
    let all: Settings = bounded_by::<MAX_SETTINGS, _, D>(d)?;
    let long = |text: &String| text.len() > MAX_SETTING_BYTES;
    if all.iter().any(|(name, value)| long(name) || long(value)) {
        return Err(serde::de::Error::custom("a setting longer than 256 bytes"));
    }
    Ok(all)
}

fn refusal<'de, D: Deserializer<'de>>(d: D) -> Result<Refusal, D::Error> {
    let refusal = Refusal::deserialize(d)?;
    if let Refusal::Settings { name, value, yours } = &refusal
        && [name, value, yours]
            .iter()
            .any(|text| text.len() > MAX_SETTING_BYTES)
    {
        return Err(serde::de::Error::custom("a setting longer than 256 bytes"));
    }
    Ok(refusal)
}

fn pairs(clock: &VectorClock) -> Clock {
    clock.iter().map(|(origin, n)| (*origin, n)).collect()
}

fn clock(pairs: Clock) -> Arc<VectorClock> {
    let mut clock = VectorClock::default();
    for (origin, counter) in pairs {
        clock.raise(origin, counter);
    }
    Arc::new(clock)
}

/// The longest header, in bytes.
const MAX_HEADER: usize = 256;

/// The bytes of a message: those of its header, then those of its body.
///
/// # Errors
/// [`EncodeError`] for a message of more than [`MAX_BYTES`].
pub fn encode(header: &Header, message: &Message) -> Result<Vec<u8>, EncodeError> {
    Ok([encode_header(header)?, encode_body(message)?].concat())
}

/// The bytes of a header, which differs from receiver to receiver.
///
/// # Errors
/// None: writing to memory does not fail.
pub fn encode_header(header: &Header) -> Result<Vec<u8>, EncodeError> {
    postcard::to_extend(header, Vec::new()).map_err(|_| EncodeError(usize::MAX))
}

/// The bytes of a body, which many receivers may share.
///
/// # Errors
/// [`EncodeError`] for a body of more than [`MAX_BYTES`] with a header before it.
pub fn encode_body(message: &Message) -> Result<Vec<u8>, EncodeError> {
    let written = body_of(message).and_then(|body| postcard::to_extend(&body, Vec::new()));
    let bytes = written.map_err(|_| EncodeError(usize::MAX))?;
    if bytes.len() > MAX_BYTES - MAX_HEADER {
        return Err(EncodeError(bytes.len()));
    }
    Ok(bytes)
}

/// Reads a message of anybody.
///
/// # Errors
/// [`DecodeError`] for bytes that are not exactly one message.
pub fn decode(bytes: &[u8]) -> Result<(Header, Message), DecodeError> {
    if bytes.len() > MAX_BYTES {
        return Err(DecodeError::TooLong(MAX_BYTES));
    }
    let (header, rest) = postcard::take_from_bytes::<Header>(bytes)?;
    let (body, rest) = postcard::take_from_bytes::<Body>(rest)?;
    if !rest.is_empty() {
        return Err(DecodeError::Invalid("bytes after its end"));
    }
    Ok((header, message_of(body)?))
}

fn body_of(message: &Message) -> Result<Body, postcard::Error> {
    Ok(match message.clone() {
        Message::InitJoin { settings } => Body::InitJoin(settings),
        Message::InitJoinAck { established } => Body::InitJoinAck { established },
        Message::InitJoinNack => Body::InitJoinNack,
        Message::Join { profile, settings } => {
            let profile = WireProfile::of(&profile);
            Body::Join { profile, settings }
        }
        Message::Welcome(gossip) => Body::Welcome(Packed::of_gossip(&gossip)?),
        Message::Refused(refusal) => Body::Refused(refusal),
        Message::Propose { ballot } => Body::Propose(ballot),
        Message::Promise { ballot, accepted } => Body::Promise { ballot, accepted },
        Message::Accept { ballot, founding } => Body::Accept { ballot, founding },
        Message::Accepted { ballot } => Body::Accepted(ballot),
        Message::Outbid { ballot } => Body::Outbid(ballot),
        Message::Status {
            version,
            seen,
            answer,
            clock: None,
        } => Body::Status {
            version,
            seen,
            answer,
        },
        Message::Status {
            version,
            seen,
            answer,
            clock: Some(clock),
        } => Body::StatusWithClock {
            version,
            seen,
            answer,
            clock: pairs(&clock),
        },
        Message::Ask {
            version,
            floor,
            clock,
        } => Body::Ask {
            version,
            floor,
            clock: pairs(&clock),
        },
        Message::State(gossip) => Body::State(Packed::of_gossip(&gossip)?),
        Message::Delta { delta, seen } => Body::Delta {
            base: delta.base,
            version: delta.version,
            contains_base: delta.contains_base,
            part: Packed::of(&(WireState::of(delta.part()), seen.bits()))?,
        },
        Message::Seen { version, seen } => Body::Seen {
            version,
            bits: seen.bits().to_vec(),
        },
        Message::Heartbeat { nonce } => Body::Heartbeat(nonce),
        Message::HeartbeatReply { nonce } => Body::HeartbeatReply(nonce),
        Message::Relay { subject } => Body::Relay(subject),
        Message::Relayed { subject } => Body::Relayed(subject),
        Message::Leave { member } => Body::Leave(member),
        Message::Down { member } => Body::Down(member),
        Message::Gone { member } => Body::Gone(member),
        Message::Inspect { nonce } => Body::Inspect { nonce },
        Message::Inspected {
            nonce,
            leaving_observers_count,
            gossip,
        } => Body::Inspected {
            nonce,
            leaving_observers_count,
            state: Packed::of_gossip(&gossip)?,
        },
        Message::Waiting { nonce, waiting } => Body::Waiting { nonce, waiting },
        Message::Identify { nonce } => Body::Identify(nonce),
        Message::Identity { nonce, profile } => {
            let profile = WireProfile::of(&profile);
            Body::Identity { nonce, profile }
        }
        Message::Vouch { joiner, nonce } => Body::Vouch(joiner, nonce),
        Message::Vouched { nonce, reached } => Body::Vouched(nonce, reached),
    })
}

fn message_of(body: Body) -> Result<Message, DecodeError> {
    Ok(match body {
        Body::InitJoin(settings) => Message::InitJoin { settings },
        Body::InitJoinAck { established } => Message::InitJoinAck { established },
        Body::InitJoinNack => Message::InitJoinNack,
        Body::Join { profile, settings } => {
            let profile = Arc::new(profile.into_profile().map_err(DecodeError::Invalid)?);
            Message::Join { profile, settings }
        }
        Body::Welcome(packed) => Message::Welcome(packed.gossip()?),
        Body::Refused(refusal) => Message::Refused(refusal),
        Body::Propose(ballot) => Message::Propose { ballot },
        Body::Promise { ballot, accepted } => Message::Promise { ballot, accepted },
        Body::Accept { ballot, founding } => Message::Accept { ballot, founding },
        Body::Accepted(ballot) => Message::Accepted { ballot },
        Body::Outbid(ballot) => Message::Outbid { ballot },
        Body::Status {
            version,
            seen,
            answer,
        } => Message::Status {
            version,
            seen,
            answer,
            clock: None,
        },
        Body::StatusWithClock {
            version,
            seen,
            answer,
            clock: entries,
        } => Message::Status {
            version,
            seen,
            answer,
            clock: Some(clock(entries)),
        },
        Body::Ask {
            version,
            floor,
            clock: entries,
        } => Message::Ask {
            version,
            floor,
            clock: clock(entries),
        },
        Body::State(packed) => Message::State(packed.gossip()?),
        Body::Delta {
            base,
            version,
            contains_base,
            part,
        } => {
            let (part, bits): (WireState, Vec<u8>) = part.read()?;
            let part = part.into_state().map_err(DecodeError::Invalid)?;
            Message::Delta {
                delta: Arc::new(Delta::from_parts(base, version, contains_base, part)),
                seen: Seen::from_bits(bits, MAX_LIST),
            }
        }
        Body::Seen { version, bits } => Message::Seen {
            version,
            seen: Seen::from_bits(bits, MAX_LIST),
        },
        Body::Heartbeat(nonce) => Message::Heartbeat { nonce },
        Body::HeartbeatReply(nonce) => Message::HeartbeatReply { nonce },
        Body::Relay(subject) => Message::Relay { subject },
        Body::Relayed(subject) => Message::Relayed { subject },
        Body::Leave(member) => Message::Leave { member },
        Body::Down(member) => Message::Down { member },
        Body::Gone(member) => Message::Gone { member },
        Body::Inspect { nonce } => Message::Inspect { nonce },
        Body::Inspected {
            nonce,
            leaving_observers_count,
            state,
        } => Message::Inspected {
            nonce,
            leaving_observers_count,
            gossip: state.gossip()?,
        },
        Body::Waiting { nonce, waiting } => Message::Waiting { nonce, waiting },
        Body::Identify(nonce) => Message::Identify { nonce },
        Body::Identity { nonce, profile } => {
            let profile = Arc::new(profile.into_profile().map_err(DecodeError::Invalid)?);
            Message::Identity { nonce, profile }
        }
        Body::Vouch(joiner, nonce) => Message::Vouch { joiner, nonce },
        Body::Vouched(nonce, reached) => Message::Vouched { nonce, reached },
    })
}
