//! The kinds of faults that a campaign can draw.

use std::fmt;
use std::str::FromStr;

/// A kind of fault that a campaign can draw. Displays and parses as a word such as
/// `table-outages`.
///
/// ```
/// use membership_testing::campaign::Fault;
/// assert_eq!("half-dead".parse(), Ok(Fault::HalfDead));
/// assert_eq!(Fault::HalfDead.to_string(), "half-dead");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Messages are lost at random.
    Drops,
    /// Processes are killed.
    Crashes,
    /// Processes are killed and start again at the same address; sometimes the old one keeps
    /// running.
    Restarts,
    /// Processes are paused.
    Pauses,
    /// The network is partitioned, in both directions.
    Partitions,
    /// Some directions between some silos are blocked.
    OneWay,
    /// The table is down; sometimes the network too.
    TableOutages,
    /// The table is slow.
    SlowTable,
    /// Other writers commit in between.
    Conflicts,
    /// Outcomes of commits are unknown: applied, applied late, not applied, or any of these.
    UnknownOutcomes,
    /// Silos leave.
    Leaves,
    /// Wall clocks are stepped.
    Clocks,
    /// Single silos cannot reach the table.
    TableCuts,
    /// Wall clocks and monotonic clocks run too fast or too slow, by up to 3 %.
    Drift,
    /// Messages arrive twice, or late and in another order.
    Duplicates,
    /// Links are blocked and unblocked in turns.
    Flapping,
    /// Hosts are in zones with a higher latency between them; sometimes two zones cannot reach each
    /// other.
    Zones,
    /// The protocol of a process hangs while its other threads run.
    HalfDead,
    /// Processes start again at the same address with the clock set back.
    SetBack,
    /// Two silos cannot reach each other because of one wrong firewall rule; both reach all others.
    Firewall,
    /// The throughput of the table is limited, or some calls are slow.
    BusyTable,
    /// Nothing leaves a process or reaches it, but its timers run.
    Holds,
    /// One host loses many messages that it sends, or that it receives.
    Lossy,
    /// The table is wiped; the silos are restarted.
    Wipes,
    /// A backup of the table is restored; the silos are restarted.
    Restores,
    /// The table is rolled back by some versions; the silos are restarted.
    Rollbacks,
    /// Some links are cut, one way or both, so that most silos still reach most others.
    PartialPartitions,
    /// Round trips between some silos and the others step to seconds, and back.
    SlowLinks,
    /// Machines crash with their processes: nobody is told, and nobody is refused.
    Machines,
    /// Processes stall twice, the second time while they read the table after the first stall.
    Stutter,
    /// Executors starve in bursts.
    Starvation,
    /// Nobody can dial some processes, which still send.
    Listeners,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 32] = [
        Self::Drops,
        Self::Crashes,
        Self::Restarts,
        Self::Pauses,
        Self::Partitions,
        Self::OneWay,
        Self::TableOutages,
        Self::SlowTable,
        Self::Conflicts,
        Self::UnknownOutcomes,
        Self::Leaves,
        Self::Clocks,
        Self::TableCuts,
        Self::Drift,
        Self::Duplicates,
        Self::Flapping,
        Self::Zones,
        Self::HalfDead,
        Self::SetBack,
        Self::Firewall,
        Self::BusyTable,
        Self::Holds,
        Self::Lossy,
        Self::Wipes,
        Self::Restores,
        Self::Rollbacks,
        Self::PartialPartitions,
        Self::SlowLinks,
        Self::Machines,
        Self::Stutter,
        Self::Starvation,
        Self::Listeners,
    ];

    /// The name in commands and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drops => "drops",
            Self::Crashes => "crashes",
            Self::Restarts => "restarts",
            Self::Pauses => "pauses",
            Self::Partitions => "partitions",
            Self::OneWay => "one-way",
            Self::TableOutages => "table-outages",
            Self::SlowTable => "slow-table",
            Self::Conflicts => "conflicts",
            Self::UnknownOutcomes => "unknown-outcomes",
            Self::Leaves => "leaves",
            Self::Clocks => "clocks",
            Self::TableCuts => "table-cuts",
            Self::Drift => "drift",
            Self::Duplicates => "duplicates",
            Self::Flapping => "flapping",
            Self::Zones => "zones",
            Self::HalfDead => "half-dead",
            Self::SetBack => "set-back",
            Self::Firewall => "firewall",
            Self::BusyTable => "busy-table",
            Self::Holds => "holds",
            Self::Lossy => "lossy",
            Self::Wipes => "wipes",
            Self::Restores => "restores",
            Self::Rollbacks => "rollbacks",
            Self::PartialPartitions => "partial-partitions",
            Self::SlowLinks => "slow-links",
            Self::Machines => "machines",
            Self::Stutter => "stutter",
            Self::Starvation => "starvation",
            Self::Listeners => "listeners",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is not the name of a kind of fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a kind of fault; the kinds are {known}", known = known())]
pub struct ParseFaultError(String);

fn known() -> String {
    Fault::ALL.map(Fault::name).join(", ")
}

impl FromStr for Fault {
    type Err = ParseFaultError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|f| f.name() == word)
            .ok_or_else(|| ParseFaultError(word.to_owned()))
    }
}
