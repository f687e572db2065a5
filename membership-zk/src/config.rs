//! Which servers, and how to use them: options and URLs.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use membership_core::{ConnectionOption, ConnectionString, TableError, TableErrorKind};
use membership_provider::{Credentials, Endpoint, TlsFiles, check_timeout, environment};
use zookeeper_client::{Acl, Acls, AuthId, Client, Permission};

use crate::STORE;
use crate::error::error;
use crate::keys::is_key;

/// The schemes of its URLs.
pub(crate) const SCHEMES: &[&str] = &["zk"];
/// Longer than a usual election, and short enough for a silo to notice that the store is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// A server allows 2 to 20 of its ticks of usually 2 s, and takes the nearest.
const SESSIONS: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(600);
/// The longest name of a reader, which every request that creates znodes repeats for each of them.
const READER: usize = 256;
const DEFAULT_ROOT: &str = "/membership";
const DEFAULT_PORT: u16 = 2181;
/// The environment variables for a URL without user or password.
const VARIABLES: [&str; 2] = ["MEMBERSHIP_ZK_USERNAME", "MEMBERSHIP_ZK_PASSWORD"];
const OPTIONS: &str =
    "operation_timeout, session_timeout, acl, reader, tls, tls_ca, tls_cert and tls_key";

/// How a [`ZkTable`](crate::ZkTable) reaches ZooKeeper. `Debug` shows no password (clause T15).
#[derive(Clone)]
pub struct ZkConfig {
    servers: Servers,
    root: String,
    login: Option<Credentials>,
    tls: bool,
    tls_files: TlsFiles,
    open: Option<bool>,
    reader: Option<String>,
    operation_timeout: Duration,
    session_timeout: Option<Duration>,
}

#[derive(Clone)]
pub(crate) enum Servers {
    Named(Vec<Endpoint>),
    /// The application's client.
    Client(Box<Client>),
}

impl ZkConfig {
    /// Servers of one ensemble, host and port each.
    #[must_use]
    pub fn new<H: Into<String>>(servers: impl IntoIterator<Item = (H, u16)>) -> Self {
        let servers = servers.into_iter().map(Endpoint::from);
        Self::with_servers(Servers::Named(servers.collect()))
    }

    /// An application's own client, with its session, login and encryption. When its session ends,
    /// the table stays unavailable: only the application can create another client.
    #[must_use]
    pub fn client(client: Client) -> Self {
        Self::with_servers(Servers::Client(Box::new(client)))
    }

