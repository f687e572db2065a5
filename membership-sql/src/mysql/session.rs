//! One connection: what is set on it, what is asked of the server before it is used, and how it ends.
//!
//! A connection that was left in the middle of something is never used again (clause T14): it is closed, and the server rolls back.

use std::task::{Context, Waker};
use std::time::Instant;

use membership_core::{TableError, TableErrorKind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, Row, Value};

use super::error::{NO_SUCH_TABLE, code, ends_connection, error, from_mysql};
use super::{MysqlConfig, MysqlProcedure, MysqlSslMode, procedure, schema};

/// What one statement of a flight gave.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// Rows that it changed.
    pub(super) affected: u64,
    /// Rows that it returned.
    pub(super) rows: Vec<Row>,
}

/// A flight that failed at its statement number `at`, counted from 0: all before it have done what they do.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) at: usize,
    pub(super) error: Error,
}

/// What the server said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The largest packet that it takes, in bytes.
    pub(super) packet: usize,
    /// Whether its settings keep acknowledged commits through a crash; if not, which of them.
    pub(super) lossy: Option<String>,
    /// Whether it shows commits before they would survive a crash; see [`super::sql::settle`].
    pub(super) early: bool,
}

pub(super) struct Session {
    conn: Option<Conn>,
    /// Left in the middle, or of no more use.
    broken: bool,
    /// The number of the times at which connections were found broken, when this one was made.
    pub(super) generation: u64,
    /// When it was used last.
    pub(super) used: Instant,
    /// The tables are there and are ours.
    pub(super) schema: bool,
    /// The procedure is there and may be called.
    pub(super) procedure: bool,
    pub(super) facts: Facts,
    /// What each operation sends first, where connections remember nothing.
    prelude: String,
    /// Said before and after a time in which the connection holds locks while the server waits for us: a client that dies without a word
    /// must not hold them for hours.
    pub(super) watch: (String, String),
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        // One poll says goodbye if the socket takes it, and marks the connection as closed, so that dropping the future closes the socket at
        // once. Left to itself the client library would first wait for the answers that are still due, from a server that may be frozen.
        let mut goodbye = std::pin::pin!(conn.disconnect());
        let _ = goodbye
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// The smallest packet with which a commit makes sense: a version row takes up to 131 KiB, twice as much as hexadecimal digits.
const MIN_PACKET: usize = 1 << 20;

impl Session {
    /// Connects, sets what is relied on, and refuses a server that cannot be used.
    ///
    /// # Errors
    /// `Unavailable`, also for a server that is read-only; `PermissionDenied`; `Configuration`; `ForeignTable`, `NewerLayout`.
    pub(super) async fn connect(config: &MysqlConfig, generation: u64) -> Result<Self, TableError> {
        // Several providers may do this; whoever is first decides, and all choose the same.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let tls = config.tls() != MysqlSslMode::Disabled;
        let conn = match Conn::new(config.opts(tls)).await {
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer))
                if config.tls() == MysqlSslMode::Preferred =>
            {
                Conn::new(config.opts(false)).await
            }
            done => done,
        };
        let conn = conn.map_err(|e| refused(e, tls))?;
        let mut session = Self {
            conn: Some(conn),
            broken: false,
            generation,
            used: Instant::now(),
            schema: false,
            procedure: false,
            facts: Facts {
                packet: MIN_PACKET,
                lossy: None,
                early: false,
            },
            prelude: String::new(),
            watch: Default::default(),
        };
        let settings = settings(config);
        let sets = session
            .flight(&format!("{settings}; {VARIABLES}"))
            .await
            .map_err(|t| from_mysql(t.error))?;
        let variables = Variables(sets.last().map(|s| s.rows.as_slice()).unwrap_or_default());
        let galera = variables.is_on("wsrep_on");
        let mariadb = variables.check_version()?;
        variables.check()?;
        session.facts = variables.facts(config)?;
        let seconds = config.timeout().as_secs().max(1) + 1;
        let mut more = Vec::new();
        if galera {
            // Reads wait for what other nodes have acknowledged.
            more.push("SET SESSION wsrep_sync_wait = 1".to_owned());
        }
        if config.is_pooled() {
            session.prelude = std::iter::once(settings)
                .chain(more.iter().cloned())
                .map(|s| s + "; ")
                .collect();
        } else if mariadb {
            more.push(format!("SET SESSION idle_transaction_timeout = {seconds}"));
        } else {
            session.watch = (
                format!("SET SESSION wait_timeout = {seconds}; "),
                format!("; SET SESSION wait_timeout = {IDLE_SECONDS}"),
            );
        }
        if !more.is_empty() {
            session
                .flight(&more.join("; "))
                .await
                .map_err(|t| from_mysql(t.error))?;
        }
        session.look_at_schema().await?;
        if config.procedure_use() != MysqlProcedure::Never {
            session.procedure = procedure::present(&mut session).await?;
            if !session.procedure
                && config.procedure_use() == MysqlProcedure::Require
                && session.schema
            {
                return Err(procedure::missing());
            }
        }
        Ok(session)
    }

    /// Whether it may be used again.
    pub(super) const fn is_usable(&self) -> bool {
        !self.broken
    }

    /// Not to be used again.
    pub(super) const fn discard(&mut self) {
        self.broken = true;
    }

    /// Looks whether the tables are there and are ours; remembers that they are.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Configuration`, or what the server says.
    pub(super) async fn look_at_schema(&mut self) -> Result<bool, TableError> {
        if !self.schema {
            self.schema = schema::present(self).await?;
        }
        Ok(self.schema)
    }

    /// The same, although they were seen.
    ///
    /// # Errors
    /// As [`look_at_schema`](Self::look_at_schema).
    pub(super) async fn look_at_schema_again(&mut self) -> Result<bool, TableError> {
        self.schema = false;
        self.look_at_schema().await
    }

    /// The first flight of an operation: `sql`, behind what is relied on.
    pub(super) async fn begin(&mut self, sql: &str) -> Result<Vec<Set>, Trouble> {
        if self.prelude.is_empty() {
            return self.flight(sql).await;
        }
        let before = self.prelude.matches("; ").count();
        let mut sets = match self.flight(&format!("{}{sql}", self.prelude)).await {
            Err(t) => {
                return Err(Trouble {
                    at: t.at.saturating_sub(before),
                    ..t
                });
            }
            Ok(sets) => sets,
        };
        sets.drain(..before.min(sets.len()));
        Ok(sets)
    }

    /// Sends statements in one packet and takes all their answers: one round trip. The server stops at the first that fails.
    pub(super) async fn flight(&mut self, sql: &str) -> Result<Vec<Set>, Trouble> {
        let Some(conn) = self.conn.as_mut() else {
            return Err(Trouble {
                at: 0,
                error: DriverError::ConnectionClosed.into(),
            });
        };
        // What is dropped from here on is left in the middle.
        let was_broken = std::mem::replace(&mut self.broken, true);
        let answer = flight(conn, sql).await;
        self.used = Instant::now();
        let ends = match &answer {
            Ok(_) => false,
            Err(trouble) => {
                if code(&trouble.error) == Some(NO_SUCH_TABLE) {
                    self.schema = false;
                }
                ends_connection(&trouble.error)
            }
        };
        self.broken = was_broken || ends;
        answer
    }

    /// Refuses what is larger than the server takes, before it is sent.
    pub(super) fn fits(&self, sql: &str) -> Result<(), TableError> {
        if sql.len() + self.prelude.len() < self.facts.packet {
            return Ok(());
        }
        let message = format!(
            "it would be a packet of {} bytes, and max_allowed_packet of the server is {}",
            sql.len(),
            self.facts.packet
        );
        Err(error(TableErrorKind::LimitExceeded, message))
    }

    /// Ends a transaction that must not be; where that cannot be said, the connection is closed, which does the same.
    pub(super) async fn roll_back(&mut self) {
        let sql = format!("ROLLBACK{}", self.watch.1);
        if self.broken || self.flight(&sql).await.is_err() {
            self.broken = true;
        }
    }
}

