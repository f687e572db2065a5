//! Options and connection strings. Nothing here uses the network.

use std::fmt;
use std::time::Duration;

use membership_core::{ConnectionOption, ConnectionString, Durability, TableError};
use membership_provider::{Endpoint, Timeouts, TlsFiles, environment, hidden};

use crate::STORE;
use crate::error::wrong;

/// The schemes of connection strings.
pub(crate) const SCHEMES: &[&str] = &["redis", "rediss", "redis+sentinel", "redis+cluster"];
/// The environment variables for user and password.
const USERNAME: &str = "MEMBERSHIP_REDIS_USERNAME";
const PASSWORD: &str = "MEMBERSHIP_REDIS_PASSWORD";
const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;
/// How long replicas may take to confirm: well within the operation's own timeout.
const DEFAULT_REPLICA_TIMEOUT: Duration = Duration::from_secs(1);
/// What keys begin with.
const DEFAULT_PREFIX: &str = "membership";
/// A longer prefix only makes keys long.
const MAX_PREFIX: usize = 64;

const OPTIONS: &str = "prefix, db, operation_timeout, connect_timeout, min_replicas, replica_timeout, durability, failover, tls, tls_ca, tls_cert, \
                       tls_key, sentinel_username and sentinel_password";

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_redis::RedisConfig;
///
/// let config = RedisConfig::new("redis.internal", 6379)
///     .credentials("membership", "s3cret")
///     .operation_timeout(Duration::from_secs(3));
/// assert!(!format!("{config:?}").contains("s3cret"));
/// let url = "redis://membership:s3cret@redis.internal:6379?operation_timeout=3s";
/// let same = RedisConfig::from_url(url)?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    pub(crate) servers: Servers,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
    pub(crate) tls: bool,
    pub(crate) tls_files: TlsFiles,
    pub(crate) prefix: String,
    pub(crate) timeouts: Timeouts,
    min_replicas: u32,
    replica_timeout: Duration,
    pub(crate) durability: Durability,
    failover: bool,
}

/// How the master is found.
#[derive(Clone)]
pub(crate) enum Servers {
    /// It is this server.
    Single(Endpoint),
    /// It is the server of an application's own client.
    Client(Box<redis::ConnectionInfo>),
    /// The sentinels know it.
    Sentinel {
        sentinels: Vec<Endpoint>,
        master: String,
        username: Option<String>,
        password: Option<String>,
    },
    /// Any node of the cluster knows it.
    Cluster(Vec<Endpoint>),
}

impl Servers {
    /// Whether a replica can take over.
    pub(crate) const fn fail_over(&self) -> bool {
        matches!(self, Self::Sentinel { .. } | Self::Cluster(_))
    }
}

