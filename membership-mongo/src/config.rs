//! Which servers, and how to use them: options and URLs. The only network access here is the DNS
//! lookup for `mongodb+srv://`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use membership_core::{ConnectionOption, ConnectionString, Recency, TableError, TableErrorKind};
use membership_provider::{Endpoint, Secrets, Timeouts, environment, hidden};
use mongodb::Client;
use mongodb::options::{AuthMechanism, ClientOptions, Credential, ServerAddress, Tls, TlsOptions};

use crate::STORE;
use crate::error::error;

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
/// let url = "mongodb://ops:s3cret@a.internal,b.internal/?replicaSet=rs0&operation_timeout=3s";
/// let same = MongoConfig::from_url(url)?;
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
    pub(crate) timeouts: Timeouts,
}

/// How the primary is found.
#[derive(Clone)]
pub(crate) enum Servers {
    /// Through these hosts.
    Hosts(Vec<Endpoint>),
    /// Through the hosts that this DNS name lists.
    #[cfg_attr(
        not(feature = "srv"),
        allow(dead_code, reason = "refused without the feature")
    )]
    Srv(String),
    /// An application's own client.
    Client(Client),
}

/// The schemes of its URLs. Without the feature `srv` the second one is refused with advice.
pub(crate) const SCHEMES: &[&str] = &["mongodb", "mongodb+srv"];
/// Those that this build can open.
pub(crate) const PROVIDED: &[&str] = if cfg!(feature = "srv") {
    SCHEMES
} else {
    &["mongodb"]
};
/// The port of a host without one.
pub(crate) const DEFAULT_PORT: u16 = 27_017;
/// How often the driver checks each server; its minimum is half a second.
const MONITOR_PERIOD: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
const DEFAULT_NAME: &str = "membership";
/// The environment variables for a URL without user or password.
const USERNAME: &str = "MEMBERSHIP_MONGODB_USERNAME";
const PASSWORD: &str = "MEMBERSHIP_MONGODB_PASSWORD";

/// How many connections to the primary there are at most, and how many requests at a time.
pub(crate) const CONNECTIONS: usize = 10;
/// A silo sends something at least every thirty seconds, over the connection that was used last. Those of
/// a crowd of calls are closed after this time; the driver would keep them.
const MAX_IDLE: Duration = Duration::from_secs(40);
const OPTIONS: &str = "replicaSet, authSource, authMechanism, directConnection, tls, tlsCAFile, tlsCertificateKeyFile, appName, \
                       connectTimeoutMS, readConcernLevel, collection, reads, allow_standalone, operation_timeout and connect_timeout";

