//! Errors of a member, by what the caller does next.

use std::time::Duration;

use membership_core::{ConfigError, SiloAddress};
use membership_gossip::protocol::Termination;

use super::arbiter::ArbiterError;
use crate::ListenError;
use crate::transport::TransportError;

crate::debug_as_display!(StartError, JoinError, DownError, WaitError);

/// Why a member did not start. It does not run.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A field of the configuration is out of range.
    #[error("invalid configuration: {0}")]
    Config(#[from] ConfigError),
    /// There is no transport.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// `lease-majority` without an arbiter: every side would down itself.
    #[error("the strategy `lease-majority` needs an arbiter: give one with `.arbiter(…)`")]
    NoArbiter,
    /// The arbiter did not say which it is, so it cannot be compared with those of other members.
    #[error("{0}")]
    Arbiter(#[source] ArbiterError),
}

impl From<TransportError> for StartError {
    fn from(error: TransportError) -> Self {
        Self::Listen(error.into())
    }
}

/// Why a member is not in service.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// No contact point was given.
    #[error("no contact point: give at least one address at which members may be")]
    NoContactPoints,
    /// The member has ended. A new one can be started.
    #[error("the member has ended: {0}")]
    Ended(Termination),
}

/// Why a member was not downed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DownError {
    /// There is no such member in the view of this one.
    #[error("{0} is no member, as far as this one knows")]
    NotMember(SiloAddress),
    /// This member has ended.
    #[error("the member has ended: {0}")]
    Ended(Termination),
}

/// Why [`Member::wait_for`](super::Member::wait_for) has no view.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The timeout is over.
    #[error("no such view within {waited:?}")]
    TimedOut {
        /// How long it waited.
        waited: Duration,
    },
    /// The member has ended: there will be no more views.
    #[error("the member has ended: {0}")]
    Ended(Termination),
}
