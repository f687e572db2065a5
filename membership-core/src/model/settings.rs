//! The settings that all silos of a cluster must agree on. They are in the version row.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::entry::Extra;

/// The least usual time between two heartbeats of a whole cluster, of whichever silos: 33 a second.
pub(crate) const HEARTBEAT_SPACING: Duration = Duration::from_millis(30);
/// The longest usual time between two heartbeats of one silo that this makes.
const RAREST_HEARTBEAT: Duration = Duration::from_secs(300);

/// The settings that the whole cluster shares. They are in the version row: the first `initialize`
/// writes them, and later ones do not change them. `membership settings` changes them by a commit.
/// A silo with another configuration logs a warning and uses the settings of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SharedSettings {
    /// How often each silo writes its heartbeat. Default 10 s.
    #[serde(with = "humantime_serde")]
    pub i_am_alive_period: Duration,
    /// How many periods a heartbeat may stand still before the row is stale. Default 3.
    pub num_missed_i_am_alive_limit: u32,
    /// The shortest silence after which a silo can be declared dead. Default 4.5 s.
    #[serde(with = "humantime_serde")]
    pub failure_window: Duration,
    /// How many votes declare a silo dead (fewer in a cluster of one or two). Default 2.
    pub num_votes_for_death_declaration: u32,
    /// How long a vote counts. Default 2 min.
    #[serde(with = "humantime_serde")]
    pub death_vote_expiration: Duration,
    /// How long a silo may stay Joining. Default 5 min.
    #[serde(with = "humantime_serde")]
    pub max_join_attempt_time: Duration,
    /// Fields of newer builds, kept unchanged.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Default for SharedSettings {
    fn default() -> Self {
        Self {
            i_am_alive_period: Duration::from_secs(10),
            num_missed_i_am_alive_limit: 3,
            failure_window: Duration::from_millis(4_500),
            num_votes_for_death_declaration: 2,
            death_vote_expiration: Duration::from_secs(120),
            max_join_attempt_time: Duration::from_secs(300),
            extra: Extra::default(),
        }
    }
}

impl SharedSettings {
    /// These settings clamped to the ranges of [`Config::validate`](crate::Config::validate). Silos
    /// use the result, because the table may contain any value: a period of zero would make a silo
    /// spin, and one of centuries would overflow.
    #[must_use]
    pub fn workable(&self) -> Self {
        let (ms, secs) = (Duration::from_millis, Duration::from_secs);
        let failure_window = self.failure_window.clamp(ms(300), secs(600));
        Self {
            i_am_alive_period: self.i_am_alive_period.clamp(ms(500), secs(600)),
            num_missed_i_am_alive_limit: self.num_missed_i_am_alive_limit.clamp(3, 20),
            failure_window,
            num_votes_for_death_declaration: self.num_votes_for_death_declaration.clamp(1, 10),
            death_vote_expiration: self.vote_expiration(),
            max_join_attempt_time: self.max_join_attempt_time.clamp(secs(1), secs(3_600)),
            extra: Extra::default(),
        }
    }

    /// How long a vote counts, clamped to the allowed range.
    pub(crate) fn vote_expiration(&self) -> Duration {
        let failure_window = self
            .failure_window
            .clamp(Duration::from_millis(300), Duration::from_secs(600));
        self.death_vote_expiration
            .clamp(failure_window * 2, Duration::from_secs(3_600))
    }

    /// How long a heartbeat may stand still before the row is stale: period × limit.
    #[must_use]
    pub fn staleness(&self) -> Duration {
        self.i_am_alive_period
            .saturating_mul(self.num_missed_i_am_alive_limit)
    }

    /// The longest usual time between two heartbeats of a silo that runs, in a cluster of so many: the
    /// period, or 30 ms for each silo, up to five minutes, if that is longer. The leader writes in
    /// the period, because its heartbeat is the pulse of the cluster, and so does any silo that others may miss.
    /// Others write so rarely if they have [`Config::scribe`](crate::Config::scribe); the table does not show
    /// which ones these are.
    #[must_use]
    pub fn heartbeat_period(&self, silos: usize) -> Duration {
        self.quiet_period(silos, HEARTBEAT_SPACING)
    }

