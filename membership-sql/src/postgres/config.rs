//! Which server, and how it is used. Nothing here talks to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use membership_core::{ConnectionString, Operation, TableError, TableErrorKind};

use super::STORE;

/// When a commit counts as written. The weaker values of the server (`off`) are not offered: an acknowledged commit would be lost with a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostgresSynchronousCommit {
    /// On the disk of this server only, whatever `synchronous_standby_names` says.
    Local,
    /// The synchronous standbys have it in memory.
    RemoteWrite,
    /// On the disks of this server and of its synchronous standbys, if it has any.
    #[default]
    On,
    /// The synchronous standbys show it to readers.
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

/// What a failover of this server can lose; what the table says of its own durability follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostgresFailover {
    /// Judged from the server at connecting: kept, unless `fsync` is off or there are standbys and none of them is synchronous.
    #[default]
    Detect,
    /// There is no failover, or only to a synchronous standby: acknowledged commits are kept.
    Safe,
    /// An asynchronous standby may be promoted: the last acknowledged commits may be lost, and show as `TableRolledBack`.
    MayLose,
}

/// How a connection is encrypted; the names and meanings are those of PostgreSQL's own clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostgresSslMode {
    /// Never.
    Disable,
    /// If the server offers it; the server's certificate is not looked at.
    #[default]
    Prefer,
    /// Always; the certificate is looked at only if a root certificate is given.
    Require,
    /// Always, with a certificate of a known authority, whatever name is in it.
    VerifyCa,
    /// Always, with a certificate of a known authority for the name that was connected to.
    VerifyFull,
}

/// What the option `synchronous_commit` may be.
const SYNCHRONOUS_COMMITS: &[(&str, PostgresSynchronousCommit)] = &[
    ("local", PostgresSynchronousCommit::Local),
    ("remote_write", PostgresSynchronousCommit::RemoteWrite),
    ("on", PostgresSynchronousCommit::On),
    ("remote_apply", PostgresSynchronousCommit::RemoteApply),
];

/// What the option `failover` may be.
const FAILOVERS: &[(&str, PostgresFailover)] = &[
    ("detect", PostgresFailover::Detect),
    ("safe", PostgresFailover::Safe),
    ("may_lose", PostgresFailover::MayLose),
];

/// What the option `sslmode` may be.
const SSL_MODES: &[(&str, PostgresSslMode)] = &[
    ("disable", PostgresSslMode::Disable),
    ("allow", PostgresSslMode::Prefer),
    ("prefer", PostgresSslMode::Prefer),
    ("require", PostgresSslMode::Require),
    ("verify-ca", PostgresSslMode::VerifyCa),
    ("verify-full", PostgresSslMode::VerifyFull),
];

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_sql::PostgresConfig;
///
/// let config = PostgresConfig::from_url("postgres://silo:secret@db.example/app?sslmode=verify-full&schema=cluster&operation_timeout=3s")?;
/// assert!(!format!("{config:?}").contains("secret"));
/// // What somebody who may create tables runs for somebody who may not:
/// assert!(config.schema_sql().contains("CREATE TABLE IF NOT EXISTS \"cluster\".\"membership_version\""));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
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

/// Long enough for a server that is restarted, short enough for a silo to notice that it is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Below this a connection is hardly made.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Above this nobody is waiting any more.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// The server cuts names after 63 bytes; the longest of ours after the prefix is `heartbeat`, its key adds `_pkey`.
const MAX_PREFIX: usize = 40;
const OPTIONS: &str = "schema, prefix, create, pooler, hints, synchronous_commit, failover, operation_timeout, sslmode, sslrootcert, \
                       host, hostaddr, port, user, password, dbname, application_name, connect_timeout and options";

impl PostgresConfig {
    /// A server named by a configuration of the client library; TLS and time-outs are set here, not there.
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

