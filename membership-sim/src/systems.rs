//! The compared systems, by name, each with the configuration that its makers recommend for one
//! data centre.

use std::time::Duration;

use membership_core::hooks::{Calls, ProtocolVariant};
use membership_core::{Config, Preset};

use crate::arena::{Arena, Failure};
use crate::ours::{Make, Ours};
use crate::peers;

/// Above this size, this library has a heartbeat every 30 s, as its documentation advises, to spare
/// the table.
pub const LARGE: usize = 200;

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum System {
    /// This library: preset `lan`, above 200 silos with a heartbeat every 30 s
    Membership,
    /// The same, with silos that stop restarted after a second, even where an experiment otherwise
    /// leaves them stopped
    #[value(name = "membership-supervised")]
    Supervised,
    /// This library with one silo that writes the changes of many (experimental)
    #[value(name = "membership-scribe")]
    Scribe,
    /// This library with the behaviour of Microsoft Orleans in 2019
    #[value(name = "orleans-2019")]
    Orleans2019,
    /// This library with the behaviour of Microsoft Orleans in 2026
    #[value(name = "orleans-2026")]
    Orleans2026,
    /// This library without a store, by gossip: preset `lan`, above 200 members with 30 s of
    /// stability before the resolver decides
    Gossip,
    /// The same, with members that were downed restarted after a second
    #[value(name = "gossip-supervised")]
    GossipSupervised,
    /// The same as the Akka Cluster specification has it, but with the resolver of preset `lan`:
    /// preset `akka`
    #[value(name = "gossip-akka")]
    GossipAkka,
    /// The crate foca: SWIM, `Config::new_lan`
    Foca,
    /// The same, but a member that learns that it was declared down does not return
    #[value(name = "foca-no-renewal")]
    FocaOnce,
    /// The crate chitchat: scuttlebutt and phi accrual, its defaults
    Chitchat,
}

