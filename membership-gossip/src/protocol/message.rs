//! The messages between members.

use std::fmt;
use std::sync::Arc;

use membership_core::{FoundingId, InstanceId, SiloAddress};
use serde::{Deserialize, Serialize};

use super::waiting::Waiting;
use crate::state::{Delta, Gossip, Profile, Seen, VectorClock, Version};

/// The protocol version of this build.
pub const PROTOCOL_VERSION: u16 = 1;

/// The header of every message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Header {
    /// [`ClusterName::fingerprint`](membership_core::ClusterName::fingerprint) of the cluster.
    pub cluster: u64,
    /// [`PROTOCOL_VERSION`] of the sender.
    pub protocol: u16,
    /// The founding of the sender's cluster; none while it is in none. Members of two foundings
    /// refuse each other.
    #[serde(with = "fixed_founding")]
    pub founding: Option<FoundingId>,
    /// The sender.
    pub from: SiloAddress,
    /// The id of the sender's process.
    #[serde(with = "fixed_instance")]
    pub instance: InstanceId,
    /// The intended receiver; none: whoever is at that endpoint.
    pub to: Option<SiloAddress>,
}

/// Random ids as 16 bytes: as numbers of variable length they would take 19.
macro_rules! fixed {
    ($module:ident, $kind:ty, $into:expr, $from:expr) => {
        mod $module {
            use super::*;

            pub(super) fn serialize<S: serde::Serializer>(
                value: &$kind,
                s: S,
            ) -> Result<S::Ok, S::Error> {
                let into: fn($kind) -> Option<[u8; 16]> = $into;
                into(*value).serialize(s)
            }

            pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
                d: D,
            ) -> Result<$kind, D::Error> {
                let from: fn(Option<[u8; 16]>) -> Option<$kind> = $from;
                let bytes = Option::<[u8; 16]>::deserialize(d)?;
                from(bytes).ok_or_else(|| serde::de::Error::custom("no id of the sender"))
            }
        }
    };
}

fixed!(
    fixed_founding,
    Option<FoundingId>,
    |id| id.map(|id| id.get().to_be_bytes()),
    |bytes| Some(bytes.map(|b| FoundingId::new(u128::from_be_bytes(b))))
);
fixed!(
    fixed_instance,
    InstanceId,
    |id| Some(id.get().to_be_bytes()),
    |bytes| bytes.map(|b| InstanceId::new(u128::from_be_bytes(b)))
);

impl Header {
    /// The header of a process that is in no cluster yet, for any receiver.
    #[must_use]
    pub const fn new(cluster: u64, from: SiloAddress, instance: InstanceId) -> Self {
        Self {
            cluster,
            protocol: PROTOCOL_VERSION,
            founding: None,
            from,
            instance,
            to: None,
        }
    }
}

/// A proposal's place in the order of proposals of one founding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ballot {
    /// Rises with each attempt.
    pub round: u64,
    /// Who proposes.
    pub proposer: SiloAddress,
}

/// Settings that all members must agree on, by name, as text.
pub type Settings = Vec<(String, String)>;

