//! Which server, and how to use it: options and URLs.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use membership_core::{ConnectionString, TableError, TableErrorKind};
use membership_provider::{Endpoint, check_timeout, environment};
use tokio_postgres::config::Host;

use super::STORE;
use super::error::error;
use super::keys::Names;
use super::schema;

/// When a commit counts as written. The server's `off` is not offered: a crash would lose
/// acknowledged commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostgresSynchronousCommit {
    /// On the disk of this server only, whatever `synchronous_standby_names` says.
    Local,
    /// In the memory of the synchronous standbys.
    RemoteWrite,
    /// On the disks of this server and of its synchronous standbys, if there are any.
    #[default]
    On,
    /// Visible on the synchronous standbys.
    RemoteApply,
}

impl PostgresSynchronousCommit {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::RemoteWrite => "remote_write",
            Self::On => "on",
            Self::RemoteApply => "remote_apply",
        }
    }
}

/// What a failover of this server can lose. It decides the durability that the table guarantees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostgresFailover {
    /// Read from the server: nothing only if commits wait for synchronous standbys and `fsync` is on.
    /// These confirm reads with a barrier as well. Without them reads are linearizable only while one
    /// host is named that has no standbys; else a read with a barrier is refused.
    #[default]
    Detect,
    /// Nothing: there is no failover, or only to a synchronous standby.
    Safe,
    /// The last acknowledged commits: an asynchronous standby may be promoted, after the primary was
    /// stopped, so that no two servers answer. Silos then see `TableRolledBack`.
    MayLose,
}

/// How connections are encrypted, with the names and meanings of PostgreSQL's own clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostgresSslMode {
    /// Never.
    Disable,
    /// If the server offers it; the server's certificate is not checked.
    #[default]
    Prefer,
    /// Always; the certificate is checked only if a root certificate is given.
    Require,
    /// Always, with a certificate of a known authority for any name.
    VerifyCa,
    /// Always, with a certificate of a known authority for the server's name.
    VerifyFull,
}

/// The values of the option `synchronous_commit`.
const SYNCHRONOUS_COMMITS: &[(&str, PostgresSynchronousCommit)] = &[
    ("local", PostgresSynchronousCommit::Local),
    ("remote_write", PostgresSynchronousCommit::RemoteWrite),
    ("on", PostgresSynchronousCommit::On),
    ("remote_apply", PostgresSynchronousCommit::RemoteApply),
];

/// The values of the option `failover`.
const FAILOVERS: &[(&str, PostgresFailover)] = &[
    ("detect", PostgresFailover::Detect),
    ("safe", PostgresFailover::Safe),
    ("may_lose", PostgresFailover::MayLose),
];

/// The values of the option `sslmode`.
const SSL_MODES: &[(&str, PostgresSslMode)] = &[
    ("disable", PostgresSslMode::Disable),
    ("allow", PostgresSslMode::Prefer),
    ("prefer", PostgresSslMode::Prefer),
    ("require", PostgresSslMode::Require),
    ("verify-ca", PostgresSslMode::VerifyCa),
    ("verify-full", PostgresSslMode::VerifyFull),
];

/// Where the table is and how it is used. `Debug` hides the password.
///
/// ```
/// use std::time::Duration;
/// use membership_sql::PostgresConfig;
///
/// let url = "postgres://silo:secret@db.example/app?sslmode=verify-full&schema=cluster";
/// let config = PostgresConfig::from_url(url)?;
/// assert!(!format!("{config:?}").contains("secret"));
/// // For a user who may create tables:
/// let table = "CREATE TABLE IF NOT EXISTS \"cluster\".\"membership_version\"";
/// assert!(config.schema_sql().contains(table));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PostgresConfig {
    pub(super) client: tokio_postgres::Config,
    pub(super) ssl_mode: PostgresSslMode,
    pub(super) ssl_root_cert: Option<PathBuf>,
    pub(super) schema: String,
    pub(super) prefix: String,
    pub(super) create: bool,
    pub(super) pooler: bool,
    pub(super) hints: bool,
    pub(super) synchronous_commit: PostgresSynchronousCommit,
    pub(super) failover: PostgresFailover,
    pub(super) operation_timeout: Duration,
}

