//! One connection: which host it leads to, the settings of its session, and what it has prepared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use membership_core::{TableError, TableErrorKind as Kind};
use membership_provider::Endpoint;
use tokio::sync::{OnceCell, RwLock};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, SimpleQueryMessage, Socket};

use super::STORE;
use super::client::Client;
use super::config::PostgresSslMode;
use super::error::{Phase, error, from_connect, lost};
use super::sql::{COUNT, Statement, Statements};
use super::tls::{Stream, Tls};

/// A session setting that also shows whether our settings reached the server.
pub(super) const CANARY: &str = "force_generic_plan";

/// The other half of the driver's client: what the server sends.
pub(super) type Wire = tokio_postgres::Connection<Socket, Stream<Socket>>;

impl Client {
    /// A new connection, with what the server sends over it: to the last host that worked, or with
    /// `another` if possible to a different one.
    pub(super) async fn dial(
        &self,
        another: bool,
    ) -> Result<(tokio_postgres::Client, Wire), TableError> {
        // Certificates are replaced while silos run.
        let config = self.config.clone();
        let tls = tokio::task::spawn_blocking(move || Tls::new(&config)).await;
        let ends = |e| error(Kind::Unavailable, "the runtime is shutting down").with_source(e);
        self.tls.replace(tls.map_err(ends)??);
        let connect = |host, limit| async move {
            let driver = self.driver(host, limit);
            let late = |_| {
                let late = format!("no connection within {limit:?}");
                lost(Phase::Before, &late)
            };
            let connecting = driver.connect(self.tls.current());
            let connected = timeout(limit, connecting).await.map_err(late)?;
            connected.map_err(from_connect)
        };
        let limit = self.config.operation_timeout;
        self.hosts.find(another, limit, connect).await
    }

