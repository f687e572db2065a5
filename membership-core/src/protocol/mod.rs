//! How one silo behaves, as a state machine without input or output.

mod io;
mod message;

pub use io::{
    CallId, Command, DeclaredDead, Destination, Effect, Input, JoinError, JoinProgress, LinkId, Notice, Observation, RequestId,
    TableErrorText, TableState, Termination, Unreached,
};
pub use message::{Header, IndirectOutcome, MIN_PROTOCOL_VERSION, Message, PROTOCOL_VERSION};

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::{ClusterName, ClusterView, Config, InstanceId, MonoTime, Now, SiloAddress, SiloStatus, TableLimits};

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

/// One silo's protocol: feed it inputs, carry out its effects.
#[derive(Debug)]
pub struct Protocol {
    setup: Setup,
}

/// How a silo feels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// All reasons together: 0 (healthy) to 8.
    pub score: u8,
    /// The local reasons alone.
    pub local: u8,
}

impl Protocol {
    /// A silo that does nothing until [`Input::Start`].
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Takes one input and appends the effects. Same seed, same inputs, same effects.
    pub fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        let _ = (now, input, effects, &self.setup);
    }

    /// When to call [`handle`](Self::handle) with [`Input::Wake`], at the latest; none = only when something happens.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<MonoTime> {
        None
    }

    /// My address, once the epoch is decided.
    #[must_use]
    pub fn me(&self) -> Option<SiloAddress> {
        None
    }

    /// Where I am in my life.
    #[must_use]
    pub fn status(&self) -> SiloStatus {
        SiloStatus::Created
    }

    /// The last published view.
    #[must_use]
    pub fn view(&self) -> Option<&ClusterView> {
        None
    }

    /// How I feel.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::default()
    }

    /// Whether I publish and write nothing after a long pause.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        false
    }

    /// Whether I have stopped for good.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        false
    }
}
