//! Keyspace, tables, and every statement.
//!
//! The version row is a row of its own under a key that no silo has, and not in static columns: those come with every row of an answer.

use futures_util::future::try_join4;
use scylla::client::session::Session;
use scylla::errors::{ExecutionError, PrepareError};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};

use crate::config::CassandraConfig;

/// The table of version rows and rows.
pub(crate) const SILOS: &str = "silos";
/// The table of heartbeats.
pub(crate) const HEARTBEATS: &str = "heartbeats";
/// The key of the version row; and, among heartbeats, that of the cluster's cell. A silo's key begins with an address.
pub(crate) const VERSION: &str = "version";
pub(crate) const CELL: &str = "cluster";

/// What a version row is made of, in this order wherever all of it is read.
pub(crate) const PARTS: &str = "table_id, version, commit_id, row_count, layout, min_layout, settings, core, deleting, extra, serial, recent";

/// What tells one state of a version row from another, also where it is damaged: its marking for deletion hangs on these as they were read.
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
    (HEARTBEATS, "beat", "text"),
];

pub(crate) fn keyspace(name: &str, replication: &str) -> String {
    format!(
        "CREATE KEYSPACE IF NOT EXISTS \"{name}\" WITH replication = {{'class': 'NetworkTopologyStrategy', {replication}}} AND \
         durable_writes = true"
    )
}

pub(crate) fn tables(keyspace: &str) -> [String; 2] {
    [SILOS, HEARTBEATS].map(|table| {
        let columns: Vec<String> =
            COLUMNS.iter().filter(|(of, ..)| *of == table).map(|(_, name, kind)| format!("  {name} {kind}")).collect();
        format!("CREATE TABLE IF NOT EXISTS \"{keyspace}\".{table} (\n{},\n  PRIMARY KEY (cluster, silo)\n)", columns.join(",\n"))
    })
}

/// What every operation sends, prepared.
pub(crate) struct Statements {
    /// The whole cluster.
    pub(crate) all: PreparedStatement,
    /// Some of its rows by their keys.
    pub(crate) some: PreparedStatement,
    pub(crate) beats: PreparedStatement,
    pub(crate) beat: PreparedStatement,
    /// What a commit does to the version row, and on what conditions.
    pub(crate) advance: PreparedStatement,
    pub(crate) insert: PreparedStatement,
    pub(crate) update: PreparedStatement,
    pub(crate) remove: PreparedStatement,
    pub(crate) begin: PreparedStatement,
    pub(crate) mark: PreparedStatement,
    /// The same for a version row that cannot be read.
    pub(crate) mark_damaged: PreparedStatement,
    pub(crate) unmark: PreparedStatement,
    /// A silo's heartbeat, with the time at which it says it.
    pub(crate) write_beat: PreparedStatement,
    /// The cluster's cell, which many write: with the time of the server.
    pub(crate) write_cell: PreparedStatement,
    /// With what time each was written.
    pub(crate) beat_times: PreparedStatement,
    /// One as it was seen, with the time it was written with.
    pub(crate) remove_beat: PreparedStatement,
    /// For the yardstick, whose partitions are its own.
    pub(crate) remove_all_beats: PreparedStatement,
}

impl Statements {
    /// # Errors
    /// Also where the tables are missing.
    pub(crate) async fn prepare(
        session: &Session,
        config: &CassandraConfig,
    ) -> Result<Self, ExecutionError> {
        let (silos, beats) = (
            format!("\"{}\".{SILOS}", config.keyspace()),
            format!("\"{}\".{HEARTBEATS}", config.keyspace()),
        );
        let (serial, quorum) = config.consistency();
        let serially = match serial {
            SerialConsistency::Serial => Consistency::Serial,
            SerialConsistency::LocalSerial => Consistency::LocalSerial,
        };
        let of_version = format!("cluster = ? AND silo = '{VERSION}'");
        let prepare = |text: String, level: Consistency| async move {
            let mut statement = session.prepare(text).await?;
            statement.set_consistency(level);
            statement.set_serial_consistency(Some(serial));
            Ok::<_, PrepareError>(statement)
        };
        // Reads of what transactions write are transactions themselves.
        let decided = |text: String| prepare(text, serially);
        let prepare = |text: String| prepare(text, quorum);
        let (all, some, beats_of, beat) = try_join4(
            decided(format!(
                "SELECT silo, body, {PARTS} FROM {silos} WHERE cluster = ?"
            )),
            decided(format!(
                "SELECT silo, body, {PARTS} FROM {silos} WHERE cluster = ? AND silo IN ?"
            )),
            prepare(format!("SELECT silo, beat FROM {beats} WHERE cluster = ?")),
            prepare(format!(
                "SELECT silo, beat FROM {beats} WHERE cluster = ? AND silo = ?"
            )),
        )
        .await?;
        let (advance, insert, update, remove) = try_join4(
            prepare(format!(
                "UPDATE {silos} SET version = ?, commit_id = ?, row_count = ?, layout = ?, recent[?] = ?, settings = ?, core = ? WHERE \
                 {of_version} IF table_id = ? AND version = ? AND commit_id = ? AND min_layout <= ? AND row_count <= ? AND serial = ? AND \
                 deleting = null"
            )),
            prepare(format!("INSERT INTO {silos} (cluster, silo, body) VALUES (?, ?, ?) IF NOT EXISTS")),
            prepare(format!("UPDATE {silos} SET body = ? WHERE cluster = ? AND silo = ? IF EXISTS")),
            prepare(format!("DELETE FROM {silos} WHERE cluster = ? AND silo = ? IF EXISTS")),
        )
        .await?;
        let fence = FENCE.map(|name| format!("{name} = ?")).join(" AND ");
        let (begin, mark, mark_damaged, unmark) = try_join4(
            prepare(format!(
                "INSERT INTO {silos} (cluster, silo, table_id, version, commit_id, row_count, layout, min_layout, settings, serial) VALUES \
                 (?, '{VERSION}', ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
            )),
            prepare(format!("UPDATE {silos} SET deleting = true WHERE {of_version} IF min_layout <= ? AND serial = ?")),
            prepare(format!("UPDATE {silos} SET deleting = true WHERE {of_version} IF {fence}")),
            prepare(format!("DELETE FROM {silos} WHERE {of_version} IF deleting = true")),
        )
        .await?;
        let (write_beat, write_cell, beat_times, remove_beat) = try_join4(
            prepare(format!(
                "INSERT INTO {beats} (cluster, silo, beat) VALUES (?, ?, ?) USING TIMESTAMP ?"
            )),
            prepare(format!(
                "INSERT INTO {beats} (cluster, silo, beat) VALUES (?, ?, ?)"
            )),
            prepare(format!(
                "SELECT silo, WRITETIME(beat) AS written FROM {beats} WHERE cluster = ?"
            )),
            prepare(format!(
                "DELETE FROM {beats} USING TIMESTAMP ? WHERE cluster = ? AND silo = ?"
            )),
        )
        .await?;
        let remove_all_beats = prepare(format!("DELETE FROM {beats} WHERE cluster = ?")).await?;
        Ok(Self {
            all,
            some,
            beats: beats_of,
            beat,
            advance,
            insert,
            update,
            remove,
            begin,
            mark,
            mark_damaged,
            unmark,
            write_beat,
            write_cell,
            beat_times,
            remove_beat,
            remove_all_beats,
        })
    }
}
