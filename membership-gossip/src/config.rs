//! The configuration of a member: each option with its default, range and effect.

use std::collections::BTreeMap;
use std::time::Duration;

use membership_core::ConfigError;
use serde::{Deserialize, Serialize};

use crate::downing::Downing;

/// Defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// The Akka Cluster specification with its defaults, and those of its best-known implementation
    /// where it names none.
    Akka,
    /// One data centre or region. The default. Each departure from the specification is told at the
    /// field of [`Config`] that makes it, and in `docs/gossip.md`.
    #[default]
    Lan,
}

/// How a cluster begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Founding {
    /// A majority of the contact points agrees on one founding; see
    /// [`protocol`](crate::protocol). Two islands do not form.
    Majority,
    /// The first contact point founds alone, if no other answers that it is in a cluster. If it is
    /// restarted, or slow, while the others cannot be reached, it founds an island.
    FirstSeed,
    /// This process never founds a cluster: it waits for one.
    Never,
}

/// What members send each other when their states differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spreading {
    /// What the receiver lacks; the whole state where that is not known.
    Deltas,
    /// Always the whole state, and the vector clock with each status.
    States,
}

/// How a member behaves. Start from a [`Preset`] and change the fields that you need.
///
/// ```
/// use membership_gossip::{Config, Preset};
/// let mut config = Config::preset(Preset::Akka);
/// config.phi_threshold = 12.0; // a cloud
/// config.validate()?;
/// config.monitored_by = 0;
/// assert!(config.validate().unwrap_err().to_string().contains("monitored_by"));
/// # Ok::<(), membership_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Config {
    /// How a cluster begins. `akka`: first seed. `lan`: majority, because a first seed that is
    /// restarted apart from the others founds a second cluster.
    pub founding: Founding,
    /// What members send. `akka`: states. `lan`: deltas, because the whole state of 10,000 members
    /// is some hundred kilobytes, and one change would send it about twenty times from each.
    pub spreading: Spreading,
    /// How long to wait for the answers of the contact points. Default 5 s; range 100 ms to 5 min.
    #[serde(with = "humantime_serde")]
    pub seed_node_timeout: Duration,
    /// How long to wait for a welcome before starting over. Default 10 s; range 100 ms to 5 min.
    #[serde(with = "humantime_serde")]
    pub retry_unsuccessful_join_after: Duration,
    /// After how long without agreement joining members become weakly up; none: never. `akka`:
    /// never. `lan`: 7 s, and only while somebody is unreachable, so that a mass join alone makes
    /// nobody weakly up. Range 1 s to 1 h.
    #[serde(
        serialize_with = "humantime_serde::serialize",
        deserialize_with = "crate::written::or_never"
    )]
    pub weakly_up_after: Option<Duration>,
    /// How many members there must be before the leader moves the first up. Default 1; range 1 to
    /// 65,536.
    pub min_members: u32,
    /// The same for members of a role.
    pub min_members_of_role: BTreeMap<String, u32>,
    /// Time between two rounds of gossip. Default 1 s; range 50 ms to 1 min. Three times as often
    /// while fewer than half of the members have seen the state.
    #[serde(with = "humantime_serde")]
    pub gossip_interval: Duration,
    /// While members disagree, the probability of a round with one that has not seen the state.
    /// Default 0.8; range 0 to 1.
    pub gossip_different_view_probability: f64,
    /// Above this number of members that probability falls, linearly to a tenth at three times the
    /// number. Default 400; range 2 to 65,536.
    pub reduce_gossip_different_view_probability: u32,
    /// Gossip that waited longer before it was handled is dropped. Default 2 s; range 100 ms to
    /// 1 min.
    #[serde(with = "humantime_serde")]
    pub gossip_time_to_live: Duration,
    /// Time between two looks of the leader. Default 1 s; range 50 ms to 1 min.
    #[serde(with = "humantime_serde")]
    pub leader_actions_interval: Duration,
    /// Time between two heartbeats to one member. Default 1 s; range 50 ms to 1 min.
    #[serde(with = "humantime_serde")]
    pub heartbeat_interval: Duration,
    /// The level of doubt at which a member is flagged. Default 8; 12 for clouds; range 1 to 30.
    pub phi_threshold: f64,
    /// Number of intervals between heartbeats that are kept. Default 1000; range 10 to 10,000.
    pub max_sample_size: u32,
    /// The least standard deviation that is assumed. Default 100 ms; range 1 ms to 1 min.
    #[serde(with = "humantime_serde")]
    pub min_std_deviation: Duration,
    /// The silence that is accepted on top of the usual interval. Default 3 s; range 0 to 10 min.
    /// The choice between speed and patience.
    #[serde(with = "humantime_serde")]
    pub acceptable_heartbeat_pause: Duration,
    /// If a member never answered, silence counts from this long after the first heartbeat. Default
    /// 1 s; range 50 ms to 1 min.
    #[serde(with = "humantime_serde")]
    pub expected_response_after: Duration,
    /// How many members watch each member. Default 5; range 1 to 50.
    pub monitored_by: u32,
    /// Whether the watchers are successors on one ring each. `akka`: no, the next on one ring.
    /// `lan`: yes, as silos that use a table have it: members that die together do not share their
    /// watchers.
    pub many_rings: bool,
    /// How many others are asked to reach a silent member before it is flagged, and a process that
    /// joins before it is admitted. `akka`: 0. `lan`: 3, so that one broken link flags nobody, and
    /// nobody is admitted whom one member alone reaches. Range 0 to 10.
    pub relayed_heartbeats: u32,
    /// Whether a member doubts itself before others. One that was paused flags nobody until it has
    /// listened again; one that hears nobody says nothing about others until it does; one that takes
    /// a flag back, and flags the same member again and again, takes it back only after that member
    /// has answered for a while; and one that others do not reach downs nobody else when things do
    /// not settle. `akka`: no. `lan`: yes: a frozen process that wakes would flag everybody, and a few
    /// members that come and go would end the others.
    pub doubt_oneself: bool,
    /// Whether flags of leaving and exiting observers count. `akka`: yes. `lan`: no: nobody waits
    /// for the verdict of those who go.
    pub leaving_observers_count: bool,
    /// Whether a new incarnation ends the older one of its endpoint at once. `akka`: no, the older
    /// one is downed, and the new one waits until it is removed. `lan`: yes: its process has ended,
    /// or it could not have the endpoint.
    pub supersede_at_once: bool,
    /// Who ends members that are unreachable.
    pub downing: Downing,
    /// How many of the oldest members of each data centre speak with other data centres. Default 5;
    /// range 1 to 50.
    pub cross_data_center_connections: u32,
    /// The probability of a round of gossip with another data centre. Default 0.2; range 0 to 1.
    pub cross_data_center_gossip_probability: f64,
    /// Time between two heartbeats to a member of another data centre. Default 3 s; range 50 ms to
    /// 10 min.
    #[serde(with = "humantime_serde")]
    pub cross_data_center_heartbeat_interval: Duration,
    /// The silence after which a member of another data centre is flagged is this plus one interval.
    /// Default 10 s; range 0 to 1 h.
    #[serde(with = "humantime_serde")]
    pub cross_data_center_pause: Duration,
    /// How long a leave may take before the member stops all the same. Default 30 s; range 1 s to
    /// 1 h.
    #[serde(with = "humantime_serde")]
    pub leave_timeout: Duration,
    /// How many tombstones are kept one by one. Default 10,000; range 10 to 65,536.
    pub max_tombstones: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self::preset(Preset::Lan)
    }
}

