//! Which servers, and how to use them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use zookeeper_client::Client;

use crate::error::error;

/// Long enough for an election, short enough for a silo that waits.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);
/// What a server allows is 2 to 20 of its ticks of usually 2 s; it takes the nearest.
const SESSIONS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(600);
const DEFAULT_ROOT: &str = "/membership";

/// How a [`ZkTable`](crate::ZkTable) reaches ZooKeeper. `Debug` shows no password (clause T15).
#[derive(Clone)]
pub struct ZkConfig {
    servers: Servers,
    root: String,
    login: Option<(String, String)>,
    tls: bool,
    tls_ca: Option<PathBuf>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    open: Option<bool>,
    operation_timeout: Duration,
    session_timeout: Option<Duration>,
}

#[derive(Clone)]
pub(crate) enum Servers {
    /// Host and port each.
    Named(Vec<(String, u16)>),
    /// Somebody else looks after the session.
    Client(Box<Client>),
}

impl ZkConfig {
    /// These servers of one ensemble, host and port each.
    #[must_use]
    pub fn new<H: Into<String>>(servers: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self::with_servers(Servers::Named(
            servers
                .into_iter()
                .map(|(host, port)| (host.into(), port))
                .collect(),
        ))
    }

    /// A client that is there already: its session, its login, its encryption. When its session ends, the table is unavailable for good,
    /// because only whoever made the client can make another.
    #[must_use]
    pub fn client(client: Client) -> Self {
        Self::with_servers(Servers::Client(Box::new(client)))
    }

