//! Options and connection strings. Nothing here uses the network.

use std::fmt;
use std::time::Duration;

use membership_core::{ConnectionString, TableError};
use membership_provider::{Credentials, Endpoint, Timeouts, TlsFiles, environment, http};
use reqwest::Client;

use crate::STORE;
use crate::error::wrong;

/// The schemes of connection strings.
pub(crate) const SCHEMES: &[&str] = &["etcd", "etcd+https"];
/// The environment variables for user and password.
const VARIABLES: [&str; 2] = ["MEMBERSHIP_ETCD_USERNAME", "MEMBERSHIP_ETCD_PASSWORD"];
const DEFAULT_PORT: u16 = 2379;
/// What keys begin with.
const DEFAULT_PREFIX: &str = "membership";
/// A longer prefix only makes keys long.
const MAX_PREFIX: usize = 128;
/// How often TCP checks a silent connection: without it, hints over a dead one would stay silent.
const KEEPALIVE: Duration = Duration::from_secs(15);

const OPTIONS: &str = "operation_timeout, connect_timeout, tls_ca, tls_cert and tls_key";

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_etcd::EtcdConfig;
///
/// let config = EtcdConfig::new([("etcd-0", 2379), ("etcd-1", 2379)])
///     .credentials("membership", "s3cret")
///     .prefix("ops/membership");
/// assert!(!format!("{config:?}").contains("s3cret"));
/// let same = EtcdConfig::from_url("etcd://membership:s3cret@etcd-0,etcd-1:2379/ops/membership")?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct EtcdConfig {
    pub(crate) members: Vec<Endpoint>,
    pub(crate) credentials: Option<Credentials>,
    tls: bool,
    tls_files: TlsFiles,
    client: Option<Client>,
    pub(crate) prefix: String,
    pub(crate) timeouts: Timeouts,
}

impl EtcdConfig {
    /// These members (host and port each), without TLS or user. One that is up is enough; name all
    /// of them, because members do not list the others.
    #[must_use]
    pub fn new<H: Into<String>>(members: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self {
            members: members.into_iter().map(Endpoint::from).collect(),
            credentials: None,
            tls: false,
            tls_files: TlsFiles::default(),
            client: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            timeouts: Timeouts::default(),
        }
    }

