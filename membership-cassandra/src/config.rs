//! Which servers, and how to use them. Nothing here touches the network.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use membership_core::{ConnectionString, TableError, TableErrorKind};
use scylla::client::session::Session;
use scylla::statement::{Consistency, SerialConsistency};

use crate::error::error;
use crate::{STORE, schema};

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_cassandra::CassandraConfig;
///
/// let config = CassandraConfig::new(["10.0.0.1", "10.0.0.2:9043"], "membership").operation_timeout(Duration::from_secs(3));
/// let same = CassandraConfig::from_url("cassandra://10.0.0.1,10.0.0.2:9043/membership?operation_timeout=3s")?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// assert!(!format!("{:?}", config.credentials("silos", "s3cret")).contains("s3cret"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct CassandraConfig {
    nodes: Vec<String>,
    keyspace: String,
    session: Option<Arc<Session>>,
    credentials: Option<(String, String)>,
    datacenter: Option<String>,
    local_serial: bool,
    replication: Option<String>,
    create: bool,
    tls: bool,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    operation_timeout: Duration,
    connect_timeout: Duration,
}

/// Longer than what the servers give a lightweight transaction by default, short enough for a silo to notice that the store is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that takes longer to accept a connection serves nobody.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Below this no network could be crossed.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
/// Above this nobody is waiting any more.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// The keyspace that is taken when none is named.
const DEFAULT_KEYSPACE: &str = "membership";
/// Where clients are listened to when nobody says otherwise.
const PORT: u16 = 9042;

const OPTIONS: &str = "serial, datacenter, replication, create, tls, tls_ca, tls_cert, tls_key, operation_timeout and connect_timeout";

impl CassandraConfig {
    /// Nodes (`host` or `host:port`) of which one must answer, and a keyspace. Others are found through them.
    #[must_use]
    pub fn new<N: Into<String>>(
        nodes: impl IntoIterator<Item = N>,
        keyspace: impl Into<String>,
    ) -> Self {
        Self {
            nodes: nodes
                .into_iter()
                .map(|node| with_port(node.into()))
                .collect(),
            keyspace: keyspace.into(),
            session: None,
            credentials: None,
            datacenter: None,
            local_serial: false,
            replication: None,
            create: true,
            tls: false,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            operation_timeout: DEFAULT_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
        }
    }

    /// A keyspace reached by an existing session: its nodes, credentials, TLS and connections. Consistency, retries and time-outs of the
    /// table's own requests are the table's; the session's stay as they are for everybody else.
    #[must_use]
    pub fn from_session(session: Arc<Session>, keyspace: impl Into<String>) -> Self {
        Self {
            session: Some(session),
            ..Self::new(Vec::<String>::new(), keyspace)
        }
    }