/// The schemes of its URLs.
pub(super) const SCHEMES: &[&str] = &["postgres", "postgresql"];
/// Longer than a restart of a server, and short enough for a silo to notice that it is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Less is too short for a connection, and no caller waits longer.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// The server cuts names after 63 bytes; our longest is the prefix with `heartbeat` and, for its
/// key, `_pkey`.
const MAX_PREFIX: usize = 40;
const OPTIONS: &str = "schema, prefix, create, pooler, hints, synchronous_commit, failover, operation_timeout, sslmode, sslrootcert, \
                       host, hostaddr, port, user, password, dbname, application_name, connect_timeout and options";

impl PostgresConfig {
    /// The server of a configuration of the driver; TLS and timeouts are set here, not there.
    #[must_use]
    pub fn new(client: tokio_postgres::Config) -> Self {
        Self {
            client,
            ssl_mode: PostgresSslMode::default(),
            ssl_root_cert: None,
            schema: "public".to_owned(),
            prefix: "membership_".to_owned(),
            create: true,
            pooler: false,
            hints: true,
            synchronous_commit: PostgresSynchronousCommit::default(),
            failover: PostgresFailover::default(),
            operation_timeout: DEFAULT_TIMEOUT,
        }
    }

    /// Reads `postgres://user:password@host:port/database?option=value&…` (also `postgresql://`);
    /// `%hh` is a byte. Several hosts, separated by commas, are tried until one accepts writes,
    /// beginning with the last one that did; a silent one leaves time for the others. Missing parts come from `PGHOST`, `PGPORT`, `PGUSER`, `PGPASSWORD`, `PGDATABASE`,
    /// `PGSSLMODE` and `PGSSLROOTCERT`. The options are those of this type, and the usual
    /// `sslmode`, `sslrootcert`, `host`, `hostaddr`, `port`, `user`, `password`, `dbname`,
    /// `application_name`, `connect_timeout`, `options`.
    ///
    /// # Errors
    /// `Configuration`: another scheme, an unknown option or a bad value. Never shows a password.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        Self::from_url_and(url, environment)
    }

    fn from_url_and(url: &str, env: impl Fn(&str) -> Option<String>) -> Result<Self, TableError> {
        let mut url = ConnectionString::parse(STORE, SCHEMES, url)?;
        let mut config = Self::new(tokio_postgres::Config::new());
        let (mut timeout, mut options, mut name, mut addresses) = (None, None, None, Vec::new());
        let mut ssl_mode = None;
        for option in std::mem::take(&mut url.options) {
            match option.name() {
                "schema" => config.schema = option.text(),
                "prefix" => config.prefix = option.text(),
                "create" => config.create = option.flag()?,
                "pooler" => config.pooler = option.flag()?,
                "hints" => config.hints = option.flag()?,
                "operation_timeout" => config.operation_timeout = option.duration()?,
                "connect_timeout" => {
                    timeout = Some(Duration::from_secs(option.parsed("a number of seconds")?))
                }
                "synchronous_commit" => {
                    config.synchronous_commit = option.one_of(SYNCHRONOUS_COMMITS)?
                }
                "failover" => config.failover = option.one_of(FAILOVERS)?,
                "sslmode" => ssl_mode = Some(option.one_of(SSL_MODES)?),
                "sslrootcert" => config.ssl_root_cert = Some(option.text().into()),
                "host" => {
                    url.hosts = option
                        .text()
                        .split(',')
                        .map(|h| (h.to_owned(), None))
                        .collect()
                }
                "hostaddr" => {
                    for address in option.text().split(',') {
                        addresses.push(address.parse().map_err(|_| {
                            option.wrong("an IP address, or several with commas between them")
                        })?);
                    }
                }
                "port" => {
                    let port = option.parsed("a number from 1 to 65535")?;
                    for host in &mut url.hosts {
                        host.1 = Some(port);
                    }
                }
                "user" => url.user = Some(option.text()),
                "password" => url.password = Some(option.text()),
                "dbname" => url.path = Some(option.text()),
                "application_name" => name = Some(option.text()),
                "options" => options = Some(option.text()),
                _ => return Err(option.unknown(OPTIONS)),
            }
        }
        let root_cert = config.ssl_root_cert.take();
        config.ssl_root_cert = root_cert.or_else(|| env("PGSSLROOTCERT").map(Into::into));
        config.ssl_mode = match (ssl_mode, env("PGSSLMODE")) {
            (Some(mode), _) => mode,
            (None, None) if config.trusts_system() => PostgresSslMode::VerifyFull,
            (None, None) => PostgresSslMode::default(),
            (None, Some(word)) => {
                let mode = SSL_MODES
                    .iter()
                    .find(|(name, _)| *name == word)
                    .map(|(_, mode)| *mode);
                mode.ok_or_else(|| {
                    wrong("PGSSLMODE must be disable, prefer, require, verify-ca or verify-full")
                })?
            }
        };
        let default_port = match env("PGPORT").map(|p| p.parse::<u16>()) {
            None => 5432,
            Some(Ok(port)) => port,
            Some(Err(_)) => return Err(wrong("PGPORT must be a number from 1 to 65535")),
        };
        if url.hosts.is_empty() && addresses.is_empty() {
            let host = env("PGHOST").unwrap_or_else(|| "localhost".to_owned());
            url.hosts = host.split(',').map(|h| (h.to_owned(), None)).collect();
        }
        let client = &mut config.client;
        for (host, port) in &url.hosts {
            client.host(host);
            client.port(port.unwrap_or(default_port));
        }
        if url.hosts.is_empty() {
            client.port(default_port);
        }
        for address in addresses {
            client.hostaddr(address);
        }
        if let Some(user) = url.user.or_else(|| env("PGUSER")) {
            client.user(user);
        }
        if let Some(password) = url.password.or_else(|| env("PGPASSWORD")) {
            client.password(password);
        }
        if let Some(database) = url.path.or_else(|| env("PGDATABASE")) {
            client.dbname(database);
        }
        if let Some(timeout) = timeout {
            client.connect_timeout(timeout);
        }
        if let Some(options) = options {
            client.options(options);
        }
        client.application_name(name.unwrap_or_else(|| "membership".to_owned()));
        config.validate()?;
        Ok(config)
    }

    /// The schema of the tables. Default: `public`. `initialize` creates it if it is missing.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// The prefix of the tables' names: at most 40 lower-case letters, digits and `_`. Default:
    /// `membership_`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Whether `initialize` creates missing tables. Default: true. If not, run
    /// [`schema_sql`](Self::schema_sql) first.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether to keep no state in the session: no prepared statements, settings or LISTEN.
    /// Default: false. Needed behind a pooler that gives each transaction another connection to the
    /// server (PgBouncer with `pool_mode = transaction`). There are no hints then.
    #[must_use]
    pub fn pooler(mut self, pooler: bool) -> Self {
        self.pooler = pooler;
        self
    }

    /// Whether commits are announced with NOTIFY, and
    /// [`hints`](membership_core::MembershipTable::hints) listen. Default: true. The server
    /// serialises the announcements of a database: turn it off in a database with thousands of
    /// commits per second.
    #[must_use]
    pub fn hints(mut self, hints: bool) -> Self {
        self.hints = hints;
        self
    }

    /// When a commit counts as written. Default: `On`.
    #[must_use]
    pub fn synchronous_commit(mut self, when: PostgresSynchronousCommit) -> Self {
        self.synchronous_commit = when;
        self
    }

    /// What a failover can lose. Default: `Detect`.
    #[must_use]
    pub fn failover(mut self, failover: PostgresFailover) -> Self {
        self.failover = failover;
        self
    }

    /// The time of one operation, including connecting: 100 ms to 1 h. Default: 10 s.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How connections are encrypted. Default: `Prefer`.
    #[must_use]
    pub fn ssl_mode(mut self, mode: PostgresSslMode) -> Self {
        self.ssl_mode = mode;
        self
    }

    /// A PEM file with the trusted certificates, read at each connection. Default: those of the
    /// operating system. The name `system` stands for these, and needs `VerifyFull`: everybody can
    /// get a certificate of a public authority, for some name.
    #[must_use]
    pub fn ssl_root_cert(mut self, path: impl AsRef<Path>) -> Self {
        self.ssl_root_cert = Some(path.as_ref().to_owned());
        self
    }

    /// The statements that create the tables, for silos that may not: run them once, as a user who
    /// may, for example with `psql`.
    #[must_use]
    pub fn schema_sql(&self) -> String {
        schema::script(&self.names())
    }

    pub(super) fn names(&self) -> Names {
        Names::new(&self.schema, &self.prefix)
    }

    /// How many hosts are named.
    pub(super) fn hosts(&self) -> usize {
        let (names, addresses) = (self.client.get_hosts(), self.client.get_hostaddrs());
        names.len().max(addresses.len()).max(1)
    }

    /// The driver's configuration with one of the hosts only.
    pub(super) fn only(&self, host: usize) -> tokio_postgres::Config {
        let (all, mut one) = (&self.client, tokio_postgres::Config::new());
        let _ = match all.get_hosts().get(host) {
            Some(Host::Tcp(name)) => one.host(name),
            #[cfg(unix)]
            Some(Host::Unix(folder)) => one.host_path(folder),
            None => &mut one,
        };
        let addresses = all.get_hostaddrs();
        let _ = addresses.get(host).map(|at| one.hostaddr(*at));
        let _ = all.get_user().map(|user| one.user(user));
        let _ = all.get_password().map(|word| one.password(word));
        let _ = all.get_dbname().map(|name| one.dbname(name));
        let _ = all.get_options().map(|options| one.options(options));
        let name = all.get_application_name();
        let _ = name.map(|name| one.application_name(name));
        let own = all.get_connect_timeout();
        let _ = own.map(|time| one.connect_timeout(*time));
        one.port(self.port(host))
            .ssl_negotiation(all.get_ssl_negotiation())
            .channel_binding(all.get_channel_binding())
            .load_balance_hosts(all.get_load_balance_hosts())
            .target_session_attrs(all.get_target_session_attrs());
        one
    }

    /// The port of a host; one port applies to all hosts.
    fn port(&self, host: usize) -> u16 {
        let ports = self.client.get_ports();
        ports.get(host).or(ports.first()).copied().unwrap_or(5432)
    }

    /// The servers, as errors name them.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let addresses = self.client.get_hostaddrs().iter();
        let hosts: Vec<String> = match self.client.get_hosts() {
            [] => addresses.map(ToString::to_string).collect(),
            hosts => hosts.iter().map(host_name).collect(),
        };
        let hosts = hosts.into_iter().enumerate();
        hosts
            .map(|(n, host)| Endpoint::new(host, self.port(n)))
            .collect()
    }

    /// Whether the operating system's certificates are named.
    pub(super) fn trusts_system(&self) -> bool {
        let file = self.ssl_root_cert.as_deref();
        file.is_some_and(|file| file.as_os_str() == "system")
    }

    /// Whether commits are announced.
    pub(super) const fn announces(&self) -> bool {
        self.hints
    }

    /// Whether announcements can be listened to.
    pub(super) const fn listens(&self) -> bool {
        self.hints && !self.pooler
    }

    /// How long the server waits for a lock: its answer must come in time, because then it is
    /// certain.
    pub(super) fn lock_timeout(&self) -> Duration {
        self.operation_timeout * 8 / 10
    }

    /// How long the server executes a statement. It does not end a COMMIT.
    pub(super) fn statement_timeout(&self) -> Duration {
        self.operation_timeout * 9 / 10
    }

    /// Refuses what cannot work with any server.
    pub(super) fn validate(&self) -> Result<(), TableError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if self.prefix.is_empty()
            || self.prefix.len() > MAX_PREFIX
            || !self.prefix.bytes().all(plain)
        {
            return Err(wrong(format!(
                "option `prefix` must be 1 to {MAX_PREFIX} lower-case letters, digits and `_`"
            )));
        }
        if self.schema.is_empty() || self.schema.len() > 63 || self.schema.contains('\0') {
            return Err(wrong("option `schema` must be a name of 1 to 63 bytes"));
        }
        if self.trusts_system() && self.ssl_mode != PostgresSslMode::VerifyFull {
            return Err(wrong("`sslrootcert=system` needs `sslmode=verify-full`"));
        }
        let timeout = self.operation_timeout;
        check_timeout(STORE, "operation_timeout", timeout, &TIMEOUTS)?;
        if self.client.get_user().is_none()
            && self.client.get_hosts().is_empty()
            && self.client.get_hostaddrs().is_empty()
        {
            return Err(wrong("no host is named"));
        }
        let (names, addresses) = (self.client.get_hosts(), self.client.get_hostaddrs());
        let ports = self.client.get_ports().len();
        let both = !names.is_empty() && !addresses.is_empty();
        if (both && names.len() != addresses.len()) || (ports > 1 && ports != self.hosts()) {
            return Err(wrong(
                "name one port for all hosts or one for each, and no `hostaddr` or one for each",
            ));
        }
        Ok(())
    }
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(folder) => folder.display().to_string(),
    }
}

fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

#[cfg(test)]
#[path = "../../tests/unit/postgres/config.rs"]
mod tests;