impl Config {
    /// The defaults.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        let s = Duration::from_secs;
        let akka = preset == Preset::Akka;
        let (founding, spreading, downing) = match preset {
            Preset::Akka => {
                let mut downing = Downing::none();
                downing.every_flag_counts = true;
                (Founding::FirstSeed, Spreading::States, downing)
            }
            Preset::Lan => (Founding::Majority, Spreading::Deltas, Downing::default()),
        };
        Self {
            founding,
            spreading,
            seed_node_timeout: s(5),
            retry_unsuccessful_join_after: s(10),
            weakly_up_after: (!akka).then_some(s(7)),
            min_members: 1,
            min_members_of_role: BTreeMap::new(),
            gossip_interval: s(1),
            gossip_different_view_probability: 0.8,
            reduce_gossip_different_view_probability: 400,
            gossip_time_to_live: s(2),
            leader_actions_interval: s(1),
            heartbeat_interval: s(1),
            phi_threshold: 8.0,
            max_sample_size: 1_000,
            min_std_deviation: Duration::from_millis(100),
            acceptable_heartbeat_pause: s(3),
            expected_response_after: s(1),
            monitored_by: 5,
            many_rings: !akka,
            relayed_heartbeats: if akka { 0 } else { 3 },
            doubt_oneself: !akka,
            leaving_observers_count: akka,
            supersede_at_once: !akka,
            downing,
            cross_data_center_connections: 5,
            cross_data_center_gossip_probability: 0.2,
            cross_data_center_heartbeat_interval: s(3),
            cross_data_center_pause: s(10),
            leave_timeout: s(30),
            max_tombstones: 10_000,
        }
    }

    /// Checks every field against its range.
    ///
    /// # Errors
    /// [`ConfigError`] for the first field that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let (minute, minutes, hour) = (s(60), s(300), s(3_600));
        for (field, value, min, max) in [
            (
                "seed_node_timeout",
                self.seed_node_timeout,
                ms(100),
                minutes,
            ),
            (
                "retry_unsuccessful_join_after",
                self.retry_unsuccessful_join_after,
                ms(100),
                minutes,
            ),
            (
                "weakly_up_after",
                self.weakly_up_after.unwrap_or(hour),
                s(1),
                hour,
            ),
            ("gossip_interval", self.gossip_interval, ms(50), minute),
            (
                "gossip_time_to_live",
                self.gossip_time_to_live,
                ms(100),
                minute,
            ),
            (
                "leader_actions_interval",
                self.leader_actions_interval,
                ms(50),
                minute,
            ),
            (
                "heartbeat_interval",
                self.heartbeat_interval,
                ms(50),
                minute,
            ),
            ("min_std_deviation", self.min_std_deviation, ms(1), minute),
            (
                "acceptable_heartbeat_pause",
                self.acceptable_heartbeat_pause,
                ms(0),
                minutes * 2,
            ),
            (
                "expected_response_after",
                self.expected_response_after,
                ms(50),
                minute,
            ),
            (
                "cross_data_center_heartbeat_interval",
                self.cross_data_center_heartbeat_interval,
                ms(50),
                minutes * 2,
            ),
            (
                "cross_data_center_pause",
                self.cross_data_center_pause,
                ms(0),
                hour,
            ),
            ("leave_timeout", self.leave_timeout, s(1), hour),
        ] {
            ConfigError::check_range(field, value, min, max)?;
        }
        self.validate_numbers()?;
        self.downing.validate()
    }

    fn validate_numbers(&self) -> Result<(), ConfigError> {
        for (field, value, min, max) in [
            ("min_members", self.min_members, 1, 1 << 16),
            (
                "reduce_gossip_different_view_probability",
                self.reduce_gossip_different_view_probability,
                2,
                1 << 16,
            ),
            ("max_sample_size", self.max_sample_size, 10, 10_000),
            ("monitored_by", self.monitored_by, 1, 50),
            ("relayed_heartbeats", self.relayed_heartbeats, 0, 10),
            (
                "cross_data_center_connections",
                self.cross_data_center_connections,
                1,
                50,
            ),
            ("max_tombstones", self.max_tombstones, 10, 1 << 16),
        ] {
            ConfigError::check_range(field, value, min, max)?;
        }
        for (field, value, min, max) in [
            (
                "gossip_different_view_probability",
                self.gossip_different_view_probability,
                0.0,
                1.0,
            ),
            (
                "cross_data_center_gossip_probability",
                self.cross_data_center_gossip_probability,
                0.0,
                1.0,
            ),
            ("phi_threshold", self.phi_threshold, 1.0, 30.0),
        ] {
            ConfigError::check_range(field, value, min, max)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid_and_survive_a_file() {
        for preset in [Preset::Akka, Preset::Lan] {
            let config = Config::preset(preset);
            config.validate().unwrap();
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
        }
    }

    #[test]
    fn a_number_that_is_none_is_out_of_range() {
        let config = Config {
            phi_threshold: f64::NAN,
            ..Config::default()
        };
        let error = config.validate().unwrap_err().to_string();
        assert_eq!(error, "`phi_threshold` is NaN, but must be 1.0 to 30.0");
    }
}