/// Why a process is not taken in, or no longer spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// An incarnation with this epoch or a newer one was at that endpoint: join with a larger one.
    EpochTooLow {
        /// The smallest epoch that will do.
        least: u64,
    },
    /// The receiver's cluster has another founding.
    OtherFounding,
    /// A setting that must agree differs.
    Settings {
        /// Its name.
        name: String,
        /// Its value where the refusal comes from.
        value: String,
        /// Its value at the joiner.
        yours: String,
    },
    /// The older incarnation at that endpoint must be removed first (preset `akka`).
    OlderIncarnation,
    /// The asked process is itself on its way out, or in no cluster.
    NotMember,
    /// Another process answers at the address that the joiner advertises.
    OtherProcess {
        /// Who it says it is.
        process: SiloAddress,
    },
    /// The sender asked at the address that the joiner advertises, and nobody answered.
    Unanswered,
    /// The joiner answered the sender at the address that it advertises, and not enough others.
    NotReached {
        /// How many members say that they do not reach it.
        by: usize,
        /// How many have said so, or reach it, the sender included.
        of: usize,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EpochTooLow { least } => write!(
                f,
                "a process with this epoch or a newer one was at its endpoint; at least {least} is needed"
            ),
            Self::OtherFounding => f.write_str("the cluster there has another founding"),
            Self::Settings { name, value, yours } => {
                write!(
                    f,
                    "`{name}` is {value} there, and {yours} here: all members need the same"
                )
            }
            Self::OlderIncarnation => {
                f.write_str("the older process at its endpoint must be removed first")
            }
            Self::NotMember => f.write_str("it is in no cluster, or leaves it"),
            Self::OtherProcess { process } => write!(
                f,
                "the advertised address leads to another process, {process}: stop that one, or advertise another address"
            ),
            Self::Unanswered => f.write_str(
                "nobody answers at the advertised address: check that address, and the firewalls on the way to it",
            ),
            Self::NotReached { by, of } => write!(
                f,
                "{by} of {of} members do not reach the advertised address: advertise one that all reach, and check the firewalls on the way to it"
            ),
        }
    }
}

/// The body of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// Asks a contact point whether it is in a cluster.
    InitJoin {
        /// What must agree.
        settings: Settings,
    },
    /// The answer of a member: join here.
    InitJoinAck {
        /// Whether a member of its cluster is in service.
        established: bool,
    },
    /// The answer of a process that is in no cluster, or leaves it.
    InitJoinNack,
    /// Asks a member to take the sender in.
    Join {
        /// What the sender publishes about itself.
        profile: Arc<Profile>,
        /// What must agree.
        settings: Settings,
    },
    /// The sender has taken the receiver in.
    Welcome(Arc<Gossip>),
    /// The sender does not take the receiver in.
    Refused(Refusal),
    /// Founding, first phase: asks a contact point not to take part in lower proposals.
    Propose {
        /// The proposal.
        ballot: Ballot,
    },
    /// The answer to [`Message::Propose`].
    Promise {
        /// The proposal.
        ballot: Ballot,
        /// The founding that the sender has accepted before.
        accepted: Option<(Ballot, FoundingId)>,
    },
    /// Founding, second phase: asks a contact point to accept a founding.
    Accept {
        /// The proposal.
        ballot: Ballot,
        /// The founding.
        founding: FoundingId,
    },
    /// The answer to [`Message::Accept`].
    Accepted {
        /// The proposal.
        ballot: Ballot,
    },
    /// The answer to a proposal that is lower than one already promised.
    Outbid {
        /// The promised one.
        ballot: Ballot,
    },
    /// What the sender has: the small message of most rounds.
    Status {
        /// The version of its state.
        version: Version,
        /// The [digest](Seen::digest) of its seen set.
        seen: u64,
        /// Whether it answers a status of the receiver whose version the sender does not know.
        answer: bool,
        /// Its vector clock, where members send whole states.
        clock: Option<Arc<VectorClock>>,
    },
    /// The sender's clock: what it lacks is asked for.
    Ask {
        /// The version of its state.
        version: Version,
        /// The floor of its tombstones.
        floor: u64,
        /// Its vector clock.
        clock: Arc<VectorClock>,
    },
    /// A whole state with those who have seen it.
    State(Arc<Gossip>),
    /// What the receiver lacks.
    Delta {
        /// The changes.
        delta: Arc<Delta>,
        /// Who has seen the state that they lead to.
        seen: Seen,
    },
    /// Who has seen the state of this version.
    Seen {
        /// The version.
        version: Version,
        /// Who has seen it.
        seen: Seen,
    },
    /// Asks for a sign of life.
    Heartbeat {
        /// Returned in the answer.
        nonce: u32,
    },
    /// The answer to [`Message::Heartbeat`].
    HeartbeatReply {
        /// The nonce of the question.
        nonce: u32,
    },
    /// Asks the receiver to ask a third member for a sign of life.
    Relay {
        /// The third member.
        subject: SiloAddress,
    },
    /// The answer to [`Message::Relay`]: the third member has answered.
    Relayed {
        /// The third member.
        subject: SiloAddress,
    },
    /// Asks that a member leaves, for tools.
    Leave {
        /// The member.
        member: SiloAddress,
    },
    /// Asks that a member is downed, for tools.
    Down {
        /// The member.
        member: SiloAddress,
    },
    /// Proof for the receiver that its incarnation is no member any more. Nothing less makes a
    /// member end itself.
    Gone {
        /// The incarnation that is gone.
        member: SiloAddress,
    },
    /// Asks for the receiver's state, for tools. It changes nothing.
    Inspect {
        /// Returned in the answer.
        nonce: u32,
    },
    /// The answer to [`Message::Inspect`], on its connection. The founding is in the header.
    Inspected {
        /// The nonce of the question.
        nonce: u32,
        /// Whether [flags of those that leave](crate::Config::leaving_observers_count) count.
        leaving_observers_count: bool,
        /// The state, and who is known to have seen it; empty if the process is in no cluster.
        gossip: Arc<Gossip>,
    },
    /// The answer to [`Message::Inspect`] of a process that waits to be taken in, or to found. The
    /// owner of the machine sends it: it knows why contact points are silent.
    Waiting {
        /// The nonce of the question.
        nonce: u32,
        /// What it waits for.
        waiting: Waiting,
    },
    /// Asks whoever is at an endpoint who it is, over a new connection. It changes nothing.
    Identify {
        /// Random; returned in the answer.
        nonce: u64,
    },
    /// The answer to [`Message::Identify`], on its connection. Who it is is in the header.
    Identity {
        /// The nonce of the question.
        nonce: u64,
        /// What the sender publishes about itself.
        profile: Arc<Profile>,
    },
    /// Asks a member to ask a process that joins who it is, at the address that it advertises.
    Vouch {
        /// The process.
        joiner: SiloAddress,
        /// Returned in the answer.
        nonce: u64,
    },
    /// The answer to [`Message::Vouch`].
    Vouched {
        /// The nonce of the question.
        nonce: u64,
        /// Whether it is that process.
        reached: bool,
    },
}

