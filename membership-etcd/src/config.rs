//! Which members, and how to use them. Nothing here touches the network.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use reqwest::{Certificate, Client, ClientBuilder, Identity};

use crate::error::error;

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_etcd::EtcdConfig;
///
/// let config = EtcdConfig::new([("etcd-0", 2379), ("etcd-1", 2379)]).credentials("membership", "s3cret").prefix("ops/membership");
/// assert!(!format!("{config:?}").contains("s3cret"));
/// let same = EtcdConfig::from_url("etcd://membership:s3cret@etcd-0,etcd-1:2379/ops/membership")?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct EtcdConfig {
    members: Vec<Member>,
    username: Option<String>,
    password: Option<String>,
    tls: bool,
    tls_ca: Option<PathBuf>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    client: Option<Client>,
    prefix: String,
    operation_timeout: Duration,
    connect_timeout: Duration,
}

/// One member of the etcd cluster, as clients reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Long enough for an election, short enough for a silo to notice that the store is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// A member that takes longer to accept a connection serves nobody.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Below this no network could be crossed.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
/// Above this nobody is waiting any more.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// What keys begin with by default.
const DEFAULT_PREFIX: &str = "membership";
/// Longer ones only make keys long.
const MAX_PREFIX: usize = 128;
/// How long a silent connection goes unasked, and unanswered: a hint's would otherwise be silent for ever.
const KEEPALIVE: Duration = Duration::from_secs(15);

impl EtcdConfig {
    /// These members (host and port each), without TLS or user. One of them is enough as long as it is up; name all of them, because nobody
    /// else tells where the others are.
    #[must_use]
    pub fn new<H: Into<String>>(members: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self {
            members: members
                .into_iter()
                .map(|(host, port)| Member {
                    host: host.into(),
                    port,
                })
                .collect(),
            username: None,
            password: None,
            tls: false,
            tls_ca: None,
            tls_certificate: None,
            tls_key: None,
            client: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            operation_timeout: DEFAULT_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
        }
    }

    /// Reads `etcd://[user:password@]host[:port][,host[:port]…][/prefix][?option=value&…]`, or `etcd+https://…` for TLS. `%hh` stands for a
    /// byte. User and password, where the URL has none, come from the environment variables `MEMBERSHIP_ETCD_USERNAME` and
    /// `MEMBERSHIP_ETCD_PASSWORD`. The options have the names of the methods here: `operation_timeout`, `connect_timeout`, `tls_ca`,
    /// `tls_cert`, `tls_key`.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no host, an unknown option, or a value that is none. Never shows what may be a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        crate::url::parse(url, |name| {
            std::env::var(name).ok().filter(|v| !v.is_empty())
        })
    }

    /// Sends requests with an existing client: its TLS settings, proxies and time-outs of connecting. The options of TLS here are then not
    /// used, but for [`tls`](Self::tls) itself. The client must not send requests again by itself (`retry::never()`), nor follow
    /// redirections.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// A user of etcd's own authentication.
    #[must_use]
    pub fn credentials(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        (self.username, self.password) = (Some(username.into()), Some(password.into()));
        self
    }

    /// Whether connections are encrypted, and the members' certificates checked. Default: no.
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

    /// What every key begins with: 1 to 128 characters without control characters, not beginning or ending with a slash. Default
    /// `membership`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long one operation may take, connecting and authenticating included: 10 ms to 1 h. Default 5 s.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How long one connection may take to be made: 10 ms to 1 h. Default 2 s. An existing client keeps its own.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn user(&self) -> Option<(&str, &str)> {
        self.username.as_deref().zip(self.password.as_deref())
    }

    pub(crate) fn key_prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// The members that are named, for errors.
    pub(crate) fn place(&self) -> String {
        self.members
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Refuses what cannot work whatever the members are.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        if self.members.is_empty() || self.members.iter().any(|member| member.host.is_empty()) {
            return Err(wrong("no host is named: write etcd://host:2379"));
        }
        let part_of_a_name =
            |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c) || !c.is_ascii();
        if let Some(bad) = self
            .members
            .iter()
            .find(|member| !member.host.chars().all(part_of_a_name))
        {
            let host: String = bad
                .host
                .chars()
                .filter(|c| !c.is_control())
                .take(60)
                .collect();
            return Err(wrong(format!("`{host}` is no host")));
        }
        let bad = self.prefix.is_empty()
            || self.prefix.chars().count() > MAX_PREFIX
            || self.prefix.chars().any(char::is_control);
        if bad || self.prefix.starts_with('/') || self.prefix.ends_with('/') {
            return Err(wrong(
                "a prefix has 1 to 128 characters, no control characters, and no slash at its ends",
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
        if !self.tls
            && [&self.tls_ca, &self.tls_certificate, &self.tls_key]
                .into_iter()
                .any(Option::is_some)
        {
            return Err(wrong(
                "certificate files are given but no encryption is asked for: use etcd+https://",
            ));
        }
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            return Err(wrong(
                "a client's certificate and its key come together: tls_cert and tls_key",
            ));
        }
        Ok(())
    }

    /// What sends requests. Reads certificate files, and asks nobody yet.
    ///
    /// # Errors
    /// `Configuration`: a file that cannot be read, or is no certificate.
    pub(crate) fn open(&self) -> Result<Client, TableError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        // What is sent again, and when, is decided by whoever knows whether that is harmless; a store is no web site behind a proxy.
        let builder = Client::builder()
            .retry(reqwest::retry::never())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only();
        let builder = builder
            .connect_timeout(self.connect_timeout.min(self.operation_timeout))
            .tcp_nodelay(true);
        let builder = builder
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE);
        self.with_tls(builder)?.build().map_err(|e| {
            wrong(format!(
                "no client can be made: {}",
                crate::error::innermost(&e)
            ))
        })
    }

    fn with_tls(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, TableError> {
        if !self.tls {
            // Nobody's certificates are needed, nor looked for.
            return Ok(builder.tls_certs_only([]));
        }
        if let Some(path) = &self.tls_ca {
            let trusted = Certificate::from_pem_bundle(&read(path)?).unwrap_or_default();
            if trusted.is_empty() {
                return Err(wrong(format!(
                    "{} holds no certificate in PEM form",
                    path.display()
                )));
            }
            builder = builder.tls_certs_only(trusted);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) {
            let both = [read(certificate)?, b"\n".to_vec(), read(key)?].concat();
            let identity = Identity::from_pem(&both).map_err(|_| {
                wrong(format!(
                    "{} and {} are no certificate and key in PEM form",
                    certificate.display(),
                    key.display()
                ))
            })?;
            builder = builder.identity(identity);
        }
        Ok(builder)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TableError> {
    std::fs::read(path).map_err(|e| wrong(format!("{} cannot be read ({e})", path.display())))
}

/// Shows no secret (clause T15).
impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field(
                "members",
                &format_args!("{}://{}", self.scheme(), self.place()),
            )
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("prefix", &self.prefix)
            .field("operation_timeout", &self.operation_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}