impl System {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Membership => "membership",
            Self::Supervised => "membership, supervised",
            Self::Scribe => "membership, scribe",
            Self::Orleans2019 => "orleans-2019",
            Self::Orleans2026 => "orleans-2026",
            Self::Gossip => "gossip",
            Self::GossipSupervised => "gossip, supervised",
            Self::GossipAkka => "gossip, akka",
            Self::Foca => "foca",
            Self::FocaOnce => "foca, no renewal",
            Self::Chitchat => "chitchat",
        }
    }

    /// Whether it is this library itself, for which the requirements apply.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Membership | Self::Supervised | Self::Scribe)
    }

    /// Whether it has a table.
    pub const fn has_table(self) -> bool {
        !matches!(self, Self::Foca | Self::FocaOnce | Self::Chitchat) && !self.is_gossip()
    }

    /// Whether it is this library without a store, for which requirements of its own apply.
    pub const fn is_gossip(self) -> bool {
        matches!(
            self,
            Self::Gossip | Self::GossipSupervised | Self::GossipAkka
        )
    }

    /// The configuration of this library without a store, for so many members.
    pub fn gossip(self, members: usize) -> membership_gossip::Config {
        use membership_gossip::downing::Downing;
        let mut config = membership_gossip::Config::preset(match self {
            Self::GossipAkka => membership_gossip::Preset::Akka,
            _ => membership_gossip::Preset::Lan,
        });
        config.downing = Downing::default();
        if members > LARGE {
            config.downing.stable_after = Duration::from_secs(30);
            config.downing.down_all_when_unstable = Some(Duration::from_millis(22_500));
        }
        config
    }

    /// The configuration of a variant of this library, and how its silos differ from this protocol.
    ///
    /// `orleans-2019`: probes the 3 successors on one ring, every 10 s with a fixed timeout of 10
    /// s; 3 misses; 2 votes that count for 2 minutes, written without asking other silos and without
    /// a check of the silo's own health or of other traffic; one change in a commit (with the row
    /// that it supersedes); 2 to 64 s of back-off after conflicts; heartbeats that are stale after
    /// 10 minutes. Some settings are fixed and therefore as in this library: views are sent whole or
    /// as a delta, there is a heartbeat every 200 s of which three may be missed (Orleans: every 5
    /// minutes, two), a missed probe is followed by the next one at once, and the rule that decides
    /// which silos vote. A joining silo of Orleans compares the time of a heartbeat with its own
    /// clock and skips a row that is 10 minutes old; here it must see that the heartbeat does not
    /// advance for that long, so it may join for 15 minutes instead of 5.
    ///
    /// `orleans-2026`: 10 silos on as many rings, probed every 5 s with adaptive timeouts of 2.5 to
    /// 20 s; heartbeats every 30 s, self-monitoring; before a vote one other silo is asked,
    /// whose consent is one more vote; 3 misses before that, one change in a commit, 2 to 64 s of
    /// back-off. What cannot be set: in Orleans the third probe is the one through the other silo,
    /// whose vote counts without its consent, a missed probe is followed by another only when the
    /// period is over, and any traffic within a minute delays a vote.
    pub fn config(self, silos: usize) -> Option<(Config, ProtocolVariant)> {
        let (lan, s) = (Config::preset(Preset::Lan), Duration::from_secs);
        let mut slow = lan.clone();
        slow.i_am_alive_period = s(30);
        let orleans = ProtocolVariant {
            calls: Calls::One,
            changes_per_commit: 1,
            conflict_backoff: Some([s(2), s(2), s(64)]),
            ..ProtocolVariant::STANDARD
        };
        match self {
            Self::Membership | Self::Supervised if silos > LARGE => {
                Some((slow, ProtocolVariant::STANDARD))
            }
            Self::Membership | Self::Supervised => Some((lan, ProtocolVariant::STANDARD)),
            Self::Scribe => {
                // Above so many the leader alone writes heartbeats in that period.
                Some((lan, ProtocolVariant::SCRIBE))
            }
            Self::Orleans2019 => {
                let mut config = lan;
                config.probe_period = s(10);
                config.failure_window = s(40);
                config.num_missed_probes_limit = 3;
                config.max_probe_timeout = s(10);
                config.num_probed_silos = 3;
                config.num_votes_for_death_declaration = 2;
                config.death_vote_expiration = s(120);
                config.i_am_alive_period = s(200);
                config.max_join_attempt_time = s(900);
                let variant = ProtocolVariant {
                    one_ring: true,
                    calls: Calls::Nobody,
                    self_monitoring: false,
                    evidence_of_life: false,
                    ..orleans
                };
                Some((config, variant))
            }
            Self::Orleans2026 => {
                let mut config = slow;
                config.probe_period = s(5);
                config.failure_window = s(10);
                config.num_missed_probes_limit = 3;
                config.max_probe_timeout = s(20);
                Some((config, orleans))
            }
            _ => None,
        }
    }

    /// A simulation of the system, for this many members, without members yet.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn world(self, seed: u64, members: usize) -> Result<Box<dyn Arena>, Failure> {
        match self {
            Self::Foca => Ok(Box::new(peers::foca::world::<true>(seed, members))),
            Self::FocaOnce => Ok(Box::new(peers::foca::world::<false>(seed, members))),
            Self::Chitchat => Ok(Box::new(peers::chitchat::World::new(seed)?)),
            _ if self.is_gossip() => {
                let supervised = self == Self::GossipSupervised;
                let config = self.gossip(members);
                let world = peers::gossip::world(seed, config, supervised, None)?;
                Ok(Box::new(world))
            }
            _ => Ok(Box::new(self.ours(seed, members)?)),
        }
    }

    /// A simulation in which so many members, started together, begin with the state of a cluster in
    /// which all of them are up; only for this library without a store.
    ///
    /// # Errors
    /// For other systems.
    pub fn formed(self, seed: u64, members: usize) -> Result<Box<dyn Arena>, Failure> {
        if !self.is_gossip() {
            let name = self.name();
            return Err(Failure::new(format!(
                "{name} cannot begin as formed: leave out --formed"
            )));
        }
        let (config, supervised) = (self.gossip(members), self == Self::GossipSupervised);
        let world = peers::gossip::world(seed, config, supervised, Some(members))?;
        Ok(Box::new(world))
    }

    /// A cluster of the system; only for variants of this library.
    ///
    /// # Errors
    /// For other systems.
    pub fn ours(self, seed: u64, members: usize) -> Result<Ours, Failure> {
        self.make(seed, members)?.build()
    }

    /// The options of a cluster of the system. The protocol of this library is checked, except
    /// where its speed is measured; the variants do not have its invariants.
    ///
    /// # Errors
    /// For systems that are not variants of this library.
    pub fn make(self, seed: u64, members: usize) -> Result<Make, Failure> {
        let (config, variant) = self
            .config(members)
            .ok_or_else(|| Failure::new(format!("{} has no table", self.name())))?;
        Ok(Make {
            variant,
            watched: self.is_ours(),
            ..Make::new(seed, config)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_match_their_descriptions() {
        let s = Duration::from_secs;
        let (config, variant) = System::Orleans2019.config(100).unwrap();
        config.validate().unwrap();
        assert_eq!(
            [
                config.probe_period,
                config.probe_timeout(),
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
            (config.death_vote_expiration, variant.changes_per_commit),
            (s(120), 1)
        );
        assert_eq!(variant.conflict_backoff, Some([s(2), s(2), s(64)]));
        assert!(variant.one_ring);
        assert!(
            variant.calls == Calls::Nobody && !variant.self_monitoring && !variant.evidence_of_life
        );
        let (config, variant) = System::Orleans2026.config(100).unwrap();
        config.validate().unwrap();
        assert_eq!(
            (config.probe_timeout(), config.max_probe_timeout),
            (Duration::from_millis(2_500), s(20))
        );
        assert_eq!(
            (
                config.num_missed_probes_limit,
                config.num_probed_silos,
                config.i_am_alive_period,
                variant.changes_per_commit
            ),
            (3, 10, s(30), 1)
        );
        assert!(!variant.one_ring && variant.self_monitoring && variant.calls == Calls::One);
        assert_eq!(
            System::Membership.config(100).unwrap().1,
            ProtocolVariant::STANDARD
        );
    }
}