async fn flight(conn: &mut Conn, sql: &str) -> Result<Vec<Set>, Trouble> {
    let mut answers = conn
        .query_iter(sql)
        .await
        .map_err(|error| Trouble { at: 0, error })?;
    let mut sets = Vec::new();
    // One turn for each statement that was answered with something else than an error.
    while answers.columns().is_some() {
        let affected = answers.affected_rows();
        let rows = answers.collect::<Row>().await.map_err(|error| Trouble {
            at: sets.len(),
            error,
        })?;
        sets.push(Set { affected, rows });
    }
    // The client library keeps the error of a later statement back until somebody asks for its rows.
    answers.collect::<Row>().await.map_err(|error| Trouble {
        at: sets.len(),
        error,
    })?;
    Ok(sets)
}

/// Why there is no connection, where how it was encrypted may have to do with it.
fn refused(e: Error, tls: bool) -> TableError {
    match &e {
        // A certificate that is not trusted does not become so by trying again.
        Error::Io(io) if tls && io.to_string().contains("certificate") => {
            let message = format!(
                "the server's certificate is refused ({io}): `ssl-ca` names the file with the authority that signed it, `ssl-mode` what is checked"
            );
            error(TableErrorKind::Configuration, message)
        }
        // What MariaDB answers, too, where it takes encrypted connections only.
        _ if !tls && code(&e) == Some(1045) => {
            let message = format!(
                "{}; or it takes encrypted connections only, and `ssl-mode` forbids them",
                from_mysql(e).message()
            );
            error(TableErrorKind::PermissionDenied, message)
        }
        _ => from_mysql(e),
    }
}

