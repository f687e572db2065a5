//! The settings of a session, and what a server must be like: its version, role and settings.

use membership_core::{TableError, TableErrorKind as Kind};
use mysql_async::Row;

use super::columns::text;
use super::config::MysqlConfig;
use super::error::error;

/// The smallest usable packet: a version row takes up to 131 KiB, twice as much in hexadecimal
/// digits.
const MIN_PACKET: usize = 1 << 20;

/// What is known of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The largest packet that it accepts, in bytes.
    pub(super) packet: usize,
    /// The setting with which a crash loses acknowledged commits, if there is one.
    pub(super) lossy: Option<String>,
    /// Whether it shows commits before they survive a crash; see [`super::sql::settle`].
    pub(super) early: bool,
    /// Whether it can have replicas of its binary log.
    pub(super) logs: bool,
    /// Whether it acknowledges a commit only when a replica has it, for as long as that takes.
    pub(super) semi_sync: bool,
    /// Whether it is in a group (Galera, group replication), whose members agree on each commit and
    /// whose reads wait for the commits of the others.
    pub(super) group: bool,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            packet: MIN_PACKET,
            lossy: None,
            early: false,
            logs: true,
            semi_sync: false,
            group: false,
        }
    }
}

/// A server that waits for a replica for less may go on without one.
const SEMI_SYNC: u64 = 24 * 3600 * 1000;

/// How long a connection may be idle.
pub(super) const IDLE_SECONDS: u32 = 28_800;

/// The settings that we rely on. A server may have other defaults.
pub(super) fn settings(config: &MysqlConfig) -> String {
    let seconds = config.timeout().as_secs();
    format!(
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin; \
         SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, completion_type = 0, sql_safe_updates = 0, \
         sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_auto_is_null = 0, \
         innodb_lock_wait_timeout = {lock}, lock_wait_timeout = {metadata}, wait_timeout = {IDLE_SECONDS}; \
         SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",
        // The server's answer comes before the operation's time is over, if possible.
        lock = (seconds / 2).max(1),
        metadata = seconds.max(1),
    )
}

pub(super) const VARIABLES: &str = "SHOW SESSION VARIABLES WHERE Variable_name IN ('version', 'max_allowed_packet', 'innodb_flush_log_at_trx_commit', \
     'sync_binlog', 'log_bin', 'binlog_format', 'read_only', 'super_read_only', 'innodb_read_only', 'transaction_isolation', 'tx_isolation', \
     'wsrep_on', 'autocommit', 'group_replication_consistency', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_master_timeout', \
     'rpl_semi_sync_source_enabled', 'rpl_semi_sync_source_timeout')";

