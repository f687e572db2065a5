//! The messages between silos.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::forward::{OwnChange, Standing};
use super::reach::NotReached;
use crate::{CommitId, Delta, InstanceId, IntentId, Row, SiloAddress, TableId};

/// The protocol version of this build, and the oldest that it understands.
pub const PROTOCOL_VERSION: u16 = 1;
/// See [`PROTOCOL_VERSION`].
pub const MIN_PROTOCOL_VERSION: u16 = 1;

/// The header of every message, including probes. It lets a silo with an older view notice that and
/// ask for a delta.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Header {
    /// [`ClusterName::fingerprint`](crate::ClusterName::fingerprint) of the cluster.
    pub cluster: u64,
    /// [`PROTOCOL_VERSION`] of the sender.
    pub protocol: u16,
    /// The sender; epoch 0 before its epoch is decided.
    pub from: SiloAddress,
    /// The instance id of the sender.
    pub instance: InstanceId,
    /// The intended receiver; `None` when any process at that address may answer.
    pub to: Option<SiloAddress>,
    /// The table id of the sender's view; `None` before its first read.
    pub table_id: Option<TableId>,
    /// The version of the sender's view.
    pub version: u64,
    /// The [short digest](crate::ClusterView::short_digest) of the sender's view: another one at the
    /// same version makes the receiver read the table, and nothing else.
    pub digest: u64,
}

impl Header {
    /// Creates the header of a silo without a view, for any receiver. `cluster` is a
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

/// The body of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Message {
    /// Asks for the identity of the process at an address. Sent to the sender's own address before
    /// it joins, and to the addresses of older rows that block the join.
    Identify {
        /// Returned in the answer.
        nonce: u64,
    },
    /// The answer to [`Message::Identify`].
    Identity {
        /// The nonce of the question.
        nonce: u64,
        /// The answering silo; `None` before its epoch is decided.
        silo: Option<SiloAddress>,
        /// The instance id of its process.
        instance: InstanceId,
        /// The name of its machine.
        host: String,
    },
    /// Asks whether a silo is alive.
    Probe {
        /// Returned in the answer.
        nonce: u64,
    },
    /// The answer to [`Message::Probe`].
    ProbeAck {
        /// The nonce of the probe.
        nonce: u64,
    },
    /// The answer to a probe that was for another incarnation of this address.
    NotMe {
        /// The nonce of the probe.
        nonce: u64,
    },
    /// Asks a silo which of these suspects it reaches.
    RollCall {
        /// Identifies the call.
        call: u64,
        /// The suspects, each with how long it has been silent towards the caller, in milliseconds:
        /// only an answer that is younger shows that it lives.
        #[serde(deserialize_with = "bounded")]
        suspects: Vec<(SiloAddress, u64)>,
    },
    /// The answer to [`Message::RollCall`], and each later one about suspects that were still being
    /// probed.
    RollAnswer {
        /// The call.
        call: u64,
        /// What the answering silo found.
        #[serde(deserialize_with = "bounded")]
        findings: Vec<(SiloAddress, Finding)>,
        /// Other silos that have left a probe of the answering silo unanswered.
        #[serde(deserialize_with = "bounded")]
        missed: Vec<SiloAddress>,
    },
    /// Asks the receiver to dial the sender's advertised address afresh and to send
    /// [`Message::DialBack`] there.
    DialMe {
        /// Returned in the answer.
        nonce: u64,
        /// The sender's advertised address.
        endpoint: SocketAddr,
    },
    /// The answer to [`Message::DialMe`], sent to the advertised address.
    DialBack {
        /// The nonce of the request.
        nonce: u64,
    },
    /// Asks for the changes since the sender's version.
    AskDelta {
        /// The table id that the sender knows; `None` = send everything.
        table_id: Option<TableId>,
        /// The sender's version.
        have: u64,
    },
    /// The changes between two versions, or the whole view.
    Delta(Box<Delta>),
    /// The last message of a silo that leaves, one to each peer.
    Farewell {
        /// The version that contains its end; 0 if the end could not be written.
        version: u64,
        /// The delta that contains its end, because the silo cannot be asked for it any more.
        delta: Option<Box<Delta>>,
    },
    /// Tells the receiver that the sender sees it as Dead; it should read the table.
    YouAreDead {
        /// The version in which it is Dead.
        version: u64,
    },
    /// Tells those that answered a call that it gave no majority against these suspects. It delays
    /// their own calls about them, and is no ground for a vote.
    RollResult {
        /// The suspects.
        #[serde(deserialize_with = "bounded")]
        suspects: Vec<SiloAddress>,
        /// How many silos the caller reached, itself included.
        reached: u32,
        /// How long the caller waits until its next call about them.
        wait: Duration,
    },
    /// A program that shows people the state of the cluster asks which silos the receiver does not
    /// reach, though others do. Silos never send it.
    AskReach {
        /// Returned in the answer.
        nonce: u64,
    },
    /// The answer to [`Message::AskReach`].
    Reach {
        /// The nonce of the question.
        nonce: u64,
        /// The silos that the answering one does not reach.
        #[serde(deserialize_with = "bounded")]
        unreached: Vec<NotReached>,
    },
    /// Asks the receiver to write changes of the sender's own row, in this order, together with those
    /// of others.
    Forward {
        /// The changes, each with the id that its answer names.
        #[serde(deserialize_with = "bounded")]
        changes: Vec<(IntentId, OwnChange)>,
    },
    /// What has become of forwarded changes: at once, then every half second while they wait, and at
    /// the end. It proves nothing: the sender of the changes looks at its row.
    Receipt {
        /// The changes, by their ids.
        #[serde(deserialize_with = "bounded")]
        changes: Vec<(IntentId, Standing)>,
        /// How many changes wait at the answering silo.
        waiting: u32,
    },
    /// Asks for the rows at a version that the table has shown to the sender. A newcomer asks so, and
    /// takes the rows only if they have the hash that the table's version row names.
    AskRows {
        /// Returned in the answer.
        nonce: u64,
        /// The version whose rows the sender has; 0 = none.
        have: u64,
        /// The version that the table has shown.
        want: u64,
    },
    /// The answer to [`Message::AskRows`] of a silo that writes for many: others to ask.
    AskThem {
        /// The nonce of the question.
        nonce: u64,
        /// Members that may have the rows.
        #[serde(deserialize_with = "bounded")]
        silos: Vec<SiloAddress>,
    },
    /// A part of the answer to [`Message::AskRows`], short enough for a receiver that does not know the
    /// sender yet.
    Rows {
        /// The nonce of the question.
        nonce: u64,
        /// The version from which the rows are the changes; `None` = they are all rows.
        from: Option<u64>,
        /// The version to which they lead, which need not be the one that was asked for.
        version: u64,
        /// Which part this is, from 0.
        part: u32,
        /// How many there are.
        parts: u32,
        /// The rows of this part.
        #[serde(deserialize_with = "crate::encoding::wire::rows")]
        rows: Vec<Row>,
        /// Keys of removed rows.
        #[serde(deserialize_with = "bounded")]
        removed: Vec<String>,
    },
    /// The answer to [`Message::DialMe`] where one silo writes for many, sent to the advertised address
    /// over a new connection. It is a [`Message::DialBack`] with a word that is told nowhere else: the
    /// receiver shows it to whoever writes its activation.
    Vouch {
        /// The nonce of the request.
        nonce: u64,
        /// The sender's word for the receiver.
        word: u64,
    },
    /// Asks which of these words the receiver has told to those silos.
    AskVouched {
        /// Returned in the answer.
        nonce: u64,
        /// The silos, each with the word that it has shown.
        #[serde(deserialize_with = "bounded")]
        words: Vec<(SiloAddress, u64)>,
    },
    /// The answer to [`Message::AskVouched`].
    Vouched {
        /// The nonce of the question.
        nonce: u64,
        /// Those of the silos that have shown the right word.
        #[serde(deserialize_with = "bounded")]
        silos: Vec<SiloAddress>,
    },
    /// The changes of one commit, which each silo that takes them passes on to its neighbours on the probe
    /// rings. The version row in them has the record of this commit alone.
    News(Box<Delta>),
    /// [`Message::DialMe`] of a silo that joins to another one that does, where one silo writes for many,
    /// sent over a connection that the sender has dialled: by that, and with the word, the receiver has
    /// what an answer to a request of its own would give it, and need not make one.
    Meet {
        /// Returned in the answer, and then by the sender, to show that the answer has come.
        nonce: u64,
        /// The sender's advertised address.
        endpoint: SocketAddr,
        /// The sender's word for the receiver.
        word: u64,
    },
    /// Says that the sender has this commit: whoever has not asks for the changes. Passed on like
    /// [`Message::News`], instead of changes that are large.
    Announce {
        /// The version that the commit made.
        version: u64,
        /// Its id.
        commit: CommitId,
    },
}

