//! The options and the connection URL. Nothing here uses the network.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use membership_core::{ConnectionString, TableError, TableErrorKind};
use scylla::client::session::Session;
use scylla::statement::{Consistency, SerialConsistency};

use membership_provider::{Credentials, Endpoint, Timeouts, TlsFiles, environment};

use crate::STORE;
use crate::error::error;

/// Where the table is and how to use it.
///
/// ```
/// use std::time::Duration;
/// use membership_cassandra::CassandraConfig;
///
/// let config = CassandraConfig::new(["10.0.0.1", "10.0.0.2:9043"], "membership")
///     .operation_timeout(Duration::from_secs(3));
/// let url = "cassandra://10.0.0.1,10.0.0.2:9043/membership?operation_timeout=3s";
/// let same = CassandraConfig::from_url(url)?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// assert!(!format!("{:?}", config.credentials("silos", "s3cret")).contains("s3cret"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct CassandraConfig {
    pub(crate) nodes: Vec<Endpoint>,
    pub(crate) keyspace: String,
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) datacenter: Option<String>,
    pub(crate) local_serial: bool,
    pub(crate) replication: Option<String>,
    pub(crate) create: bool,
    pub(crate) tls: bool,
    pub(crate) tls_files: TlsFiles,
    pub(crate) timeouts: Timeouts,
}

/// The schemes of URLs.
pub(crate) const SCHEMES: &[&str] = &["cassandra"];
/// The keyspace if the URL names none.
const DEFAULT_KEYSPACE: &str = "membership";
/// The servers' default port.
const PORT: u16 = 9042;

const OPTIONS: &str = "serial, datacenter, replication, create, tls, tls_ca, tls_cert, tls_key, operation_timeout and connect_timeout";

impl CassandraConfig {
    /// Nodes (`host` or `host:port`) and a keyspace. One node must answer; it names the others.
    #[must_use]
    pub fn new<N: Into<String>>(
        nodes: impl IntoIterator<Item = N>,
        keyspace: impl Into<String>,
    ) -> Self {
        Self {
            nodes: nodes
                .into_iter()
                .map(|node| Endpoint::parse(&node.into(), PORT))
                .collect(),
            keyspace: keyspace.into(),
            session: None,
            credentials: None,
            datacenter: None,
            local_serial: false,
            replication: None,
            create: true,
            tls: false,
            tls_files: TlsFiles::default(),
            // Longer than the servers' default timeout of a lightweight transaction.
            timeouts: Timeouts::default(),
        }
    }

    /// A keyspace reached with an existing session: its nodes, credentials, TLS and connections.
    /// Consistency, retries and timeouts of the table's own requests are the table's; for other
    /// users of the session they stay as they are.
    #[must_use]
    pub fn from_session(session: Arc<Session>, keyspace: impl Into<String>) -> Self {
        Self {
            session: Some(session),
            ..Self::new(Vec::<String>::new(), keyspace)
        }
    }