    /// Reads `zk://[user:password@]host[:port],host[:port],…[/root]?option=value&…`. `%hh` stands for a byte. User and password, where the
    /// URL has none, come from the environment variables `MEMBERSHIP_ZK_USERNAME` and `MEMBERSHIP_ZK_PASSWORD`. The options are
    /// `operation_timeout`, `session_timeout`, `acl` (`creator` or `open`), `tls`, `tls_ca`, `tls_cert` and `tls_key`: the methods here.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no host, an unknown option, or a value that is none. Never shows what may be a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        crate::url::parse(url, |name| {
            std::env::var(name).ok().filter(|v| !v.is_empty())
        })
    }

    fn with_servers(servers: Servers) -> Self {
        Self {
            servers,
            root: DEFAULT_ROOT.to_owned(),
            login: None,
            tls: false,
            tls_ca: None,
            tls_certificate: None,
            tls_key: None,
            open: None,
            operation_timeout: DEFAULT_TIMEOUT,
            session_timeout: None,
        }
    }

    /// The znode below which clusters stand; made by `initialize` where it is missing. Default `/membership`; `/` is ZooKeeper's own root.
    #[must_use]
    pub fn root(mut self, path: impl Into<String>) -> Self {
        let path = path.into();
        let path = path.trim_matches('/');
        self.root = if path.is_empty() {
            String::new()
        } else {
            format!("/{path}")
        };
        self
    }

    /// Who connects, by ZooKeeper's scheme `digest`. What is made then belongs to that user alone, unless [`open`](Self::open) says otherwise.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some((user.into(), password.into()));
        self
    }

    /// Whether everybody may do everything with the znodes that are made, or only their creator. Default: everybody where there are no
    /// [`credentials`](Self::credentials), and else the creator alone.
    #[must_use]
    pub fn open(mut self, open: bool) -> Self {
        self.open = Some(open);
        self
    }

    /// Whether connections are encrypted, and the servers' certificates checked. Default: no. Needs [`tls_ca_file`](Self::tls_ca_file).
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// A PEM file with the certificates that are trusted.
    #[must_use]
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_ca = Some(path.into());
        self
    }

    /// A PEM file with the certificate that this client shows, for which ZooKeeper asks unless it is told not to; needs
    /// [`tls_key_file`](Self::tls_key_file) too.
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

    /// How long one operation may take, connecting included: 100 ms to 1 h. Default 5 s.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How long ZooKeeper keeps the session of a client that it does not hear, 0.5 s to 10 min; the server takes the nearest that it allows.
    /// Default: the operation timeout. A server that is silent for two fifths of it is left for another one. Nothing in the table depends
    /// on a session: one that expires is replaced.
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

    pub(crate) fn login(&self) -> Option<&(String, String)> {
        self.login.as_ref()
    }

    pub(crate) fn uses_tls(&self) -> bool {
        self.tls
    }

    pub(crate) fn tls_files(&self) -> [Option<&Path>; 3] {
        [
            self.tls_ca.as_deref(),
            self.tls_certificate.as_deref(),
            self.tls_key.as_deref(),
        ]
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.unwrap_or(self.login.is_none())
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    pub(crate) fn session(&self) -> Duration {
        self.session_timeout.unwrap_or_else(|| {
            self.operation_timeout
                .clamp(*SESSIONS.start(), *SESSIONS.end())
        })
    }

    /// The servers that are named, for errors: `a:2181, b:2181`.
    pub(crate) fn at(&self) -> String {
        match &self.servers {
            Servers::Named(all) => all.iter().map(shown).collect::<Vec<_>>().join(", "),
            Servers::Client(_) => "the client's servers".to_owned(),
        }
    }

    /// # Errors
    /// `Configuration`, with what to write instead.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        if let Servers::Named(all) = &self.servers
            && all.is_empty()
        {
            return Err(wrong("no server is named: write zk://host:port"));
        }
        if !TIMEOUTS.contains(&self.operation_timeout) {
            return Err(wrong("operation_timeout is a time from 100ms to 1h"));
        }
        if self
            .session_timeout
            .is_some_and(|timeout| !SESSIONS.contains(&timeout))
        {
            return Err(wrong("session_timeout is a time from 500ms to 10min"));
        }
        if !self.root.split('/').skip(1).all(crate::place::is_key) || self.root.len() > 256 {
            return Err(wrong(
                "the path after the hosts is the znode below which clusters stand, such as /membership: at most 256 bytes, without empty parts",
            ));
        }
        if self
            .login
            .as_ref()
            .is_some_and(|(user, _)| user.is_empty() || user.contains(':'))
        {
            return Err(wrong(
                "a user of ZooKeeper's scheme digest has a name, without a colon",
            ));
        }
        if self.open == Some(false)
            && self.login.is_none()
            && matches!(self.servers, Servers::Named(_))
        {
            return Err(wrong(
                "acl=creator needs a user and a password: zk://user:password@host",
            ));
        }
        let [ca, certificate, key] = self.tls_files();
        if self.tls && ca.is_none() {
            return Err(wrong(
                "tls needs tls_ca: a PEM file with the certificates that are trusted",
            ));
        }
        if !self.tls && (ca.is_some() || certificate.is_some() || key.is_some()) {
            return Err(wrong(
                "tls_ca, tls_cert and tls_key are for encrypted connections: add tls=true",
            ));
        }
        if certificate.is_some() != key.is_some() {
            return Err(wrong("tls_cert and tls_key go together"));
        }
        Ok(())
    }
}

impl fmt::Debug for ZkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkConfig")
            .field("servers", &self.at())
            .field("root", &self.root)
            .field("tls", &self.tls)
            .field("operation_timeout", &self.operation_timeout)
            .finish_non_exhaustive()
    }
}

/// A server as people write it.
pub(crate) fn shown((host, port): &(String, u16)) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// A configuration that cannot be.
pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let good = || ZkConfig::new([("h", 2181)]);
        assert!(
            good().validate().is_ok()
                && good().root("/").validate().is_ok()
                && good().root("a/b/").validate().is_ok()
        );
        for bad in [
            ZkConfig::new(Vec::<(String, u16)>::new()),
            good().root("/a//b"),
            good().root("/a/../b"),
            good().root("x".repeat(300)),
            good().operation_timeout(Duration::ZERO),
            good().session_timeout(Duration::from_millis(1)),
            good().credentials("a:b", "c"),
            good().open(false),
            good().tls(true),
            good().tls_ca_file("ca.pem"),
            good().tls(true).tls_ca_file("ca.pem").tls_key_file("k"),
        ] {
            assert_eq!(
                bad.validate().map_err(|e| e.kind()),
                Err(TableErrorKind::Configuration),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_password_does_not_show() {
        let config = ZkConfig::new([("h", 2181)]).credentials("bo", "hush-hush");
        assert!(!format!("{config:?} {config:#?}").contains("hush"));
    }
}
