//! How one silo behaves, as a state machine without input or output.

mod cleaner;
mod commands;
mod contacts;
mod context;
mod disseminator;
mod estimator;
mod gate;
mod heartbeat_writer;
mod intermediary;
mod io;
mod joiner;
mod leaver;
mod machine;
mod members;
mod message;
mod monitor;
mod notice;
mod partition;
mod pause;
mod prober;
mod proceed;
mod receive;
mod rings;
mod settle;
mod staleness;
mod targets;
#[cfg(test)]
mod tests;
mod timers;
mod upkeep;
mod voter;
mod writer;

#[doc(hidden)]
pub use gate::Gate;
pub use io::{CallId, Command, Destination, Effect, Input, LinkId};
pub use machine::Protocol;
pub use message::{Header, IndirectOutcome, MIN_PROTOCOL_VERSION, Message, PROTOCOL_VERSION};
pub use notice::{
    DeclaredDead, JoinError, JoinProgress, Notice, Observation, RequestId, TableErrorText,
    TableState, Termination, Unreached,
};

pub use rings::successors;
pub use writer::conflict_backoff;

use std::net::SocketAddr;

use crate::{ClusterName, Config, InstanceId, SiloInfo, TableLimits};

/// Who a silo is, before it has an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// Which cluster.
    pub cluster: ClusterName,
    /// Where others dial it.
    pub advertise: SocketAddr,
    /// The process: random, made when it starts.
    pub instance: InstanceId,
    /// What it says of itself in its row.
    pub info: SiloInfo,
}

impl Identity {
    /// A silo of this cluster at this address.
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

/// What a protocol instance is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// Who.
    pub identity: Identity,
    /// How; must be valid.
    pub config: Config,
    /// What the table takes at once.
    pub limits: TableLimits,
    /// Seeds every random choice.
    pub seed: u64,
}

impl Setup {
    /// A silo with this configuration, over a table with these limits.
    #[must_use]
    pub const fn new(identity: Identity, config: Config, limits: TableLimits, seed: u64) -> Self {
        Self {
            identity,
            config,
            limits,
            seed,
        }
    }
}

/// How a silo feels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// All reasons together: 0 (healthy) to 8.
    pub score: u8,
    /// The local reasons alone.
    pub local: u8,
}

impl Health {
    /// No reason to doubt oneself.
    pub const HEALTHY: Self = Self { score: 0, local: 0 };
}
