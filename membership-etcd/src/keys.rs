//! Where things of a cluster stand. All keys of a cluster begin with `{prefix}/{cluster}/`; the slash closes the cluster's name, which holds
//! none, so that no cluster's keys are among another one's (clause T9).
//!
//! | key | value |
//! |---|---|
//! | `…/table/version` | what every commit changes of the version row, and what is never changed |
//! | `…/table/recent/00` to `15` | the last sixteen commits, each in the place of the one sixteen versions before |
//! | `…/table/settings`, `…/table/core` | the settings that all silos share, and core's cell |
//! | `…/rows/{ip:port@epoch}` | a row |
//! | `…/heartbeats/{ip:port@epoch}` | a heartbeat |
//! | `…/heartbeats/cluster` | the cluster's own cell |

use membership_core::{ClusterName, RECENT_COMMITS};

use crate::wire::Bytes;

/// What the cluster's own cell is called among the heartbeats. No silo is.
pub(crate) const CELL: &str = "cluster";

#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// With the slash.
    base: String,
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str, cluster: &ClusterName) -> Self {
        Self {
            base: format!("{prefix}/{}/", cluster.store_key()),
            prefix: prefix.to_owned(),
        }
    }

    pub(crate) fn version(&self) -> Bytes {
        self.at("table/version")
    }

    /// Where the commit stands that made this version.
    pub(crate) fn recent(&self, version: u64) -> Bytes {
        self.at(&format!(
            "table/recent/{:02}",
            version % RECENT_COMMITS as u64
        ))
    }

    pub(crate) fn recent_commits(&self) -> (Bytes, Bytes) {
        self.all("table/recent")
    }

    pub(crate) fn settings(&self) -> Bytes {
        self.at("table/settings")
    }

    pub(crate) fn core(&self) -> Bytes {
        self.at("table/core")
    }

    pub(crate) fn row(&self, key: &str) -> Bytes {
        self.at(&format!("rows/{key}"))
    }

    pub(crate) fn heartbeat(&self, key: &str) -> Bytes {
        self.at(&format!("heartbeats/{key}"))
    }

    /// The version row's keys.
    pub(crate) fn table(&self) -> (Bytes, Bytes) {
        self.all("table")
    }

    pub(crate) fn rows(&self) -> (Bytes, Bytes) {
        self.all("rows")
    }

    pub(crate) fn heartbeats(&self) -> (Bytes, Bytes) {
        self.all("heartbeats")
    }

    /// What stands in one of the cluster's places, without what every key begins with.
    pub(crate) fn name<'a>(&self, key: &'a str, place: &str) -> Option<&'a str> {
        key.strip_prefix(self.base.as_str())?
            .strip_prefix(place)?
            .strip_prefix('/')
    }

    /// A key of nobody's cluster: the names of clusters hold a tilde.
    pub(crate) fn yardstick(&self, name: &str) -> Bytes {
        format!("{}/yardstick/{name}", self.prefix).into()
    }

    fn at(&self, place: &str) -> Bytes {
        format!("{}{place}", self.base).into()
    }

    /// All keys of one place: what comes after a slash comes before a zero.
    fn all(&self, place: &str) -> (Bytes, Bytes) {
        (self.at(&format!("{place}/")), self.at(&format!("{place}0")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_hold_their_own_keys_and_no_others() {
        let keys = Keys::new("ops/membership", &"billing/blue".parse().unwrap());
        let longer = Keys::new("ops/membership", &"billing/blue0".parse().unwrap());
        assert_eq!(
            keys.version().text(),
            "ops/membership/billing~-blue/table/version"
        );
        assert_eq!(
            keys.recent(35).text(),
            "ops/membership/billing~-blue/table/recent/03"
        );
        let holds = |range: (Bytes, Bytes), key: Bytes| {
            (range.0.text()..range.1.text()).contains(&key.text())
        };
        for key in [
            keys.version(),
            keys.recent(16),
            keys.settings(),
            keys.core(),
        ] {
            assert!(
                holds(keys.table(), key.clone())
                    && !holds(keys.rows(), key.clone())
                    && !holds(keys.heartbeats(), key)
            );
        }
        for name in [
            "10.0.0.1:1@1",
            "[::1]:1@1",
            "~~~",
            "no silo's key",
            "\u{10ffff}",
        ] {
            assert!(
                holds(keys.rows(), keys.row(name))
                    && holds(keys.heartbeats(), keys.heartbeat(name)),
                "{name}"
            );
            assert!(
                !holds(keys.rows(), longer.row(name)) && !holds(longer.rows(), keys.row(name)),
                "{name}"
            );
            assert_eq!(keys.name(&keys.row(name).text(), "rows"), Some(name));
            assert_eq!(keys.name(&keys.row(name).text(), "heartbeats"), None);
        }
        assert!(holds(keys.heartbeats(), keys.heartbeat(CELL)));
        assert!(!keys.yardstick("a").text().starts_with(&keys.base));
    }
}
