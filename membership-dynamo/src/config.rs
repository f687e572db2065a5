//! The options and the connection URL. Nothing here uses the network.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use membership_core::{ConnectionString, TableError, TableErrorKind};
use membership_provider::{Credentials, Timeouts, check_timeout};

use crate::STORE;
use crate::error::error;

/// Where the table is and how to use it.
///
/// ```
/// use std::time::Duration;
/// use membership_dynamo::DynamoConfig;
///
/// let config = DynamoConfig::new("membership")
///     .region("eu-west-1")
///     .operation_timeout(Duration::from_secs(3));
/// let same = DynamoConfig::from_url("dynamodb://eu-west-1/membership?operation_timeout=3s")?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// assert!(!format!("{:?}", config.credentials("AKIDEXAMPLE", "s3cret")).contains("s3cret"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct DynamoConfig {
    pub(crate) table: String,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) keys: Option<Credentials>,
    pub(crate) client: Option<Client>,
    pub(crate) create: bool,
    pub(crate) capacity: Option<(u32, u32)>,
    pub(crate) timeouts: Timeouts,
    pub(crate) create_timeout: Duration,
}

/// DynamoDB takes about ten seconds to create a table.
const DEFAULT_CREATE_TIMEOUT: Duration = Duration::from_secs(60);
/// The schemes of URLs.
pub(crate) const SCHEMES: &[&str] = &["dynamodb"];
/// The table if the URL names none.
const DEFAULT_TABLE: &str = "membership";

const OPTIONS: &str = "endpoint, profile, create, read_capacity, write_capacity, operation_timeout, connect_timeout and create_timeout";

