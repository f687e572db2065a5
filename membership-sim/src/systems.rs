//! The systems that are compared, by name, each in the configuration that its makers give for one data centre.

use std::time::Duration;

use membership_core::protocol::Manner;
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
    /// This library doing as Microsoft Orleans did in 2019
    #[value(name = "orleans-2019")]
    Orleans2019,
    /// This library doing as Microsoft Orleans does in 2026
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

    /// Its configuration, if it is of our making, and where its silos do otherwise than this protocol.
    ///
    /// `orleans-2019`: the 3 successors on one ring are probed, every 10 s with a time-out of 10 s whatever was measured; 3 misses, of which
    /// none is another's word; 2 votes that count for 2 minutes, written without a look at partitions, at one's own health or at other
    /// traffic; one change in a commit (with the row that it supersedes); 2 to 64 s of back-off after conflicts; heartbeats that are stale
    /// after 10 minutes. As in this library, because it cannot be set: views go to others whole or as a delta, a heartbeat every 200 s of
    /// which three may be missed (there every 5 minutes, two), and the rule who may vote. A joining silo of Orleans compares the time of a
    /// heartbeat with its own clock and passes over a row that is 10 minutes old; here it has to see the heartbeat stand still for as long,
    /// and may therefore join for 15 minutes and not for 5.
    ///
    /// `orleans-2026`: 10 probed silos on as many rings, adaptive time-outs of 2.5 to 20 s, heartbeats every 30 s, self-monitoring, the last
    /// probe through another; no check of partitions, one change in a commit, 2 to 64 s of back-off. Not to be set: there the intermediary's
    /// vote counts without its consent, and any traffic within a minute holds a vote back.
    pub fn config(self, silos: usize) -> Option<(Config, Manner)> {
        let (lan, s) = (Config::preset(Preset::Lan), Duration::from_secs);
        let slow = Config {
            i_am_alive_period: s(30),
            ..lan.clone()
        };
        let orleans = Manner {
            partition_checks: false,
            changes_per_commit: 1,
            conflict_backoff: Some([s(2), s(2), s(64)]),
            ..Manner::OWN
        };
        match self {
            Self::Membership | Self::Supervised if silos > LARGE => Some((slow, Manner::OWN)),
            Self::Membership | Self::Supervised => Some((lan, Manner::OWN)),
            Self::Orleans2019 => {
                let config = Config {
                    probe_timeout: s(10),
                    min_probe_timeout: s(10),
                    max_probe_timeout: s(10),
                    num_missed_probes_limit: 3,
                    num_probed_silos: 3,
                    num_votes_for_death_declaration: 2,
                    death_vote_expiration: s(120),
                    i_am_alive_period: s(200),
                    max_join_attempt_time: s(900),
                    ..lan
                };
                let manner = Manner {
                    one_ring: true,
                    indirect_probes: false,
                    self_monitoring: false,
                    evidence_of_life: false,
                    ..orleans
                };
                Some((config, manner))
            }
            Self::Orleans2026 => Some((slow, orleans)),
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
        let (config, manner) = self
            .config(members)
            .ok_or_else(|| Trouble::new(format!("{} has no table", self.name())))?;
        Ok(Make {
            manner,
            watched: self.is_ours(),
            ..Make::new(seed, config)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_are_what_their_descriptions_say() {
        let s = Duration::from_secs;
        let (config, manner) = System::Orleans2019.config(100).unwrap();
        config.validate().unwrap();
        assert_eq!(
            [
                config.probe_timeout,
                config.min_probe_timeout,
                config.max_probe_timeout
            ],
            [s(10); 3]
        );
        assert_eq!(
            (
                config.num_missed_probes_limit,
                config.num_votes_for_death_declaration,
                config.num_probed_silos
            ),
            (3, 2, 3)
        );
        assert_eq!(
            (config.death_vote_expiration, manner.changes_per_commit),
            (s(120), 1)
        );
        assert_eq!(manner.conflict_backoff, Some([s(2), s(2), s(64)]));
        assert!(manner.one_ring);
        assert!(
            !(manner.indirect_probes
                || manner.partition_checks
                || manner.self_monitoring
                || manner.evidence_of_life)
        );
        let (config, manner) = System::Orleans2026.config(100).unwrap();
        config.validate().unwrap();
        assert_eq!(
            (config.min_probe_timeout, config.max_probe_timeout),
            (Duration::from_millis(2_500), s(20))
        );
        assert_eq!(
            (
                config.num_probed_silos,
                config.i_am_alive_period,
                manner.changes_per_commit
            ),
            (10, s(30), 1)
        );
        assert!(
            !manner.one_ring
                && manner.indirect_probes
                && manner.self_monitoring
                && !manner.partition_checks
        );
        assert_eq!(System::Membership.config(100).unwrap().1, Manner::OWN);
    }
}
