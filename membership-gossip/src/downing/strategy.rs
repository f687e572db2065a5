//! The strategies, and how they are written.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::written::written;

/// How it is decided which side of a split goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
#[non_exhaustive]
pub enum Strategy {
    /// Nobody is downed but by an operator.
    None,
    /// The specification's auto-down: each leader downs whom it does not reach after a time.
    /// **Unsafe**: both sides of every split go on, and over time a cluster falls apart into
    /// clusters of one.
    AutoDownUnsafe {
        /// The time without contact.
        #[serde(with = "humantime_serde")]
        after: Duration,
    },
    /// The side with at least `size` members goes on. Safe while there are at most 2 × `size` − 1.
    StaticQuorum {
        /// The number of members.
        size: u32,
        /// Only members of this role are counted.
        role: Option<String>,
    },
    /// The larger side goes on; of two halves the one with the lowest address. Safe while both sides
    /// know the same members but for one pending change, flag each other, and decide in time.
    KeepMajority {
        /// Only members of this role are counted.
        role: Option<String>,
    },
    /// The side of the oldest member goes on. Safe under the same assumptions.
    KeepOldest {
        /// Whether an oldest member that is alone against two or more loses. Default: yes.
        #[serde(default = "yes")]
        down_if_alone: bool,
        /// Only members of this role are counted.
        role: Option<String>,
    },
    /// Everybody is downed.
    DownAll,
    /// The side that gets the lease goes on. Safe under any fault while the lease is exclusive.
    LeaseMajority {
        /// Only members of this role are counted.
        role: Option<String>,
        /// How much later the minority asks for the lease. Default 2 s; range 0 to 1 min.
        #[serde(with = "humantime_serde", default = "delay_for_minority")]
        delay_for_minority: Duration,
        /// How long the lease is kept after the downed were removed. Default 40 s; range 1 s to 1 h.
        #[serde(with = "humantime_serde", default = "release_after")]
        release_after: Duration,
    },
}

impl Strategy {
    /// The strategy that asks an arbiter, with the usual times.
    #[must_use]
    pub const fn lease_majority() -> Self {
        Self::LeaseMajority {
            role: None,
            delay_for_minority: delay_for_minority(),
            release_after: release_after(),
        }
    }

    /// The name, as a configuration has it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AutoDownUnsafe { .. } => "auto-down-unsafe",
            Self::StaticQuorum { .. } => "static-quorum",
            Self::KeepMajority { .. } => "keep-majority",
            Self::KeepOldest { .. } => "keep-oldest",
            Self::DownAll => "down-all",
            Self::LeaseMajority { .. } => "lease-majority",
        }
    }
}

/// The name, and what is set besides.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = |role: &Option<String>| role.as_ref().map(|role| format!("role {role}"));
        let mut parts = Vec::new();
        match self {
            Self::None | Self::DownAll => {}
            Self::AutoDownUnsafe { after } => parts.push(format!("after {}", written(*after))),
            Self::StaticQuorum { size, role: of } => {
                parts.push(format!("size {size}"));
                parts.extend(role(of));
            }
            Self::KeepMajority { role: of } => parts.extend(role(of)),
            Self::KeepOldest {
                down_if_alone,
                role: of,
            } => {
                parts.push(format!("down_if_alone {down_if_alone}"));
                parts.extend(role(of));
            }
            Self::LeaseMajority {
                role: of,
                delay_for_minority,
                release_after,
            } => {
                parts.extend(role(of));
                let delay = written(*delay_for_minority);
                parts.push(format!("delay_for_minority {delay}"));
                parts.push(format!("release_after {}", written(*release_after)));
            }
        }
        f.write_str(self.name())?;
        if parts.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", parts.join(", "))
    }
}

const fn yes() -> bool {
    true
}

const fn delay_for_minority() -> Duration {
    Duration::from_secs(2)
}

const fn release_after() -> Duration {
    Duration::from_secs(40)
}