    /// Reads `etcd://[user:password@]host[:port][,host[:port]…][/prefix][?option=value&…]`, or
    /// `etcd+https://…` for TLS. `%hh` is a byte. A user or password that the URL leaves out comes
    /// from the environment variables `MEMBERSHIP_ETCD_USERNAME` and `MEMBERSHIP_ETCD_PASSWORD`.
    /// The options have the names of the methods here: `operation_timeout`, `connect_timeout`,
    /// `tls_ca`, `tls_cert`, `tls_key`.
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
        let mut config = Self::new([] as [(String, u16); 0]).tls(url.scheme == "etcd+https");
        config.members = Endpoint::list(&url.hosts, DEFAULT_PORT);
        if let Some(path) = &url.path {
            config = config.prefix(path.trim_end_matches('/'));
        }
        config.credentials =
            Credentials::find(STORE, url.user, url.password, environment, VARIABLES)?;
        for option in &url.options {
            if !config.timeouts.set(option)? && !config.tls_files.set(option) {
                return Err(option.unknown(OPTIONS));
            }
        }
        config.validate()?;
        Ok(config)
    }

    /// Sends requests with an existing client: its TLS settings, proxies and connect timeout. Of
    /// the TLS options here only [`tls`](Self::tls) is used then. The client must not send requests
    /// again by itself (`retry::never()`), nor follow redirections.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// A user of etcd's own authentication.
    #[must_use]
    pub fn credentials(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::new(username, password));
        self
    }

    /// Whether connections are encrypted and the members' certificates checked. Default: no.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    membership_provider::tls_file_methods!();

    /// What every key begins with: 1 to 128 characters without control characters, not beginning or
    /// ending with a slash. Default `membership`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    membership_provider::timeout_methods!();

    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Refuses what cannot work whatever the members are.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        if self.members.is_empty() || self.members.iter().any(|member| member.host.is_empty()) {
            return Err(wrong("no host is named: write etcd://host:2379"));
        }
        let valid = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c) || !c.is_ascii();
        let bad = |member: &&Endpoint| !member.host.chars().all(valid);
        if let Some(bad) = self.members.iter().find(bad) {
            let host = bad.host.chars().filter(|c| !c.is_control());
            let host: String = host.take(60).collect();
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
        self.timeouts.validate(STORE)?;
        self.tls_files.validate(STORE, self.tls, "etcd+https://")
    }

    /// The HTTP client. Reads certificate files, and sends nothing yet.
    ///
    /// # Errors
    /// `Configuration`: a file cannot be read, or is no certificate.
    pub(crate) fn http_client(&self) -> Result<Client, TableError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let tls = self.tls.then_some(&self.tls_files);
        let builder = http::builder(STORE, &self.timeouts, tls)?
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE);
        http::build(STORE, builder)
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = Endpoint::join(&self.members);
        f.debug_struct("EtcdConfig")
            .field("members", &format_args!("{}://{members}", self.scheme()))
            .field("credentials", &self.credentials)
            .field("prefix", &self.prefix)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use conformance_tests::helpers::urls_are_refused;

    use super::*;

    fn read(url: &str) -> Result<EtcdConfig, TableError> {
        EtcdConfig::from_url_and(url, |_| None)
    }

    #[test]
    fn urls_name_members() {
        for (url, members, scheme) in [
            ("etcd://localhost", "localhost:2379", "http"),
            (
                "etcd://a,b:1,[::1],[::2]:7/",
                "a:2379,b:1,[::1]:2379,[::2]:7",
                "http",
            ),
            ("ETCD+HTTPS://u:p%40ss@h", "h:2379", "https"),
        ] {
            let config = read(url).unwrap();
            assert_eq!(Endpoint::join(&config.members), members, "{url}");
            assert_eq!(
                (config.scheme(), config.prefix.as_str()),
                (scheme, "membership")
            );
        }
        let config = read(
            "etcd+https://u:p%40ss@h/a/b%20c/?operation_timeout=3s&connect_timeout=250ms&tls_ca=/ca&tls_cert=/c&tls_key=/k",
        );
        let config = config.unwrap();
        assert_eq!(config.credentials, Some(Credentials::new("u", "p@ss")));
        assert_eq!(config.prefix, "a/b c");
        assert_eq!(config.timeouts.operation(), Duration::from_secs(3));
    }

    #[test]
    fn users_come_from_the_environment_where_the_url_has_none() {
        let environment = |name: &str| {
            let value = if name == VARIABLES[0] {
                "env-user"
            } else {
                "env-word"
            };
            Some(value.to_owned())
        };
        for (url, user, password) in [
            ("etcd://h", "env-user", "env-word"),
            ("etcd://u:p@h", "u", "p"),
            ("etcd://u@h", "u", "env-word"),
        ] {
            let config = EtcdConfig::from_url_and(url, environment).unwrap();
            assert_eq!(
                config.credentials,
                Some(Credentials::new(user, password)),
                "{url}"
            );
        }
        assert_eq!(read("etcd://h").unwrap().credentials, None);
    }

    #[test]
    fn an_invalid_url_is_refused_without_showing_it() {
        let cases = [
            "http://u:secret@h => `etcd://` or `etcd+https://`",
            "etcd://u:secret@ => no host",
            "etcd://u:secret@h:x => port",
            "etcd://u:secret@a b => is no host",
            "etcd://secret@h => without a password",
            "etcd://:secret@h => without a user",
            "etcd://u:secret@h//x => prefix",
            "etcd://u:secret@h/a%0a => prefix",
            "etcd://u:secret@h?prefix=x => `prefix` is no option",
            "etcd://u:secret@h?operation_timeout=1 => a time such as 3s",
            "etcd://u:secret@h?operation_timeout=1ms => 10 ms to 1 h",
            "etcd://u:secret@h?tls_ca=/secret => etcd+https://",
            "etcd+https://u:secret@h?tls_cert=/secret => come together",
        ];
        urls_are_refused(read, "secret", &cases);
    }

    #[test]
    fn certificate_files_are_read_only_for_https() {
        let error = read("etcd+https://h?tls_ca=/no/such/file")
            .unwrap()
            .http_client()
            .unwrap_err();
        assert!(
            error.to_string().contains("/no/such/file cannot be read"),
            "{error}"
        );
        read("etcd://h").unwrap().http_client().unwrap();
    }
}