    /// The same, with another time between two heartbeats of the whole cluster.
    pub(crate) fn quiet_period(&self, silos: usize, spacing: Duration) -> Duration {
        let all = spacing.saturating_mul(u32::try_from(silos).unwrap_or(u32::MAX));
        self.i_am_alive_period.max(all.min(RAREST_HEARTBEAT))
    }

    /// For how long the heartbeat of a silo that runs may stand still, in a cluster of so many silos, before
    /// a person should look: [`staleness`](Self::staleness), or if it may write rarely, at least
    /// [`heartbeat_period`](Self::heartbeat_period) and one period more.
    #[must_use]
    pub fn longest_silence(&self, silos: usize) -> Duration {
        let rare = self.heartbeat_period(silos);
        if rare > self.i_am_alive_period {
            self.staleness()
                .max(rare.saturating_add(self.i_am_alive_period))
        } else {
            self.staleness()
        }
    }

    /// The settings that differ, each with its name, its value here and its value there. Fields of
    /// newer builds are not compared.
    #[must_use]
    pub fn differences(&self, there: &Self) -> Vec<(&'static str, String, String)> {
        let time = |name, of: fn(&Self) -> Duration| {
            (name, format!("{:?}", of(self)), format!("{:?}", of(there)))
        };
        let number =
            |name, of: fn(&Self) -> u32| (name, of(self).to_string(), of(there).to_string());
        let mut all = vec![
            time("i_am_alive_period", |s| s.i_am_alive_period),
            number("num_missed_i_am_alive_limit", |s| {
                s.num_missed_i_am_alive_limit
            }),
            time("failure_window", |s| s.failure_window),
            number("num_votes_for_death_declaration", |s| {
                s.num_votes_for_death_declaration
            }),
            time("death_vote_expiration", |s| s.death_vote_expiration),
            time("max_join_attempt_time", |s| s.max_join_attempt_time),
        ];
        all.retain(|(_, here, there)| here != there);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_differ_are_named() {
        let here = SharedSettings::default();
        assert_eq!(here.differences(&here), []);
        let there = SharedSettings {
            i_am_alive_period: Duration::from_millis(2_500),
            num_votes_for_death_declaration: 3,
            ..SharedSettings::default()
        };
        let of = |name, here: &str, there: &str| (name, here.to_owned(), there.to_owned());
        assert_eq!(
            here.differences(&there),
            [
                of("i_am_alive_period", "10s", "2.5s"),
                of("num_votes_for_death_declaration", "2", "3")
            ]
        );
    }

    #[test]
    fn every_setting_is_compared() {
        let named = SharedSettings::default().differences(&SharedSettings {
            i_am_alive_period: Duration::ZERO,
            num_missed_i_am_alive_limit: 0,
            failure_window: Duration::ZERO,
            num_votes_for_death_declaration: 0,
            death_vote_expiration: Duration::ZERO,
            max_join_attempt_time: Duration::ZERO,
            extra: Extra::default(),
        });
        assert_eq!(named.len(), 6);
    }

    #[test]
    fn in_a_large_cluster_a_heartbeat_may_be_minutes_old() {
        let secs = Duration::from_secs;
        let settings = SharedSettings::default();
        for (silos, period, silence) in [
            (0, 10, 30),
            (333, 10, 30),
            (1_000, 30, 40),
            (10_000, 300, 310),
            (usize::MAX, 300, 310),
        ] {
            assert_eq!(settings.heartbeat_period(silos), secs(period), "{silos}");
            assert_eq!(settings.longest_silence(silos), secs(silence), "{silos}");
        }
        let slow = SharedSettings {
            i_am_alive_period: secs(600),
            ..settings
        };
        assert_eq!(slow.heartbeat_period(10_000), secs(600));
        assert_eq!(slow.longest_silence(10_000), secs(1_800));
    }
}
