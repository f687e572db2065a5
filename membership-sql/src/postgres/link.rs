//! The one connection that operations use: made when it is needed, checked, and given up when it is suspected.
//!
//! Operations do not wait for each other's answers: the client sends what it has, and the server answers in order. What takes longer than
//! its time gives up the connection for all, because nobody knows what the server still does; the next operation makes a new one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, SimpleQueryMessage};

use super::config::{PostgresConfig, PostgresFailover, PostgresSslMode, PostgresSynchronousCommit};
use super::error::{Phase, error, from_connect, from_pg, lost};
use super::schema::{LAYOUT, Names, PRODUCT, TABLES};
use super::sql::{COUNT, Statement, Statements};
use super::tls::Tls;

/// A value for a statement.
pub(super) type Value<'a> = &'a (dyn ToSql + Sync);

/// The oldest server whose `plan_cache_mode` and CTEs this was written for.
const MIN_SERVER: u32 = 120_000;

/// What a session of ours is set to, and how it is known that the settings arrived.
const CANARY: &str = "force_generic_plan";

/// One connection.
pub(super) struct Link {
    client: Client,
    driver: AbortHandle,
    prepared: [OnceCell<tokio_postgres::Statement>; COUNT],
    /// How many warnings the server has sent.
    warnings: Arc<AtomicU64>,
    /// Whether the tables were there when it was last looked.
    present: AtomicBool,
}

/// Everything that operations share.
pub(super) struct Line {
    pub(super) config: PostgresConfig,
    pub(super) names: Names,
    statements: Statements,
    tls: Tls,
    slot: Mutex<Option<Arc<Link>>>,
    connecting: tokio::sync::Mutex<()>,
    /// A connection was made once: what is wrong now may pass.
    worked: AtomicBool,
    may_lose: AtomicBool,
}

impl Line {
    /// # Errors
    /// `Configuration`: certificates that cannot be used.
    pub(super) fn new(config: PostgresConfig, max_rows: usize) -> Result<Self, TableError> {
        let names = Names::new(&config);
        Ok(Self {
            tls: Tls::new(&config)?,
            statements: Statements::new(&config, &names, max_rows),
            names,
            slot: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            worked: AtomicBool::new(false),
            may_lose: AtomicBool::new(config.failover == PostgresFailover::MayLose),
            config,
        })
    }

