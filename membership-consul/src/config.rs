//! Which servers, and how to use them. Nothing here touches the network.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use membership_core::{ConnectionString, TableError};
use reqwest::header::HeaderValue;
use reqwest::{Certificate, Client, Identity, redirect, retry};

use crate::STORE;
use crate::error::wrong;

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_consul::ConsulConfig;
///
/// let config = ConsulConfig::new(["consul.internal:8500"]).token("s3cret").operation_timeout(Duration::from_secs(3));
/// assert!(!format!("{config:?}").contains("s3cret"));
/// let same = ConsulConfig::from_url("consul://:s3cret@consul.internal?operation_timeout=3s")?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct ConsulConfig {
    servers: Vec<String>,
    https: bool,
    prefix: String,
    token: Option<String>,
    datacenter: Option<String>,
    namespace: Option<String>,
    partition: Option<String>,
    tls_ca: Option<PathBuf>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    client: Option<Client>,
    operation_timeout: Duration,
    connect_timeout: Duration,
}

/// Long enough for an election among servers that are near each other, short enough for a silo to notice that the store is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that takes longer to accept a connection serves nobody.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Below this no network could be crossed.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
/// Above this nobody is waiting any more.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// What keys begin with by default.
const DEFAULT_PREFIX: &str = "membership";
/// Longer ones only make keys, and so transactions, long.
const MAX_PREFIX: usize = 200;
/// Where an agent of this machine listens.
const DEFAULT_HOST: &str = "127.0.0.1";
const HTTP_PORT: u16 = 8500;
const HTTPS_PORT: u16 = 8501;

const OPTIONS: &str = "token_file, datacenter, namespace, partition, tls_ca, tls_cert, tls_key, operation_timeout and connect_timeout";