/// Reads wait for the commits that other members of a group have acknowledged.
pub(super) fn fresh_reads(variables: &Variables<'_>) -> Option<&'static str> {
    if variables.is_on("wsrep_on") {
        return Some("SET SESSION wsrep_sync_wait = 1");
    }
    let group = variables.get("group_replication_consistency");
    group.map(|_| "SET SESSION group_replication_consistency = 'BEFORE'")
}

/// Whether this server is a member of its replication group, or only could be.
pub(super) const IS_MEMBER: &str = "SELECT COUNT(*) FROM performance_schema.replication_group_members \
     WHERE MEMBER_ID = @@server_uuid AND MEMBER_STATE = 'ONLINE'";

/// The statement that shows replicas, and whether its answer does.
pub(super) fn replicas(mariadb: bool) -> (&'static str, fn(&[Row]) -> bool) {
    match mariadb {
        true => ("SHOW GLOBAL STATUS LIKE 'Slaves_connected'", |rows| {
            rows.first()
                .and_then(|row| text(row, 1))
                .is_none_or(|n| n != "0")
        }),
        false => ("SHOW REPLICAS", |rows| !rows.is_empty()),
    }
}

/// The answer to [`VARIABLES`].
pub(super) struct Variables<'a>(pub(super) &'a [Row]);

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        let row = self
            .0
            .iter()
            .find(|row| text(row, 0).is_some_and(|n| n.eq_ignore_ascii_case(name)))?;
        text(row, 1)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| is_on(&value))
    }

    /// Whether it is MariaDB.
    ///
    /// # Errors
    /// `Configuration`: too old, or another product.
    pub(super) fn check_version(&self) -> Result<bool, TableError> {
        let version = self.get("version").unwrap_or_default();
        let lower = version.to_ascii_lowercase();
        let mariadb = lower.contains("mariadb");
        let number = lower.strip_prefix("5.5.5-").unwrap_or(&lower);
        let mut parts = number
            .split(|c: char| !c.is_ascii_digit())
            .map(|p| p.parse::<u32>().unwrap_or(0));
        let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        let least = if mariadb { (10, 6) } else { (8, 0) };
        if lower.contains("tidb") {
            let message = "TiDB is not MySQL: its transactions follow other rules";
            return Err(error(Kind::Configuration, message));
        }
        if found < least {
            let message =
                format!("the server is version {version}; MySQL 8.0 or MariaDB 10.6 is needed");
            return Err(error(Kind::Configuration, message));
        }
        Ok(mariadb)
    }

    /// # Errors
    /// `Unavailable` for a read-only server, `Configuration` for settings that cannot be used.
    pub(super) fn check(&self) -> Result<(), TableError> {
        if ["read_only", "super_read_only", "innodb_read_only"]
            .iter()
            .any(|name| self.get(name).is_some_and(|v| is_read_only(&v)))
        {
            let message =
                "the server is read-only, like a replica: the URL must lead to the primary";
            return Err(error(Kind::Unavailable, message));
        }
        let isolation = self
            .get("transaction_isolation")
            .or_else(|| self.get("tx_isolation"))
            .unwrap_or_default();
        if isolation != "REPEATABLE-READ" || !self.is_on("autocommit") {
            let message = format!(
                "the connection drops its settings: its isolation is {isolation}; use pooler=true behind a proxy"
            );
            return Err(error(Kind::Configuration, message));
        }
        if self.is_on("log_bin") && self.get("binlog_format").is_some_and(|f| f == "STATEMENT") {
            return Err(error(
                Kind::Configuration,
                "binlog_format is STATEMENT: MIXED or ROW is needed",
            ));
        }
        Ok(())
    }

    /// # Errors
    /// `Configuration`: packets too small, or a crash can lose commits and that is refused.
    pub(super) fn facts(&self, config: &MysqlConfig) -> Result<Facts, TableError> {
        let packet = self
            .get("max_allowed_packet")
            .and_then(|p| p.parse().ok())
            .unwrap_or(MIN_PACKET);
        if packet < MIN_PACKET {
            let message = format!(
                "max_allowed_packet of the server is {packet}; at least {MIN_PACKET} is needed"
            );
            return Err(error(Kind::Configuration, message));
        }
        let number = |name: &str| self.get(name).and_then(|v| v.parse::<u32>().ok());
        let flush = number("innodb_flush_log_at_trx_commit")
            .filter(|n| *n != 1)
            .map(|n| format!("innodb_flush_log_at_trx_commit = {n}"));
        let binlog = number("sync_binlog")
            .filter(|n| *n != 1 && self.is_on("log_bin"))
            .map(|n| format!("sync_binlog = {n} with a binary log"));
        let lossy = flush.or(binlog);
        if let Some(why) = &lossy
            && config.must_be_durable()
        {
            let message = format!(
                "the server may lose acknowledged commits in a crash: {why}; 1 is needed, or require_durable=false"
            );
            return Err(error(Kind::Configuration, message));
        }
        // Commits that may be lost anyway need no settling.
        let early = lossy.is_none() && !self.is_on("log_bin");
        let semi_sync = ["master", "source"].iter().any(|name| {
            let timeout = self.get(&format!("rpl_semi_sync_{name}_timeout"));
            self.is_on(&format!("rpl_semi_sync_{name}_enabled"))
                && timeout.is_some_and(|t| t.parse().is_ok_and(|t: u64| t >= SEMI_SYNC))
        });
        Ok(Facts {
            packet,
            lossy,
            early,
            logs: self.is_on("log_bin"),
            semi_sync,
            group: self.is_on("wsrep_on"),
        })
    }
}

fn is_on(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("on")
}

/// MariaDB 12 has more values than on and off; all but off refuse some writes.
pub(super) fn is_read_only(value: &str) -> bool {
    !(value.is_empty() || value == "0" || value.eq_ignore_ascii_case("off"))
}
