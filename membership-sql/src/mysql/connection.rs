//! One connection: statements, their answers, and how it ends.
//!
//! A connection whose operation was interrupted is never used again (clause T14): it is closed, and
//! the server rolls back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use membership_core::{TableError, TableErrorKind as Kind};
use membership_provider::{Endpoint, install_crypto_provider};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, Row};

use super::columns::number;
use super::config::{MysqlConfig, MysqlSslMode};
use super::error::{NO_SUCH_TABLE, code, ends_connection, error, from_commit, from_mysql};
use super::server::{
    Facts, IDLE_SECONDS, IS_MEMBER, VARIABLES, Variables, fresh_reads, replicas, settings,
};
use crate::shared::pool::Link;

/// The answer to one statement.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// How many rows it changed.
    pub(super) affected: u64,
    /// The rows that it returned.
    pub(super) rows: Vec<Row>,
}

/// The statement `at`, counted from 0, failed; those before it were executed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) at: usize,
    pub(super) error: Error,
}

/// Of a statement before COMMIT: certainly not applied.
impl From<Failure> for TableError {
    fn from(failure: Failure) -> Self {
        from_mysql(failure.error)
    }
}

pub(super) struct Connection {
    conn: Option<Conn>,
    /// Interrupted, or no longer useful.
    broken: bool,
    /// Whether the operation under way has sent something whose outcome is unknown.
    in_doubt: Arc<AtomicBool>,
    /// When it was last used.
    used: Instant,
    /// Whether the tables exist and are ours, as far as it is known.
    pub(super) known_tables: bool,
    /// Whether the procedure exists and may be called.
    pub(super) has_procedure: bool,
    pub(super) facts: Facts,
    mariadb: bool,
    pub(super) encrypted: bool,
    /// The settings that each operation sends first, where connections keep none.
    prelude: String,
    /// Sent before and after the time in which a transaction is open while the server waits for us:
    /// if this client dies, its locks must not stay for hours.
    pub(super) watch: (String, String),
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        // One poll sends the end if the socket accepts it, and marks the connection as closed, so
        // that dropping the future closes the socket at once. By itself the driver first waits for
        // the answers that are still due, maybe from a frozen server.
        let mut goodbye = std::pin::pin!(conn.disconnect());
        let _ = goodbye
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
    }
}

#[async_trait]
impl Link for Connection {
    fn is_usable(&self) -> bool {
        !self.broken
    }

    fn idle(&self) -> Duration {
        self.used.elapsed()
    }

    async fn answers(&mut self) -> bool {
        self.send("DO 0").await.is_ok()
    }

    fn begins(&mut self, in_doubt: Arc<AtomicBool>) {
        self.in_doubt = in_doubt;
    }
}

