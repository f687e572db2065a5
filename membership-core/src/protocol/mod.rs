//! The behaviour of one silo as a state machine without input or output. Its rules are the
//! invariants P1 to P11.
//!
//! | file | content |
//! |---|---|
//! | `io`, `notice`, `message` | inputs and effects; reports to the application; messages |
//! | `observation` | what is counted or measured |
//! | `machine` | [`Protocol`]: takes an input, fires due timers |
//! | `proceed` | the work after every input: votes, join, commits, targets, publishing |
//! | `receive` | messages: checks of the header, then the body |
//! | `settle` | answers of the table and their consequences |
//! | `commands` | commands of the application, hints of the store |
//! | `upkeep` | periodic checks: pause, staleness, accusations |
//! | `targets`, `rings` | which silos to probe; the hash rings for that |
//! | `context`, `members`, `timers` | shared state; sorted lists of the view; planned wake-ups |
//! | `gate` | the checks that every new view must pass (P1 to P3) |
//! | `joiner`, `contacts`, `meeting_pace` | the join; two-way contact before Active (P9), and with how many at a time |
//! | `leaver` | the leave |
//! | `prober`, `estimator`, `early` | probes and suspicions; the timeout from round-trip times; probes before their time |
//! | `voter`, `roll_call`, `standoff` | votes; the roll call before a vote, and when to repeat it (P10 to P13, P15) |
//! | `answerer`, `expense` | answers to roll calls; what calls cost |
//! | `reach` | which silos this one does not reach and others do, for people |
//! | `staleness` | heartbeats that stand still |
//! | `monitor`, `pause`, `lag` | the health score; pauses of this process; how late its timers are |
//! | `writer` | reads and commits, one at a time, with retry and back-off; for others, too |
//! | `forward` | what a silo asks another one to write |
//! | `words` | by what a newcomer proves contact to the silo that writes for it |
//! | `confirm`, `kept` | confirms views by the table's version row alone |
//! | `fetch` | a newcomer's rows from a member instead of from the table |
//! | `callers` | silos that asked to be dialled, until their rows are read |
//! | `heartbeat_writer`, `pulse` | this silo's heartbeat; whether the leader's speaks for it |
//! | `disseminator`, `distrust` | deltas between silos; members that announced what is not so |
//! | `cleaner` | removal of expired rows by the leader |
//! | `interned` | views that the silos of a simulation share |

mod allowance;
mod answerer;
mod callers;
mod challenge;
mod cleaner;
mod commands;
mod confirm;
mod contacts;
mod context;
mod disseminator;
mod distrust;
mod early;
mod estimator;
mod expense;
mod fetch;
mod flood;
mod forward;
mod gate;
mod heartbeat_writer;
mod interned;
mod io;
mod isolation;
mod joiner;
mod kept;
mod lag;
mod leaver;
mod machine;
mod meeting_pace;
mod members;
mod message;
mod monitor;
mod notice;
mod observation;
mod pause;
mod prober;
mod proceed;
mod pulse;
mod reach;
mod receive;
mod rings;
mod roll_call;
mod settle;
mod staleness;
mod standoff;
mod stuck;
mod survey;
mod targets;
#[cfg(test)]
mod tests;
mod timers;
mod unreached;
mod upkeep;
mod voter;
mod words;
mod writer;

pub use forward::{OwnChange, Standing};
#[doc(hidden)]
pub use gate::Gate;
#[doc(hidden)]
pub use interned::Interned;
pub use io::{CallId, Command, Destination, Effect, Input, LinkId, PeerIdentity};
pub use machine::Protocol;
pub use message::{Consent, Finding, Header, MIN_PROTOCOL_VERSION, Message, PROTOCOL_VERSION};
pub use notice::{
    DeclaredDead, JoinError, JoinProgress, Notice, RequestId, TableErrorText, TableState,
    Termination,
};
pub use observation::{Learned, Observation, RollCallResult, Unwritten};
pub use reach::NotReached;
pub use unreached::Unreached;

pub use estimator::SampleWindow;
pub use rings::{ring_place, successors};
pub use timers::Timers;
pub use writer::{WriterState, conflict_backoff};

use std::net::SocketAddr;

use crate::{ClusterKey, ClusterName, Config, InstanceId, Recency, SiloInfo, TableLimits};

/// The identity of a silo before it has an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterName,
    /// The address that other silos dial.
    pub advertise: SocketAddr,
    /// The instance id of the process: random, created when it starts.
    pub instance: InstanceId,
    /// What it publishes about itself in its row.
    pub info: SiloInfo,
}

impl Identity {
    /// Creates the identity of a silo of this cluster at this address.
    #[must_use]
    pub const fn new(
        cluster: ClusterName,
        advertise: SocketAddr,
        instance: InstanceId,
        info: SiloInfo,
    ) -> Self {
        Self {
            cluster,
            advertise,
            instance,
            info,
        }
    }
}

/// The parameters of a protocol instance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// The identity of the silo.
    pub identity: Identity,
    /// Its configuration; must be valid.
    pub config: Config,
    /// The limits of the table.
    pub limits: TableLimits,
    /// How recent the table's usual reads are. Unless they are linearizable, only a read with a
    /// barrier shows that a view is the newest.
    pub reads: Recency,
    /// The seed of all random choices.
    pub seed: u64,
    /// The cluster's secret, if this silo creates the table: random.
    pub cluster_key: ClusterKey,
}

impl Setup {
    /// Creates the setup of a silo with this configuration, over a table with these limits, whose
    /// reads are not known to be linearizable.
    #[must_use]
    pub const fn new(
        identity: Identity,
        config: Config,
        limits: TableLimits,
        seed: u64,
        cluster_key: ClusterKey,
    ) -> Self {
        Self {
            cluster_key,
            identity,
            config,
            limits,
            reads: Recency::MonotonicPerClient,
            seed,
        }
    }

    /// Sets how recent the table's usual reads are.
    #[must_use]
    pub const fn with_reads(mut self, reads: Recency) -> Self {
        self.reads = reads;
        self
    }
}

/// The health of a silo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Score of all reasons together: 0 (healthy) to 8.
    pub score: u8,
    /// Score of the local reasons alone: 0 to 8.
    pub local: u8,
}

impl Health {
    /// A silo without any sign of bad health.
    pub const HEALTHY: Self = Self { score: 0, local: 0 };
}
