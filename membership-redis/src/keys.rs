//! The keys of one cluster. Clause T9.

use membership_core::ClusterName;

/// Where the parts of a table are stored. All keys share what is in braces, and so a hash slot.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) version: String,
    pub(crate) rows: String,
    pub(crate) heartbeats: String,
    pub(crate) cell: String,
    pub(crate) baseline: String,
    pub(crate) channel: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str, cluster: &ClusterName) -> Self {
        let key = |what: &str| format!("{prefix}:{{{}}}:{what}", cluster.store_key());
        Self {
            version: key("version"),
            rows: key("rows"),
            heartbeats: key("heartbeats"),
            cell: key("cell"),
            baseline: key("baseline"),
            channel: key("hints"),
        }
    }
}
