//! Which servers, and how to use them. Nothing here touches the network.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use membership_core::{ClusterName, Durability, Operation, TableError, TableErrorKind};

use crate::STORE;

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_redis::RedisConfig;
///
/// let config = RedisConfig::new("redis.internal", 6379).credentials("membership", "s3cret").operation_timeout(Duration::from_secs(3));
/// assert!(!format!("{config:?}").contains("s3cret"));
/// let same = RedisConfig::from_url("redis://membership:s3cret@redis.internal:6379?operation_timeout=3s")?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    servers: Servers,
    username: Option<String>,
    password: Option<String>,
    database: u32,
    tls: bool,
    tls_ca: Option<PathBuf>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    prefix: String,
    operation_timeout: Duration,
    connect_timeout: Duration,
    min_replicas: u32,
    replica_timeout: Duration,
    durability: Durability,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Who knows where the master is.
#[derive(Clone)]
pub(crate) enum Servers {
    /// It is here.
    Single(Address),
    /// An application's own client knows.
    Client(Box<redis::ConnectionInfo>),
    /// The sentinels know.
    Sentinel {
        sentinels: Vec<Address>,
        master: String,
        username: Option<String>,
        password: Option<String>,
    },
    /// Any node of the cluster knows.
    Cluster(Vec<Address>),
}

/// Long enough for a slow fork or a failover's first answer, short enough for a silo to notice that the store is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that takes longer to accept a connection serves nobody.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long replicas are waited for by default: well within the operation's own time.
const DEFAULT_REPLICA_TIMEOUT: Duration = Duration::from_secs(1);
/// Below this no network could be crossed.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
/// Above this nobody is waiting any more.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// What keys begin with by default.
const DEFAULT_PREFIX: &str = "membership";
/// Longer ones only make keys long.
const MAX_PREFIX: usize = 64;

