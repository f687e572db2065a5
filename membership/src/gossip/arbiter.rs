//! Who decides which side of a split goes on, for `lease-majority`.

use std::fmt;

use async_trait::async_trait;
use membership_core::SiloAddress;
use membership_gossip::downing::{Claim, Lease};

/// Gives one lease for a cluster to at most one side of a split: the arbiter of the strategy
/// [`LeaseMajority`](super::downing::Strategy::LeaseMajority). The safety of that strategy is that of
/// the arbiter.
#[async_trait]
pub trait Arbiter: Send + Sync + fmt::Debug + 'static {
    /// What tells this arbiter from others, the same text for all members that ask the same: a process
    /// that would ask another one is not taken in. Asked once, before a member starts. By default
    /// none: then nothing is compared.
    ///
    /// # Errors
    /// [`ArbiterError`]: the member does not start.
    async fn id(&self) -> Result<Option<String>, ArbiterError> {
        Ok(None)
    }

    /// Takes the lease for the side whose leader claims it, or says that another side has it. A
    /// leader that has it already gets it again. It is kept until [`release`](Self::release). An arbiter
    /// that remembers what it granted answers with [`Grants::answer`](super::downing::Grants::answer).
    ///
    /// # Errors
    /// [`ArbiterError`]: it could not be asked, or whether it gave the lease is not known. The side
    /// then behaves as if it had not got it, and downs itself.
    async fn acquire(&self, claim: &Claim) -> Result<Lease, ArbiterError>;

    /// Gives the lease back, if `member` has it.
    ///
    /// # Errors
    /// [`ArbiterError`]: it is not known whether it was given back; it is tried again with the next
    /// lease of this member.
    async fn release(&self, member: SiloAddress) -> Result<(), ArbiterError>;
}

/// The arbiter could not be asked.
#[derive(Debug, thiserror::Error)]
#[error("the arbiter cannot be asked: {0}")]
pub struct ArbiterError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// What the arbiter answered to the claim of a side.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArbiterAnswer {
    /// The side goes on.
    Granted,
    /// Another side goes on.
    Refused,
    /// It could not be asked, or did not answer in time: the side ends.
    Silent {
        /// Why, for people.
        reason: String,
    },
}

impl ArbiterAnswer {
    /// A word for logs and events.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Refused => "refused",
            Self::Silent { .. } => "silent",
        }
    }
}

impl fmt::Display for ArbiterAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted | Self::Refused => f.write_str(self.as_str()),
            Self::Silent { reason } => write!(f, "silent: {reason}"),
        }
    }
}