impl MongoConfig {
    /// Hosts and ports of a replica set, or of routers of a sharded cluster. Other members are
    /// found through them.
    #[must_use]
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = (H, u16)>) -> Self {
        let hosts = hosts.into_iter().map(Endpoint::from);
        Self::with_servers(Servers::Hosts(hosts.collect()))
    }

    /// The servers that this DNS name lists, as in `mongodb+srv://name`; with TLS.
    #[cfg(feature = "srv")]
    #[must_use]
    pub fn srv(name: impl Into<String>) -> Self {
        Self::with_servers(Servers::Srv(name.into()))
    }

    /// An application's own client, with its connections, user and TLS settings. The application
    /// must not shut it down while the table is used. The driver never retries the table's
    /// commands.
    #[must_use]
    pub fn from_client(client: &Client) -> Self {
        Self::with_servers(Servers::Client(client.clone()))
    }

    /// Reads `mongodb://[user:password@]host[:port],…[/database]?option=value&…`; with the feature
    /// `srv` also `mongodb+srv://`. A missing user or password comes from the environment variables
    /// `MEMBERSHIP_MONGODB_USERNAME` and `MEMBERSHIP_MONGODB_PASSWORD`. The crate's `README.md`
    /// lists the options: MongoDB's own in any case, and the others named as the methods here.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no host, an unknown option or a bad value. Never shows what
    /// may be a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        parse(url, environment)
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
            timeouts: Timeouts::default(),
        }
    }

    /// The user and the password, for SCRAM.
    #[must_use]
    pub fn credentials(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        (self.username, self.password) = (Some(username.into()), Some(password.into()));
        self
    }

    /// A user with another proof than a password.
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

    /// The collection, for this purpose alone; any number of clusters share it. Default
    /// `membership`.
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

    /// Whether only the named server is used and no other is looked for. Default: no.
    #[must_use]
    pub fn direct_connection(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Whether connections use TLS with checked certificates. Default: no; yes with a DNS name.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = Some(tls);
        self
    }

    /// A PEM file with the trusted certificates. Default: those that browsers trust.
    #[must_use]
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_ca = Some(path.into());
        self
    }

    /// A PEM file with this client's certificate and its private key.
    #[must_use]
    pub fn tls_certificate_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_certificate_key = Some(path.into());
        self
    }

    /// The name of this client in the servers' logs. Default: none.
    #[must_use]
    pub fn app_name(mut self, name: impl Into<String>) -> Self {
        self.app_name = Some(name.into());
        self
    }

    /// How recent reads are. Default `Linearizable`: a majority confirms to the primary that it is
    /// still the primary. `MonotonicPerClient` reads what a majority has (read concern `majority`),
    /// and nothing older than this client has seen; reads with a barrier stay linearizable.
    #[must_use]
    pub fn reads(mut self, reads: Recency) -> Self {
        self.reads = reads;
        self
    }

    /// Whether a standalone server is accepted. Default: no. It has no read concerns: after a crash
    /// a commit that a silo has read may be gone, if it was not yet acknowledged to its writer.
    /// Silos then see `TableRolledBack`.
    #[must_use]
    pub fn allow_standalone(mut self, allowed: bool) -> Self {
        self.standalone = allowed;
        self
    }

    membership_provider::timeout_methods!();

    /// How long the driver looks for a server, and a server waits for others. Shorter than the
    /// operation, because their errors say more.
    pub(crate) fn server_timeout(&self) -> Duration {
        self.timeouts.operation().mul_f64(0.8)
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

    pub(crate) fn collection_name(&self) -> String {
        self.collection.clone()
    }

    pub(crate) fn secrets(&self) -> Secrets {
        Secrets::new([self.password.clone()])
    }

    /// The servers, as errors name them.
    pub(crate) fn address(&self) -> String {
        match &self.servers {
            Servers::Hosts(hosts) => Endpoint::join(hosts),
            Servers::Srv(name) => name.clone(),
            Servers::Client(_) => "the application's MongoDB client".to_owned(),
        }
    }

    /// Refuses what cannot work with any server.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        match &self.servers {
            Servers::Hosts(hosts)
                if hosts.is_empty() || hosts.iter().any(|one| one.host.is_empty()) =>
            {
                return Err(wrong(
                    "no host is named: write mongodb://host:27017/database",
                ));
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
                "the name of a database has 1 to 63 bytes and none of / \\ . \" $ * < > : | ? and blanks",
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
                "the name of a collection has 1 to 120 bytes, no $, and does not start with `system.`",
            ));
        }
        self.timeouts.validate(STORE)?;
        let encrypted = self.tls.unwrap_or(matches!(self.servers, Servers::Srv(_)));
        if !encrypted && (self.tls_ca.is_some() || self.tls_certificate_key.is_some()) {
            return Err(wrong("certificate files need TLS: add tls=true"));
        }
        if self.password.is_some() && self.username.is_none() {
            return Err(wrong("there is a password but no user"));
        }
        if self.username.is_some()
            && self.password.is_none()
            && self.mechanism != Some(AuthMechanism::MongoDbX509)
        {
            return Err(wrong(
                "the user has no password: add it, or set MEMBERSHIP_MONGODB_PASSWORD",
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

    /// A new client that sends nothing twice, or the application's client.
    pub(crate) async fn client(&self) -> mongodb::error::Result<Client> {
        let mut options = match &self.servers {
            Servers::Client(client) => return Ok(client.clone()),
            Servers::Hosts(hosts) => {
                let address = |endpoint: &Endpoint| ServerAddress::Tcp {
                    host: endpoint.host.clone(),
                    port: Some(endpoint.port),
                };
                let hosts = hosts.iter().map(address).collect::<Vec<_>>();
                ClientOptions::builder().hosts(hosts).build()
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
        options.connect_timeout = Some(self.timeouts.connect());
        options.server_selection_timeout = Some(self.server_timeout());
        options.max_idle_time = Some(MAX_IDLE);
        options.max_pool_size = u32::try_from(CONNECTIONS).ok();
        options.heartbeat_freq = Some(
            self.timeouts
                .operation()
                .clamp(MONITOR_PERIOD.0, MONITOR_PERIOD.1),
        );
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
            .field("servers", &self.address())
            .field("username", &self.username)
            .field("password", &hidden(&self.password))
            .field("database", &self.database)
            .field("collection", &self.collection)
            .field("replica_set", &self.replica_set)
            .field("tls", &self.tls)
            .field("reads", &self.reads)
            .field("allow_standalone", &self.standalone)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

/// See [`MongoConfig::from_url`].
fn parse(
    url: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<MongoConfig, TableError> {
    let url = ConnectionString::parse(STORE, SCHEMES, url)?;
    let servers = match (url.scheme.as_str(), url.hosts.as_slice()) {
        (_, []) => {
            return Err(wrong(
                "the URL names no host: write mongodb://host:27017/database",
            ));
        }
        ("mongodb+srv", _) if cfg!(not(feature = "srv")) => {
            return Err(wrong(
                "mongodb+srv:// needs the feature `srv` of membership-mongo (`mongodb-srv` of silo-membership)",
            ));
        }
        ("mongodb+srv", [(name, None)]) => Servers::Srv(name.clone()),
        ("mongodb+srv", _) => {
            return Err(wrong("mongodb+srv:// takes one DNS name without a port"));
        }
        (_, hosts) => Servers::Hosts(Endpoint::list(hosts, DEFAULT_PORT)),
    };
    let mut config = MongoConfig::with_servers(servers);
    if let Some(database) = url.path {
        // As everywhere with MongoDB: users are in the database of the data unless `authSource`
        // says otherwise.
        config = config.auth_source(database.clone()).database(database);
    }
    let (name, password) = (url.user, url.password.filter(|p| !p.is_empty()));
    if let Some(name) = name.or_else(|| environment(USERNAME)) {
        config = match password.or_else(|| environment(PASSWORD)) {
            Some(password) => config.credentials(name, password),
            None => config.username(name),
        };
    } else if password.is_some() {
        return Err(wrong("the URL has a password but no user"));
    }
    for option in url.options {
        config = set(config, &option)?;
    }
    config.validate()?;
    Ok(config)
}

fn set(config: MongoConfig, option: &ConnectionOption) -> Result<MongoConfig, TableError> {
    let levels = [
        ("linearizable", Recency::Linearizable),
        ("majority", Recency::MonotonicPerClient),
    ];
    // The names of MongoDB's own options are case-insensitive.
    Ok(match option.name().to_ascii_lowercase().as_str() {
        "replicaset" => config.replica_set(option.text()),
        "authsource" => config.auth_source(option.text()),
        "authmechanism" => config.mechanism(option.one_of(&[
            ("SCRAM-SHA-256", AuthMechanism::ScramSha256),
            ("SCRAM-SHA-1", AuthMechanism::ScramSha1),
            ("MONGODB-X509", AuthMechanism::MongoDbX509),
        ])?),
        "directconnection" => config.direct_connection(option.flag()?),
        "tls" | "ssl" => config.tls(option.flag()?),
        "tlscafile" => config.tls_ca_file(option.text()),
        "tlscertificatekeyfile" => config.tls_certificate_key_file(option.text()),
        "appname" => config.app_name(option.text()),
        "connecttimeoutms" => config.connect_timeout(Duration::from_millis(option.number()?)),
        "reads" | "readconcernlevel" => config.reads(option.one_of(&levels)?),
        "collection" => config.collection(option.text()),
        "allow_standalone" => config.allow_standalone(option.flag()?),
        "operation_timeout" => config.operation_timeout(option.duration()?),
        "connect_timeout" => config.connect_timeout(option.duration()?),
        // Options of copied URLs for what is always done. Nothing is ever sent twice.
        "retrywrites" | "retryreads" => option.flag().map(|_| config)?,
        "w" => option.one_of(&[("majority", config)])?,
        "journal" => match option.flag()? {
            true => config,
            false => {
                return Err(option.wrong("true: commits are acknowledged from the journal"));
            }
        },
        "readpreference" => option.one_of(&[("primary", config)])?,
        _ => return Err(option.unknown(OPTIONS)),
    })
}

#[cfg(test)]
mod tests;
