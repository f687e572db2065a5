//! The keys of one cluster. All begin with `{prefix}/{cluster}/`. The cluster's name contains no
//! slash, so no cluster's keys are among another one's (clause T9).
//!
//! | key | value |
//! |---|---|
//! | `…/table/version` | what every commit changes of the version row, and what never changes |
//! | `…/table/recent/00` to `15` | the last sixteen commits, in turn |
//! | `…/table/settings`, `…/table/core` | the settings that all silos share, and core's cell |
//! | `…/rows/{ip:port@epoch}` | a row |
//! | `…/heartbeats/{ip:port@epoch}` | a heartbeat |
//! | `…/heartbeats/cluster` | the cluster's own cell |

use membership_core::ClusterName;
use membership_provider::recent_slot;

use crate::wire::Bytes;

/// The name of the cluster's own cell among the heartbeats. No silo has it.
pub(crate) const CELL: &str = "cluster";

#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// What all keys begin with, the slash included.
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

    /// The record of the commit that made this version.
    pub(crate) fn recent(&self, version: u64) -> Bytes {
        self.at(&format!("table/recent/{:02}", recent_slot(version)))
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

    /// The name of a key below one of the cluster's folders (`table`, `rows` or `heartbeats`).
    pub(crate) fn name<'a>(&self, key: &'a str, folder: &str) -> Option<&'a str> {
        key.strip_prefix(self.base.as_str())?
            .strip_prefix(folder)?
            .strip_prefix('/')
    }

    /// A key of no cluster: the names of clusters contain a tilde.
    pub(crate) fn baseline(&self, name: &str) -> Bytes {
        format!("{}/baseline/{name}", self.prefix).into()
    }

    fn at(&self, name: &str) -> Bytes {
        format!("{}{name}", self.base).into()
    }

    /// All keys of one folder. Zero is the character after the slash.
    fn all(&self, folder: &str) -> (Bytes, Bytes) {
        (
            self.at(&format!("{folder}/")),
            self.at(&format!("{folder}0")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_contain_their_own_keys_and_no_others() {
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
        assert!(!keys.baseline("a").text().starts_with(&keys.base));
    }
}
