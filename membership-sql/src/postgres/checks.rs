//! Checks of a new connection: whether the server can keep the contract, and whether the tables are
//! ours.

use std::sync::atomic::Ordering;

use membership_core::{Guarantees, TableError, TableErrorKind as Kind};
use tokio_postgres::error::SqlState;

use super::STORE;
use super::client::Client;
use super::config::{PostgresFailover, PostgresSynchronousCommit};
use super::connection::{CANARY, Connection, simple};
use super::error::{Phase, error, from_pg};
use super::schema;
use super::sql::STANDBYS;
use crate::shared::guarantees;
use crate::shared::layout::{TABLES, check_marks};

/// The oldest server with the `plan_cache_mode` and the CTEs that the statements need.
const MIN_SERVER: u32 = 120_000;

/// Before version 12 `plan_cache_mode` is unknown, and the error should name the version.
const SERVER: &str = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only'),
    current_setting('transaction_isolation'), current_setting('server_version_num'),
    current_setting('server_encoding'), current_setting('fsync'),
    current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
    {standbys}, current_setting('plan_cache_mode', true)";

impl Client {
    /// Refuses a server that cannot keep the contract.
    ///
    /// # Errors
    /// `Configuration`, or the error that the server returns.
    pub(super) async fn check_server(&self, connection: &Connection) -> Result<(), TableError> {
        let answer = simple(&connection.driver, &SERVER.replace("{standbys}", STANDBYS)).await;
        let rows = answer.map_err(|e| from_pg(e, Phase::Before))?;
        let row: Vec<&str> = rows.iter().flatten().map(String::as_str).collect();
        let wrong = |message: &str| Err(error(Kind::Configuration, message));
        let &[
            recovery,
            read_only,
            isolation,
            version,
            encoding,
            fsync,
            standbys,
            when,
            senders,
            canary,
        ] = row.as_slice()
        else {
            return wrong("the server does not answer like PostgreSQL");
        };
        let config = &self.config;
        if version.parse::<u32>().unwrap_or(0) < MIN_SERVER {
            let needed = "PostgreSQL 12 or newer is needed";
            return wrong(&format!("the server's version is {version}; {needed}"));
        }
        if recovery != "f" {
            return wrong(
                "the server is a standby: name the primary, or several hosts, of which the one that takes writes is used",
            );
        }
        if read_only != "off" {
            return wrong(
                "the session is read-only: clear `default_transaction_read_only` for this user, database or server",
            );
        }
        if encoding != "UTF8" {
            return wrong(&format!(
                "the database's encoding is {encoding}: use one with UTF8"
            ));
        }
        if !config.pooler {
            if canary != CANARY || when != config.synchronous_commit.as_str() {
                return wrong("a pooler drops the session's settings: use `pooler=true`");
            }
            if isolation != "read committed" {
                let advice = "and cannot be changed: use `pooler=true`";
                return wrong(&format!("the session's isolation is {isolation}, {advice}"));
            }
        }
        let local = config.synchronous_commit == PostgresSynchronousCommit::Local;
        let confirmed = fsync == "on" && !standbys.is_empty() && !local;
        self.confirmed.store(confirmed, Ordering::Relaxed);
        self.replicas.note(senders != "0");
        Ok(())
    }

    /// Whether this is the only host, and has had no standbys for a while.
    fn is_alone(&self) -> bool {
        self.config.hosts() == 1 && self.replicas.none()
    }

    /// Refuses the answer to a read with a barrier if another server may have taken over.
    ///
    /// # Errors
    /// `Unavailable`
    pub(super) fn check_barrier(
        &self,
        (confirmed, standbys): (bool, i64),
    ) -> Result<(), TableError> {
        self.replicas.note(standbys > 0);
        if confirmed || self.is_alone() || self.config.failover != PostgresFailover::Detect {
            return Ok(());
        }
        let message = "another server may be the primary by now, and no synchronous standby confirms that this one is: set \
            synchronous_standby_names, or failover=safe if no asynchronous standby is ever promoted, \
            or failover=may_lose if the primary is stopped before one is";
        Err(error(Kind::Unavailable, message))
    }

    pub(super) fn guarantees(&self) -> Guarantees {
        let confirmed = self.confirmed.load(Ordering::Relaxed);
        match self.config.failover {
            PostgresFailover::Safe => guarantees(true, true),
            PostgresFailover::MayLose => guarantees(true, false),
            PostgresFailover::Detect => guarantees(self.is_alone() && !confirmed, confirmed),
        }
    }

    /// Checks whether the tables exist and are ours, and prepares the usual statements.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`, or the error that the server returns.
    pub(super) async fn check_tables(&self, connection: &Connection) -> Result<(), TableError> {
        connection.has_tables.store(false, Ordering::Relaxed);
        let select = format!("SELECT {}", schema::presence(&self.names));
        let answer = simple(&connection.driver, &select).await;
        let rows = answer.map_err(|e| from_pg(e, Phase::Before))?;
        let found: Vec<bool> = rows.iter().flatten().map(|column| column == "t").collect();
        if !found.contains(&true) {
            return Ok(());
        }
        let names = |there: bool| {
            let all = TABLES.iter().zip(&found).filter(|(_, f)| **f == there);
            let names: Vec<String> = all.map(|(name, _)| self.names.table(name)).collect();
            names.join(", ")
        };
        let foreign = |message: String| Err(error(Kind::ForeignTable, message));
        if found.first() != Some(&true) {
            let names = names(true);
            return foreign(format!("{names} exists without the mark of this project"));
        }
        let meta = self.names.table("meta");
        let select = self.names.put_into("SELECT name, value FROM {meta}");
        let marks = match simple(&connection.driver, &select).await {
            Err(e) if matches!(e.code().map(SqlState::code), Some("42703" | "42809")) => {
                return foreign(format!("{meta} is not a table of this project"));
            }
            answer => answer.map_err(|e| from_pg(e, Phase::Before))?,
        };
        check_marks(STORE, &meta, Kind::Damaged, |name| {
            let mark = marks
                .iter()
                .find(|row| row.first().is_some_and(|n| n == name));
            mark.and_then(|row| row.get(1)).cloned()
        })?;
        if found.contains(&false) {
            let message = format!("{} is missing, other tables exist", names(false));
            return Err(error(Kind::Damaged, message));
        }
        connection.has_tables.store(true, Ordering::Relaxed);
        self.prepare_usual(connection).await;
        Ok(())
    }
}