/// What an answering silo found of one suspect of a roll call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finding {
    /// The suspect answered within the last probe timeout.
    Reached,
    /// The suspect has just left two probes unanswered.
    Failed {
        /// How long ago the first message was sent that the suspect has left unanswered since, in
        /// milliseconds.
        silent_ms: u64,
        /// How long ago the suspect last answered, in milliseconds.
        heard_ms: Option<u64>,
        /// Whether its machine refuses connections.
        refused: bool,
        /// The answering silo's own vote, if it is Active and healthy.
        consent: Option<Consent>,
    },
    /// The answering silo cannot judge.
    Unknown,
}

/// The evidence of a vote that its accuser leaves to the caller of a roll call to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// How many probes in a row were not answered.
    pub misses: u32,
    /// The timeout of the last of them, in milliseconds.
    pub timeout_ms: u64,
    /// The last answer, by the accuser's clock, in milliseconds.
    pub last_answer_ms: Option<u64>,
}

/// The largest number of silos that one message of a roll call names.
pub(crate) const MAX_NAMED: usize = 4_096;

pub(super) fn bounded<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    d: D,
) -> Result<Vec<T>, D::Error> {
    crate::encoding::wire::bounded_by::<MAX_NAMED, T, D>(d)
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
            Self::RollCall { .. } => "roll-call",
            Self::RollAnswer { .. } => "roll-answer",
            Self::RollResult { .. } => "roll-result",
            Self::AskReach { .. } => "ask-reach",
            Self::Reach { .. } => "reach",
            Self::Forward { .. } => "forward",
            Self::Receipt { .. } => "receipt",
            Self::AskRows { .. } => "ask-rows",
            Self::AskThem { .. } => "ask-them",
            Self::Rows { .. } => "rows",
            Self::Vouch { .. } => "vouch",
            Self::AskVouched { .. } => "ask-vouched",
            Self::Vouched { .. } => "vouched",
            Self::DialMe { .. } => "dial-me",
            Self::Meet { .. } => "meet",
            Self::DialBack { .. } => "dial-back",
            Self::AskDelta { .. } => "ask-delta",
            Self::Delta(_) => "delta",
            Self::News(_) => "news",
            Self::Announce { .. } => "announce",
            Self::Farewell { .. } => "farewell",
            Self::YouAreDead { .. } => "you-are-dead",
        }
    }
}
