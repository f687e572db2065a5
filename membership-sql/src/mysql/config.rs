//! Which server, and how to use it: options and URLs.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use membership_core::{ConnectionString, TableError, TableErrorKind};
use membership_provider::{Endpoint, check_timeout, environment};
use mysql_async::{Opts, OptsBuilder, SslOpts};

use super::error::error;
use super::{STORE, procedure, schema};

/// How connections are encrypted, with the names and meanings of MySQL's own clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MysqlSslMode {
    /// Never.
    Disabled,
    /// If the server offers it; the server's certificate is not checked.
    #[default]
    Preferred,
    /// Always; the server's certificate is not checked.
    Required,
    /// Always, with a certificate of a known authority for any name. Needs a file with the
    /// authority.
    VerifyCa,
    /// Always, with a certificate of a known authority for the server's name.
    VerifyIdentity,
}

/// Whether commits call the stored procedure that [`MysqlConfig::procedure_sql`] prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MysqlProcedure {
    /// If it exists in this build's version and may be called: one round trip. Else two.
    #[default]
    Auto,
    /// Never: two round trips.
    Never,
    /// Always; a server without it is refused.
    Require,
}

/// The values of the option `ssl-mode`.
const SSL_MODES: &[(&str, MysqlSslMode)] = &[
    ("disabled", MysqlSslMode::Disabled),
    ("preferred", MysqlSslMode::Preferred),
    ("required", MysqlSslMode::Required),
    ("verify_ca", MysqlSslMode::VerifyCa),
    ("verify_identity", MysqlSslMode::VerifyIdentity),
];

/// The values of the option `procedure`.
const PROCEDURES: &[(&str, MysqlProcedure)] = &[
    ("auto", MysqlProcedure::Auto),
    ("never", MysqlProcedure::Never),
    ("require", MysqlProcedure::Require),
];

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_sql::MysqlConfig;
///
/// let url = "mysql://silo:secret@db.example/app?ssl-mode=verify_identity&operation_timeout=3s";
/// let config = MysqlConfig::from_url(url)?;
/// assert!(!format!("{config:?}").contains("secret"));
/// // For a user who may create tables:
/// assert!(MysqlConfig::schema_sql().contains("CREATE TABLE IF NOT EXISTS membership_version"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct MysqlConfig {
    servers: Vec<Endpoint>,
    database: String,
    user: String,
    password: Option<String>,
    ssl_mode: MysqlSslMode,
    ssl_ca: Option<PathBuf>,
    create: bool,
    pooler: bool,
    procedure: MysqlProcedure,
    require_durable: bool,
    failover_may_lose: Option<bool>,
    operation_timeout: Duration,
}

/// The schemes of its URLs.
pub(super) const SCHEMES: &[&str] = &["mysql"];
/// Longer than a restart of a server, and short enough for a silo to notice that it is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Less is too short for a connection, and no caller waits longer.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// The port that MySQL and MariaDB listen on.
const DEFAULT_PORT: u16 = 3306;
/// An answer is as large as the table.
const MAX_ANSWER: usize = 1 << 30;
const OPTIONS: &str = "ssl-mode, ssl-ca, create, pooler, procedure, require_durable, failover_may_lose and operation_timeout";

impl MysqlConfig {
    /// The database `database` of the server at `host`, port 3306, as `root` without a password.
    #[must_use]
    pub fn new(host: impl Into<String>, database: impl Into<String>) -> Self {
        Self {
            servers: vec![Endpoint::new(host, DEFAULT_PORT)],
            database: database.into(),
            user: "root".to_owned(),
            password: None,
            ssl_mode: MysqlSslMode::default(),
            ssl_ca: None,
            create: true,
            pooler: false,
            procedure: MysqlProcedure::default(),
            require_durable: false,
            failover_may_lose: None,
            operation_timeout: DEFAULT_TIMEOUT,
        }
    }