/// How long a connection of ours may rest.
const IDLE_SECONDS: u32 = 28_800;

/// What is relied on. Everything here has a default that the server's owner may have changed.
fn settings(config: &MysqlConfig) -> String {
    let seconds = config.timeout().as_secs();
    format!(
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin; \
         SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, completion_type = 0, sql_safe_updates = 0, \
         sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_auto_is_null = 0, \
         innodb_lock_wait_timeout = {lock}, lock_wait_timeout = {metadata}, wait_timeout = {IDLE_SECONDS}; \
         SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",
        // Answered before the operation's time is over, if there is time for it.
        lock = (seconds / 2).max(1),
        metadata = seconds.max(1),
    )
}

const VARIABLES: &str = "SHOW SESSION VARIABLES WHERE Variable_name IN ('version', 'max_allowed_packet', 'innodb_flush_log_at_trx_commit', \
     'sync_binlog', 'log_bin', 'binlog_format', 'read_only', 'super_read_only', 'innodb_read_only', 'transaction_isolation', 'tx_isolation', \
     'wsrep_on', 'autocommit')";

struct Variables<'a>(&'a [Row]);

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        let row = self
            .0
            .iter()
            .find(|row| text(row, 0).is_some_and(|n| n.eq_ignore_ascii_case(name)))?;
        text(row, 1)
    }

    fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| is_on(&value))
    }

    /// Whether it is MariaDB.
    fn check_version(&self) -> Result<bool, TableError> {
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
            return Err(error(
                TableErrorKind::Configuration,
                "TiDB is not MySQL: its transactions follow other rules",
            ));
        }
        if found < least {
            let message =
                format!("the server is version {version}; MySQL 8.0 or MariaDB 10.6 is needed");
            return Err(error(TableErrorKind::Configuration, message));
        }
        Ok(mariadb)
    }

    fn check(&self) -> Result<(), TableError> {
        if ["read_only", "super_read_only", "innodb_read_only"]
            .iter()
            .any(|name| self.get(name).is_some_and(|v| is_read_only(&v)))
        {
            let message = "the server is read-only: it is a replica, or was made one; the URL must lead to the primary";
            return Err(error(TableErrorKind::Unavailable, message));
        }
        let isolation = self
            .get("transaction_isolation")
            .or_else(|| self.get("tx_isolation"))
            .unwrap_or_default();
        if isolation != "REPEATABLE-READ" || !self.is_on("autocommit") {
            let message = format!(
                "the connection does not keep what is set on it: its isolation is {isolation}; set pooler=true if a proxy stands between"
            );
            return Err(error(TableErrorKind::Configuration, message));
        }
        if self.is_on("log_bin") && self.get("binlog_format").is_some_and(|f| f == "STATEMENT") {
            return Err(error(
                TableErrorKind::Configuration,
                "binlog_format is STATEMENT: MIXED or ROW is needed",
            ));
        }
        Ok(())
    }

    fn facts(&self, config: &MysqlConfig) -> Result<Facts, TableError> {
        let packet = self
            .get("max_allowed_packet")
            .and_then(|p| p.parse().ok())
            .unwrap_or(MIN_PACKET);
        if packet < MIN_PACKET {
            let message = format!(
                "max_allowed_packet of the server is {packet}; at least {MIN_PACKET} is needed"
            );
            return Err(error(TableErrorKind::Configuration, message));
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
            return Err(error(TableErrorKind::Configuration, message));
        }
        // What may be lost anyway needs no care.
        let early = lossy.is_none() && !self.is_on("log_bin");
        Ok(Facts {
            packet,
            lossy,
            early,
        })
    }
}

fn is_on(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("on")
}

/// MariaDB 12 has more values than on and off; all but off refuse somebody's writes.
pub(super) fn is_read_only(value: &str) -> bool {
    !(value.is_empty() || value == "0" || value.eq_ignore_ascii_case("off"))
}

/// A column as bytes; none when it is NULL.
pub(super) fn bytes(row: &Row, column: usize) -> Option<&[u8]> {
    match row.as_ref(column) {
        Some(Value::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

/// A column as text. What is not UTF-8 cannot stand in the tables; if it does, it is shown with replacement characters.
pub(super) fn text(row: &Row, column: usize) -> Option<String> {
    bytes(row, column).map(|b| String::from_utf8_lossy(b).into_owned())
}

/// A column as a number; none when it is NULL or none.
pub(super) fn number(row: &Row, column: usize) -> Option<u64> {
    bytes(row, column)
        .and_then(|b| std::str::from_utf8(b).ok())
        .and_then(|t| t.parse().ok())
}