    /// Reads `cassandra://[user:password@]host[:port],…/[keyspace][?option=value&…]`. `%hh` stands for a byte. Without a keyspace it is
    /// `membership`. User and password, where the URL has none, come from the environment variables `MEMBERSHIP_CASSANDRA_USERNAME` and
    /// `MEMBERSHIP_CASSANDRA_PASSWORD`. The options have the names of the methods here; `serial` is `SERIAL` or `LOCAL_SERIAL`,
    /// `replication` is a number or `dc1:3,dc2:3`.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no host, an unknown option, or a value that is none. Never shows what may be a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let parts = ConnectionString::parse(STORE, &["cassandra"], url)?;
        let keyspace = parts
            .path
            .as_deref()
            .map(|path| path.trim_end_matches('/'))
            .filter(|path| !path.is_empty());
        let mut config = Self::new(parts.addresses(PORT), keyspace.unwrap_or(DEFAULT_KEYSPACE));
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let user = parts
            .user
            .clone()
            .or_else(|| variable("MEMBERSHIP_CASSANDRA_USERNAME"));
        let password = parts
            .password
            .clone()
            .or_else(|| variable("MEMBERSHIP_CASSANDRA_PASSWORD"));
        match (user, password) {
            (Some(user), Some(password)) if !user.is_empty() => {
                config.credentials = Some((user, password))
            }
            (None, None) => {}
            _ => {
                return Err(wrong(
                    "user and password come together: cassandra://user:password@host/keyspace, or MEMBERSHIP_CASSANDRA_USERNAME and \
                     MEMBERSHIP_CASSANDRA_PASSWORD",
                ));
            }
        }
        for option in &parts.options {
            config = match option.name() {
                "serial" => config
                    .local_serial(option.one_of(&[("SERIAL", false), ("LOCAL_SERIAL", true)])?),
                "datacenter" => config.datacenter(option.text()),
                "replication" => config.replication(option.text()),
                "create" => config.create(option.flag()?),
                "tls" => config.tls(option.flag()?),
                "tls_ca" => config.tls_ca_file(option.text()),
                "tls_cert" => config.tls_certificate_file(option.text()),
                "tls_key" => config.tls_key_file(option.text()),
                "operation_timeout" => config.operation_timeout(option.duration()?),
                "connect_timeout" => config.connect_timeout(option.duration()?),
                _ => return Err(option.unknown(OPTIONS)),
            };
        }
        config.validate()?;
        Ok(config)
    }

    /// User and password.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self
    }

    /// The data centre whose nodes are asked, and no others. Needed with [`local_serial`](Self::local_serial).
    #[must_use]
    pub fn datacenter(mut self, name: impl Into<String>) -> Self {
        self.datacenter = Some(name.into());
        self
    }

    /// Whether transactions are decided by the replicas of one data centre (`LOCAL_SERIAL`) and not by all (`SERIAL`, the default). The
    /// choice is kept with the table: whoever has made another one is refused, because two kinds of decision do not see each other.
    #[must_use]
    pub fn local_serial(mut self, local: bool) -> Self {
        self.local_serial = local;
        self
    }

    /// How many replicas a keyspace gets that `initialize` makes: a number for each data centre, or `dc1:3,dc2:3`. Default: 3, or as many
    /// as the data centre has nodes, if it has fewer. Changes no keyspace that exists.
    #[must_use]
    pub fn replication(mut self, replicas: impl Into<String>) -> Self {
        self.replication = Some(replicas.into());
        self
    }

    /// Whether `initialize` makes keyspace and tables where there are none. Default: yes. If not, it says what must be made.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether to speak TLS. Default: no. The servers' certificates must be for their addresses, by an authority that the machine trusts or
    /// that [`tls_ca_file`](Self::tls_ca_file) names.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// A file in PEM form with the authorities to trust instead of the machine's own. Turns TLS on.
    #[must_use]
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        (self.tls, self.tls_ca) = (true, Some(path.into()));
        self
    }

    /// A file in PEM form with the certificate to show, for servers that ask for one. Turns TLS on; needs the key.
    #[must_use]
    pub fn tls_certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        (self.tls, self.tls_cert) = (true, Some(path.into()));
        self
    }

    /// A file in PEM form with the key of that certificate.
    #[must_use]
    pub fn tls_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        (self.tls, self.tls_key) = (true, Some(path.into()));
        self
    }

    /// How long one operation may take, connecting included: 10 ms to 1 h. Default 5 s; below 2 s the servers' own time-outs, which say
    /// more, come too late. Opening, `initialize` and `delete` are several; where there are no tables `initialize` waits for them for up to a
    /// minute more.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How long one connection may take to be made: 10 ms to 1 h. Default 2 s. An existing session keeps its own.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Keyspace and tables as statements, for people who make them themselves: what `cqlsh` takes.
    #[must_use]
    pub fn schema(&self) -> String {
        let replication = self
            .chosen_replication()
            .ok()
            .flatten()
            .unwrap_or_else(|| "'replication_factor': 3".to_owned());
        let mut all = vec![schema::keyspace(&self.keyspace, &replication)];
        all.extend(schema::tables(&self.keyspace));
        all.join(";\n") + ";\n"
    }

    /// # Errors
    /// `Configuration`, with what to do.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        if self.nodes.is_empty() && self.session.is_none() {
            return Err(wrong(
                "no node is named: cassandra://host1,host2,host3/keyspace",
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
                "LOCAL_SERIAL is decided within one data centre: name it with datacenter=…",
            ));
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(wrong("tls_cert and tls_key come together"));
        }
        for (name, timeout) in [
            ("operation_timeout", self.operation_timeout),
            ("connect_timeout", self.connect_timeout),
        ] {
            if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout) {
                return Err(wrong(format!("{name} is 10 ms to 1 h")));
            }
        }
        self.chosen_replication().map(drop)
    }

    /// The replication as it stands in a statement, if somebody chose one.
    pub(crate) fn chosen_replication(&self) -> Result<Option<String>, TableError> {
        let Some(text) = &self.replication else {
            return Ok(None);
        };
        let bad = || {
            wrong("replication is a number from 1 to 99, or one for each data centre: dc1:3,dc2:3")
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

    pub(crate) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The servers as people know them.
    pub(crate) fn at(&self) -> String {
        if self.nodes.is_empty() {
            "the session's nodes".to_owned()
        } else {
            self.nodes.join(",")
        }
    }

    pub(crate) fn keyspace(&self) -> &str {
        &self.keyspace
    }

    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    pub(crate) fn user(&self) -> Option<(&str, &str)> {
        self.credentials
            .as_ref()
            .map(|(user, password)| (user.as_str(), password.as_str()))
    }

    pub(crate) fn named_datacenter(&self) -> Option<&str> {
        self.datacenter.as_deref()
    }

    pub(crate) fn may_create(&self) -> bool {
        self.create
    }

    pub(crate) fn uses_tls(&self) -> bool {
        self.tls
    }

    pub(crate) fn tls_files(&self) -> [Option<&Path>; 3] {
        [&self.tls_ca, &self.tls_cert, &self.tls_key].map(|path| path.as_deref())
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    pub(crate) fn connecting(&self) -> Duration {
        self.connect_timeout.min(self.operation_timeout)
    }

    /// Who decides transactions, and who must have what is written.
    pub(crate) fn consistency(&self) -> (SerialConsistency, Consistency) {
        if self.local_serial {
            (SerialConsistency::LocalSerial, Consistency::LocalQuorum)
        } else {
            (SerialConsistency::Serial, Consistency::Quorum)
        }
    }

    /// The same as it is kept with the table.
    pub(crate) fn decided_by(&self) -> String {
        match (self.local_serial, &self.datacenter) {
            (true, Some(datacenter)) => format!("LOCAL_SERIAL {datacenter}"),
            _ => "SERIAL".to_owned(),
        }
    }
}

fn with_port(node: String) -> String {
    let has_port = node.rsplit_once(':').is_some_and(|(host, port)| {
        (!host.contains(':') || host.ends_with(']')) && port.parse::<u16>().is_ok()
    });
    match (has_port, node.contains(':') && !node.starts_with('[')) {
        (true, _) => node,
        (false, true) => format!("[{node}]:{PORT}"),
        (false, false) => format!("{node}:{PORT}"),
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for CassandraConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraConfig")
            .field("nodes", &self.nodes)
            .field("keyspace", &self.keyspace)
            .field("user", &self.credentials.as_ref().map(|(user, _)| user))
            .field("password", &self.credentials.as_ref().map(|_| "…"))
            .field("decided_by", &self.decided_by())
            .field("datacenter", &self.datacenter)
            .field("create", &self.create)
            .field("tls", &self.tls)
            .field("operation_timeout", &self.operation_timeout)
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
    fn a_url_is_a_configuration() {
        let url = "cassandra://silos:s%2Fcret@a,b:9043,[::1]/ours?serial=LOCAL_SERIAL&datacenter=dc1&replication=dc1:3,dc2:2&create=false";
        let config = CassandraConfig::from_url(url).unwrap();
        assert_eq!(config.nodes, ["a:9042", "b:9043", "[::1]:9042"]);
        assert_eq!(
            (config.keyspace(), config.user(), config.may_create()),
            ("ours", Some(("silos", "s/cret")), false)
        );
        assert_eq!(
            (config.decided_by().as_str(), config.uses_tls()),
            ("LOCAL_SERIAL dc1", false)
        );
        assert_eq!(
            config.chosen_replication().unwrap().as_deref(),
            Some("'dc1': 3, 'dc2': 2")
        );
        let least = CassandraConfig::from_url("cassandra://h").unwrap();
        assert_eq!(
            (least.keyspace(), least.decided_by().as_str(), least.tls),
            ("membership", "SERIAL", false)
        );
        assert!(
            CassandraConfig::from_url("cassandra://h/?tls_ca=/ca.pem")
                .unwrap()
                .uses_tls()
        );
    }

    #[test]
    fn what_cannot_work_is_said_without_secrets() {
        for (url, why) in [
            ("mysql://h/db", "starts with"),
            ("cassandra:///ks", "node"),
            ("cassandra://hunter2@h/ks", "together"),
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

    #[test]
    fn the_schema_is_for_the_keyspace_that_is_named() {
        let text = CassandraConfig::new(["h"], "ours")
            .replication("2")
            .schema();
        assert!(
            text.contains("KEYSPACE IF NOT EXISTS \"ours\"")
                && text.contains("'replication_factor': 2"),
            "{text}"
        );
        assert_eq!(
            text.matches("CREATE TABLE IF NOT EXISTS \"ours\".").count(),
            2,
            "{text}"
        );
    }
}
