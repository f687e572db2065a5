//! The configuration of a silo: each option with its default, range and effect.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::SharedSettings;

/// Defaults for a kind of network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// One machine, tests and demos: a crash is detected within a few seconds.
    Local,
    /// One data centre or region. This is the default. Above 200 silos without `scribe` set `i_am_alive_period` to
    /// 30 s.
    #[default]
    Lan,
    /// Several regions.
    Wan,
}

/// How a silo behaves. Start from a [`Preset`] and change the fields that you need.
///
/// ```
/// use membership_core::{Config, Preset};
/// use std::time::Duration;
/// let mut config = Config::preset(Preset::Lan);
/// config.i_am_alive_period = Duration::from_secs(30);
/// config.validate()?;
/// config.num_votes_for_death_declaration = 0;
/// assert!(config.validate().unwrap_err().to_string().contains("num_votes_for_death_declaration"));
/// # Ok::<(), membership_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Config {
    /// Time between two probes of one silo. Default 5 s; range 100 ms to 60 s. A silo that probes
    /// fewer than [`num_probed_silos`](Self::num_probed_silos) others probes them more often, but not
    /// more often than once per second (or per this period, where that is shorter). A missed probe
    /// is followed by the next one at once.
    #[serde(with = "humantime_serde")]
    pub probe_period: Duration,
    /// The shortest silence after which a silo can be declared dead. Default 4.5 s; range 300 ms to
    /// 10 min. This is the choice between speed and patience: a shorter one detects a crash sooner;
    /// a longer one forgives longer pauses. A probe is missed after this window divided by
    /// `num_missed_probes_limit` + 1, or later where round trips take longer. Shared by the cluster.
    #[serde(with = "humantime_serde")]
    pub failure_window: Duration,
    /// Upper bound of the probe timeout that is derived from measured round trips and the health
    /// score. Default 20 s; range [`probe_timeout`](Self::probe_timeout) to 120 s.
    #[serde(with = "humantime_serde")]
    pub max_probe_timeout: Duration,
    /// How many probes in a row must fail before a silo is suspected. Default 2; range 2 to 20.
    pub num_missed_probes_limit: u32,
    /// How many silos this silo probes: one on each of this number of hash rings. Default 10; range
    /// 1 to 50. More probes detect crashes a little sooner and cost more messages.
    pub num_probed_silos: u32,
    /// How many votes declare a silo dead. Default 2; range 1 to 10, at most `num_probed_silos`.
    /// Shared by the cluster.
    pub num_votes_for_death_declaration: u32,
    /// How long a vote counts. Default 2 min; range 2 failure windows to 1 h. Shared by the
    /// cluster.
    #[serde(with = "humantime_serde")]
    pub death_vote_expiration: Duration,
    /// How often the table is read when nothing else requires a read. Default 60 s; range 500 ms to
    /// 1 h. This is the fallback for lost messages.
    #[serde(with = "humantime_serde")]
    pub table_refresh_period: Duration,
    /// How often the heartbeat is written. Default 10 s; range 500 ms to 10 min. When all silos of
    /// a cluster crash, a restarted cluster waits for
    /// [`num_missed_i_am_alive_limit`](Self::num_missed_i_am_alive_limit) periods. Shared by the
    /// cluster.
    #[serde(with = "humantime_serde")]
    pub i_am_alive_period: Duration,
    /// Number of missed heartbeats after which a row is stale. Default 3; range 3 to 20. Shared by
    /// the cluster.
    pub num_missed_i_am_alive_limit: u32,
    /// Maximum duration of a join. Default 5 min; range 1 s to 1 h. Shared by the cluster: the
    /// other silos vote against a silo that is Joining for longer.
    #[serde(with = "humantime_serde")]
    pub max_join_attempt_time: Duration,
    /// How long the row of a silo that left or was superseded is kept. Default 10 min; range 2 min
    /// to 30 days.
    #[serde(with = "humantime_serde")]
    pub left_silo_expiration: Duration,
    /// How long the row of any other Dead silo is kept. Default 7 days; range 2 min to 365 days.
    #[serde(with = "humantime_serde")]
    pub defunct_silo_expiration: Duration,
    /// Maximum number of rows that are kept for `defunct_silo_expiration`; the newest are kept.
    /// Default 25; range 0 to 10,000.
    pub max_defunct_silo_entries: u32,
    /// Timeout of one call to the table. Default 10 s; range 100 ms to 5 min, and at most
    /// `i_am_alive_period` × `num_missed_i_am_alive_limit`.
    #[serde(with = "humantime_serde")]
    pub table_call_timeout: Duration,
    /// Maximum duration of a leave, also when the table is unavailable. Default 30 s; range 1 s to
    /// 1 h.
    #[serde(with = "humantime_serde")]
    pub leave_timeout: Duration,
    /// Whether a silo sends its view to other silos after a commit. Default true. When false, silos
    /// learn of changes only from the table and its hints.
    pub enable_dissemination: bool,
    /// Whether one silo writes the changes of many: this silo sends its changes to the silo that made
    /// the last commit, and writes those that others send. Also, it joins without reading all rows, and
    /// looks at the version row alone where that is enough. Default false; for clusters of hundreds of
    /// silos, in which all set it. A silo writes for itself where nobody writes for it.
    pub scribe: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self::preset(Preset::Lan)
    }
}

crate::debug_as_display!(ConfigError);

/// A configuration value that is out of range: the field, its value, and the allowed range.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {value}, but must be {allowed}")]
pub struct ConfigError {
    /// Name of the field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The allowed range.
    pub allowed: String,
}