impl DynamoConfig {
    /// A table of this name. Region, credentials and everything else come from where the AWS tools
    /// look for them: environment, shared configuration files, container or machine.
    #[must_use]
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            region: None,
            endpoint: None,
            profile: None,
            keys: None,
            client: None,
            create: true,
            capacity: None,
            timeouts: Timeouts::default(),
            create_timeout: DEFAULT_CREATE_TIMEOUT,
        }
    }

    /// A table reached with an existing client: its region, endpoint, credentials and HTTP client.
    /// Its own retries are turned off for the table, and stay as they are for other users of the
    /// client.
    #[must_use]
    pub fn from_client(client: Client, table: impl Into<String>) -> Self {
        Self {
            client: Some(client),
            ..Self::new(table)
        }
    }

    /// Reads `dynamodb://[key:secret@][region]/[table][?option=value&…]`. `%hh` is a byte. The
    /// default table is `membership`. If the URL has no region or no keys, they come from where the
    /// AWS tools look for them. The options have the names of the methods here: `endpoint`,
    /// `profile`, `create`, `operation_timeout`, `connect_timeout`, `create_timeout`; and
    /// `read_capacity` with `write_capacity` for [`provisioned`](Self::provisioned).
    ///
    /// # Errors
    /// `Configuration`: another scheme, a port, an unknown option, or an invalid value. Never shows
    /// what may be a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let parts = ConnectionString::parse(STORE, SCHEMES, url)?;
        let mut config = Self::new(
            parts
                .path
                .as_deref()
                .map_or(DEFAULT_TABLE, |path| path.trim_end_matches('/')),
        );
        match parts.hosts.as_slice() {
            [] => {}
            [(region, None)] => config.region = Some(region.clone()),
            _ => {
                return Err(wrong(
                    "the host of a DynamoDB URL is a region, such as eu-west-1; name a server with ?endpoint=http://…",
                ));
            }
        }
        match (parts.user, parts.password) {
            (Some(key), Some(secret)) if !secret.is_empty() => {
                config.keys = Some(Credentials::new(key, secret))
            }
            (None, None) => {}
            _ => {
                return Err(wrong(
                    "a URL with keys has both: dynamodb://key:secret@region/table; without them the AWS defaults apply",
                ));
            }
        }
        let (mut read, mut write) = (None, None);
        for option in &parts.options {
            if config.timeouts.set(option)? {
                continue;
            }
            config = match option.name() {
                "endpoint" => config.endpoint(option.text()),
                "profile" => config.profile(option.text()),
                "create" => config.create(option.flag()?),
                "create_timeout" => config.create_timeout(option.duration()?),
                "read_capacity" => {
                    read = Some(option.number()?);
                    config
                }
                "write_capacity" => {
                    write = Some(option.number()?);
                    config
                }
                _ => return Err(option.unknown(OPTIONS)),
            };
        }
        config = match (read, write) {
            (Some(read), Some(write)) => config.provisioned(read, write),
            (None, None) => config,
            _ => {
                return Err(wrong(
                    "give both read_capacity and write_capacity, together, or neither: then the table is billed by request",
                ));
            }
        };
        config.validate()?;
        Ok(config)
    }

    /// The region. Default: the one that the AWS tools use.
    #[must_use]
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// A server instead of Amazon's of the region: `http://host:port` or `https://…`.
    #[must_use]
    pub fn endpoint(mut self, url: impl Into<String>) -> Self {
        self.endpoint = Some(url.into());
        self
    }

    /// A profile of the shared configuration files; it can name a role to assume.
    #[must_use]
    pub fn profile(mut self, name: impl Into<String>) -> Self {
        self.profile = Some(name.into());
        self
    }

    /// An access key and its secret, instead of those that the AWS tools find.
    #[must_use]
    pub fn credentials(mut self, key: impl Into<String>, secret: impl Into<String>) -> Self {
        self.keys = Some(Credentials::new(key, secret));
        self
    }

    /// Whether `initialize` creates a missing table. Default: yes. If not, its error says what to
    /// create.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// The capacity of a table that `initialize` creates, in units per second, instead of billing
    /// by request. Does not change an existing table.
    #[must_use]
    pub fn provisioned(mut self, read: u32, write: u32) -> Self {
        self.capacity = Some((read, write));
        self
    }

    /// The timeout of one operation, including connecting: 10 ms to 1 h. Default: that of
    /// [`Timeouts`]. A read ends then, however many pages it has. Deleting a cluster takes many
    /// requests, each with this timeout; creating the table has another.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.set_operation(timeout);
        self
    }

    /// The timeout of connecting: 10 ms to 1 h. Default: that of [`Timeouts`]. An existing client
    /// keeps its own.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.set_connect(timeout);
        self
    }

    /// How long `initialize` waits for DynamoDB to create the table: 10 ms to 1 h. Default 1 min.
    #[must_use]
    pub fn create_timeout(mut self, timeout: Duration) -> Self {
        self.create_timeout = timeout;
        self
    }

    /// Refuses values that cannot work with any server.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !(3..=255).contains(&self.table.len()) || !self.table.chars().all(fits) {
            return Err(wrong(
                "a DynamoDB table's name has 3 to 255 characters: letters, digits, `_`, `-` and `.`",
            ));
        }
        let name = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self
            .region
            .as_ref()
            .is_some_and(|region| region.is_empty() || !region.chars().all(name))
        {
            return Err(wrong("a region is a name such as eu-west-1"));
        }
        if let Some(endpoint) = &self.endpoint {
            let host = endpoint
                .strip_prefix("http://")
                .or_else(|| endpoint.strip_prefix("https://"));
            if host.is_none_or(|host| {
                host.is_empty()
                    || host.starts_with(['/', ':'])
                    || host.contains(['@', ' ', '?', '#'])
            }) {
                return Err(wrong(
                    "an endpoint is http://host:port or https://host:port, and nothing else",
                ));
            }
        }
        if self.keys.is_some() && self.profile.is_some() {
            return Err(wrong("keys and a profile are given: name one of them"));
        }
        if self
            .capacity
            .is_some_and(|(read, write)| read == 0 || write == 0)
        {
            return Err(wrong("read_capacity and write_capacity must be 1 or more"));
        }
        self.timeouts.validate(STORE)?;
        check_timeout(
            STORE,
            "create_timeout",
            self.create_timeout,
            &Timeouts::RANGE,
        )
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for DynamoConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoConfig")
            .field("table", &self.table)
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .field("profile", &self.profile)
            .field("keys", &self.keys)
            .field("create", &self.create)
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
    use conformance_tests::helpers::urls_are_refused;

    #[test]
    fn a_url_sets_every_option() {
        let url = "dynamodb://AKID:s%2Fcret@eu-west-1/silos?endpoint=http://127.0.0.1:8000&create=false&read_capacity=5&write_capacity=7";
        let config = DynamoConfig::from_url(url).unwrap();
        assert_eq!(
            (
                config.table.as_str(),
                config.region.as_deref(),
                config.create
            ),
            ("silos", Some("eu-west-1"), false)
        );
        assert_eq!(config.keys, Some(Credentials::new("AKID", "s/cret")));
        assert_eq!(
            (config.capacity, config.endpoint.as_deref()),
            (Some((5, 7)), Some("http://127.0.0.1:8000"))
        );
        let least = DynamoConfig::from_url("dynamodb://").unwrap();
        assert_eq!(
            (
                least.table.as_str(),
                least.region.as_deref(),
                &least.keys,
                least.create
            ),
            ("membership", None, &None, true)
        );
        assert_eq!(
            DynamoConfig::from_url("dynamodb:///silos/?profile=ops")
                .unwrap()
                .table,
            "silos"
        );
    }

    #[test]
    fn invalid_urls_are_refused_without_showing_secrets() {
        let cases = [
            "mysql://h/db => starts with",
            "dynamodb://localhost:8000/table => endpoint",
            "dynamodb://k:hunter2@a,b/table => region",
            "dynamodb://hunter2@eu-west-1/table => both",
            "dynamodb://k:@eu-west-1/table => both",
            "dynamodb://eu_west/table => a region is",
            "dynamodb://eu-west-1/t => 3 to 255",
            "dynamodb://eu-west-1/ta%20ble => 3 to 255",
            "dynamodb://eu-west-1/table?endpoint=localhost:8000 => an endpoint is",
            "dynamodb://eu-west-1/table?endpoint=http://k:hunter2@h => an endpoint is",
            "dynamodb://k:hunter2@eu-west-1/table?profile=x => name one",
            "dynamodb://eu-west-1/table?create=perhaps => true or false",
            "dynamodb://eu-west-1/table?read_capacity=5 => together",
            "dynamodb://eu-west-1/table?read_capacity=5&write_capacity=0 => 1 or more",
            "dynamodb://eu-west-1/table?operation_timeout=1ms => 10 ms to 1 h",
            "dynamodb://eu-west-1/table?colour=hunter2 => there are endpoint",
        ];
        urls_are_refused(DynamoConfig::from_url, "hunter2", &cases);
    }
}
