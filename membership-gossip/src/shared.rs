//! What all members of a cluster must agree on.

use crate::Config;
use crate::written::written;

impl Config {
    /// What all members of a cluster must agree on, by name: a joiner with another value is refused.
    #[must_use]
    pub fn shared(&self) -> Vec<(String, String)> {
        let mut all: Vec<_> = [
            ("heartbeat_interval", written(self.heartbeat_interval)),
            (
                "acceptable_heartbeat_pause",
                written(self.acceptable_heartbeat_pause),
            ),
            (
                "cross_data_center_connections",
                self.cross_data_center_connections.to_string(),
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        all.extend(self.downing.shared());
        all
    }

    /// The first setting of a joiner that differs: its name, the value here, and that of the joiner.
    #[must_use]
    pub fn disagreement(&self, theirs: &[(String, String)]) -> Option<(String, String, String)> {
        let mut mine = self.shared().into_iter();
        let (name, here) = mine.find(|mine| !theirs.contains(mine))?;
        let there = theirs.iter().find(|(other, _)| *other == name);
        let there = there.map_or("not given", |(_, value)| value);
        let there = there.to_owned();
        Some((name, here, there))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::downing::Strategy;

    #[test]
    fn a_joiner_with_another_resolver_is_named() {
        let (one, mut two) = (Config::default(), Config::default());
        assert_eq!(one.disagreement(&two.shared()), None);
        two.downing.stable_after = Duration::from_secs(7);
        let (name, here, there) = one.disagreement(&two.shared()).unwrap();
        assert_eq!(
            [&*name, &*here, &*there],
            ["downing.stable_after", "20s", "7s"]
        );
        let mut three = Config::default();
        three.downing.strategy = Strategy::LeaseMajority {
            role: Some("data".to_owned()),
            delay_for_minority: Duration::from_secs(2),
            release_after: Duration::from_secs(40),
        };
        three.downing.arbiter = Some("7".to_owned());
        let (_, here, there) = one.disagreement(&three.shared()).unwrap();
        assert_eq!(
            [&*here, &*there],
            [
                "keep-majority",
                "lease-majority (role data, delay_for_minority 2s, release_after 40s)"
            ]
        );
        let mut four = three.clone();
        four.downing.arbiter = Some("8".to_owned());
        let (name, here, there) = three.disagreement(&four.shared()).unwrap();
        assert_eq!([&*name, &*here, &*there], ["downing.arbiter", "7", "8"]);
    }

    #[test]
    fn a_time_may_be_never() {
        let config =
            r#"{"weakly_up_after": "never", "downing": {"down_all_when_unstable": "never"}}"#;
        let config: Config = serde_json::from_str(config).unwrap();
        assert_eq!(config.weakly_up_after, None);
        assert_eq!(config.downing.down_all_when_unstable, None);
        let config = r#"{"weakly_up_after": "8s"}"#;
        let config: Config = serde_json::from_str(config).unwrap();
        assert_eq!(config.weakly_up_after, Some(Duration::from_secs(8)));
        assert!(serde_json::from_str::<Config>(r#"{"weakly_up_after": "soon"}"#).is_err());
    }
}
