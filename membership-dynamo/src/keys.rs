//! Names of attributes and items.
//!
//! The items of a partition are sorted by the bytes of their names: heartbeats, the version row,
//! rows. One request can ask for the first two or for the last two, and the version row always
//! comes before the rows.

use membership_core::RECENT_COMMITS;

/// The partition key: which cluster.
pub(crate) const CLUSTER: &str = "cluster";
/// The sort key: which of its items.
pub(crate) const ITEM: &str = "item";

/// The name of the version row; after all heartbeats and before all rows.
pub(crate) const VERSION_ROW: &str = "row.version";
/// The prefix of rows.
pub(crate) const ROW: &str = "row/";
/// The prefix of the version row and of rows.
pub(crate) const ROWS: &str = "row";
/// The prefix of heartbeats.
pub(crate) const HEARTBEAT: &str = "heartbeat/";
/// The prefix of heartbeats and of the cluster's cell.
pub(crate) const HEARTBEATS: &str = "heartbeat";
/// The name of the cluster's cell.
pub(crate) const CELL: &str = "heartbeat.cluster";

/// The attribute with a row's text.
pub(crate) const BODY: &str = "body";
/// The attribute with a heartbeat's text.
pub(crate) const HEARTBEAT_TEXT: &str = "heartbeat";
/// The attribute with the text of the cluster's cell.
pub(crate) const TEXT: &str = "text";
/// The attribute with the version at which a heartbeat's item was created.
pub(crate) const SINCE: &str = "since";

/// The item name of a row.
pub(crate) fn row(key: &str) -> String {
    format!("{ROW}{key}")
}

/// The item name of a silo's heartbeat.
pub(crate) fn heartbeat(key: &str) -> String {
    format!("{HEARTBEAT}{key}")
}

/// The attribute that holds the record of a version: sixteen attributes, used in turn.
pub(crate) fn record_attribute(version: u64) -> String {
    format!("recent_{}", version % RECENT_COMMITS as u64)
}
