//! The systems that are compared, by name, each in the configuration that its makers give for one data centre.

use std::time::Duration;

use membership_core::{Config, Preset};

use crate::arena::{Arena, Trouble};
use crate::ours::{Make, Ours};
use crate::peers;

/// Of more members, ours has a heartbeat every 30 s: what its documentation advises, for the sake of the table.
pub const LARGE: usize = 200;

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum System {
    /// This library: preset `lan`, above 200 silos with a heartbeat every 30 s
    Membership,
    /// The same, and silos that stop are started again after a second also where an experiment otherwise leaves them stopped
    #[value(name = "membership-supervised")]
    Supervised,
    /// This library set to what Microsoft Orleans did until 2019, as far as its settings go
    #[value(name = "orleans-2019")]
    Orleans2019,
    /// This library set to what Microsoft Orleans does since 2026, as far as its settings go
    #[value(name = "orleans-2026")]
    Orleans2026,
    /// The crate foca: SWIM, `Config::new_lan`
    Foca,
    /// The same, and a member that learns that it was declared down does not come back
    #[value(name = "foca-no-renewal")]
    FocaOnce,
    /// The crate chitchat: scuttlebutt and phi accrual, its defaults
    Chitchat,
}

impl System {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Membership => "membership",
            Self::Supervised => "membership, supervised",
            Self::Orleans2019 => "orleans-2019",
            Self::Orleans2026 => "orleans-2026",
            Self::Foca => "foca",
            Self::FocaOnce => "foca, no renewal",
            Self::Chitchat => "chitchat",
        }
    }

    /// Whether it is this library as it is: what must hold is asked of it.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Membership | Self::Supervised)
    }

    /// Whether it has a table.
    pub const fn has_table(self) -> bool {
        !matches!(self, Self::Foca | Self::FocaOnce | Self::Chitchat)
    }

    /// Its configuration, if it is of our making.
    ///
    /// `orleans-2019`: probes every 10 s with a time-out of 10 s whatever was measured, 3 misses, 2 votes that count for 2 minutes, 3
    /// probed silos, heartbeats that are stale after 10 minutes, at most 2 rows in a commit (one of its own and one that it supersedes).
    /// Not expressible, and therefore as in this library: successors on one ring instead of three rings, no indirect last probe, no
    /// self-monitoring, no check of partitions before a vote, back-off from 2 to 64 s after conflicts, views sent whole, a heartbeat every
    /// 5 minutes of which two may be missed (here every 200 s, three). A joining silo of Orleans compares the time of a heartbeat with its
    /// own clock and passes over a row that is 10 minutes old; here it has to see the heartbeat stand still for as long, and may therefore
    /// join for 15 minutes and not for 5.
    ///
    /// `orleans-2026`: adaptive time-outs of 2.5 to 20 s, 10 probed silos, heartbeats every 30 s. Not expressible: a vote of the
    /// intermediary without consent of its own, no check of partitions, evidence of life from any traffic within a minute, back-off from 2
    /// to 64 s.
    pub fn config(self, silos: usize) -> Option<(Config, usize)> {
        let (lan, s) = (Config::preset(Preset::Lan), Duration::from_secs);
        match self {
            Self::Membership | Self::Supervised if silos > LARGE => Some((Config { i_am_alive_period: s(30), ..lan }, 100)),
            Self::Membership | Self::Supervised => Some((lan, 100)),
            Self::Orleans2019 => {
                let config = Config {
                    probe_timeout: s(10),
                    min_probe_timeout: s(10),
                    max_probe_timeout: s(10),
                    num_probed_silos: 3,
                    i_am_alive_period: s(200),
                    max_join_attempt_time: s(900),
                    ..lan
                };
                Some((config, 2))
            }
            Self::Orleans2026 => Some((Config { i_am_alive_period: s(30), ..lan }, 2)),
            Self::Foca | Self::FocaOnce | Self::Chitchat => None,
        }
    }

    /// A world of it, for so many members, without anybody yet.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn world(self, seed: u64, members: usize) -> Result<Box<dyn Arena>, Trouble> {
        match self {
            Self::Foca => Ok(Box::new(peers::foca::world::<true>(seed, members))),
            Self::FocaOnce => Ok(Box::new(peers::foca::world::<false>(seed, members))),
            Self::Chitchat => Ok(Box::new(peers::chitchat::World::new(seed)?)),
            _ => Ok(Box::new(self.ours(seed, members)?)),
        }
    }

    /// A cluster of it; only for those of our making.
    ///
    /// # Errors
    /// For the others.
    pub fn ours(self, seed: u64, members: usize) -> Result<Ours, Trouble> {
        self.make(seed, members)?.build()
    }

    /// How a cluster of it is made. Our own protocol is watched, except where its speed is measured; its invariants are not those of its
    /// other settings.
    ///
    /// # Errors
    /// For systems that are not of our making.
    pub fn make(self, seed: u64, members: usize) -> Result<Make, Trouble> {
        let (config, rows_per_commit) = self.config(members).ok_or_else(|| Trouble::new(format!("{} has no table", self.name())))?;
        Ok(Make { rows_per_commit, watched: self.is_ours(), ..Make::new(seed, config) })
    }
}