    /// Reads `mysql://user:password@host:port/database?option=value&…`; `%hh` is a byte. Several
    /// hosts, separated by commas, are tried until one accepts writes, beginning with the last one
    /// that did; a silent one leaves time for the others. A missing password comes from the environment variable `MYSQL_PWD`. The options are named as the
    /// methods of this type, and `ssl-mode` (`disabled`, `preferred`, `required`, `verify_ca`,
    /// `verify_identity`) and `ssl-ca` (a PEM file) as those of MySQL's own clients.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no database, an unknown option or a bad value. Never shows
    /// a password.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        Self::from_url_and(url, environment("MYSQL_PWD"))
    }

    fn from_url_and(url: &str, password: Option<String>) -> Result<Self, TableError> {
        let url = ConnectionString::parse(STORE, SCHEMES, url)?;
        let Some(database) = url.path else {
            return Err(wrong(
                "no database is named: write mysql://user:password@host:port/database",
            ));
        };
        let mut config = Self::new("127.0.0.1", database);
        if !url.hosts.is_empty() {
            let server =
                |(host, port): (_, Option<_>)| Endpoint::new(host, port.unwrap_or(DEFAULT_PORT));
            config.servers = url.hosts.into_iter().map(server).collect();
        }
        config.user = url.user.unwrap_or(config.user);
        config.password = url.password.or(password);
        for option in url.options {
            match option.name() {
                "create" => config.create = option.flag()?,
                "pooler" => config.pooler = option.flag()?,
                "require_durable" => config.require_durable = option.flag()?,
                "failover_may_lose" => config.failover_may_lose = Some(option.flag()?),
                "ssl-ca" => config.ssl_ca = Some(option.text().into()),
                "ssl-mode" => config.ssl_mode = option.one_of(SSL_MODES)?,
                "procedure" => config.procedure = option.one_of(PROCEDURES)?,
                "operation_timeout" => config.operation_timeout = option.duration()?,
                _ => return Err(option.unknown(OPTIONS)),
            }
        }
        config.validate()?;
        Ok(config)
    }

    /// The statements that create the tables, for silos that may not. Running them again changes
    /// nothing.
    #[must_use]
    pub fn schema_sql() -> String {
        schema::script()
    }

    /// The stored procedure that turns a commit into one round trip: a script for the `mysql` or
    /// `mariadb` program (it uses `DELIMITER`), to be run in the database of the tables, after
    /// them. The user of the silos needs `EXECUTE` on it.
    #[must_use]
    pub fn procedure_sql() -> String {
        procedure::script()
    }

    /// The port of the servers named so far. Default: 3306.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        for server in &mut self.servers {
            server.port = port;
        }
        self
    }

    /// Another server, which may be the primary instead. The first one that accepts writes is used,
    /// beginning with the last one that did; a silent one leaves time for the others. Between them
    /// reads are linearizable only in a group, or as [`failover_may_lose`](Self::failover_may_lose)
    /// promises.
    #[must_use]
    pub fn or_server(mut self, host: impl Into<String>, port: u16) -> Self {
        self.servers.push(Endpoint::new(host, port));
        self
    }

    /// The user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// The password.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// How connections are encrypted. Default: `Preferred`.
    #[must_use]
    pub const fn ssl_mode(mut self, mode: MysqlSslMode) -> Self {
        self.ssl_mode = mode;
        self
    }

    /// A PEM file with the trusted certificates. Default: the public authorities.
    #[must_use]
    pub fn ssl_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.ssl_ca = Some(path.into());
        self
    }

    /// Whether `initialize` creates missing tables. Default: true. No other operation does.
    #[must_use]
    pub const fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether to keep no state in a connection between two operations, for proxies that give each
    /// transaction another connection to the server, such as ProxySQL. Each operation then sends
    /// the settings. Default: false.
    #[must_use]
    pub const fn pooler(mut self, pooler: bool) -> Self {
        self.pooler = pooler;
        self
    }

    /// Whether commits call the stored procedure. Default: `Auto`.
    #[must_use]
    pub const fn procedure(mut self, procedure: MysqlProcedure) -> Self {
        self.procedure = procedure;
        self
    }

    /// Whether to refuse a server whose crash can lose acknowledged commits
    /// (`innodb_flush_log_at_trx_commit` is not 1, or it writes a binary log and `sync_binlog` is
    /// not 1). Default: false: it is used with a warning in the log, and
    /// [`guarantees`](membership_core::MembershipTable::guarantees) says so.
    #[must_use]
    pub const fn require_durable(mut self, require: bool) -> Self {
        self.require_durable = require;
        self
    }

    /// What a failover does, where the server cannot report it. `false` promises that no replica
    /// without the last acknowledged commits is ever promoted; `true` that the primary is stopped
    /// before one is, which may lose commits. Without a promise `guarantees` says what was found:
    /// beside replicas of a binary log reads are not linearizable, and one with a barrier is refused.
    #[must_use]
    pub const fn failover_may_lose(mut self, may_lose: bool) -> Self {
        self.failover_may_lose = Some(may_lose);
        self
    }

    /// The time of one operation, including connecting and waiting: 100 ms to 1 h. Default: 10 s.
    #[must_use]
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    pub(super) const fn creates(&self) -> bool {
        self.create
    }

    pub(super) const fn is_pooled(&self) -> bool {
        self.pooler
    }

    pub(super) const fn procedure_use(&self) -> MysqlProcedure {
        self.procedure
    }

    pub(super) const fn must_be_durable(&self) -> bool {
        self.require_durable
    }

    pub(super) const fn loses_at_failover(&self) -> Option<bool> {
        self.failover_may_lose
    }

    pub(super) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    pub(super) const fn tls(&self) -> MysqlSslMode {
        self.ssl_mode
    }

    pub(super) fn address(&self) -> String {
        Endpoint::join(&self.servers)
    }

    pub(super) fn servers(&self) -> &[Endpoint] {
        &self.servers
    }

    pub(super) fn warn_if_exposed(&self, server: usize, encrypted: bool) {
        let (server, plain) = (
            self.servers.get(server),
            self.password.is_some() && !encrypted,
        );
        let advice = "use ssl-mode=verify_identity";
        Endpoint::warn_if_exposed(
            STORE,
            server.map_or(&[], std::slice::from_ref),
            plain,
            advice,
        );
    }

    /// For the driver, with or without TLS.
    pub(super) fn opts(&self, server: &Endpoint, tls: bool) -> Opts {
        let ssl = tls.then(|| {
            let own = self.ssl_ca.clone();
            let verified = matches!(
                self.ssl_mode,
                MysqlSslMode::VerifyCa | MysqlSslMode::VerifyIdentity
            );
            SslOpts::default()
                .with_disable_built_in_roots(own.is_some())
                .with_root_certs(own.into_iter().map(Into::into).collect())
                .with_danger_accept_invalid_certs(!verified)
                .with_danger_skip_domain_validation(self.ssl_mode == MysqlSslMode::VerifyCa)
        });
        OptsBuilder::default()
            .ip_or_hostname(server.host.clone())
            .tcp_port(server.port)
            .db_name(Some(self.database.clone()))
            .user(Some(self.user.clone()))
            .pass(self.password.clone())
            .ssl_opts(ssl)
            // Only the server that was named.
            .prefer_socket(false)
            .tcp_nodelay(true)
            // With both, the driver asks the server for neither.
            .max_allowed_packet(Some(MAX_ANSWER))
            .wait_timeout(Some(28_800))
            .stmt_cache_size(0)
            .into()
    }

    /// Refuses what cannot work with any server.
    pub(super) fn validate(&self) -> Result<(), TableError> {
        let no_host = |server: &Endpoint| server.host.is_empty();
        if self.servers.iter().any(no_host) || self.database.is_empty() {
            return Err(wrong("a host and a database are needed"));
        }
        let timeout = self.operation_timeout;
        check_timeout(STORE, "operation_timeout", timeout, &TIMEOUTS)?;
        if self.ssl_ca.as_ref().is_some_and(|path| !path.is_file()) {
            return Err(wrong("there is no file where ssl-ca says"));
        }
        if self.ssl_mode == MysqlSslMode::VerifyCa && self.ssl_ca.is_none() {
            return Err(wrong(
                "ssl-mode=verify_ca needs ssl-ca: everybody can get a certificate of a public authority, for some name",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for MysqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlConfig")
            .field("servers", &self.address())
            .field("database", &self.database)
            .field("user", &self.user)
            .field("ssl_mode", &self.ssl_mode)
            .field("procedure", &self.procedure)
            .field("pooler", &self.pooler)
            .field("operation_timeout", &self.operation_timeout)
            .finish_non_exhaustive()
    }
}

fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

#[cfg(test)]
#[path = "../../tests/unit/mysql/config.rs"]
mod tests;