impl Message {
    /// The name used in logs, metrics and transcripts.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::InitJoin { .. } => "init-join",
            Self::InitJoinAck { .. } => "init-join-ack",
            Self::InitJoinNack => "init-join-nack",
            Self::Join { .. } => "join",
            Self::Welcome(_) => "welcome",
            Self::Refused(_) => "refused",
            Self::Propose { .. } => "propose",
            Self::Promise { .. } => "promise",
            Self::Accept { .. } => "accept",
            Self::Accepted { .. } => "accepted",
            Self::Outbid { .. } => "outbid",
            Self::Status { .. } => "status",
            Self::Ask { .. } => "ask",
            Self::State(_) => "state",
            Self::Delta { .. } => "delta",
            Self::Seen { .. } => "seen",
            Self::Heartbeat { .. } => "heartbeat",
            Self::HeartbeatReply { .. } => "heartbeat-reply",
            Self::Relay { .. } => "relay",
            Self::Relayed { .. } => "relayed",
            Self::Leave { .. } => "leave",
            Self::Down { .. } => "down",
            Self::Gone { .. } => "gone",
            Self::Inspect { .. } => "inspect",
            Self::Inspected { .. } => "inspected",
            Self::Waiting { .. } => "waiting",
            Self::Identify { .. } => "identify",
            Self::Identity { .. } => "identity",
            Self::Vouch { .. } => "vouch",
            Self::Vouched { .. } => "vouched",
        }
    }
}