    /// Reads `cassandra://[user:password@]host[:port],…/[keyspace][?option=value&…]`. `%hh` is a
    /// byte. The default keyspace is `membership`. If the URL has no user or password, they come
    /// from the environment variables `MEMBERSHIP_CASSANDRA_USERNAME` and
    /// `MEMBERSHIP_CASSANDRA_PASSWORD`. The options have the names of the methods here; `serial` is
    /// `SERIAL` or `LOCAL_SERIAL`, `replication` is a number or `dc1:3,dc2:3`.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no host, an unknown option, or an invalid value. Never
    /// shows what may be a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let parts = ConnectionString::parse(STORE, SCHEMES, url)?;
        let keyspace = parts
            .path
            .as_deref()
            .map(|path| path.trim_end_matches('/'))
            .filter(|path| !path.is_empty());
        let nodes = parts.addresses(PORT);
        let mut config = Self::new(nodes, keyspace.unwrap_or(DEFAULT_KEYSPACE));
        config.credentials = Credentials::find(
            STORE,
            parts.user.clone(),
            parts.password.clone(),
            environment,
            [
                "MEMBERSHIP_CASSANDRA_USERNAME",
                "MEMBERSHIP_CASSANDRA_PASSWORD",
            ],
        )?;
        for option in &parts.options {
            if config.timeouts.set(option)? {
                continue;
            }
            if config.tls_files.set(option) {
                config.tls = true;
                continue;
            }
            config = match option.name() {
                "serial" => config
                    .local_serial(option.one_of(&[("SERIAL", false), ("LOCAL_SERIAL", true)])?),
                "datacenter" => config.datacenter(option.text()),
                "replication" => config.replication(option.text()),
                "create" => config.create(option.flag()?),
                "tls" => config.tls(option.flag()?),
                _ => return Err(option.unknown(OPTIONS)),
            };
        }
        config.validate()?;
        Ok(config)
    }

    /// User and password.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::new(user, password));
        self
    }

    /// The data centre whose nodes are used, and no others. Required with
    /// [`local_serial`](Self::local_serial).
    #[must_use]
    pub fn datacenter(mut self, name: impl Into<String>) -> Self {
        self.datacenter = Some(name.into());
        self
    }

    /// Whether the replicas of one data centre decide transactions (`LOCAL_SERIAL`), or all of them
    /// (`SERIAL`, the default). The choice is stored in the table. A client with another choice is
    /// refused, because the two kinds of transaction do not see each other.
    #[must_use]
    pub fn local_serial(mut self, local: bool) -> Self {
        self.local_serial = local;
        self
    }

    /// The number of replicas in a keyspace that `initialize` creates: one number for all data
    /// centres, or `dc1:3,dc2:3`. Default: 3, or the number of the data centre's nodes, if it is
    /// smaller. Does not change an existing keyspace.
    #[must_use]
    pub fn replication(mut self, replicas: impl Into<String>) -> Self {
        self.replication = Some(replicas.into());
        self
    }

    /// Whether `initialize` creates missing keyspace and tables. Default: yes. If not, its error
    /// says what to create.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether to use TLS. Default: no. The servers' certificates must be for their addresses, from
    /// an authority that the machine trusts or that [`tls_ca_file`](Self::tls_ca_file) names.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// A PEM file with the authorities to trust instead of the machine's own. Turns TLS on.
    #[must_use]
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        (self.tls, self.tls_files.ca) = (true, Some(path.into()));
        self
    }

    /// A PEM file with the client's certificate, for servers that require one. Turns TLS on;
    /// requires the key.
    #[must_use]
    pub fn tls_certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        (self.tls, self.tls_files.certificate) = (true, Some(path.into()));
        self
    }

    /// A PEM file with the key of that certificate.
    #[must_use]
    pub fn tls_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        (self.tls, self.tls_files.key) = (true, Some(path.into()));
        self
    }

    /// The timeout of one operation, including connecting: 10 ms to 1 h. Default: that of
    /// [`Timeouts`]. Below 2 s the servers' own timeouts, which give more detail, come too late.
    /// Connecting, `initialize` and `delete` are several operations; `initialize` waits up to a
    /// minute longer for missing tables.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.set_operation(timeout);
        self
    }

    /// The timeout of connecting: 10 ms to 1 h. Default: that of [`Timeouts`]. An existing session
    /// keeps its own.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.set_connect(timeout);
        self
    }

    /// # Errors
    /// `Configuration`, with what to do.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        if self.nodes.is_empty() && self.session.is_none() {
            return Err(wrong(
                "no node is named: write cassandra://host1,host2,host3/keyspace",
            ));
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.keyspace.is_empty()
            || self.keyspace.len() > 48
            || !self.keyspace.chars().all(is_word)
        {
            return Err(wrong(
                "the name of a keyspace has 1 to 48 letters, digits and underscores",
            ));
        }
        if self.local_serial && self.datacenter.as_ref().is_none_or(String::is_empty) {
            return Err(wrong(
                "LOCAL_SERIAL needs one data centre: name it with datacenter=…",
            ));
        }
        self.tls_files.validate(STORE, self.tls, "tls=true")?;
        self.timeouts.validate(STORE)?;
        self.chosen_replication().map(drop)
    }

    /// The chosen replication as in a statement, if any.
    pub(crate) fn chosen_replication(&self) -> Result<Option<String>, TableError> {
        let Some(text) = &self.replication else {
            return Ok(None);
        };
        let bad = || {
            wrong(
                "replication must be a number from 1 to 99, or one for each data centre: dc1:3,dc2:3",
            )
        };
        let number = |text: &str| {
            text.parse::<u8>()
                .ok()
                .filter(|n| (1..=99).contains(n))
                .ok_or_else(bad)
        };
        if !text.contains(':') {
            return Ok(Some(format!("'replication_factor': {}", number(text)?)));
        }
        let mut all = Vec::new();
        for part in text.split(',') {
            let (name, replicas) = part.rsplit_once(':').ok_or_else(bad)?;
            if name.is_empty() || name.contains(['\'', '\\']) {
                return Err(bad());
            }
            all.push(format!("'{name}': {}", number(replicas)?));
        }
        Ok(Some(all.join(", ")))
    }

    /// The servers, as errors name them.
    pub(crate) fn endpoint(&self) -> String {
        if self.nodes.is_empty() {
            "the session's nodes".to_owned()
        } else {
            Endpoint::join(&self.nodes)
        }
    }

    /// A node on another machine to which a password is sent without encryption.
    pub(crate) fn warn_if_exposed(&self) -> Option<&Endpoint> {
        let plain = self.credentials.is_some() && !self.tls;
        Endpoint::warn_if_exposed(STORE, &self.nodes, plain, "use tls=true")
    }

    /// The consistency of transactions and of other requests.
    pub(crate) fn consistency(&self) -> (SerialConsistency, Consistency) {
        if self.local_serial {
            (SerialConsistency::LocalSerial, Consistency::LocalQuorum)
        } else {
            (SerialConsistency::Serial, Consistency::Quorum)
        }
    }

    /// The consistency of transactions as the table stores it.
    pub(crate) fn decided_by(&self) -> String {
        match (self.local_serial, &self.datacenter) {
            (true, Some(datacenter)) => format!("LOCAL_SERIAL {datacenter}"),
            _ => "SERIAL".to_owned(),
        }
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for CassandraConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraConfig")
            .field("nodes", &self.endpoint())
            .field("keyspace", &self.keyspace)
            .field("credentials", &self.credentials)
            .field("decided_by", &self.decided_by())
            .field("datacenter", &self.datacenter)
            .field("create", &self.create)
            .field("tls", &self.tls)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

pub(crate) fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_sets_every_option() {
        let url = "cassandra://silos:s%2Fcret@a,b:9043,[::1]/ours?serial=LOCAL_SERIAL&datacenter=dc1&replication=dc1:3,dc2:2&create=false";
        let config = CassandraConfig::from_url(url).unwrap();
        assert_eq!(config.endpoint(), "a:9042,b:9043,[::1]:9042");
        assert_eq!((config.keyspace.as_str(), config.create), ("ours", false));
        let credentials = Credentials::new("silos", "s/cret");
        assert_eq!(config.credentials, Some(credentials));
        assert_eq!(
            (config.decided_by().as_str(), config.tls),
            ("LOCAL_SERIAL dc1", false)
        );
        assert_eq!(
            config.chosen_replication().unwrap().as_deref(),
            Some("'dc1': 3, 'dc2': 2")
        );
        let least = CassandraConfig::from_url("cassandra://h").unwrap();
        assert_eq!(
            (
                least.keyspace.as_str(),
                least.decided_by().as_str(),
                least.tls
            ),
            ("membership", "SERIAL", false)
        );
        assert!(
            CassandraConfig::from_url("cassandra://h/?tls_ca=/ca.pem")
                .unwrap()
                .tls
        );
    }

    #[test]
    fn a_password_is_exposed_to_the_network_without_tls() {
        for (url, node) in [
            ("cassandra://u:p@127.0.0.1,10.0.0.1", Some("10.0.0.1:9042")),
            ("cassandra://u:p@localhost,[::1]", None),
            ("cassandra://u:p@10.0.0.1/?tls=true", None),
            ("cassandra://10.0.0.1", None),
        ] {
            let config = CassandraConfig::from_url(url).unwrap();
            let exposed = config.warn_if_exposed().map(ToString::to_string);
            assert_eq!(exposed.as_deref(), node, "{url}");
        }
    }

    #[test]
    fn invalid_urls_are_refused_without_showing_secrets() {
        for (url, why) in [
            ("mysql://h/db", "starts with"),
            ("cassandra:///ks", "node"),
            ("cassandra://hunter2@h/ks", "without a password"),
            ("cassandra://h/ks-1", "1 to 48"),
            ("cassandra://h/ks?serial=sometimes", "SERIAL"),
            (
                "cassandra://u:hunter2@h/ks?serial=LOCAL_SERIAL",
                "datacenter",
            ),
            ("cassandra://h/ks?replication=0", "1 to 99"),
            ("cassandra://h/ks?replication=dc'1:3", "1 to 99"),
            ("cassandra://h/ks?tls_cert=x", "together"),
            ("cassandra://h/ks?operation_timeout=1ms", "10 ms to 1 h"),
            ("cassandra://h/ks?colour=hunter2", "there are serial"),
        ] {
            let error = CassandraConfig::from_url(url)
                .map(|config| panic!("{url}: {config:?}"))
                .unwrap_err();
            assert_eq!(error.kind(), TableErrorKind::Configuration, "{url}");
            assert!(
                error.to_string().contains(why)
                    && !format!("{error} {error:?}").contains("hunter2"),
                "{url}: {error}"
            );
        }
    }
}
