//! What can go wrong with a silo, by what the caller does next.

use std::net::SocketAddr;
use std::time::Duration;

use membership_core::protocol::{DeclaredDead, JoinError, Termination};
use membership_core::{ConfigError, TableError};

use crate::transport::TransportError;

/// Why a silo did not start. It is not running, and its row, if there was one, is Dead, or will be by the votes of others where the table
/// could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A field of the configuration is out of range.
    #[error("the configuration cannot work: {0}")]
    Config(#[from] ConfigError),
    /// Neither an address to listen on nor a transport was given.
    #[error(
        "nowhere to listen: give `.listen(address)`, or a transport of your own with `.transport(…)`"
    )]
    NoListenAddress,
    /// The silo listens on every address of the machine, which nobody can dial.
    #[error(
        "listening on {listen} tells nobody where to dial: give `.advertise(address)`, the address that other silos reach this one at"
    )]
    AdvertiseMissing {
        /// What it listens on.
        listen: SocketAddr,
    },
    /// The advertised address stands for every address.
    #[error(
        "{advertise} cannot be advertised, nobody can dial it: give `.advertise(address)` an address that other silos reach this one at"
    )]
    AdvertiseUnspecified {
        /// What was to be advertised.
        advertise: SocketAddr,
    },
    /// The transport did not start.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// `start` was not awaited on a tokio runtime with time and input/output.
    #[error("no tokio runtime: await `start` within one")]
    NoRuntime,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
    /// It did not become Active; says who could not be reached in which direction.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Others ended its row while it joined.
    #[error("{} was declared dead while it joined: {}", .0.silo, .0.cause())]
    DeclaredDead(Box<DeclaredDead>),
    /// The tokio runtime was shut down, or somebody ended the silo, before it was Active.
    #[error("the silo stopped before it was Active")]
    Stopped,
}

impl StartError {
    pub(super) fn from_end(end: Termination) -> Self {
        match end {
            Termination::JoinFailed(why) => Self::Join(why),
            Termination::DeclaredDead(dead) => Self::DeclaredDead(Box::new(dead)),
            _ => Self::Stopped,
        }
    }
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The silo had stopped: whether the request was carried out is in the table. (One that was accepted before is answered when the silo
    /// stops: a refresh that the table is unavailable, an eviction that it was abandoned.)
    #[error("the silo has stopped; the table says whether the request was carried out")]
    Stopped(Box<Termination>),
    /// More than a thousand requests wait already.
    #[error("too many requests wait for an answer: ask again later")]
    TooMany,
    /// The table could not be read.
    #[error(transparent)]
    Table(TableError),
}

/// Why [`Silo::wait_for`](super::Silo::wait_for) did not see what it waited for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The time is over.
    #[error("not seen within {waited:?}; the view is at version {version}")]
    TimedOut {
        /// How long it waited.
        waited: Duration,
        /// The version of the last view looked at.
        version: u64,
    },
    /// The silo has stopped: there will be no more views.
    #[error("the silo has stopped: there are no more views")]
    Stopped(Box<Termination>),
}
