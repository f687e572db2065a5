//! How one silo behaves, as a state machine without input or output.

mod beater;
mod cleaner;
mod commands;
mod contacts;
mod context;
mod disseminator;
mod estimator;
mod gate;
mod intermediary;
mod io;
mod joiner;
mod leaver;
mod machine;
mod manner;
mod members;
mod message;
mod monitor;
mod partition;
mod pause;
mod prober;
mod receive;
mod rings;
mod settle;
mod staleness;
#[cfg(test)]
mod tests;
mod timers;
mod voter;
mod writer;

#[doc(hidden)]
pub use gate::Gate;
pub use io::{
    CallId, Command, DeclaredDead, Destination, Effect, Input, JoinError, JoinProgress, LinkId,
    Notice, Observation, RequestId, TableErrorText, TableState, Termination, Unreached,
};
pub use machine::Protocol;
#[cfg(feature = "testing")]
pub use manner::Manner;
pub use message::{Header, IndirectOutcome, MIN_PROTOCOL_VERSION, Message, PROTOCOL_VERSION};

pub use rings::successors;
pub use writer::conflict_backoff;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::{ClusterName, Config, InstanceId, TableLimits};

/// Who a silo is, before it has an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Which cluster.
    pub cluster: ClusterName,
    /// Where others dial it.
    pub advertise: SocketAddr,
    /// The process: random, made when it starts.
    pub instance: InstanceId,
    /// Where clients reach it; 0 = it is no gateway.
    pub gateway_port: u16,
    /// The machine's name.
    pub host_name: String,
    /// The silo's name.
    pub silo_name: String,
    /// What it is for.
    pub role: String,
    /// Its failure zone.
    pub zone: String,
    /// Whatever the application wants every silo to know.
    pub metadata: BTreeMap<String, String>,
}

/// What a protocol instance is made of.
#[derive(Clone, Debug)]
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

/// How a silo feels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// All reasons together: 0 (healthy) to 8.
    pub score: u8,
    /// The local reasons alone.
    pub local: u8,
}