    /// The driver's configuration for one of the hosts.
    fn driver(&self, host: usize, limit: Duration) -> tokio_postgres::Config {
        let mut driver = self.config.only(host);
        driver.ssl_mode(match self.config.ssl_mode {
            PostgresSslMode::Disable => SslMode::Disable,
            PostgresSslMode::Prefer => SslMode::Prefer,
            PostgresSslMode::Require | PostgresSslMode::VerifyCa | PostgresSslMode::VerifyFull => {
                SslMode::Require
            }
        });
        if self.config.hosts() > 1 {
            driver.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let own = driver.get_connect_timeout().copied();
        // A silent server is noticed within the time of a few operations.
        driver
            .connect_timeout(own.map_or(limit, |own| own.min(limit)))
            .keepalives_idle(Duration::from_secs(30))
            .keepalives_interval(Duration::from_secs(10))
            .keepalives_retries(3)
            .tcp_user_timeout(self.config.operation_timeout);
        if !self.config.pooler {
            let settings = self.session_settings();
            let options = match driver.get_options() {
                Some(own) => format!("{own} {settings}"),
                None => settings,
            };
            driver.options(options);
        }
        driver
    }

    /// Everything that a session relies on, whatever the defaults of the server, database or user
    /// are.
    fn session_settings(&self) -> String {
        let config = &self.config;
        let millis = |time: Duration| time.as_millis().to_string();
        let settings = [
            ("default_transaction_isolation", "read committed".to_owned()),
            (
                "synchronous_commit",
                config.synchronous_commit.as_str().to_owned(),
            ),
            ("statement_timeout", millis(config.statement_timeout())),
            ("lock_timeout", millis(config.lock_timeout())),
            (
                "idle_in_transaction_session_timeout",
                millis(config.operation_timeout),
            ),
            // A warning reports a commit that did not reach the standbys.
            ("client_min_messages", "warning".to_owned()),
            // Every statement uses the primary key, also with the statistics of an empty table.
            ("plan_cache_mode", CANARY.to_owned()),
            ("enable_seqscan", "off".to_owned()),
            ("enable_nestloop", "off".to_owned()),
            ("jit", "off".to_owned()),
        ];
        let set =
            |(name, value): (&str, String)| format!("-c {name}={}", value.replace(' ', "\\ "));
        settings.map(set).join(" ")
    }

    pub(super) async fn open(&self, another: bool) -> Result<Connection, TableError> {
        let (driver, mut wire) = self.dial(another).await.map_err(|e| self.may_pass(e))?;
        let warnings = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&warnings);
        let task = tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| wire.poll_message(cx)).await {
                if let AsyncMessage::Notice(notice) = message
                    && notice.parsed_severity() == Some(Severity::Warning)
                {
                    let code = notice.code().code();
                    tracing::warn!(code, "PostgreSQL: {}", notice.message());
                    counted.fetch_add(1, Ordering::AcqRel);
                }
            }
        });
        let connection = Connection {
            driver,
            task: task.abort_handle(),
            prepared: std::array::from_fn(|_| OnceCell::new()),
            warnings,
            has_tables: AtomicBool::new(false),
            waits: RwLock::default(),
            cancelled: AtomicBool::new(false),
        };
        self.check_server(&connection)
            .await
            .map_err(|e| self.may_pass(e))?;
        self.check_tables(&connection).await?;
        if !self.worked.swap(true, Ordering::Relaxed) {
            let server = self.config.endpoints().into_iter().nth(self.hosts.last());
            // A folder is one of this machine.
            let server = server.filter(|server| !server.host.starts_with('/'));
            let encrypted = self.tls.current().1.load(Ordering::Relaxed);
            let plain = self.config.client.get_password().is_some() && !encrypted;
            Endpoint::warn_if_exposed(STORE, server.as_slice(), plain, "use sslmode=verify-full");
        }
        Ok(connection)
    }

    /// A server that was right once may be right again, for example after a failover.
    fn may_pass(&self, e: TableError) -> TableError {
        if e.kind() == Kind::Configuration && self.worked.load(Ordering::Relaxed) {
            return error(Kind::Unavailable, e.message()).with_source(e);
        }
        e
    }

    /// Prepares the usual statements in one round trip. A failure shows when the statement is used.
    pub(super) async fn prepare_usual(&self, connection: &Connection) {
        if !self.config.pooler {
            let prepare = |statement| connection.prepare(statement, &self.statements);
            futures_util::future::join_all(Statement::USUAL.map(prepare)).await;
        }
    }
}

/// One connection.
pub(super) struct Connection {
    pub(super) driver: tokio_postgres::Client,
    pub(super) task: AbortHandle,
    prepared: [OnceCell<tokio_postgres::Statement>; COUNT],
    /// How many warnings the server has sent.
    pub(super) warnings: Arc<AtomicU64>,
    /// Whether the tables existed at the last check.
    pub(super) has_tables: AtomicBool,
    /// Shared by the statements under way that may wait for long.
    pub(super) waits: RwLock<()>,
    /// Whether the server was asked to cancel what it does for it.
    pub(super) cancelled: AtomicBool,
}

impl Connection {
    pub(super) fn has_tables(&self) -> bool {
        self.has_tables.load(Ordering::Relaxed)
    }

    pub(super) async fn prepare(
        &self,
        statement: Statement,
        all: &Statements,
    ) -> Result<tokio_postgres::Statement, tokio_postgres::Error> {
        let (sql, types) = (all.text(statement), statement.types());
        let prepare = async || self.driver.prepare_typed(sql, &types).await;
        let prepared = self.prepared[statement.index()]
            .get_or_try_init(prepare)
            .await;
        prepared.cloned()
    }
}

/// The rows of a simple query as texts; a null is empty.
pub(super) async fn simple(
    driver: &tokio_postgres::Client,
    sql: &str,
) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
    let messages = driver.simple_query(sql).await?;
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => {
            let column = |i| row.get(i).unwrap_or_default().to_owned();
            Some((0..row.len()).map(column).collect())
        }
        _ => None,
    };
    Ok(messages.into_iter().filter_map(row).collect())
}
