//! Options and connection strings. Nothing here uses the network.

use std::fmt;
use std::path::{Path, PathBuf};

use membership_core::{ConnectionString, TableError};
use membership_provider::{Endpoint, Timeouts, TlsFiles, hidden, http, read_file};
use reqwest::Client;
use reqwest::header::HeaderValue;

use crate::STORE;
use crate::error::wrong;

/// The schemes of connection strings.
pub(crate) const SCHEMES: &[&str] = &["consul", "consul+https"];
/// What keys begin with.
const DEFAULT_PREFIX: &str = "membership";
/// A longer prefix only makes keys, and so transactions, long.
const MAX_PREFIX: usize = 200;
/// Where this machine's agent listens.
const DEFAULT_HOST: &str = "127.0.0.1";
const HTTP_PORT: u16 = 8500;
const HTTPS_PORT: u16 = 8501;

const OPTIONS: &str = "token_file, datacenter, namespace, partition, tls_ca, tls_cert, tls_key, operation_timeout and connect_timeout";

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_consul::ConsulConfig;
///
/// let config = ConsulConfig::new(["consul.internal:8500"])
///     .token("s3cret")
///     .operation_timeout(Duration::from_secs(3));
/// assert!(!format!("{config:?}").contains("s3cret"));
/// let same = ConsulConfig::from_url("consul://:s3cret@consul.internal?operation_timeout=3s")?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct ConsulConfig {
    servers: Vec<String>,
    https: bool,
    pub(crate) prefix: String,
    token: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    datacenter: Option<String>,
    namespace: Option<String>,
    partition: Option<String>,
    tls_files: TlsFiles,
    client: Option<Client>,
    pub(crate) timeouts: Timeouts,
}