impl RedisConfig {
    /// One server, without TLS, user or password.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self::with_servers(Servers::Single(Endpoint::new(host, port)))
    }

    /// The server that an existing client connects to, with its address, TLS settings, user,
    /// password and database. The table opens its own connections. For one server only: not for
    /// clients of Sentinel or Cluster.
    #[must_use]
    pub fn from_client(client: &redis::Client) -> Self {
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings();
        let (username, password) = (
            settings.username().map(str::to_owned),
            settings.password().map(str::to_owned),
        );
        let database = u32::try_from(settings.db()).unwrap_or(0);
        let tls = matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. });
        Self {
            username,
            password,
            database,
            tls,
            ..Self::with_servers(Servers::Client(Box::new(info)))
        }
    }

    /// The master called `master` by these sentinels (host and port each).
    #[must_use]
    pub fn sentinel<H: Into<String>>(
        sentinels: impl IntoIterator<Item = (H, u16)>,
        master: impl Into<String>,
    ) -> Self {
        Self::with_servers(Servers::Sentinel {
            sentinels: sentinels.into_iter().map(Endpoint::from).collect(),
            master: master.into(),
            username: None,
            password: None,
        })
    }

    /// Redis Cluster, found through these nodes (host and port each).
    #[must_use]
    pub fn cluster<H: Into<String>>(nodes: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self::with_servers(Servers::Cluster(
            nodes.into_iter().map(Endpoint::from).collect(),
        ))
    }

    /// Reads `redis://[user[:password]@]host[:port][/db]`, `rediss://…` (TLS),
    /// `redis+sentinel://[user[:password]@]host[:port],…/master` or
    /// `redis+cluster://[user[:password]@]host[:port],…`, each with `?option=value&…`. `%hh` is a
    /// byte. A user or password that the URL leaves out comes from the environment variables
    /// `MEMBERSHIP_REDIS_USERNAME` and `MEMBERSHIP_REDIS_PASSWORD`. The options have the names of
    /// the methods here: `prefix`, `db`, `operation_timeout`, `connect_timeout`, `min_replicas`,
    /// `replica_timeout`, `durability` (`kept`), `failover` (`never`), `tls`, `tls_ca`, `tls_cert`, `tls_key`,
    /// `sentinel_username`, `sentinel_password`.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no host, an unknown option, or an invalid value. Never
    /// shows a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        Self::from_url_and(url, environment)
    }

    fn from_url_and(
        url: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, TableError> {
        let url = ConnectionString::parse(STORE, SCHEMES, url)?;
        if url.hosts.is_empty() {
            return Err(wrong("the URL names no host: write redis://host:port"));
        }
        let endpoints = Endpoint::list(&url.hosts, DEFAULT_PORT);
        let path = url.path.unwrap_or_default();
        let mut database = path.trim_end_matches('/');
        let servers = match (url.scheme.as_str(), endpoints.as_slice()) {
            ("redis+sentinel", _) => {
                let master = std::mem::take(&mut database);
                if master.is_empty() {
                    return Err(wrong(
                        "a Sentinel URL names its master: redis+sentinel://host:26379,host:26379/mymaster",
                    ));
                }
                Servers::Sentinel {
                    sentinels: Endpoint::list(&url.hosts, DEFAULT_SENTINEL_PORT),
                    master: master.to_owned(),
                    username: None,
                    password: None,
                }
            }
            ("redis+cluster", _) => Servers::Cluster(endpoints),
            (_, [one]) => Servers::Single(one.clone()),
            _ => {
                return Err(wrong(
                    "this scheme takes one host; use redis+sentinel:// or redis+cluster:// for several",
                ));
            }
        };
        let mut config = Self::with_servers(servers).tls(url.scheme == "rediss");
        if !database.is_empty() {
            config.database = database.parse().map_err(|_| {
                wrong("the path of the URL is the number of a database, such as /0")
            })?;
        }
        let password = url.password.filter(|password| !password.is_empty());
        if let Some(password) = password.or_else(|| environment(PASSWORD)) {
            config.username = url.user.or_else(|| environment(USERNAME));
            config.password = Some(password);
        } else if url.user.is_some() {
            return Err(wrong(format!(
                "the URL names a user without a password: add it, or set {PASSWORD}"
            )));
        }
        for option in &url.options {
            if !config.timeouts.set(option)? && !config.tls_files.set(option) {
                config = config.with_option(option)?;
            }
        }
        config.validate()?;
        Ok(config)
    }

    fn with_option(self, option: &ConnectionOption) -> Result<Self, TableError> {
        let name = option.name();
        Ok(match name {
            "prefix" => self.prefix(option.text()),
            "db" => self.database(option.number()?),
            "min_replicas" => self.min_replicas(option.number()?),
            "replica_timeout" => self.replica_timeout(option.duration()?),
            "durability" => self.durability(option.one_of(&[
                ("kept", Durability::Kept),
                ("may_be_lost", Durability::MayBeLost),
            ])?),
            "failover" => self.failover(option.one_of(&[("possible", true), ("never", false)])?),
            "tls" => self.tls(option.flag()?),
            "sentinel_username" | "sentinel_password"
                if !matches!(self.servers, Servers::Sentinel { .. }) =>
            {
                return Err(wrong(format!(
                    "option `{name}` is for Sentinel: redis+sentinel://host:26379/mymaster"
                )));
            }
            "sentinel_username" => self.sentinel_username(option.text()),
            "sentinel_password" => self.sentinel_password(option.text()),
            _ => return Err(option.unknown(OPTIONS)),
        })
    }

    fn with_servers(servers: Servers) -> Self {
        Self {
            servers,
            username: None,
            password: None,
            database: 0,
            tls: false,
            tls_files: TlsFiles::default(),
            prefix: DEFAULT_PREFIX.to_owned(),
            timeouts: Timeouts::default(),
            min_replicas: 0,
            replica_timeout: DEFAULT_REPLICA_TIMEOUT,
            durability: Durability::MayBeLost,
            failover: true,
        }
    }

    /// A user of the server's access control list.
    #[must_use]
    pub fn credentials(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        (self.username, self.password) = (Some(username.into()), Some(password.into()));
        self
    }

    /// A password alone: that of the user `default`.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        (self.username, self.password) = (None, Some(password.into()));
        self
    }

    /// The number of the database. Default 0. Redis Cluster has only database 0.
    #[must_use]
    pub fn database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    /// Whether connections are encrypted and the servers' certificates checked. Default: no. With
    /// TLS, sentinels are also spoken to in TLS.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    membership_provider::tls_file_methods!();

    /// What every key and channel begins with: 1 to 64 characters, no braces, spaces or control
    /// characters. Default `membership`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    membership_provider::timeout_methods!();

    /// How many replicas must confirm a commit before it counts as committed (`WAIT`). Default 0.
    /// When fewer confirm within [`replica_timeout`](Self::replica_timeout), the outcome of the
    /// commit is unknown: the master has it and keeps it. A read with a barrier asks them too. This
    /// makes it less likely, but not impossible, that a failover loses a commit; see the crate's
    /// README.
    #[must_use]
    pub fn min_replicas(mut self, replicas: u32) -> Self {
        self.min_replicas = replicas;
        self
    }

    /// How long those replicas may take: 1 ms up to the operation timeout. Default 1 s, or the
    /// operation timeout if that is less.
    #[must_use]
    pub fn replica_timeout(mut self, timeout: Duration) -> Self {
        self.replica_timeout = timeout;
        self
    }

    /// What [`guarantees`](membership_core::MembershipTable::guarantees) says of acknowledged
    /// commits. Default `MayBeLost`, which is what Redis gives. `Kept` is the operator's assertion
    /// that this is a single server with `appendonly yes` and `appendfsync always` to which nothing
    /// ever fails over. `connect` checks it where the user may read the server's configuration, and
    /// refuses it for Sentinel and Cluster.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether another server may take over. Default `true`: then a single server's reads count as
    /// linearizable, and a read with a barrier is answered, only while the server says that it has no
    /// replicas. `false` is the operator's assertion that no replica ever takes over (they are for
    /// backups only); it is refused for Sentinel and Cluster. [`durability`](Self::durability)
    /// `Kept` includes it.
    #[must_use]
    pub fn failover(mut self, possible: bool) -> Self {
        self.failover = possible;
        self
    }

    /// Whether a replica may take over from a single server.
    pub(crate) fn may_have_successor(&self) -> bool {
        self.failover && self.durability == Durability::MayBeLost
    }

    /// The user for the sentinels themselves.
    #[must_use]
    pub fn sentinel_username(mut self, name: impl Into<String>) -> Self {
        if let Servers::Sentinel { username, .. } = &mut self.servers {
            *username = Some(name.into());
        }
        self
    }

    /// The password for the sentinels themselves.
    #[must_use]
    pub fn sentinel_password(mut self, secret: impl Into<String>) -> Self {
        if let Servers::Sentinel { password, .. } = &mut self.servers {
            *password = Some(secret.into());
        }
        self
    }

    /// How many replicas must confirm and in how many milliseconds; `None` when none must.
    pub(crate) fn wait(&self) -> Option<(u32, u64)> {
        let most = self.timeouts.operation().mul_f64(0.8);
        let millis = u64::try_from(self.replica_timeout.min(most).as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        (self.min_replicas > 0).then_some((self.min_replicas, millis))
    }

    /// The servers, for errors.
    pub(crate) fn endpoints(&self) -> String {
        match &self.servers {
            Servers::Single(endpoint) => endpoint.to_string(),
            Servers::Client(info) => info.addr().to_string(),
            Servers::Sentinel { sentinels: all, .. } | Servers::Cluster(all) => Endpoint::join(all),
        }
    }

    /// The servers as a URL without secrets.
    pub(crate) fn shown(&self) -> String {
        let (servers, database) = (self.endpoints(), self.database);
        let tls = |first: char| match self.tls {
            true => format!("{first}tls=true"),
            false => String::new(),
        };
        match &self.servers {
            Servers::Single(_) | Servers::Client(_) => {
                let scheme = if self.tls { "rediss" } else { "redis" };
                format!("{scheme}://{servers}/{database}")
            }
            Servers::Sentinel { master, .. } => {
                format!(
                    "redis+sentinel://{servers}/{master}?db={database}{}",
                    tls('&')
                )
            }
            Servers::Cluster(_) => format!("redis+cluster://{servers}{}", tls('?')),
        }
    }

    /// Refuses what cannot work whatever the servers are.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        if let Servers::Sentinel { sentinels: all, .. } | Servers::Cluster(all) = &self.servers
            && all.is_empty()
        {
            return Err(wrong("no host is named"));
        }
        let bad = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '{' | '}');
        if self.prefix.is_empty()
            || self.prefix.chars().count() > MAX_PREFIX
            || self.prefix.chars().any(bad)
        {
            return Err(wrong(
                "a prefix has 1 to 64 characters, and no braces, spaces or control characters",
            ));
        }
        self.timeouts.validate(STORE)?;
        if !(Duration::from_millis(1)..=*Timeouts::RANGE.end()).contains(&self.replica_timeout) {
            return Err(wrong(
                "replica_timeout must be 1 ms up to the operation timeout",
            ));
        }
        if self.durability == Durability::Kept
            && (self.servers.fail_over() || self.min_replicas > 0)
        {
            return Err(wrong(
                "durability can be `kept` only on a single server without failover: Redis copies to replicas after it has answered",
            ));
        }
        if !self.failover && self.servers.fail_over() {
            return Err(wrong("failover can be `never` only on a single server"));
        }
        if matches!(self.servers, Servers::Cluster(_)) && self.database != 0 {
            return Err(wrong("Redis Cluster has database 0 only"));
        }
        self.tls_files
            .validate(STORE, self.tls, "rediss:// or tls=true")
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("servers", &self.shown())
            .field("username", &self.username)
            .field("password", &hidden(&self.password))
            .field("prefix", &self.prefix)
            .field("timeouts", &self.timeouts)
            .field("min_replicas", &self.min_replicas)
            .field("replica_timeout", &self.replica_timeout)
            .field("durability", &self.durability)
            .field("failover", &self.failover)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::TableErrorKind;

    fn read(url: &str) -> Result<RedisConfig, TableError> {
        RedisConfig::from_url_and(url, |_| None)
    }

    #[test]
    fn urls_name_servers() {
        for (url, shown) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("redis://h:1/3", "redis://h:1/3"),
            ("rediss://h:1", "rediss://h:1/0"),
            ("redis://[::1]:7/", "redis://[::1]:7/0"),
            (
                "redis+sentinel://a,b:7/main",
                "redis+sentinel://a:26379,b:7/main?db=0",
            ),
            (
                "redis+sentinel://a/main?db=2&tls=true",
                "redis+sentinel://a:26379/main?db=2&tls=true",
            ),
            (
                "redis+cluster://a:1,b:2,c",
                "redis+cluster://a:1,b:2,c:6379",
            ),
            ("REDIS://u:p%40ss@h", "redis://h:6379/0"),
        ] {
            assert_eq!(read(url).unwrap().shown(), shown, "{url}");
        }
    }

    fn user(config: &RedisConfig) -> (Option<&str>, Option<&str>) {
        (config.username.as_deref(), config.password.as_deref())
    }

    #[test]
    fn credentials_come_from_the_url_or_the_environment() {
        let env = |name: &str| Some(format!("{}-value", name.rsplit('_').next().unwrap()));
        for (url, expected) in [
            ("redis://bo:p%40ss@h", (Some("bo"), Some("p@ss"))),
            (
                "redis://:secret@h",
                (Some("USERNAME-value"), Some("secret")),
            ),
            ("redis://bo@h", (Some("bo"), Some("PASSWORD-value"))),
            (
                "redis://h",
                (Some("USERNAME-value"), Some("PASSWORD-value")),
            ),
        ] {
            assert_eq!(
                user(&RedisConfig::from_url_and(url, env).unwrap()),
                expected,
                "{url}"
            );
        }
        assert_eq!(user(&read("redis://h").unwrap()), (None, None));
        let alone = read("redis://:secret@h").unwrap();
        assert_eq!(user(&alone), (None, Some("secret")));
        assert!(
            read("redis://bo@h")
                .unwrap_err()
                .to_string()
                .contains("MEMBERSHIP_REDIS_PASSWORD")
        );
    }

    #[test]
    fn an_invalid_url_is_refused_with_advice_and_without_secrets() {
        for (url, why) in [
            ("redis:h", "`redis://`"),
            ("http://u:hunter2@h", "`redis+cluster://`"),
            ("redis://u:hunter2@", "names no host"),
            ("redis://u:hunter2@a,b", "takes one host"),
            ("redis://h:0", "1 to 65535"),
            ("redis://u:hunter2@h:x", "1 to 65535"),
            ("redis://h/x", "number of a database"),
            ("redis://h?colour=hunter2", "`colour` is no option"),
            ("redis://h?tls=perhaps", "true or false"),
            ("redis://h?operation_timeout=soon", "such as 3s"),
            ("redis://h?operation_timeout=0s", "10 ms"),
            ("redis://h?prefix={a}", "prefix"),
            ("redis://h?prefix=", "prefix"),
            ("redis://h?min_replicas=x", "whole number"),
            ("redis://h?durability=great", "kept or may_be_lost"),
            ("redis://h?sentinel_password=hunter2", "Sentinel"),
            ("redis+sentinel://h", "names its master"),
            ("redis+sentinel://h/m?durability=kept", "failover"),
            ("redis+cluster://h?failover=never", "single server"),
            ("redis+cluster://h/1", "database 0"),
            ("redis://h?tls_ca=/ca.pem", "tls"),
            ("redis://h%zz", "hexadecimal"),
        ] {
            let error = read(url).map(|c| c.shown()).unwrap_err();
            assert_eq!(error.kind(), TableErrorKind::Configuration, "{url}");
            assert!(error.to_string().contains(why), "{url}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
