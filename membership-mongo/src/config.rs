//! Which servers, and how to use them. Nothing here touches the network, but for looking up the hosts of `mongodb+srv://`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use membership_core::{ClusterName, Operation, Recency, TableError, TableErrorKind};
use mongodb::Client;
use mongodb::options::{AuthMechanism, ClientOptions, Credential, ServerAddress, Tls, TlsOptions};

use crate::STORE;
use crate::commands::Place;

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_mongo::MongoConfig;
///
/// let config = MongoConfig::new([("a.internal", 27017), ("b.internal", 27017)])
///     .credentials("ops", "s3cret")
///     .replica_set("rs0")
///     .operation_timeout(Duration::from_secs(3));
/// assert!(!format!("{config:?}").contains("s3cret"));
/// let same = MongoConfig::from_url("mongodb://ops:s3cret@a.internal,b.internal/?replicaSet=rs0&operation_timeout=3s")?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct MongoConfig {
    servers: Servers,
    username: Option<String>,
    password: Option<String>,
    auth_source: Option<String>,
    mechanism: Option<AuthMechanism>,
    database: String,
    collection: String,
    replica_set: Option<String>,
    direct: bool,
    tls: Option<bool>,
    tls_ca: Option<PathBuf>,
    tls_certificate_key: Option<PathBuf>,
    app_name: Option<String>,
    reads: Recency,
    standalone: bool,
    operation_timeout: Duration,
    connect_timeout: Duration,
}

/// Who knows where the primary is.
#[derive(Clone)]
pub(crate) enum Servers {
    /// One of these, or whom they name.
    Hosts(Vec<(String, u16)>),
    /// Those that this name stands for in DNS.
    #[cfg_attr(
        not(feature = "srv"),
        allow(dead_code, reason = "refused without the feature")
    )]
    Srv(String),
    /// An application's own client.
    Client(Client),
}

/// Where it listens when nobody says otherwise.
pub(crate) const DEFAULT_PORT: u16 = 27_017;
/// Long enough for a failover that takes as long as one usually does, short enough for a silo to notice that the store is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that takes longer to accept a connection serves nobody.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Below this no network could be crossed.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
/// Above this nobody is waiting any more.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// The client looks at each server at least so often; it takes no less than half a second.
const MONITORED: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
const DEFAULT_NAME: &str = "membership";