impl ConsulConfig {
    /// These agents of one Consul cluster, as `host` or `host:port` (default 8500): servers or
    /// clients. They are asked in turn until one answers.
    pub fn new<S: Into<String>>(servers: impl IntoIterator<Item = S>) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            https: false,
            prefix: DEFAULT_PREFIX.to_owned(),
            token: None,
            token_file: None,
            datacenter: None,
            namespace: None,
            partition: None,
            tls_files: TlsFiles::default(),
            client: None,
            timeouts: Timeouts::default(),
        }
    }

    /// Reads `consul://[:token@][host[:port],…][/prefix][?option=value&…]`, or `consul+https://`
    /// for TLS. Without a host it is that of `CONSUL_HTTP_ADDR` and `CONSUL_HTTP_SSL`, or this
    /// machine's agent; without a prefix `membership`. Options:
    /// `token_file`, `datacenter`, `namespace`, `partition`, `tls_ca`, `tls_cert`, `tls_key`,
    /// `operation_timeout`, `connect_timeout`. `%hh` is a byte.
    ///
    /// # Errors
    /// `Configuration`: another scheme, an unknown option, or an invalid value. Never shows a
    /// secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let parts = ConnectionString::parse(STORE, SCHEMES, url)?;
        if parts.user.is_some() {
            return Err(wrong(
                "Consul has no users: write a token after a colon, as in consul://:token@host",
            ));
        }
        let https = parts.scheme == "consul+https";
        let mut config =
            Self::new(parts.addresses(if https { HTTPS_PORT } else { HTTP_PORT })).https(https);
        if let Some(token) = parts.password.filter(|token| !token.is_empty()) {
            config = config.token(token);
        }
        if let Some(prefix) = parts.path {
            config = config.prefix(prefix.trim_end_matches('/'));
        }
        for option in &parts.options {
            if config.timeouts.set(option)? || config.tls_files.set(option) {
                continue;
            }
            config = match option.name() {
                "token_file" => config.token_file(option.text())?,
                "datacenter" => config.datacenter(option.text()),
                "namespace" => config.namespace(option.text()),
                "partition" => config.partition(option.text()),
                _ => return Err(option.unknown(OPTIONS)),
            };
        }
        config.validate()?;
        Ok(config)
    }

    /// Whether connections are encrypted and the servers' certificates checked. Default: no.
    #[must_use]
    pub fn https(mut self, https: bool) -> Self {
        self.https = https;
        self
    }

    /// What every key begins with, without a slash at its end. Default `membership`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The token of every request. Default: `CONSUL_HTTP_TOKEN`, or the content of the file that
    /// `CONSUL_HTTP_TOKEN_FILE` names, or none.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self.token_file = None;
        self
    }

    /// A token from a file. It is read again when the servers refuse the token.
    ///
    /// # Errors
    /// `Configuration` where the file cannot be read or is empty.
    pub fn token_file(self, path: impl AsRef<Path>) -> Result<Self, TableError> {
        let path = path.as_ref();
        let mut config = self.token(token_in(path)?);
        config.token_file = Some(path.to_owned());
        Ok(config)
    }

    /// The datacenter of the table. Default: the agent's.
    #[must_use]
    pub fn datacenter(mut self, name: impl Into<String>) -> Self {
        self.datacenter = Some(name.into());
        self
    }

    /// The namespace of Consul Enterprise. Default: `CONSUL_NAMESPACE`, or the token's.
    #[must_use]
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = Some(name.into());
        self
    }

    /// The admin partition of Consul Enterprise. Default: `CONSUL_PARTITION`, or the agent's.
    #[must_use]
    pub fn partition(mut self, name: impl Into<String>) -> Self {
        self.partition = Some(name.into());
        self
    }

    /// A PEM file with the authorities to trust instead of the system's. Default: the file of
    /// `CONSUL_CACERT`.
    #[must_use]
    pub fn tls_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_files.ca = Some(path.into());
        self
    }

    /// Two PEM files with this client's certificate and its private key. Default: the files of
    /// `CONSUL_CLIENT_CERT` and `CONSUL_CLIENT_KEY`.
    #[must_use]
    pub fn tls_identity(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.tls_files.certificate = Some(certificate.into());
        self.tls_files.key = Some(key.into());
        self
    }

    /// An application's own client, with its connections, certificates and proxies. It must not
    /// follow redirections, nor send a request again.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    membership_provider::timeout_methods!();

    /// The script for an operator: the policy of the silos' token, in HCL, for
    /// `consul acl policy create -rules -`. (Consul needs no tables.)
    #[must_use]
    pub fn schema(&self) -> String {
        format!(
            "key_prefix \"{}/\" {{\n  policy = \"write\"\n}}\n",
            self.prefix
        )
    }

    /// Adds values from the environment that the configuration leaves out.
    pub(crate) fn completed(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, TableError> {
        let mut config = self.clone();
        let of = |name: &str| variable(name).filter(|value| !value.is_empty());
        // As the program `consul` reads them, whose default is port 8500 also with TLS.
        let tls = of("CONSUL_HTTP_SSL")
            .is_some_and(|on| matches!(&*on, "1" | "t" | "T" | "true" | "TRUE" | "True"));
        let agent = || tls.then(|| format!("{DEFAULT_HOST}:{HTTP_PORT}"));
        if config.servers.is_empty()
            && let Some(address) = of("CONSUL_HTTP_ADDR").or_else(agent)
        {
            let (scheme, host) = address.split_once("://").unwrap_or(("http", &address));
            if !matches!(scheme, "http" | "https") {
                return Err(wrong(
                    "CONSUL_HTTP_ADDR leads to no server by HTTP: write host and port into it, or into the URL",
                ));
            }
            config.https |= tls || scheme == "https";
            config.servers = vec![host.trim_end_matches('/').to_owned()];
        }
        if config.token.is_none() {
            config.token = match (of("CONSUL_HTTP_TOKEN"), of("CONSUL_HTTP_TOKEN_FILE")) {
                (Some(token), _) => Some(token),
                (None, Some(file)) => return config.token_file(file)?.completed(variable),
                (None, None) => None,
            };
        }
        config.namespace = config.namespace.or_else(|| of("CONSUL_NAMESPACE"));
        config.partition = config.partition.or_else(|| of("CONSUL_PARTITION"));
        if config.https {
            let files = &mut config.tls_files;
            files.ca = files
                .ca
                .take()
                .or_else(|| of("CONSUL_CACERT").map(Into::into));
            if files.certificate.is_none() && files.key.is_none() {
                files.certificate = of("CONSUL_CLIENT_CERT").map(Into::into);
                files.key = of("CONSUL_CLIENT_KEY").map(Into::into);
            }
        }
        config.validate()?;
        Ok(config)
    }

    /// Refuses what cannot work whatever the servers are.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        let odd = |name: &str| {
            name.is_empty()
                || name.len() > MAX_PREFIX
                || name.chars().any(|c| c.is_control() || c == '?' || c == '#')
        };
        if odd(&self.prefix)
            || self
                .prefix
                .split('/')
                .any(|part| part.is_empty() || part == "." || part == "..")
        {
            return Err(wrong(format!(
                "a prefix is a path such as apps/membership, of {MAX_PREFIX} bytes at most"
            )));
        }
        for server in &self.servers {
            let host = server
                .strip_prefix("http://")
                .or_else(|| server.strip_prefix("https://"));
            if host.is_some()
                || server.is_empty()
                || server.starts_with(':')
                || server.contains(['/', '@', '?', '#', ' '])
            {
                return Err(wrong("a server is written as host or host:port"));
            }
        }
        self.header()?;
        for (name, value) in [
            ("datacenter", &self.datacenter),
            ("namespace", &self.namespace),
            ("partition", &self.partition),
        ] {
            if value.as_ref().is_some_and(|value| odd(value)) {
                return Err(wrong(format!("the {name} has an invalid name")));
            }
        }
        if self.client.is_some() && !self.tls_files.is_empty() {
            return Err(wrong("an existing client has its own certificates"));
        }
        self.timeouts.validate(STORE)?;
        self.tls_files
            .validate(STORE, self.https, "consul+https://")
    }

    /// Where the servers listen.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        let port = if self.https { HTTPS_PORT } else { HTTP_PORT };
        if self.servers.is_empty() {
            return vec![Endpoint::new(DEFAULT_HOST, port)];
        }
        let servers = self.servers.iter();
        servers
            .map(|server| Endpoint::parse(server, port))
            .collect()
    }

    /// The scheme of requests.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// The token as a header that no log shows.
    pub(crate) fn header(&self) -> Result<Option<HeaderValue>, TableError> {
        self.token.as_deref().map(header).transpose()
    }

    /// The parameters of every request.
    pub(crate) fn parameters(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("dc", &self.datacenter),
            ("ns", &self.namespace),
            ("partition", &self.partition),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .collect()
    }

    /// The HTTP client. Reads certificate files, and sends nothing yet.
    ///
    /// # Errors
    /// `Configuration`: a file cannot be read, or is no certificate.
    pub(crate) fn http_client(&self) -> Result<Client, TableError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let tls = self.https.then_some(&self.tls_files);
        http::build(STORE, http::builder(STORE, &self.timeouts, tls)?)
    }
}