impl ConfigError {
    /// Whether `value` of `field` is in `min` to `max`.
    ///
    /// # Errors
    /// The error that names the field, its value and the range.
    pub fn check_range<T: PartialOrd + std::fmt::Debug>(
        field: &'static str,
        value: T,
        min: T,
        max: T,
    ) -> Result<(), Self> {
        if (&min..=&max).contains(&&value) {
            return Ok(());
        }
        Err(Self {
            field,
            value: format!("{value:?}"),
            allowed: format!("{min:?} to {max:?}"),
        })
    }
}

impl Config {
    /// The defaults for a kind of network.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        let (period, window, longest, heartbeat, refresh, call, leave) = match preset {
            Preset::Local => (500, 900, 2_000, 2_000, 2_000, 2_000, 10_000),
            Preset::Lan => (5_000, 4_500, 20_000, 10_000, 60_000, 10_000, 30_000),
            Preset::Wan => (10_000, 12_000, 40_000, 30_000, 60_000, 20_000, 60_000),
        };
        let ms = Duration::from_millis;
        Self {
            probe_period: ms(period),
            failure_window: ms(window),
            max_probe_timeout: ms(longest),
            num_missed_probes_limit: 2,
            num_probed_silos: 10,
            num_votes_for_death_declaration: 2,
            death_vote_expiration: Duration::from_secs(120),
            table_refresh_period: ms(refresh),
            i_am_alive_period: ms(heartbeat),
            num_missed_i_am_alive_limit: 3,
            max_join_attempt_time: Duration::from_secs(300),
            left_silo_expiration: Duration::from_secs(600),
            defunct_silo_expiration: Duration::from_secs(7 * 24 * 3600),
            max_defunct_silo_entries: 25,
            table_call_timeout: ms(call),
            leave_timeout: ms(leave),
            enable_dissemination: true,
            scribe: false,
        }
    }

    /// The shortest time that a probe waits for its answer: the failure window divided by
    /// `num_missed_probes_limit` + 1.
    #[must_use]
    pub fn probe_timeout(&self) -> Duration {
        timeout_in(self.failure_window, self.num_missed_probes_limit)
    }

    /// The part of this configuration that the whole cluster shares.
    #[must_use]
    pub fn shared(&self) -> SharedSettings {
        SharedSettings {
            i_am_alive_period: self.i_am_alive_period,
            num_missed_i_am_alive_limit: self.num_missed_i_am_alive_limit,
            failure_window: self.failure_window,
            num_votes_for_death_declaration: self.num_votes_for_death_declaration,
            death_vote_expiration: self.death_vote_expiration,
            max_join_attempt_time: self.max_join_attempt_time,
            extra: crate::Extra::default(),
        }
    }

    /// Checks every field against its range.
    ///
    /// # Errors
    /// [`ConfigError`] for the first field that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let ms = Duration::from_millis;
        let secs = Duration::from_secs;
        let day = secs(24 * 3600);
        ConfigError::check_range(
            "num_missed_probes_limit",
            self.num_missed_probes_limit,
            2,
            20,
        )?;
        ConfigError::check_range("probe_period", self.probe_period, ms(100), secs(60))?;
        ConfigError::check_range("failure_window", self.failure_window, ms(300), secs(600))?;
        ConfigError::check_range(
            "max_probe_timeout",
            self.max_probe_timeout,
            self.probe_timeout(),
            secs(120).max(self.probe_timeout()),
        )?;
        ConfigError::check_range("num_probed_silos", self.num_probed_silos, 1, 50)?;
        ConfigError::check_range(
            "num_votes_for_death_declaration",
            self.num_votes_for_death_declaration,
            1,
            self.num_probed_silos.min(10),
        )?;
        ConfigError::check_range(
            "death_vote_expiration",
            self.death_vote_expiration,
            self.failure_window * 2,
            secs(3600),
        )?;
        ConfigError::check_range(
            "table_refresh_period",
            self.table_refresh_period,
            ms(500),
            secs(3600),
        )?;
        ConfigError::check_range(
            "i_am_alive_period",
            self.i_am_alive_period,
            ms(500),
            secs(600),
        )?;
        ConfigError::check_range(
            "num_missed_i_am_alive_limit",
            self.num_missed_i_am_alive_limit,
            3,
            20,
        )?;
        ConfigError::check_range(
            "max_join_attempt_time",
            self.max_join_attempt_time,
            secs(1),
            secs(3600),
        )?;
        ConfigError::check_range(
            "left_silo_expiration",
            self.left_silo_expiration,
            secs(120),
            day * 30,
        )?;
        ConfigError::check_range(
            "defunct_silo_expiration",
            self.defunct_silo_expiration,
            secs(120),
            day * 365,
        )?;
        ConfigError::check_range(
            "max_defunct_silo_entries",
            self.max_defunct_silo_entries,
            0,
            10_000,
        )?;
        // A call that hangs must not make heartbeats look stale.
        let still = self.i_am_alive_period * self.num_missed_i_am_alive_limit;
        ConfigError::check_range(
            "table_call_timeout",
            self.table_call_timeout,
            ms(100),
            secs(300).min(still),
        )?;
        ConfigError::check_range("leave_timeout", self.leave_timeout, secs(1), secs(3600))
    }
}

/// The probe timeout that follows from a failure window.
pub(crate) fn timeout_in(failure_window: Duration, num_missed_probes_limit: u32) -> Duration {
    failure_window / num_missed_probes_limit.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid() {
        for preset in [Preset::Local, Preset::Lan, Preset::Wan] {
            Config::preset(preset).validate().unwrap();
        }
        assert_eq!(
            Config::default().probe_timeout(),
            Duration::from_millis(1_500)
        );
    }

    #[test]
    fn an_error_names_the_field_and_the_range() {
        let config = Config {
            probe_period: Duration::from_secs(300),
            ..Config::default()
        };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "`probe_period` is 300s, but must be 100ms to 60s"
        );
    }
}
