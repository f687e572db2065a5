//! The behaviour of one member as a state machine without input or output.
//!
//! | file | content |
//! |---|---|
//! | `io`, `message`, `codec`, `packed` | inputs and effects; messages; messages and states as bytes |
//! | `machine`, `receive` | [`Protocol`]: takes an input, fires due timers; checks of messages |
//! | `context` | shared state |
//! | `joiner`, `own_address`, `admission`, `voucher` | the way into a cluster, from both sides |
//! | `founder` | a founding on which a majority of the contact points agrees |
//! | `gossiper` | rounds of gossip: statuses, deltas, states |
//! | `heartbeat`, `ring`, `phi` | heartbeats, whom to watch, how much to doubt |
//! | `observer` | flags, and the doubt before them |
//! | `leading` | when the leader acts |
//! | `resolver` | when members that nobody reaches are downed |
//! | `leaver` | the ways out |
//! | `data_centres` | what crosses data centres |

mod admission;
mod anew;
mod codec;
mod context;
mod data_centres;
mod founder;
mod gossiper;
mod heartbeat;
mod io;
mod joiner;
mod leading;
mod leaver;
mod machine;
mod message;
mod observer;
mod own_address;
mod packed;
mod phi;
mod receive;
mod resolver;
mod ring;
mod voucher;
mod waiting;

use std::net::SocketAddr;

use membership_core::{ClusterName, InstanceId};

use crate::Config;
use crate::state::Profile;

pub use codec::{
    DecodeError, EncodeError, MAX_BYTES, MAX_INFLATED, decode, encode, encode_body, encode_header,
};
pub use gossiper::different_view_probability;
pub use io::{Command, Effect, Input, Notice, Termination};
pub use machine::Protocol;
pub use message::{Ballot, Header, Message, PROTOCOL_VERSION, Refusal, Settings};
pub use phi::Detector;
pub use ring::targets;
pub use waiting::{Silent, Waiting};

/// The parameters of a machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// The name of the cluster.
    pub cluster: ClusterName,
    /// The address that other members dial.
    pub advertise: SocketAddr,
    /// The epoch of the process: by convention milliseconds since 1970, larger after each start.
    pub epoch: u64,
    /// The id of the process: random, created when it starts.
    pub instance: InstanceId,
    /// What it publishes about itself.
    pub profile: Profile,
    /// Its configuration; must be valid.
    pub config: Config,
    /// The seed of its random choices.
    pub seed: u64,
}

impl Setup {
    /// The parameters of a process with the default configuration.
    #[must_use]
    pub fn new(
        cluster: ClusterName,
        advertise: SocketAddr,
        epoch: u64,
        instance: InstanceId,
        profile: Profile,
        seed: u64,
    ) -> Self {
        Self {
            cluster,
            advertise,
            epoch,
            instance,
            profile,
            config: Config::default(),
            seed,
        }
    }
}