    /// Reads `zk://[user:password@]host[:port],host[:port],…[/root]?option=value&…`; `%hh` is a
    /// byte. A missing user or password comes from the environment variables
    /// `MEMBERSHIP_ZK_USERNAME` and `MEMBERSHIP_ZK_PASSWORD`. The options are `operation_timeout`,
    /// `session_timeout`, `acl` (`creator` or `open`), `reader`, `tls`, `tls_ca`, `tls_cert` and
    /// `tls_key`: see the methods here.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no host, an unknown option or a bad value. Never shows what
    /// may be a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        parse(url, environment)
    }

    fn with_servers(servers: Servers) -> Self {
        Self {
            servers,
            root: DEFAULT_ROOT.to_owned(),
            login: None,
            tls: false,
            tls_files: TlsFiles::default(),
            open: None,
            reader: None,
            operation_timeout: DEFAULT_TIMEOUT,
            session_timeout: None,
        }
    }

    /// The parent znode of all clusters; `initialize` creates it. Default `/membership`; `/` is
    /// ZooKeeper's own root.
    #[must_use]
    pub fn root(mut self, path: impl Into<String>) -> Self {
        let path = path.into();
        let path = path.trim_matches('/');
        self.root = match path {
            "" => String::new(),
            path => format!("/{path}"),
        };
        self
    }

    /// The login, by ZooKeeper's scheme `digest`. Created znodes then belong to that user alone,
    /// unless [`open`](Self::open) says otherwise.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some(Credentials::new(user, password));
        self
    }

    /// Whether everybody may do everything with the created znodes, or only their creator. Default:
    /// only the creator with [`credentials`](Self::credentials), else everybody.
    #[must_use]
    pub fn open(mut self, open: bool) -> Self {
        self.open = Some(open);
        self
    }

    /// A user that may read the created znodes besides their creator, as `setAcl` names it:
    /// `digest:clients:HASH`. Default: none.
    #[must_use]
    pub fn reader(mut self, user: impl Into<String>) -> Self {
        self.reader = Some(user.into());
        self
    }

    /// Whether connections use TLS with checked certificates. Default: no. Needs
    /// [`tls_ca_file`](Self::tls_ca_file), and by ZooKeeper's default a client's certificate.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    membership_provider::tls_file_methods!();

    /// The time of one operation, including connecting: 100 ms to 1 h. Default 5 s.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How long ZooKeeper keeps the session of a silent client, 0.5 s to 10 min; the server takes
    /// the nearest that it allows. Default: the operation timeout. If a server is silent for two
    /// fifths of it, the client connects to another one. Nothing in the table depends on a session:
    /// an expired one is replaced.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
        self
    }

    pub(crate) fn servers(&self) -> &Servers {
        &self.servers
    }

    pub(crate) fn root_path(&self) -> &str {
        &self.root
    }

    pub(crate) fn login(&self) -> Option<&Credentials> {
        self.login.as_ref()
    }

    pub(crate) fn uses_tls(&self) -> bool {
        self.tls
    }

    pub(crate) fn tls_files(&self) -> &TlsFiles {
        &self.tls_files
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.unwrap_or(self.login.is_none())
    }

    /// Who may use the created znodes.
    pub(crate) fn acls(&self) -> Vec<Acl> {
        if self.is_open() {
            return Acls::anyone_all().to_vec();
        }
        let mut acls = Acls::creator_all().to_vec();
        if let Some((scheme, id)) = self.reader.as_ref().and_then(|user| user.split_once(':')) {
            acls.push(Acl::new(Permission::READ, AuthId::new(scheme, id)));
        }
        acls
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    pub(crate) fn session(&self) -> Duration {
        let default = || {
            let timeout = self.operation_timeout;
            timeout.clamp(*SESSIONS.start(), *SESSIONS.end())
        };
        self.session_timeout.unwrap_or_else(default)
    }

    /// The servers, as errors name them.
    pub(crate) fn address(&self) -> String {
        match &self.servers {
            Servers::Named(all) => Endpoint::join(all),
            Servers::Client(_) => "the client's servers".to_owned(),
        }
    }

    /// # Errors
    /// `Configuration`, with what to write instead.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        let named = match &self.servers {
            Servers::Named(all) if all.is_empty() => {
                return Err(wrong("no server is named: write zk://host:port"));
            }
            Servers::Named(_) => true,
            Servers::Client(_) => false,
        };
        let timeout = self.operation_timeout;
        check_timeout(STORE, "operation_timeout", timeout, &TIMEOUTS)?;
        check_timeout(STORE, "session_timeout", self.session(), &SESSIONS)?;
        if !self.root.split('/').skip(1).all(is_key) || self.root.len() > 256 {
            return Err(wrong(
                "the path after the hosts is the parent znode of all clusters, such as /membership: at most 256 bytes, without empty parts",
            ));
        }
        let user = self.login.as_ref().map(|login| login.user.as_str());
        if user.is_some_and(|user| user.is_empty() || user.contains(':')) {
            let message = "a user of ZooKeeper's scheme digest has a name without a colon";
            return Err(wrong(message));
        }
        if self.open == Some(false) && user.is_none() && named {
            let message = "acl=creator needs a user and a password: zk://user:password@host";
            return Err(wrong(message));
        }
        if let Some(reader) = &self.reader {
            let named = reader.split_once(':');
            if reader.len() > READER
                || named.is_none_or(|(scheme, id)| scheme.is_empty() || id.is_empty())
            {
                return Err(wrong(
                    "reader is a user as setAcl names it, such as digest:clients:HASH: at most 256 bytes",
                ));
            }
            if self.is_open() {
                let message =
                    "reader needs acl=creator: with acl=open everybody may read and write";
                return Err(wrong(message));
            }
        }
        if self.tls && self.tls_files.ca.is_none() {
            let message = "tls needs tls_ca: a PEM file with the trusted certificates";
            return Err(wrong(message));
        }
        self.tls_files.validate(STORE, self.tls, "tls=true")
    }
}

impl fmt::Debug for ZkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkConfig")
            .field("servers", &self.address())
            .field("root", &self.root)
            .field("tls", &self.tls)
            .field("operation_timeout", &self.operation_timeout)
            .finish_non_exhaustive()
    }
}

fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

/// See [`ZkConfig::from_url`].
fn parse(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<ZkConfig, TableError> {
    let url = ConnectionString::parse(STORE, SCHEMES, url)?;
    if url.hosts.is_empty() {
        return Err(wrong("the URL names no host: write zk://host:port"));
    }
    let servers = Endpoint::list(&url.hosts, DEFAULT_PORT);
    let mut config = ZkConfig::with_servers(Servers::Named(servers));
    if let Some(path) = url.path {
        config = config.root(path);
    }
    let user = url.user.or_else(|| environment(VARIABLES[0]));
    if user.is_some() || url.password.is_some() {
        config.login = Credentials::find(STORE, user, url.password, environment, VARIABLES)?;
    }
    for option in url.options {
        config = set(config, &option)?;
    }
    config.validate()?;
    Ok(config)
}

fn set(mut config: ZkConfig, option: &ConnectionOption) -> Result<ZkConfig, TableError> {
    Ok(match option.name() {
        "operation_timeout" => config.operation_timeout(option.duration()?),
        "session_timeout" => config.session_timeout(option.duration()?),
        "acl" => config.open(option.one_of(&[("creator", false), ("open", true)])?),
        "reader" => config.reader(option.text()),
        "tls" => config.tls(option.flag()?),
        _ if config.tls_files.set(option) => config,
        _ => return Err(option.unknown(OPTIONS)),
    })
}

#[cfg(test)]
mod tests;