impl ConsulConfig {
    /// These agents, as `host` or `host:port` (8500 without one): of one cluster of Consul, servers or clients of it, asked one after the
    /// other where one does not answer.
    pub fn new<S: Into<String>>(servers: impl IntoIterator<Item = S>) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            https: false,
            prefix: DEFAULT_PREFIX.to_owned(),
            token: None,
            datacenter: None,
            namespace: None,
            partition: None,
            tls_ca: None,
            tls_certificate: None,
            tls_key: None,
            client: None,
            operation_timeout: DEFAULT_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
        }
    }

    /// From `consul://[:token@][host[:port],…][/prefix][?option=value&…]`, or `consul+https://` for TLS. Without a host it is the agent of this
    /// machine; without a prefix `membership`. Options: `token_file`, `datacenter`, `namespace`, `partition`, `tls_ca`, `tls_cert`,
    /// `tls_key`, `operation_timeout`, `connect_timeout`. `%hh` stands for a byte.
    ///
    /// # Errors
    /// `Configuration`, which never repeats what may be a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let parts = ConnectionString::parse(STORE, &["consul", "consul+https"], url)?;
        if parts.user.is_some() {
            return Err(wrong(
                "Consul has no users: a token stands after a colon, as in consul://:token@host",
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
        for option in parts.options {
            config = match option.name() {
                "token_file" => config.token_file(option.text())?,
                "datacenter" => config.datacenter(option.text()),
                "namespace" => config.namespace(option.text()),
                "partition" => config.partition(option.text()),
                "tls_ca" => config.tls_ca(option.text()),
                "tls_cert" => Self {
                    tls_certificate: Some(option.text().into()),
                    ..config
                },
                "tls_key" => Self {
                    tls_key: Some(option.text().into()),
                    ..config
                },
                "operation_timeout" => config.operation_timeout(option.duration()?),
                "connect_timeout" => config.connect_timeout(option.duration()?),
                _ => return Err(option.unknown(OPTIONS)),
            };
        }
        config.validate()?;
        Ok(config)
    }

    /// Whether TLS is spoken. Default: no.
    #[must_use]
    pub fn https(mut self, https: bool) -> Self {
        self.https = https;
        self
    }

    /// What all keys begin with, without a slash at its end. Default `membership`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The token of every request. Default: that of `CONSUL_HTTP_TOKEN`, or of the file that `CONSUL_HTTP_TOKEN_FILE` names, or none.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// The token that stands in a file.
    ///
    /// # Errors
    /// `Configuration` where the file cannot be read or is empty.
    pub fn token_file(self, path: impl AsRef<Path>) -> Result<Self, TableError> {
        let token = token_in(path.as_ref())?;
        Ok(self.token(token))
    }

    /// The datacenter whose table it is. Default: that of the agent.
    #[must_use]
    pub fn datacenter(mut self, name: impl Into<String>) -> Self {
        self.datacenter = Some(name.into());
        self
    }

    /// The namespace of Consul Enterprise. Default: that of `CONSUL_NAMESPACE`, or of the token.
    #[must_use]
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = Some(name.into());
        self
    }

    /// The admin partition of Consul Enterprise. Default: that of `CONSUL_PARTITION`, or of the agent.
    #[must_use]
    pub fn partition(mut self, name: impl Into<String>) -> Self {
        self.partition = Some(name.into());
        self
    }

    /// Trusts the authorities in this PEM file and no others. Default: the file of `CONSUL_CACERT`, or what the system trusts.
    #[must_use]
    pub fn tls_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_ca = Some(path.into());
        self
    }

    /// Shows this certificate to servers that ask for one: two PEM files. Default: those of `CONSUL_CLIENT_CERT` and `CONSUL_CLIENT_KEY`.
    #[must_use]
    pub fn tls_identity(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        (self.tls_certificate, self.tls_key) = (Some(certificate.into()), Some(key.into()));
        self
    }

    /// An application's own client, with its connections, certificates and proxies. It must neither follow redirections nor send anything
    /// again.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// How long one operation may take, connecting included, whatever the number of its requests and servers: 10 ms to 1 h. Default 5 s.
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

    /// What everybody may do who uses the table, as a policy of Consul's in HCL: for `consul acl policy create -rules -`.
    #[must_use]
    pub fn policy(&self) -> String {
        format!(
            "key_prefix \"{}/\" {{\n  policy = \"write\"\n}}\n",
            self.prefix
        )
    }

    pub(crate) fn folder(&self) -> &str {
        &self.prefix
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    /// What the environment adds to what was said.
    pub(crate) fn completed(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, TableError> {
        let mut config = self.clone();
        let of = |name: &str| variable(name).filter(|value| !value.is_empty());
        if config.token.is_none() {
            config.token = match (of("CONSUL_HTTP_TOKEN"), of("CONSUL_HTTP_TOKEN_FILE")) {
                (Some(token), _) => Some(token),
                (None, Some(file)) => Some(token_in(Path::new(&file))?),
                (None, None) => None,
            };
        }
        config.namespace = config.namespace.or_else(|| of("CONSUL_NAMESPACE"));
        config.partition = config.partition.or_else(|| of("CONSUL_PARTITION"));
        if config.https {
            config.tls_ca = config
                .tls_ca
                .or_else(|| of("CONSUL_CACERT").map(Into::into));
            if config.tls_certificate.is_none() && config.tls_key.is_none() {
                config.tls_certificate = of("CONSUL_CLIENT_CERT").map(Into::into);
                config.tls_key = of("CONSUL_CLIENT_KEY").map(Into::into);
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
                return Err(wrong("a server is host or host:port, and nothing else"));
            }
        }
        if self
            .token
            .as_ref()
            .is_some_and(|token| HeaderValue::from_bytes(token.as_bytes()).is_err())
        {
            return Err(wrong("the token has characters that no token has"));
        }
        for (name, value) in [
            ("datacenter", &self.datacenter),
            ("namespace", &self.namespace),
            ("partition", &self.partition),
        ] {
            if value.as_ref().is_some_and(|value| odd(value)) {
                return Err(wrong(format!("the {name} has no name that could be one")));
            }
        }
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            return Err(wrong("tls_cert and tls_key come together"));
        }
        let files = self.tls_ca.is_some() || self.tls_certificate.is_some();
        if files && !self.https {
            return Err(wrong(
                "there are files for TLS, but the servers are to be spoken to without: write consul+https://",
            ));
        }
        if files && self.client.is_some() {
            return Err(wrong("an existing client has its own certificates"));
        }
        for (name, time) in [
            ("operation_timeout", self.operation_timeout),
            ("connect_timeout", self.connect_timeout),
        ] {
            if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&time) {
                return Err(wrong(format!("{name} is 10 ms to 1 h")));
            }
        }
        Ok(())
    }

    /// The servers as `host:port`.
    pub(crate) fn servers(&self) -> Vec<String> {
        let port = if self.https { HTTPS_PORT } else { HTTP_PORT };
        let of = |server: &String| match server.rsplit_once(':') {
            Some((host, number))
                if number.parse::<u16>().is_ok()
                    && (!host.contains(':') || host.starts_with('[')) =>
            {
                server.clone()
            }
            _ if server.contains(':') && !server.starts_with('[') => format!("[{server}]:{port}"),
            _ => format!("{server}:{port}"),
        };
        match self.servers.is_empty() {
            true => vec![format!("{DEFAULT_HOST}:{port}")],
            false => self.servers.iter().map(of).collect(),
        }
    }

    /// What stands before `host:port`.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// The token as a header that is never shown.
    pub(crate) fn header(&self) -> Result<Option<HeaderValue>, TableError> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let mut value = HeaderValue::from_bytes(token.as_bytes())
            .map_err(|_| wrong("the token has characters that no token has"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// What each request says besides: names and values.
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

    /// The client: it sends once, goes nowhere else, and asks no proxy.
    pub(crate) fn open(&self) -> Result<Client, TableError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        // Where several are linked, rustls wants to be told which one to use; who was faster has said the same.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .connect_timeout(self.connect_timeout.min(self.operation_timeout))
            .tcp_nodelay(true)
            .http1_only();
        if let Some(path) = &self.tls_ca {
            let pem = file(path, "tls_ca")?;
            let all = Certificate::from_pem_bundle(&pem)
                .ok()
                .filter(|all| !all.is_empty());
            builder = builder.tls_certs_only(all.ok_or_else(|| {
                wrong(format!(
                    "{} holds no certificate in PEM form",
                    path.display()
                ))
            })?);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) {
            let mut pem = file(certificate, "tls_cert")?;
            pem.push(b'\n');
            pem.extend(file(key, "tls_key")?);
            let identity = Identity::from_pem(&pem).map_err(|_| {
                wrong(format!(
                    "{} and {} are no certificate and key in PEM form",
                    certificate.display(),
                    key.display()
                ))
            })?;
            builder = builder.identity(identity);
        }
        builder.build().map_err(|e| {
            wrong(format!(
                "no client can be made of this ({e}): look at the files for TLS"
            ))
        })
    }
}

