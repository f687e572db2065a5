//! Every statement of the operations, prepared.

use futures_util::future::{try_join, try_join4};
use scylla::client::session::Session;
use scylla::errors::{ExecutionError, PrepareError};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};

use crate::config::CassandraConfig;
use crate::keys::{FENCE, HEARTBEATS, PARTS, SILOS, VERSION};

/// The statements of one session.
pub(crate) struct Statements {
    /// The whole cluster.
    pub(crate) all: PreparedStatement,
    /// Some of its rows by their keys.
    pub(crate) some: PreparedStatement,
    pub(crate) heartbeats: PreparedStatement,
    pub(crate) heartbeat: PreparedStatement,
    /// What a commit does to the version row, with its conditions.
    pub(crate) advance: PreparedStatement,
    pub(crate) insert: PreparedStatement,
    pub(crate) update: PreparedStatement,
    pub(crate) remove: PreparedStatement,
    pub(crate) begin: PreparedStatement,
    pub(crate) mark: PreparedStatement,
    /// The same for a damaged version row.
    pub(crate) mark_damaged: PreparedStatement,
    pub(crate) unmark: PreparedStatement,
    /// A silo's heartbeat or the cluster's cell, with the writer's timestamp.
    pub(crate) write_heartbeat: PreparedStatement,
    /// The timestamp of one heartbeat or of the cell.
    pub(crate) heartbeat_time: PreparedStatement,
    /// The timestamp of each heartbeat.
    pub(crate) heartbeat_times: PreparedStatement,
    /// One heartbeat, with the timestamp that it was read with.
    pub(crate) remove_heartbeat: PreparedStatement,
    /// For the baseline, which has its own partitions: with the servers' timestamps.
    pub(crate) write_baseline: PreparedStatement,
    pub(crate) remove_all_heartbeats: PreparedStatement,
}

impl Statements {
    /// # Errors
    /// Also if the tables are missing.
    pub(crate) async fn prepare(
        session: &Session,
        config: &CassandraConfig,
    ) -> Result<Self, ExecutionError> {
        let (silos, heartbeats) = (
            format!("\"{}\".{SILOS}", config.keyspace),
            format!("\"{}\".{HEARTBEATS}", config.keyspace),
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
        // Reads of rows that transactions write are transactions themselves.
        let decided = |text: String| prepare(text, serially);
        let prepare = |text: String| prepare(text, quorum);
        let (all, some, heartbeats_of, heartbeat) = try_join4(
            decided(format!(
                "SELECT silo, body, {PARTS} FROM {silos} WHERE cluster = ?"
            )),
            decided(format!(
                "SELECT silo, body, {PARTS} FROM {silos} WHERE cluster = ? AND silo IN ?"
            )),
            prepare(format!(
                "SELECT silo, heartbeat FROM {heartbeats} WHERE cluster = ?"
            )),
            prepare(format!(
                "SELECT silo, heartbeat FROM {heartbeats} WHERE cluster = ? AND silo = ?"
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
                "INSERT INTO {silos} (cluster, silo, table_id, version, commit_id, row_count, layout, min_layout, settings, core, serial) VALUES \
                 (?, '{VERSION}', ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
            )),
            prepare(format!("UPDATE {silos} SET deleting = true WHERE {of_version} IF min_layout <= ? AND serial = ?")),
            prepare(format!("UPDATE {silos} SET deleting = true WHERE {of_version} IF {fence}")),
            prepare(format!("DELETE FROM {silos} WHERE {of_version} IF deleting = true")),
        )
        .await?;
        let (write_heartbeat, heartbeat_time, heartbeat_times, remove_heartbeat) = try_join4(
            prepare(format!(
                "INSERT INTO {heartbeats} (cluster, silo, heartbeat) VALUES (?, ?, ?) USING TIMESTAMP ?"
            )),
            prepare(format!(
                "SELECT WRITETIME(heartbeat) AS written FROM {heartbeats} WHERE cluster = ? AND silo = ?"
            )),
            prepare(format!(
                "SELECT silo, WRITETIME(heartbeat) AS written FROM {heartbeats} WHERE cluster = ?"
            )),
            prepare(format!(
                "DELETE FROM {heartbeats} USING TIMESTAMP ? WHERE cluster = ? AND silo = ?"
            )),
        )
        .await?;
        let (write_baseline, remove_all_heartbeats) = try_join(
            prepare(format!(
                "INSERT INTO {heartbeats} (cluster, silo, heartbeat) VALUES (?, ?, ?)"
            )),
            prepare(format!("DELETE FROM {heartbeats} WHERE cluster = ?")),
        )
        .await?;
        Ok(Self {
            all,
            some,
            heartbeats: heartbeats_of,
            heartbeat,
            advance,
            insert,
            update,
            remove,
            begin,
            mark,
            mark_damaged,
            unmark,
            write_heartbeat,
            heartbeat_time,
            heartbeat_times,
            remove_heartbeat,
            write_baseline,
            remove_all_heartbeats,
        })
    }
}
