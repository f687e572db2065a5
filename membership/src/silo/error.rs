//! Errors of a silo, by what the caller does next.

use std::net::SocketAddr;
use std::time::Duration;

use membership_core::intent::Refusal;
use membership_core::protocol::{DeclaredDead, JoinError, Termination};
use membership_core::{ConfigError, TableError};

use crate::runtime::ListenError;
use crate::transport::TransportError;

crate::debug_as_display!(StartError, RequestError, WaitError);

/// Why a silo did not start. It does not run. Its row, if there is one, is Dead, or will be by the
/// votes of others if the table could not be written.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A field of the configuration is out of range.
    #[error("invalid configuration: {0}")]
    Config(#[from] ConfigError),
    /// Neither an address to listen on nor a transport was given.
    #[error(
        "no address to listen on: give `.listen(address)`, or a transport of your own with `.transport(…)`"
    )]
    NoListenAddress,
    /// The silo listens on every address of the machine, which others cannot dial.
    #[error(
        "other silos cannot dial {listen}: give `.advertise(address)` with an address at which they reach this one"
    )]
    AdvertiseMissing {
        /// What it listens on.
        listen: SocketAddr,
    },
    /// The advertised address is unspecified.
    #[error(
        "other silos cannot dial the advertised address {advertise}: give `.advertise(address)` with an address at which they reach this one"
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
    /// The join failed; names the silos that could not be reached, and in which direction.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Other silos declared it dead while it joined.
    #[error("{} was declared dead while it joined: {}", .0.silo, .0.cause())]
    DeclaredDead(Box<DeclaredDead>),
    /// The silo was stopped, or its tokio runtime was shut down, before it was Active.
    #[error("the silo stopped before it was Active")]
    Stopped,
    /// The task of the silo panicked while it joined: a defect, of this library or of a transport
    /// that the application brought.
    #[error("the silo's task panicked while it joined, which is a defect: {0}")]
    Panicked(String),
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::NoListenAddress => Self::NoListenAddress,
            ListenError::AdvertiseMissing { listen } => Self::AdvertiseMissing { listen },
            ListenError::AdvertiseUnspecified { advertise } => {
                Self::AdvertiseUnspecified { advertise }
            }
            ListenError::Transport(error) => Self::Transport(error),
            ListenError::NoRuntime => Self::NoRuntime,
            ListenError::Random(why) => Self::Random(why),
        }
    }
}

impl StartError {
    pub(super) fn from_end(end: Termination) -> Self {
        match end {
            Termination::JoinFailed(why) => Self::Join(why),
            Termination::DeclaredDead(dead) => Self::DeclaredDead(Box::new(dead)),
            Termination::Panicked { message } => Self::Panicked(message),
            _ => Self::Stopped,
        }
    }
}

/// Why a request failed.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The silo has stopped. The table shows whether the request was carried out. (A request that
    /// was accepted before ends with another error: a refresh as `Table`, an eviction as
    /// `Refused`.)
    #[error("the silo has stopped; the table shows whether the request was carried out")]
    Stopped(Box<Termination>),
    /// More than a thousand requests are waiting.
    #[error("too many requests are waiting: try again later")]
    TooMany,
    /// The table could not be read.
    #[error(transparent)]
    Table(TableError),
    /// The request must not be carried out.
    #[error(transparent)]
    Refused(Refusal),
}

/// Why [`Silo::wait_for`](super::Silo::wait_for) has no view.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The timeout is over.
    #[error("no such view within {waited:?}; the last one has version {version}")]
    TimedOut {
        /// How long it waited.
        waited: Duration,
        /// The version of the last view.
        version: u64,
    },
    /// The silo has stopped: there will be no more views.
    #[error("the silo has stopped: there are no more views")]
    Stopped(Box<Termination>),
}