impl MongoConfig {
    /// A replica set or routers of a sharded cluster, of which these are known (host and port each); the others are found through them.
    #[must_use]
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self::with_servers(Servers::Hosts(
            hosts
                .into_iter()
                .map(|(host, port)| (host.into(), port))
                .collect(),
        ))
    }

    /// The servers that this name stands for in DNS, as in `mongodb+srv://name`; with TLS.
    #[cfg(feature = "srv")]
    #[must_use]
    pub fn srv(name: impl Into<String>) -> Self {
        Self::with_servers(Servers::Srv(name.into()))
    }

    /// An application's own client, with its connections, user and TLS settings. It must not be shut down while the table is used. Its own
    /// retries do not matter: the table's commands are none that a client sends again.
    #[must_use]
    pub fn from_client(client: &Client) -> Self {
        Self::with_servers(Servers::Client(client.clone()))
    }

    /// Reads `mongodb://[user:password@]host[:port],…[/database]?option=value&…`, as it is used everywhere with MongoDB; with the feature
    /// `srv` also `mongodb+srv://`. User and password, where the URL has none, come from the environment variables
    /// `MEMBERSHIP_MONGODB_USERNAME` and `MEMBERSHIP_MONGODB_PASSWORD`. Of MongoDB's options these are taken, in any case: `replicaSet`,
    /// `authSource`, `authMechanism`, `directConnection`, `tls`, `tlsCAFile`, `tlsCertificateKeyFile`, `appName`, `connectTimeoutMS`,
    /// `readConcernLevel`; and these if they say what is done anyway: `w`, `journal`, `readPreference`, `retryWrites`, `retryReads`. The
    /// others have the names of the methods here: `collection`, `reads` (`linearizable` or `majority`), `allow_standalone`,
    /// `operation_timeout`, `connect_timeout`.
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
            auth_source: None,
            mechanism: None,
            database: DEFAULT_NAME.to_owned(),
            collection: DEFAULT_NAME.to_owned(),
            replica_set: None,
            direct: false,
            tls: None,
            tls_ca: None,
            tls_certificate_key: None,
            app_name: None,
            reads: Recency::Linearizable,
            standalone: false,
            operation_timeout: DEFAULT_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
        }
    }

    /// Who connects. SCRAM is spoken, as the server wants it.
    #[must_use]
    pub fn credentials(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        (self.username, self.password) = (Some(username.into()), Some(password.into()));
        self
    }

    /// A user who is known by something else than a password.
    pub(crate) fn username(mut self, name: String) -> Self {
        self.username = Some(name);
        self
    }

    /// The database that knows the user. Default `admin`.
    #[must_use]
    pub fn auth_source(mut self, database: impl Into<String>) -> Self {
        self.auth_source = Some(database.into());
        self
    }

    pub(crate) fn mechanism(mut self, mechanism: AuthMechanism) -> Self {
        self.mechanism = Some(mechanism);
        self
    }

    /// The database. Default `membership`.
    #[must_use]
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.database = name.into();
        self
    }

    /// The collection, for this purpose alone; any number of clusters share it. Default `membership`.
    #[must_use]
    pub fn collection(mut self, name: impl Into<String>) -> Self {
        self.collection = name.into();
        self
    }

    /// The name that the replica set must have. Default: any.
    #[must_use]
    pub fn replica_set(mut self, name: impl Into<String>) -> Self {
        self.replica_set = Some(name.into());
        self
    }

    /// Whether only the server that is named is spoken to, and others are not looked for. Default: no.
    #[must_use]
    pub fn direct_connection(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Whether connections are encrypted, and the servers' certificates checked. Default: no; with DNS names of servers yes.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = Some(tls);
        self
    }

    /// A PEM file with the certificates that are trusted instead of those that browsers trust.
    #[must_use]
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_ca = Some(path.into());
        self
    }

    /// A PEM file with the certificate that this client shows, and its private key.
    #[must_use]
    pub fn tls_certificate_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_certificate_key = Some(path.into());
        self
    }

    /// What the servers' logs call this client. Default: nothing.
    #[must_use]
    pub fn app_name(mut self, name: impl Into<String>) -> Self {
        self.app_name = Some(name.into());
        self
    }

    /// How recent reads are. Default `Linearizable`: the primary asks a majority whether it is the primary still. `MonotonicPerClient` reads
    /// what a majority has (read concern `majority`), never older than what this client has seen; reads with a barrier stay linearizable.
    #[must_use]
    pub fn reads(mut self, reads: Recency) -> Self {
        self.reads = reads;
        self
    }

    /// Whether a standalone server will do. Default: no. There are no read concerns there: what a silo has read may be gone after a crash,
    /// if its writer had not heard yet that it is committed; silos then see `TableRolledBack`.
    #[must_use]
    pub fn allow_standalone(mut self, allowed: bool) -> Self {
        self.standalone = allowed;
        self
    }

    /// How long one operation may take, finding the primary included: 10 ms to 1 h. Default 5 s.
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

    pub(crate) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    /// How long a server is looked for, and how long it waits for others: errors are to come from there, because they know more.
    fn patience(&self) -> Duration {
        self.operation_timeout.mul_f64(0.8)
    }

    pub(crate) fn database_name(&self) -> &str {
        &self.database
    }

    pub(crate) const fn recency(&self) -> Recency {
        self.reads
    }

    pub(crate) const fn may_be_standalone(&self) -> bool {
        self.standalone
    }

    pub(crate) fn place(&self, cluster: &ClusterName) -> Place {
        let table = cluster.store_key();
        Place {
            collection: self.collection.clone(),
            beats: format!("{table}/heartbeats"),
            yardstick: format!("{table}/yardstick"),
            table,
            patience: self.patience(),
        }
    }

    /// What must never be seen (clause T15).
    pub(crate) fn secrets(&self) -> Vec<String> {
        self.password
            .clone()
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect()
    }

    /// The servers, as errors name them.
    pub(crate) fn shown(&self) -> String {
        match &self.servers {
            Servers::Hosts(hosts) => {
                let host = |(host, port): &(String, u16)| {
                    if host.contains(':') {
                        format!("[{host}]:{port}")
                    } else {
                        format!("{host}:{port}")
                    }
                };
                hosts.iter().map(host).collect::<Vec<_>>().join(",")
            }
            Servers::Srv(name) => name.clone(),
            Servers::Client(_) => "the application's MongoDB client".to_owned(),
        }
    }

    /// Refuses what cannot work whatever the servers are.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        match &self.servers {
            Servers::Hosts(hosts)
                if hosts.is_empty() || hosts.iter().any(|(host, _)| host.is_empty()) =>
            {
                return Err(wrong("no host is named: mongodb://host:27017/database"));
            }
            Servers::Hosts(hosts) if self.direct && hosts.len() > 1 => {
                return Err(wrong("directConnection=true takes one host"));
            }
            Servers::Srv(_) if self.direct => {
                return Err(wrong(
                    "directConnection=true takes one host, and not mongodb+srv://",
                ));
            }
            _ => {}
        }
        let bad = |c: char| c.is_control() || "/\\. \"$*<>:|?".contains(c);
        if self.database.is_empty() || self.database.len() > 63 || self.database.contains(bad) {
            return Err(wrong(
                "a database has a name of 1 to 63 bytes, without any of / \\ . \" $ * < > : | ? and blanks",
            ));
        }
        let all = &self.collection;
        if all.is_empty()
            || all.len() > 120
            || all.contains('$')
            || all.contains(char::is_control)
            || all.starts_with("system.")
        {
            return Err(wrong(
                "a collection has a name of 1 to 120 bytes, without $, and not beginning with `system.`",
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
        let encrypted = self.tls.unwrap_or(matches!(self.servers, Servers::Srv(_)));
        if !encrypted && (self.tls_ca.is_some() || self.tls_certificate_key.is_some()) {
            return Err(wrong(
                "certificate files are given but no encryption is asked for: tls=true",
            ));
        }
        if self.password.is_some() && self.username.is_none() {
            return Err(wrong("there is a password but no user"));
        }
        if self.username.is_some()
            && self.password.is_none()
            && self.mechanism != Some(AuthMechanism::MongoDbX509)
        {
            return Err(wrong(
                "a user is named without a password: add it, or set MEMBERSHIP_MONGODB_PASSWORD",
            ));
        }
        Ok(())
    }

    fn credential(&self) -> Option<Credential> {
        if self.username.is_none() && self.mechanism.is_none() {
            return None;
        }
        let mut credential = Credential::default();
        credential.username.clone_from(&self.username);
        credential.password.clone_from(&self.password);
        credential.mechanism.clone_from(&self.mechanism);
        credential.source = match self.mechanism {
            Some(AuthMechanism::MongoDbX509) => Some("$external".to_owned()),
            _ => Some(
                self.auth_source
                    .clone()
                    .unwrap_or_else(|| "admin".to_owned()),
            ),
        };
        Some(credential)
    }

    /// A client of its own, which sends nothing twice; or the application's.
    pub(crate) async fn client(&self) -> mongodb::error::Result<Client> {
        let mut options = match &self.servers {
            Servers::Client(client) => return Ok(client.clone()),
            Servers::Hosts(hosts) => {
                let address = |(host, port): &(String, u16)| ServerAddress::Tcp {
                    host: host.clone(),
                    port: Some(*port),
                };
                ClientOptions::builder()
                    .hosts(hosts.iter().map(address).collect::<Vec<_>>())
                    .build()
            }
            Servers::Srv(name) => {
                let mut found = ClientOptions::parse(format!("mongodb+srv://{name}/")).await?;
                if let (Some(known), Some(own)) = (&mut found.credential, self.auth_source.clone())
                {
                    known.source = Some(own);
                }
                found
            }
        };
        options.credential = self.credential().or(options.credential);
        if let Some(name) = &self.replica_set {
            options.repl_set_name = Some(name.clone());
        }
        options.direct_connection = self.direct.then_some(true);
        options.app_name = self.app_name.clone();
        options.connect_timeout = Some(self.connect_timeout.min(self.operation_timeout));
        options.server_selection_timeout = Some(self.patience());
        options.heartbeat_freq = Some(self.operation_timeout.clamp(MONITORED.0, MONITORED.1));
        (options.retry_writes, options.retry_reads) = (Some(false), Some(false));
        options.tls = match self.tls {
            Some(true) => {
                let mut tls = TlsOptions::default();
                tls.ca_file_path.clone_from(&self.tls_ca);
                tls.cert_key_file_path.clone_from(&self.tls_certificate_key);
                Some(Tls::Enabled(tls))
            }
            Some(false) => Some(Tls::Disabled),
            None => options.tls,
        };
        Client::with_options(options)
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for MongoConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoConfig")
            .field("servers", &self.shown())
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("database", &self.database)
            .field("collection", &self.collection)
            .field("replica_set", &self.replica_set)
            .field("tls", &self.tls)
            .field("reads", &self.reads)
            .field("allow_standalone", &self.standalone)
            .field("operation_timeout", &self.operation_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    TableError::new(
        TableErrorKind::Configuration,
        Operation::Connect,
        STORE,
        message,
    )
}
