//! What silos say to each other.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Delta, InstanceId, SiloAddress, Suspicion, TableId};

/// The protocol version this build speaks, and the oldest it understands.
pub const PROTOCOL_VERSION: u16 = 1;
/// See [`PROTOCOL_VERSION`].
pub const MIN_PROTOCOL_VERSION: u16 = 1;

/// What every message carries, probes too, so that whoever is behind notices and asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Header {
    /// [`ClusterName::fingerprint`](crate::ClusterName::fingerprint) of the cluster.
    pub cluster: u64,
    /// [`PROTOCOL_VERSION`] of the sender.
    pub protocol: u16,
    /// The sender. Before its epoch is decided, epoch 0.
    pub from: SiloAddress,
    /// The sender's process.
    pub instance: InstanceId,
    /// The silo it is meant for; none when any process at that address may answer.
    pub to: Option<SiloAddress>,
    /// The table of the sender's view; none before its first read.
    pub table_id: Option<TableId>,
    /// The version of the sender's view.
    pub version: u64,
    /// The digest of the sender's view.
    pub digest: u128,
}

impl Header {
    /// Of a silo that has no view yet, to whoever answers. `cluster` is a
    /// [`ClusterName::fingerprint`](crate::ClusterName::fingerprint).
    #[must_use]
    pub const fn new(cluster: u64, from: SiloAddress, instance: InstanceId) -> Self {
        Self {
            cluster,
            protocol: PROTOCOL_VERSION,
            from,
            instance,
            to: None,
            table_id: None,
            version: 0,
            digest: 0,
        }
    }
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Message {
    /// Who is there? Sent to my own address before joining, and to the addresses of rows that are in my way.
    Identify {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// I am.
    Identity {
        /// Of the question.
        nonce: u64,
        /// Me; none before my epoch is decided.
        silo: Option<SiloAddress>,
        /// My process.
        instance: InstanceId,
        /// My machine.
        host: String,
    },
    /// Are you alive?
    Probe {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// I am.
    ProbeAck {
        /// Of the probe.
        nonce: u64,
    },
    /// The probe was for another incarnation than the one that is here.
    NotMe {
        /// Of the probe.
        nonce: u64,
    },
    /// Probe somebody for me.
    IndirectProbe {
        /// Names the round.
        round: u64,
        /// Whom.
        suspect: SiloAddress,
        /// How long to wait for each of the two probes.
        timeout: Duration,
    },
    /// What came of it.
    IndirectReply {
        /// Of the request.
        round: u64,
        /// What.
        outcome: IndirectOutcome,
    },
    /// Dial my advertised address afresh, and say [`Message::DialBack`] there.
    DialMe {
        /// Comes back.
        nonce: u64,
        /// My advertised address.
        endpoint: SocketAddr,
    },
    /// I reached you.
    DialBack {
        /// Of the request.
        nonce: u64,
    },
    /// I am behind: send what I lack.
    AskDelta {
        /// The table I know; none = send everything.
        table_id: Option<TableId>,
        /// My version.
        have: u64,
    },
    /// What you lack.
    Delta(Box<Delta>),
    /// I am gone for good. The last message of a silo that leaves, one to each peer.
    Farewell {
        /// The version that says so; 0 if it could not be written.
        version: u64,
        /// The change that says so, so that nobody has to ask the one who is gone.
        delta: Option<Box<Delta>>,
    },
    /// As far as I know you are Dead; read the table.
    YouAreDead {
        /// The version that says so.
        version: u64,
    },
}

/// What came of an indirect probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndirectOutcome {
    /// It answered.
    Yes,
    /// It did not; with the intermediary's own word against it, if it consents.
    No {
        /// The consent, as a vote.
        #[serde(with = "consent")]
        consent: Option<Suspicion>,
    },
    /// The intermediary cannot say.
    Unknown,
}

mod consent {
    use crate::{Suspicion, encoding::wire::json};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Suspicion>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        json::serialize(value, s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Suspicion>, D::Error> {
        json::deserialize(d)
    }
}

impl Message {
    /// The name used in logs, metrics and transcripts.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Identify { .. } => "identify",
            Self::Identity { .. } => "identity",
            Self::Probe { .. } => "probe",
            Self::ProbeAck { .. } => "probe-ack",
            Self::NotMe { .. } => "not-me",
            Self::IndirectProbe { .. } => "indirect-probe",
            Self::IndirectReply { .. } => "indirect-reply",
            Self::DialMe { .. } => "dial-me",
            Self::DialBack { .. } => "dial-back",
            Self::AskDelta { .. } => "ask-delta",
            Self::Delta(_) => "delta",
            Self::Farewell { .. } => "farewell",
            Self::YouAreDead { .. } => "you-are-dead",
        }
    }
}