impl Connection {
    /// Connects, sets the session settings that we rely on, and refuses a server that cannot be
    /// used.
    ///
    /// # Errors
    /// `Unavailable`, also for a read-only server; `PermissionDenied`; `Configuration`.
    pub(super) async fn open(config: &MysqlConfig, server: &Endpoint) -> Result<Self, TableError> {
        install_crypto_provider();
        let mut tls = config.tls() != MysqlSslMode::Disabled;
        let conn = match Conn::new(config.opts(server, tls)).await {
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer))
                if config.tls() == MysqlSslMode::Preferred =>
            {
                tls = false;
                Conn::new(config.opts(server, false)).await
            }
            done => done,
        };
        let mut connection = Self {
            conn: Some(conn.map_err(|e| refused(e, tls))?),
            broken: false,
            in_doubt: Arc::default(),
            used: Instant::now(),
            known_tables: false,
            has_procedure: false,
            facts: Facts::default(),
            mariadb: false,
            encrypted: tls,
            prelude: String::new(),
            watch: Default::default(),
        };
        let settings = settings(config);
        let sets = connection.send(&format!("{settings}; {VARIABLES}")).await?;
        let variables = Variables(sets.last().map(|s| s.rows.as_slice()).unwrap_or_default());
        let mariadb = variables.check_version()?;
        variables.check()?;
        connection.facts = variables.facts(config)?;
        connection.mariadb = mariadb;
        let seconds = config.timeout().as_secs().max(1) + 1;
        let fresh = fresh_reads(&variables);
        let mut more: Vec<String> = fresh.map(str::to_owned).into_iter().collect();
        if fresh.is_some() && !connection.facts.group {
            let members = connection.send(IS_MEMBER).await.unwrap_or_default();
            let row = members.first().and_then(|set| set.rows.first());
            connection.facts.group = row.and_then(|row| number(row, 0)) == Some(1);
        }
        if config.is_pooled() {
            let all = std::iter::once(settings).chain(more.iter().cloned());
            connection.prelude = all.map(|s| s + "; ").collect();
        } else if mariadb {
            more.push(format!("SET SESSION idle_transaction_timeout = {seconds}"));
        } else {
            connection.watch = (
                format!("SET SESSION wait_timeout = {seconds}; "),
                format!("; SET SESSION wait_timeout = {IDLE_SECONDS}"),
            );
        }
        if !more.is_empty() {
            connection.send(&more.join("; ")).await?;
        }
        Ok(connection)
    }

    /// Whether the server may have replicas: it has some, or does not tell this user.
    pub(super) async fn has_replicas(&mut self) -> bool {
        if self.facts.group || !self.facts.logs {
            return false;
        }
        let (show, any) = replicas(self.mariadb);
        let shown = self.begin(show).await;
        shown.map_or(true, |sets| sets.last().is_none_or(|set| any(&set.rows)))
    }

    /// It must not be used again.
    pub(super) const fn discard(&mut self) {
        self.broken = true;
    }

    /// Sends the first statements of an operation, after the settings that the connection does not
    /// keep.
    pub(super) async fn begin(&mut self, sql: &str) -> Result<Vec<Set>, Failure> {
        if self.prelude.is_empty() {
            return self.send(sql).await;
        }
        let before = self.prelude.matches("; ").count();
        let skipped = |failure: Failure| Failure {
            at: failure.at.saturating_sub(before),
            ..failure
        };
        let sent = self.send(&format!("{}{sql}", self.prelude)).await;
        let mut sets = sent.map_err(skipped)?;
        sets.drain(..before.min(sets.len()));
        Ok(sets)
    }

    /// Begins a transaction with these statements, or rolls it back.
    pub(super) async fn begin_transaction(&mut self, sql: &str) -> Result<Vec<Set>, Failure> {
        let sql = format!("{}START TRANSACTION; {sql}", self.watch.0);
        self.begin_or_roll_back(&sql).await
    }

    /// The same at READ COMMITTED: it locks the rows that it touches, and not the gaps between
    /// them.
    pub(super) async fn begin_read_committed(&mut self, sql: &str) -> Result<Vec<Set>, Failure> {
        let (read_committed, watch) = (super::sql::READ_COMMITTED, &self.watch.0);
        let sql = format!("{read_committed}; {watch}START TRANSACTION; {sql}");
        self.begin_or_roll_back(&sql).await
    }

    async fn begin_or_roll_back(&mut self, sql: &str) -> Result<Vec<Set>, Failure> {
        let sent = self.begin(sql).await;
        if sent.is_err() {
            self.roll_back().await;
        }
        sent
    }

    /// Ends a transaction with these statements and its COMMIT. The outer error is final; with the
    /// inner one nothing was committed, and the transaction is still open.
    ///
    /// # Errors
    /// `OutcomeUnknown` if COMMIT was not answered, else `LimitExceeded`.
    pub(super) async fn commit(
        &mut self,
        statements: &[String],
    ) -> Result<Result<(), Error>, TableError> {
        let commit_at = statements.len();
        let statements: String = statements.iter().map(|s| format!("{s}; ")).collect();
        let sql = format!("{statements}COMMIT{}", self.watch.1);
        if let Err(e) = self.check_size(&sql) {
            self.roll_back().await;
            return Err(e);
        }
        self.set_in_doubt(true);
        match self.send(&sql).await {
            Ok(sets) if sets.len() > commit_at => {}
            Ok(_) => {
                self.discard();
                let message = "the server did not answer COMMIT";
                return Err(error(Kind::OutcomeUnknown, message));
            }
            // After COMMIT there is only the reset of the timeout.
            Err(failure) if failure.at > commit_at => self.discard(),
            Err(failure) if failure.at < commit_at && code(&failure.error).is_some() => {
                self.set_in_doubt(false);
                return Ok(Err(failure.error));
            }
            Err(failure) => {
                let e = from_commit(failure.error);
                self.set_in_doubt(e.kind() == Kind::OutcomeUnknown);
                self.roll_back().await;
                return Err(e);
            }
        }
        self.set_in_doubt(false);
        Ok(Ok(()))
    }

    pub(super) fn set_in_doubt(&self, in_doubt: bool) {
        self.in_doubt.store(in_doubt, Ordering::Relaxed);
    }

    /// Sends statements in one packet and takes all their answers: one round trip. The server stops
    /// at the first that fails.
    pub(super) async fn send(&mut self, sql: &str) -> Result<Vec<Set>, Failure> {
        let Some(conn) = self.conn.as_mut() else {
            let error = DriverError::ConnectionClosed.into();
            return Err(Failure { at: 0, error });
        };
        // If this future is dropped from here on, the connection stays broken.
        let was_broken = std::mem::replace(&mut self.broken, true);
        let answer = send(conn, sql).await;
        self.used = Instant::now();
        let ends = match &answer {
            Ok(_) => false,
            Err(failure) => {
                if code(&failure.error) == Some(NO_SUCH_TABLE) {
                    self.known_tables = false;
                }
                ends_connection(&failure.error)
            }
        };
        self.broken = was_broken || ends;
        answer
    }

    /// Refuses more than the server accepts, before it is sent.
    ///
    /// # Errors
    /// `LimitExceeded`
    pub(super) fn check_size(&self, sql: &str) -> Result<(), TableError> {
        let (bytes, limit) = (sql.len(), self.facts.packet);
        if bytes + self.prelude.len() < limit {
            return Ok(());
        }
        let message = format!("the packet would have {bytes} bytes, max_allowed_packet is {limit}");
        Err(error(Kind::LimitExceeded, message))
    }

    /// Rolls a transaction back; if that fails the connection is closed, with the same effect.
    pub(super) async fn roll_back(&mut self) {
        let sql = format!("ROLLBACK{}", self.watch.1);
        if self.broken || self.send(&sql).await.is_err() {
            self.broken = true;
        }
    }
}