    /// When an operation that begins now has to end.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.config.operation_timeout
    }

    /// Whether a failover can lose acknowledged commits, as far as it is known.
    pub(super) fn may_lose(&self) -> bool {
        self.may_lose.load(Ordering::Relaxed)
    }

    /// Runs one statement, in one round trip once the connection is there and knows it.
    ///
    /// # Errors
    /// `OutcomeUnknown` only in the phase [`Phase::Writing`] and only after something was sent.
    pub(super) async fn ask(
        &self,
        statement: Statement,
        values: &[Value<'_>],
        phase: Phase,
        deadline: Instant,
    ) -> Result<Vec<Row>, TableError> {
        match self.ask_once(statement, values, phase, deadline).await {
            Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                Err(self.looked_again(e, deadline).await)
            }
            answer => answer,
        }
    }

    /// The error where a table was not found: there are none, or one of them is missing. A new connection looks for all of them.
    async fn looked_again(&self, e: TableError, deadline: Instant) -> TableError {
        match self.link(deadline).await {
            Ok(link) if link.is_present() => error(
                TableErrorKind::Unavailable,
                "a table was missing, and is there again",
            ),
            Ok(_) => e,
            Err(why) => why,
        }
    }

    async fn ask_once(
        &self,
        statement: Statement,
        values: &[Value<'_>],
        phase: Phase,
        deadline: Instant,
    ) -> Result<Vec<Row>, TableError> {
        let link = self.link(deadline).await?;
        let prepared = if self.config.pooler {
            None
        } else {
            let Ok(prepared) =
                timeout_at(deadline, link.prepare(statement, &self.statements)).await
            else {
                self.give_up(&link);
                return Err(lost(Phase::Before, "the server did not answer in time"));
            };
            Some(prepared.map_err(|e| self.failed(&link, e, Phase::Before))?)
        };
        let warnings = link.warnings.load(Ordering::Acquire);
        let answer = async {
            match prepared {
                Some(prepared) => link.client.query(&prepared, values).await,
                None => {
                    let typed: Vec<_> = values.iter().copied().zip(statement.types()).collect();
                    link.client
                        .query_typed(self.statements.text(statement), &typed)
                        .await
                }
            }
        };
        match timeout_at(deadline, answer).await {
            Err(_) => {
                self.give_up(&link);
                Err(lost(phase, "the server did not answer in time"))
            }
            Ok(Err(e)) => Err(self.failed(&link, e, phase)),
            // Somebody ended the wait for a synchronous standby: the commit is done here, and perhaps only here.
            Ok(Ok(_))
                if phase == Phase::Writing && link.warnings.load(Ordering::Acquire) != warnings =>
            {
                Err(error(
                    TableErrorKind::OutcomeUnknown,
                    "the server committed with a warning: the standbys may not have it",
                ))
            }
            Ok(Ok(rows)) => Ok(rows),
        }
    }

    /// Runs statements that take no values, as one transaction.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(super) async fn run(
        &self,
        link: &Arc<Link>,
        sql: &str,
        phase: Phase,
        deadline: Instant,
    ) -> Result<Vec<Vec<String>>, TableError> {
        match timeout_at(deadline, simple(&link.client, sql)).await {
            Err(_) => {
                self.give_up(link);
                Err(lost(phase, "the server did not answer in time"))
            }
            Ok(Err(e)) => Err(self.failed(link, e, phase)),
            Ok(Ok(rows)) => Ok(rows),
        }
    }

    fn failed(&self, link: &Arc<Link>, e: tokio_postgres::Error, phase: Phase) -> TableError {
        // Anything but an ordinary error leaves a connection that cannot be trusted; so does a server that takes no writes any more, or
        // a plan that does not fit its tables.
        let usable = e.as_db_error().is_some_and(|db| {
            db.parsed_severity() == Some(Severity::Error)
                && !matches!(
                    db.code().code(),
                    "25006" | "0A000" | "26000" | "42P05" | "42P01" | "3F000"
                )
        });
        if !usable {
            self.give_up(link);
        }
        from_pg(e, phase)
    }

    /// The connection, made where there is none.
    ///
    /// # Errors
    /// Why it cannot be made; nothing was sent then.
    pub(super) async fn link(&self, deadline: Instant) -> Result<Arc<Link>, TableError> {
        if let Some(link) = self.current() {
            return Ok(link);
        }
        let making = async {
            let _one_at_a_time = self.connecting.lock().await;
            if let Some(link) = self.current() {
                return Ok(link);
            }
            let link = Arc::new(self.connect().await?);
            *self.slot() = Some(Arc::clone(&link));
            Ok(link)
        };
        timeout_at(deadline, making).await.unwrap_or_else(|_| {
            Err(lost(
                Phase::Before,
                &format!("no connection within {:?}", self.config.operation_timeout),
            ))
        })
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Link>>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<Arc<Link>> {
        self.slot()
            .as_ref()
            .filter(|link| !link.client.is_closed())
            .cloned()
    }

    /// Closes this connection, if it is still the one in use.
    fn give_up(&self, link: &Arc<Link>) {
        let mut slot = self.slot();
        if slot
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, link))
        {
            *slot = None;
        }
        drop(slot);
        link.driver.abort();
    }

    /// A connection, and what becomes of its messages.
    pub(super) async fn dial(&self) -> Result<(Client, super::hints::Wire), TableError> {
        let mut client = self.config.client.clone();
        client.ssl_mode(match self.config.ssl_mode {
            PostgresSslMode::Disable => tokio_postgres::config::SslMode::Disable,
            PostgresSslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
            PostgresSslMode::Require | PostgresSslMode::VerifyCa | PostgresSslMode::VerifyFull => {
                tokio_postgres::config::SslMode::Require
            }
        });
        if client.get_hosts().len().max(client.get_hostaddrs().len()) > 1 {
            client.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
        }
        if client.get_connect_timeout().is_none() {
            client.connect_timeout(self.config.operation_timeout);
        }
        // A peer that is gone without a word is noticed within a few operations' time.
        client
            .keepalives_idle(Duration::from_secs(30))
            .keepalives_interval(Duration::from_secs(10))
            .keepalives_retries(3);
        client.tcp_user_timeout(self.config.operation_timeout);
        if !self.config.pooler {
            let own = client
                .get_options()
                .map_or_else(String::new, |o| format!("{o} "));
            client.options(format!("{own}{}", self.session_settings()));
        }
        client.connect(self.tls.clone()).await.map_err(from_connect)
    }

    /// Everything a session of ours relies on, whatever the server's, the database's or the user's defaults are.
    fn session_settings(&self) -> String {
        let set = |name: &str, value: String| format!("-c {name}={}", value.replace(' ', "\\ "));
        [
            set("default_transaction_isolation", "read committed".to_owned()),
            set(
                "synchronous_commit",
                self.config.synchronous_commit.as_str().to_owned(),
            ),
            set(
                "statement_timeout",
                self.config.statement_timeout().as_millis().to_string(),
            ),
            set(
                "lock_timeout",
                self.config.lock_timeout().as_millis().to_string(),
            ),
            set(
                "idle_in_transaction_session_timeout",
                self.config.operation_timeout.as_millis().to_string(),
            ),
            // Warnings tell of commits that did not reach the standbys.
            set("client_min_messages", "warning".to_owned()),
            // Every statement goes by primary key, and joins each row once, whatever the statistics of a table that was empty a moment ago say.
            set("plan_cache_mode", CANARY.to_owned()),
            set("enable_seqscan", "off".to_owned()),
            set("enable_nestloop", "off".to_owned()),
            set("jit", "off".to_owned()),
        ]
        .join(" ")
    }

    async fn connect(&self) -> Result<Link, TableError> {
        let (client, mut wire) = self.dial().await.map_err(|e| self.pass(e))?;
        let warnings = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&warnings);
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| wire.poll_message(cx)).await {
                if let AsyncMessage::Notice(notice) = message
                    && notice.parsed_severity() == Some(Severity::Warning)
                {
                    tracing::warn!(
                        code = notice.code().code(),
                        "PostgreSQL: {}",
                        notice.message()
                    );
                    seen.fetch_add(1, Ordering::AcqRel);
                }
            }
        });
        let link = Link {
            client,
            driver: driver.abort_handle(),
            prepared: std::array::from_fn(|_| OnceCell::new()),
            warnings,
            present: AtomicBool::new(false),
        };
        self.check(&link).await?;
        self.look(&link).await?;
        if link.is_present() {
            link.warm(self).await;
        }
        self.worked.store(true, Ordering::Relaxed);
        Ok(link)
    }

    /// What is wrong with the server now, after it has been right once, may pass: a failover, for example.
    fn pass(&self, e: TableError) -> TableError {
        if e.kind() == TableErrorKind::Configuration && self.worked.load(Ordering::Relaxed) {
            return error(TableErrorKind::Unavailable, e.message()).with_source(e);
        }
        e
    }

    /// Refuses servers that cannot keep the contract.
    async fn check(&self, link: &Link) -> Result<(), TableError> {
        let setting = |name: &str| format!("current_setting('{name}')");
        let sql = format!(
            "SELECT pg_is_in_recovery(), {}, {}, {}, {}, {}, {}, {}, (SELECT count(*) FROM pg_stat_replication), {}",
            setting("transaction_read_only"),
            setting("transaction_isolation"),
            setting("server_version_num"),
            setting("server_encoding"),
            setting("fsync"),
            setting("synchronous_standby_names"),
            setting("synchronous_commit"),
            // Unknown before version 12, where the number of the version is what is reported.
            "current_setting('plan_cache_mode', true)",
        );
        let rows = simple(&link.client, &sql)
            .await
            .map_err(|e| from_pg(e, Phase::Before))?;
        let row = rows.first().map(Vec::as_slice).unwrap_or_default();
        let [
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
        ] = row
        else {
            return Err(error(
                TableErrorKind::Configuration,
                "the server does not answer like PostgreSQL",
            ));
        };
        let wrong = |what: String| Err(self.pass(error(TableErrorKind::Configuration, what)));
        if version.parse::<u32>().unwrap_or(0) < MIN_SERVER {
            return wrong(format!(
                "the server's version is {version}; PostgreSQL 12 or newer is needed"
            ));
        }
        if recovery != "f" {
            return wrong(
                "the server is a standby: name the primary, or several hosts, of which the one that takes writes is used".to_owned(),
            );
        }
        if read_only != "off" {
            return wrong("the session is read-only: clear `default_transaction_read_only` for this user, database or server".to_owned());
        }
        if encoding != "UTF8" {
            return wrong(format!(
                "the database's encoding is {encoding}: use one with UTF8"
            ));
        }
        if !self.config.pooler {
            if canary != CANARY || when != self.config.synchronous_commit.as_str() {
                return wrong("something between here and the server drops the session's settings: use `pooler=true`".to_owned());
            }
            if isolation != "read committed" {
                return wrong(format!(
                    "the session's isolation is {isolation}, and cannot be changed: use `pooler=true`"
                ));
            }
        }
        if self.config.failover == PostgresFailover::Detect {
            let waits = !standbys.is_empty()
                && self.config.synchronous_commit != PostgresSynchronousCommit::Local;
            self.may_lose.store(
                fsync != "on" || (senders != "0" && !waits),
                Ordering::Relaxed,
            );
        }
        Ok(())
    }

    /// Whether the tables are there, and ours.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`, or what the server says.
    pub(super) async fn look(&self, link: &Link) -> Result<(), TableError> {
        link.present.store(false, Ordering::Relaxed);
        let rows = simple(&link.client, &format!("SELECT {}", self.names.presence()))
            .await
            .map_err(|e| from_pg(e, Phase::Before))?;
        let found: Vec<bool> = rows
            .first()
            .map(|row| row.iter().map(|c| c == "t").collect())
            .unwrap_or_default();
        if !found.contains(&true) {
            return Ok(());
        }
        let names = |there: bool| {
            let all = TABLES.iter().zip(&found).filter(|(_, f)| **f == there);
            all.map(|(name, _)| self.names.table(name))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let foreign = |what: String| error(TableErrorKind::ForeignTable, what);
        if found.first() != Some(&true) {
            return Err(foreign(format!(
                "{} is there without the mark of this project",
                names(true)
            )));
        }
        let marks = simple(
            &link.client,
            &self.names.put_into("SELECT name, value FROM {meta}"),
        )
        .await
        .map_err(
            |e| match e.code().map(tokio_postgres::error::SqlState::code) {
                Some("42703" | "42809") => foreign(format!(
                    "{} is not a table of this project",
                    self.names.table("meta")
                )),
                _ => from_pg(e, Phase::Before),
            },
        )?;
        let mark = |name: &str| {
            marks
                .iter()
                .find(|row| row.first().is_some_and(|n| n == name))
                .and_then(|row| row.get(1))
                .map(String::as_str)
        };
        if mark("product") != Some(PRODUCT) {
            return Err(foreign(format!(
                "{} does not hold the mark of this project",
                self.names.table("meta")
            )));
        }
        let number = |name| mark(name).and_then(|v| v.parse::<u32>().ok());
        match number("min_layout") {
            Some(min) if min > LAYOUT => {
                let message = format!(
                    "the tables have layout {:?} and need at least layout {min}; this build knows {LAYOUT}",
                    mark("layout")
                );
                return Err(error(TableErrorKind::NewerLayout, message));
            }
            Some(_) => {}
            None => {
                return Err(error(
                    TableErrorKind::Damaged,
                    format!("{} has no `min_layout`", self.names.table("meta")),
                ));
            }
        }
        if found.contains(&false) {
            return Err(error(
                TableErrorKind::Damaged,
                format!("{} is missing, others are there", names(false)),
            ));
        }
        link.present.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Link {
    /// Whether the tables were there when it was last looked.
    pub(super) fn is_present(&self) -> bool {
        self.present.load(Ordering::Relaxed)
    }

    async fn prepare(
        &self,
        statement: Statement,
        all: &Statements,
    ) -> Result<tokio_postgres::Statement, tokio_postgres::Error> {
        let make = async || {
            self.client
                .prepare_typed(all.text(statement), &statement.types())
                .await
        };
        self.prepared[statement.index()]
            .get_or_try_init(make)
            .await
            .cloned()
    }

    /// Prepares what every silo uses, all in one flight. What fails will say so when it is used.
    pub(super) async fn warm(&self, line: &Line) {
        if !line.config.pooler {
            futures_util::future::join_all(
                Statement::USUAL.map(|s| self.prepare(s, &line.statements)),
            )
            .await;
        }
    }
}

/// The rows of a simple query as texts; null is an empty one.
async fn simple(client: &Client, sql: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(
            (0..row.len())
                .map(|i| row.get(i).unwrap_or_default().to_owned())
                .collect(),
        ),
        _ => None,
    };
    Ok(messages.into_iter().filter_map(row).collect())
}