    /// Reads `postgres://user:password@host:port/database?option=value&…` (also `postgresql://`). `%hh` stands for a byte; several hosts,
    /// with commas between them, are tried in order until one takes writes. What the URL leaves out is taken from `PGHOST`, `PGPORT`,
    /// `PGUSER`, `PGPASSWORD`, `PGDATABASE`, `PGSSLMODE` and `PGSSLROOTCERT`. The options are those of this type, and of the usual
    /// ones `sslmode`, `sslrootcert`, `host`, `hostaddr`, `port`, `user`, `password`, `dbname`, `application_name`, `connect_timeout`
    /// and `options`.
    ///
    /// # Errors
    /// `Configuration`: another scheme, an unknown option, or a value that is none. Never shows a password.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        Self::from_url_and(url, |name| {
            std::env::var(name).ok().filter(|v| !v.is_empty())
        })
    }

    fn from_url_and(url: &str, env: impl Fn(&str) -> Option<String>) -> Result<Self, TableError> {
        let mut url = ConnectionString::parse(STORE, &["postgres", "postgresql"], url)?;
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
        config.ssl_mode = match (ssl_mode, env("PGSSLMODE")) {
            (Some(mode), _) => mode,
            (None, None) => PostgresSslMode::default(),
            (None, Some(word)) => {
                let mode = SSL_MODES
                    .iter()
                    .find(|(name, _)| *name == word)
                    .map(|(_, mode)| *mode);
                mode.ok_or_else(|| {
                    wrong("PGSSLMODE is disable, prefer, require, verify-ca or verify-full")
                })?
            }
        };
        config.ssl_root_cert = config
            .ssl_root_cert
            .or_else(|| env("PGSSLROOTCERT").map(Into::into));
        let default_port = match env("PGPORT").map(|p| p.parse::<u16>()) {
            None => 5432,
            Some(Ok(port)) => port,
            Some(Err(_)) => return Err(wrong("PGPORT is a number from 1 to 65535")),
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

    /// The schema that holds the tables. Default: `public`. `initialize` makes it where it is missing.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// What the names of the tables start with: at most 40 lower-case letters, digits and `_`. Default: `membership_`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Whether `initialize` makes missing tables. Default: true. Without it, run [`schema_sql`](Self::schema_sql) first.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Leave nothing in the session: no prepared statements, no settings, no LISTEN. Default: false. Needed behind a pooler that gives every
    /// transaction another connection to the server (PgBouncer with `pool_mode = transaction`). There are no hints then.
    #[must_use]
    pub fn pooler(mut self, pooler: bool) -> Self {
        self.pooler = pooler;
        self
    }

    /// Whether commits are announced with NOTIFY, and [`hints`](membership_core::MembershipTable::hints) listen. Default: true. The server
    /// writes the announcements of one database one after the other; a database that commits thousands of times a second may do without.
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

    /// How long one operation may take, connecting included: 100 ms to 1 h. Default: 10 s.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How the connection is encrypted. Default: `Prefer`.
    #[must_use]
    pub fn ssl_mode(mut self, mode: PostgresSslMode) -> Self {
        self.ssl_mode = mode;
        self
    }

    /// A PEM file with the certificates of the authorities to trust. Default: those of the operating system.
    #[must_use]
    pub fn ssl_root_cert(mut self, path: impl AsRef<Path>) -> Self {
        self.ssl_root_cert = Some(path.as_ref().to_owned());
        self
    }

    /// The statements that make the tables, for people whose silos may not: run them once, as a user who may, with `psql`.
    #[must_use]
    pub fn schema_sql(&self) -> String {
        super::schema::Names::new(self).printable()
    }

    /// The servers that are named, for errors.
    pub(super) fn place(&self) -> String {
        let (addresses, ports) = (self.client.get_hostaddrs(), self.client.get_ports());
        let hosts: Vec<String> = match self.client.get_hosts() {
            [] => addresses.iter().map(ToString::to_string).collect(),
            hosts => hosts.iter().map(shown).collect(),
        };
        // One port is that of all.
        let port = |n: usize| ports.get(n).or(ports.first()).copied().unwrap_or(5432);
        let place = |(n, host): (usize, String)| {
            if host.contains(':') {
                format!("[{host}]:{}", port(n))
            } else {
                format!("{host}:{}", port(n))
            }
        };
        hosts
            .into_iter()
            .enumerate()
            .map(place)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Whether commits are announced.
    pub(super) const fn announces(&self) -> bool {
        self.hints
    }

    /// Whether announcements can be listened to.
    pub(super) const fn listens(&self) -> bool {
        self.hints && !self.pooler
    }

    /// How long the server waits for a lock: shorter than the operation, so that its answer still comes in time, and is certain.
    pub(super) fn lock_timeout(&self) -> Duration {
        self.operation_timeout * 8 / 10
    }

    /// How long the server works on a statement; a commit under way is not ended by it.
    pub(super) fn statement_timeout(&self) -> Duration {
        self.operation_timeout * 9 / 10
    }

    /// Refuses what cannot work whatever the server says.
    pub(super) fn validate(&self) -> Result<(), TableError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if self.prefix.is_empty()
            || self.prefix.len() > MAX_PREFIX
            || !self.prefix.bytes().all(plain)
        {
            return Err(wrong(format!(
                "option `prefix` is 1 to {MAX_PREFIX} lower-case letters, digits and `_`"
            )));
        }
        if self.schema.is_empty() || self.schema.len() > 63 || self.schema.contains('\0') {
            return Err(wrong("option `schema` is a name of 1 to 63 bytes"));
        }
        if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&self.operation_timeout) {
            return Err(wrong("operation_timeout is 100 ms to 1 h"));
        }
        if self.client.get_user().is_none()
            && self.client.get_hosts().is_empty()
            && self.client.get_hostaddrs().is_empty()
        {
            return Err(wrong("no host is named"));
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("hosts", &self.client.get_hosts())
            .field("ports", &self.client.get_ports())
            .field("user", &self.client.get_user())
            .field("dbname", &self.client.get_dbname())
            .field("ssl_mode", &self.ssl_mode)
            .field("schema", &self.schema)
            .field("prefix", &self.prefix)
            .field("create", &self.create)
            .field("pooler", &self.pooler)
            .field("hints", &self.hints)
            .field("synchronous_commit", &self.synchronous_commit)
            .field("failover", &self.failover)
            .field("operation_timeout", &self.operation_timeout)
            .finish_non_exhaustive()
    }
}

fn shown(host: &tokio_postgres::config::Host) -> String {
    match host {
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        tokio_postgres::config::Host::Unix(folder) => folder.display().to_string(),
    }
}

fn wrong(message: impl Into<String>) -> TableError {
    TableError::new(
        TableErrorKind::Configuration,
        Operation::Connect,
        STORE,
        message,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<PostgresConfig, TableError> {
        PostgresConfig::from_url_and(url, |name| match name {
            "PGPASSWORD" => Some("from the environment".to_owned()),
            "PGPORT" => Some("6000".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn urls_name_servers() {
        let c = parse("postgres://u:p@a,b:7000/d?schema=s&prefix=x_&pooler=true&hints=false&create=false&synchronous_commit=remote_apply&failover=may_lose&sslmode=verify-full&sslrootcert=/ca.pem&operation_timeout=250ms&application_name=n&connect_timeout=2").unwrap();
        assert_eq!(
            (
                c.client.get_ports(),
                c.client.get_dbname(),
                c.client.get_user()
            ),
            (&[6000, 7000][..], Some("d"), Some("u"))
        );
        assert_eq!(c.client.get_password(), Some(&b"p"[..]));
        assert_eq!(
            (
                c.schema.as_str(),
                c.prefix.as_str(),
                c.pooler,
                c.hints,
                c.create
            ),
            ("s", "x_", true, false, false)
        );
        assert_eq!(
            (c.synchronous_commit, c.failover, c.ssl_mode),
            (
                PostgresSynchronousCommit::RemoteApply,
                PostgresFailover::MayLose,
                PostgresSslMode::VerifyFull
            )
        );
        assert_eq!(c.operation_timeout, Duration::from_millis(250));
        let c = parse("postgresql:///d").unwrap();
        assert_eq!(c.client.get_password(), Some(&b"from the environment"[..]));
        assert_eq!(c.client.get_hosts().len(), 1);
        let c = parse("postgres://[::1]:5433/").unwrap();
        assert_eq!(
            c.client.get_hosts(),
            [tokio_postgres::config::Host::Tcp("::1".to_owned())]
        );
        for (url, place) in [
            ("postgres://u:p@a,b:7000/d", "a:6000, b:7000"),
            ("postgres://[::1]:5433/", "[::1]:5433"),
            ("postgres:///d?hostaddr=10.0.0.1", "10.0.0.1:6000"),
            ("postgres://%2Frun%2Fpg/d", "/run/pg:6000"),
        ] {
            assert_eq!(parse(url).unwrap().place(), place);
        }
    }

    #[test]
    fn nonsense_is_refused_with_advice_and_without_the_password() {
        for (rest, why) in [
            ("h/d?colour=blue", "`colour` is no option"),
            ("h/d?pooler=perhaps", "true or false"),
            ("h/d?synchronous_commit=off", "remote_apply"),
            ("h/d?failover=x", "may_lose"),
            ("h/d?sslmode=maybe", "verify-full"),
            ("h/d?operation_timeout=0s", "100 ms"),
            ("h/d?operation_timeout=soon", "such as 3s"),
            ("h/d?prefix=A", "lower-case"),
            ("h/d?schema=", "1 to 63"),
            ("h:0/d", "port"),
        ] {
            let error = parse(&format!("postgres://u:hunter2@{rest}")).unwrap_err();
            assert_eq!(error.kind(), TableErrorKind::Configuration);
            let text = format!("{error} {error:?}");
            assert!(text.contains(why) && !text.contains("hunter2"), "{text}");
        }
        assert!(
            parse("mysql://h")
                .unwrap_err()
                .to_string()
                .contains("postgres://")
        );
        assert!(!format!("{:?}", parse("postgres://u:hunter2@h/d").unwrap()).contains("hunter2"));
    }
}