async fn send(conn: &mut Conn, sql: &str) -> Result<Vec<Set>, Failure> {
    let sent = conn.query_iter(sql).await;
    let mut answers = sent.map_err(|error| Failure { at: 0, error })?;
    let mut sets = Vec::new();
    // One turn for each statement that succeeded.
    while answers.columns().is_some() {
        let (at, affected) = (sets.len(), answers.affected_rows());
        let rows = answers.collect::<Row>().await;
        let rows = rows.map_err(|error| Failure { at, error })?;
        sets.push(Set { affected, rows });
    }
    // The driver reports the error of a later statement only when its rows are collected.
    let (at, rest) = (sets.len(), answers.collect::<Row>().await);
    rest.map_err(|error| Failure { at, error })?;
    Ok(sets)
}

/// Why there is no connection, if TLS may be the reason.
fn refused(e: Error, tls: bool) -> TableError {
    match &e {
        // Trying again does not make a certificate trusted.
        Error::Io(io) if tls && io.to_string().contains("certificate") => {
            let message = format!(
                "the server's certificate is refused ({io}): check `ssl-ca`, the file with its authority, and `ssl-mode`"
            );
            error(Kind::Configuration, message)
        }
        // MariaDB also answers this if it requires TLS.
        _ if !tls && code(&e) == Some(1045) => {
            let message = format!(
                "{}; or it requires TLS, and `ssl-mode` forbids it",
                from_mysql(e).message()
            );
            error(Kind::PermissionDenied, message)
        }
        _ => from_mysql(e),
    }
}
