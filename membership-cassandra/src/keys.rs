//! Names of tables, rows and columns.
//!
//! The version row is a row of its own, under a key that no silo has. Static columns would be sent
//! with every row of an answer.

/// The table of version rows and rows.
pub(crate) const SILOS: &str = "silos";
/// The table of heartbeats.
pub(crate) const HEARTBEATS: &str = "heartbeats";
/// The key of the version row. The key of a silo begins with an address.
pub(crate) const VERSION: &str = "version";
/// The key of the cluster's cell, among the heartbeats.
pub(crate) const CELL: &str = "cluster";

/// The columns of a version row, in the order in which all of them are read.
pub(crate) const PARTS: &str = "table_id, version, commit_id, row_count, layout, min_layout, settings, core, deleting, extra, serial, recent";

/// The columns that distinguish one state of a version row from another, also of a damaged one: its
/// mark for deletion has their values as conditions.
pub(crate) const FENCE: [&str; 5] = ["table_id", "version", "commit_id", "min_layout", "serial"];

/// The columns of both tables with their types.
pub(crate) const COLUMNS: &[(&str, &str, &str)] = &[
    (SILOS, "cluster", "text"),
    (SILOS, "silo", "text"),
    (SILOS, "body", "text"),
    (SILOS, "table_id", "text"),
    (SILOS, "version", "bigint"),
    (SILOS, "commit_id", "text"),
    (SILOS, "row_count", "bigint"),
    (SILOS, "layout", "int"),
    (SILOS, "min_layout", "int"),
    (SILOS, "settings", "text"),
    (SILOS, "core", "text"),
    (SILOS, "deleting", "boolean"),
    (SILOS, "extra", "text"),
    (SILOS, "serial", "text"),
    (SILOS, "recent", "map<int, text>"),
    (HEARTBEATS, "cluster", "text"),
    (HEARTBEATS, "silo", "text"),
    (HEARTBEATS, "heartbeat", "text"),
];