impl RedisConfig {
    /// One server, without TLS, user or password.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self::with_servers(Servers::Single(Address {
            host: host.into(),
            port,
        }))
    }

    /// The server that an existing client connects to, with its address, TLS settings, user, password and database. The table opens
    /// connections of its own. For one server only: not for clients of Sentinel or Cluster.
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
        let sentinels = sentinels
            .into_iter()
            .map(|(host, port)| Address {
                host: host.into(),
                port,
            })
            .collect();
        Self::with_servers(Servers::Sentinel {
            sentinels,
            master: master.into(),
            username: None,
            password: None,
        })
    }

    /// Redis Cluster, of which these nodes are known (host and port each); the others are found through them.
    #[must_use]
    pub fn cluster<H: Into<String>>(nodes: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self::with_servers(Servers::Cluster(
            nodes
                .into_iter()
                .map(|(host, port)| Address {
                    host: host.into(),
                    port,
                })
                .collect(),
        ))
    }

    /// Reads `redis://[user[:password]@]host[:port][/db]`, `rediss://…` (TLS), `redis+sentinel://[user[:password]@]host[:port],…/master` or
    /// `redis+cluster://[user[:password]@]host[:port],…`, each with `?option=value&…`. `%hh` stands for a byte. User and password, where the
    /// URL has none, come from the environment variables `MEMBERSHIP_REDIS_USERNAME` and `MEMBERSHIP_REDIS_PASSWORD`. The options have the
    /// names of the methods here: `prefix`, `db`, `operation_timeout`, `connect_timeout`, `min_replicas`, `replica_timeout`, `durability`
    /// (`kept`), `tls`, `tls_ca`, `tls_cert`, `tls_key`, `sentinel_username`, `sentinel_password`.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no host, an unknown option, or a value that is none. Never shows what may be a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        crate::url::parse(url, |name| {
            std::env::var(name).ok().filter(|v| !v.is_empty())
        })
    }

    pub(crate) fn with_servers(servers: Servers) -> Self {
        Self {
            servers,
            username: None,
            password: None,
            database: 0,
            tls: false,
            tls_ca: None,
            tls_certificate: None,
            tls_key: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            operation_timeout: DEFAULT_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            min_replicas: 0,
            replica_timeout: DEFAULT_REPLICA_TIMEOUT,
            durability: Durability::MayBeLost,
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

    /// The number of the database. Default 0. Redis Cluster has no other one.
    #[must_use]
    pub fn database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    /// Whether connections are encrypted, and the servers' certificates checked. Default: no. Sentinels are then spoken to in TLS too.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// A PEM file with the certificates that are trusted instead of the system's.
    #[must_use]
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_ca = Some(path.into());
        self
    }

    /// A PEM file with the certificate that this client shows; needs [`tls_key_file`](Self::tls_key_file) too.
    #[must_use]
    pub fn tls_certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_certificate = Some(path.into());
        self
    }

    /// A PEM file with the private key of that certificate.
    #[must_use]
    pub fn tls_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_key = Some(path.into());
        self
    }

    /// What every key and channel begins with: 1 to 64 characters, no braces, spaces or control characters. Default `membership`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long one operation may take, connecting included: 10 ms to 1 h. Default 5 s.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How long one connection may take to be made: 10 ms to 1 h. Default 2 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How many replicas must confirm a commit before it is called committed (`WAIT`). Default 0. When fewer do, within
    /// [`replica_timeout`](Self::replica_timeout), the outcome of the commit is unknown: the master has it and keeps it. A read with a
    /// barrier asks them too. It makes losing a commit in a failover less likely and not impossible; see the crate's README.
    #[must_use]
    pub fn min_replicas(mut self, replicas: u32) -> Self {
        self.min_replicas = replicas;
        self
    }

    /// How long those replicas are waited for: 1 ms up to the operation timeout. Default 1 s, or the operation timeout if that is less.
    #[must_use]
    pub fn replica_timeout(mut self, timeout: Duration) -> Self {
        self.replica_timeout = timeout;
        self
    }

    /// What [`guarantees`](membership_core::MembershipTable::guarantees) says of acknowledged commits. Default `MayBeLost`, which is what
    /// Redis is. `Kept` is the operator's word that this is a single server with `appendonly yes` and `appendfsync always` to which
    /// nothing ever fails over; it is checked at connecting where the user may read the server's configuration, and refused for
    /// Sentinel and Cluster.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The user that the sentinels themselves want.
    #[must_use]
    pub fn sentinel_username(mut self, name: impl Into<String>) -> Self {
        if let Servers::Sentinel { username, .. } = &mut self.servers {
            *username = Some(name.into());
        }
        self
    }

    /// The password that the sentinels themselves want.
    #[must_use]
    pub fn sentinel_password(mut self, secret: impl Into<String>) -> Self {
        if let Servers::Sentinel { password, .. } = &mut self.servers {
            *password = Some(secret.into());
        }
        self
    }

    pub(crate) const fn servers(&self) -> &Servers {
        &self.servers
    }

    pub(crate) fn user(&self) -> (Option<&str>, Option<&str>) {
        (self.username.as_deref(), self.password.as_deref())
    }

    pub(crate) const fn database_number(&self) -> u32 {
        self.database
    }

    pub(crate) const fn uses_tls(&self) -> bool {
        self.tls
    }

    pub(crate) fn tls_files(&self) -> [Option<&Path>; 3] {
        [
            self.tls_ca.as_deref(),
            self.tls_certificate.as_deref(),
            self.tls_key.as_deref(),
        ]
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    pub(crate) fn dial_timeout(&self) -> Duration {
        self.connect_timeout.min(self.operation_timeout)
    }

    /// How many replicas, and for how many milliseconds; none when none are asked.
    pub(crate) fn wait(&self) -> Option<(u32, u64)> {
        let most = self.operation_timeout.mul_f64(0.8);
        let millis = u64::try_from(self.replica_timeout.min(most).as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        (self.min_replicas > 0).then_some((self.min_replicas, millis))
    }

    pub(crate) const fn promised(&self) -> Durability {
        self.durability
    }

    /// What must never be seen (clause T15).
    pub(crate) fn secrets(&self) -> Vec<String> {
        let sentinel = match &self.servers {
            Servers::Sentinel { password, .. } => password.clone(),
            _ => None,
        };
        self.password
            .clone()
            .into_iter()
            .chain(sentinel)
            .filter(|s| !s.is_empty())
            .collect()
    }

    /// The keys of a cluster. They share what is in braces, and so a hash slot.
    pub(crate) fn keys(&self, cluster: &ClusterName) -> Keys {
        let key = |what: &str| format!("{}:{{{}}}:{what}", self.prefix, cluster.store_key());
        Keys {
            version: key("version"),
            rows: key("rows"),
            heartbeats: key("heartbeats"),
            cell: key("cell"),
            yardstick: key("yardstick"),
            channel: key("hints"),
        }
    }

    /// The servers that are named, for errors.
    pub(crate) fn place(&self) -> String {
        match &self.servers {
            Servers::Single(address) => address.to_string(),
            Servers::Client(info) => info.addr().to_string(),
            Servers::Sentinel { sentinels: all, .. } | Servers::Cluster(all) => all
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        }
    }

    /// The servers as a URL without secrets.
    pub(crate) fn shown(&self) -> String {
        let list = |all: &[Address]| {
            all.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        let tls = |first: char| {
            if self.tls {
                format!("{first}tls=true")
            } else {
                String::new()
            }
        };
        let single = |address: &str| {
            format!(
                "{}://{address}/{}",
                if self.tls { "rediss" } else { "redis" },
                self.database
            )
        };
        match &self.servers {
            Servers::Single(address) => single(&address.to_string()),
            Servers::Client(info) => single(&info.addr().to_string()),
            Servers::Sentinel {
                sentinels, master, ..
            } => {
                format!(
                    "redis+sentinel://{}/{master}?db={}{}",
                    list(sentinels),
                    self.database,
                    tls('&')
                )
            }
            Servers::Cluster(nodes) => format!("redis+cluster://{}{}", list(nodes), tls('?')),
        }
    }

    /// Refuses what cannot work whatever the servers are.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        let nodes = match &self.servers {
            Servers::Sentinel { sentinels, .. } => sentinels.len(),
            Servers::Cluster(nodes) => nodes.len(),
            Servers::Single(_) | Servers::Client(_) => 1,
        };
        if nodes == 0 {
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
        for (name, time) in [
            ("operation_timeout", self.operation_timeout),
            ("connect_timeout", self.connect_timeout),
        ] {
            if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&time) {
                return Err(wrong(format!("{name} is 10 ms to 1 h")));
            }
        }
        if self.replica_timeout < Duration::from_millis(1) || self.replica_timeout > MAX_TIMEOUT {
            return Err(wrong("replica_timeout is 1 ms up to the operation timeout"));
        }
        let fails_over = matches!(self.servers, Servers::Sentinel { .. } | Servers::Cluster(_));
        if self.durability == Durability::Kept && (fails_over || self.min_replicas > 0) {
            return Err(wrong(
                "durability can be `kept` only on a single server without failover: Redis copies to replicas after it has answered",
            ));
        }
        if matches!(self.servers, Servers::Cluster(_)) && self.database != 0 {
            return Err(wrong("Redis Cluster has database 0 only"));
        }
        if !self.tls && self.tls_files().iter().any(Option::is_some) {
            return Err(wrong(
                "certificate files are given but no encryption is asked for: use rediss:// or tls=true",
            ));
        }
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            return Err(wrong(
                "a client's certificate and its key come together: tls_cert and tls_key",
            ));
        }
        Ok(())
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("servers", &self.shown())
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("prefix", &self.prefix)
            .field("operation_timeout", &self.operation_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("min_replicas", &self.min_replicas)
            .field("replica_timeout", &self.replica_timeout)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) version: String,
    pub(crate) rows: String,
    pub(crate) heartbeats: String,
    pub(crate) cell: String,
    pub(crate) yardstick: String,
    pub(crate) channel: String,
}

pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    TableError::new(
        TableErrorKind::Configuration,
        Operation::Connect,
        STORE,
        message,
    )
}