fn file(path: &Path, what: &str) -> Result<Vec<u8>, TableError> {
    std::fs::read(path).map_err(|e| {
        wrong(format!(
            "the file of {what}, {}, cannot be read ({e})",
            path.display()
        ))
    })
}

fn token_in(path: &Path) -> Result<String, TableError> {
    let text = String::from_utf8(file(path, "the token")?)
        .map_err(|_| wrong(format!("{} holds no token", path.display())))?;
    match text.trim() {
        "" => Err(wrong(format!("{} holds no token", path.display()))),
        token => Ok(token.to_owned()),
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for ConsulConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsulConfig")
            .field("scheme", &self.scheme())
            .field("servers", &self.servers())
            .field("prefix", &self.prefix)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("datacenter", &self.datacenter)
            .field("namespace", &self.namespace)
            .field("partition", &self.partition)
            .field("tls_ca", &self.tls_ca)
            .field("tls_certificate", &self.tls_certificate)
            .field("operation_timeout", &self.operation_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::TableErrorKind;

    #[test]
    fn a_url_is_a_configuration() {
        let url = "consul+https://:t%2Fk@a.example,[::1]:9/apps/silos/?datacenter=west&namespace=n&partition=p&tls_ca=/ca&operation_timeout=3s";
        let config = ConsulConfig::from_url(url).unwrap();
        assert_eq!(
            (config.folder(), config.scheme(), config.token.as_deref()),
            ("apps/silos", "https", Some("t/k"))
        );
        assert_eq!(config.servers(), ["a.example:8501", "[::1]:9"]);
        assert_eq!(
            config.parameters(),
            [("dc", "west"), ("ns", "n"), ("partition", "p")]
        );
        assert_eq!(
            (config.timeout(), config.tls_ca.as_deref()),
            (Duration::from_secs(3), Some(Path::new("/ca")))
        );
        let least = ConsulConfig::from_url("consul://").unwrap();
        assert_eq!(
            (least.folder(), least.servers(), &least.token),
            ("membership", vec!["127.0.0.1:8500".to_owned()], &None)
        );
        assert_eq!(
            ConsulConfig::new(["::1", "a", "[::2]", "b:1"]).servers(),
            ["[::1]:8500", "a:8500", "[::2]:8500", "b:1"]
        );
        assert_eq!(
            ConsulConfig::from_url("consul://h/apps").unwrap().policy(),
            "key_prefix \"apps/\" {\n  policy = \"write\"\n}\n"
        );
    }

    #[test]
    fn the_environment_adds_what_was_not_said() {
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
                &plain.tls_ca
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
                said.tls_ca.as_deref()
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
    fn what_cannot_work_is_said_without_secrets() {
        for (url, why) in [
            ("mysql://h/db", "starts with"),
            ("consul://hunter2@h", "after a colon"),
            ("consul://u:hunter2@h", "after a colon"),
            ("consul://:hunter2@h/a//b", "a prefix is"),
            ("consul://:hunter2@h/../b", "a prefix is"),
            ("consul://:hunter2@h/a%3Fb", "a prefix is"),
            ("consul://:hunter2%0A@h", "the token has"),
            ("consul://:hunter2@h%20", "a server is"),
            ("consul://:hunter2@h?tls_ca=/x", "without"),
            ("consul+https://:hunter2@h?tls_key=/x", "together"),
            ("consul://:hunter2@h?datacenter=", "datacenter"),
            ("consul://:hunter2@h?operation_timeout=1ms", "10 ms to 1 h"),
            (
                "consul://:hunter2@h?token_file=/no/such/file",
                "/no/such/file",
            ),
            ("consul://:x@h?colour=hunter2", "there are token_file"),
        ] {
            let error = ConsulConfig::from_url(url)
                .map(|config| panic!("{url}: {config:?}"))
                .unwrap_err();
            assert_eq!(error.kind(), TableErrorKind::Configuration, "{url}");
            assert!(
                error.to_string().contains(why)
                    && !format!("{error} {error:?}").contains("hunter2"),
                "{url}: {error}"
            );
        }
        let config = ConsulConfig::new(["h"]).https(true).tls_ca("/no/such/file");
        assert!(
            config
                .open()
                .unwrap_err()
                .to_string()
                .contains("/no/such/file")
        );
    }
}