fn header(token: &str) -> Result<HeaderValue, TableError> {
    let mut value = HeaderValue::from_bytes(token.as_bytes())
        .map_err(|_| wrong("the token has characters that a token cannot have"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The token in a file, as a header.
pub(crate) fn header_in(path: &Path) -> Result<HeaderValue, TableError> {
    header(&token_in(path)?)
}

fn token_in(path: &Path) -> Result<String, TableError> {
    let text = String::from_utf8(read_file(STORE, path)?).unwrap_or_default();
    match text.trim() {
        "" => Err(wrong(format!("{} contains no token", path.display()))),
        token => Ok(token.to_owned()),
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for ConsulConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsulConfig")
            .field("scheme", &self.scheme())
            .field("servers", &Endpoint::join(&self.endpoints()))
            .field("prefix", &self.prefix)
            .field("token", &hidden(&self.token))
            .field("datacenter", &self.datacenter)
            .field("namespace", &self.namespace)
            .field("partition", &self.partition)
            .field("tls_files", &self.tls_files)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use conformance_tests::helpers::urls_are_refused;

    #[test]
    fn a_url_is_a_configuration() {
        let url = "consul+https://:t%2Fk@a.example,[::1]:9/apps/silos/?datacenter=west&namespace=n&partition=p&tls_ca=/ca&operation_timeout=3s";
        let config = ConsulConfig::from_url(url).unwrap();
        assert_eq!(
            (
                config.prefix.as_str(),
                config.scheme(),
                config.token.as_deref()
            ),
            ("apps/silos", "https", Some("t/k"))
        );
        assert_eq!(
            Endpoint::join(&config.endpoints()),
            "a.example:8501,[::1]:9"
        );
        assert_eq!(
            config.parameters(),
            [("dc", "west"), ("ns", "n"), ("partition", "p")]
        );
        assert_eq!(
            (config.timeouts.operation(), config.tls_files.ca.as_deref()),
            (Duration::from_secs(3), Some(Path::new("/ca")))
        );
        let least = ConsulConfig::from_url("consul://").unwrap();
        assert_eq!(
            (
                least.prefix.as_str(),
                Endpoint::join(&least.endpoints()),
                &least.token
            ),
            ("membership", "127.0.0.1:8500".to_owned(), &None)
        );
        assert_eq!(
            Endpoint::join(&ConsulConfig::new(["::1", "a", "[::2]", "b:1"]).endpoints()),
            "[::1]:8500,a:8500,[::2]:8500,b:1"
        );
        assert_eq!(
            ConsulConfig::from_url("consul://h/apps").unwrap().schema(),
            "key_prefix \"apps/\" {\n  policy = \"write\"\n}\n"
        );
    }

    #[test]
    fn the_environment_adds_what_the_url_leaves_out() {
        let variable = |name: &str| match name {
            "CONSUL_HTTP_TOKEN" => Some("from-there".to_owned()),
            "CONSUL_NAMESPACE" => Some("n".to_owned()),
            "CONSUL_CACERT" => Some("/ca".to_owned()),
            "CONSUL_PARTITION" => Some(String::new()),
            _ => None,
        };
        let plain = ConsulConfig::from_url("consul://")
            .unwrap()
            .completed(variable)
            .unwrap();
        assert_eq!(
            (
                plain.token.as_deref(),
                plain.namespace.as_deref(),
                &plain.partition,
                &plain.tls_files.ca
            ),
            (Some("from-there"), Some("n"), &None, &None)
        );
        let said = ConsulConfig::from_url("consul+https://:mine@h?namespace=m&tls_ca=/own")
            .unwrap()
            .completed(variable)
            .unwrap();
        assert_eq!(
            (
                said.token.as_deref(),
                said.namespace.as_deref(),
                said.tls_files.ca.as_deref()
            ),
            (Some("mine"), Some("m"), Some(Path::new("/own")))
        );
        let missing =
            |name: &str| (name == "CONSUL_HTTP_TOKEN_FILE").then(|| "/no/such/file".to_owned());
        assert!(
            ConsulConfig::from_url("consul://")
                .unwrap()
                .completed(missing)
                .unwrap_err()
                .to_string()
                .contains("/no/such/file")
        );
    }

    #[test]
    fn an_invalid_url_is_refused_without_secrets() {
        let cases = [
            "mysql://h/db => starts with",
            "consul://hunter2@h => after a colon",
            "consul://u:hunter2@h => after a colon",
            "consul://:hunter2@h/a//b => a prefix is",
            "consul://:hunter2@h/../b => a prefix is",
            "consul://:hunter2@h/a%3Fb => a prefix is",
            "consul://:hunter2%0A@h => the token has",
            "consul://:hunter2@h%20 => a server is",
            "consul://:hunter2@h?tls_ca=/x => not encrypted",
            "consul+https://:hunter2@h?tls_key=/x => together",
            "consul://:hunter2@h?datacenter= => datacenter",
            "consul://:hunter2@h?operation_timeout=1ms => 10 ms to 1 h",
            "consul://:hunter2@h?token_file=/no/such/file => /no/such/file",
            "consul://:x@h?colour=hunter2 => there are token_file",
        ];
        urls_are_refused(ConsulConfig::from_url, "hunter2", &cases);
        let config = ConsulConfig::new(["h"]).https(true).tls_ca("/no/such/file");
        assert!(
            config
                .http_client()
                .unwrap_err()
                .to_string()
                .contains("/no/such/file")
        );
    }
}
