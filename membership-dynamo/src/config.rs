//! Which table, and how to use it. Nothing here touches the network.

use std::fmt;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Builder, Credentials, StalledStreamProtectionConfig};
use membership_core::{ConnectionString, TableError, TableErrorKind};

use crate::STORE;
use crate::error::error;

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_dynamo::DynamoConfig;
///
/// let config = DynamoConfig::new("membership").region("eu-west-1").operation_timeout(Duration::from_secs(3));
/// let same = DynamoConfig::from_url("dynamodb://eu-west-1/membership?operation_timeout=3s")?;
/// assert_eq!(format!("{config:?}"), format!("{same:?}"));
/// assert!(!format!("{:?}", config.credentials("AKIDEXAMPLE", "s3cret")).contains("s3cret"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct DynamoConfig {
    table: String,
    region: Option<String>,
    endpoint: Option<String>,
    profile: Option<String>,
    keys: Option<(String, String)>,
    client: Option<Client>,
    create: bool,
    capacity: Option<(u32, u32)>,
    operation_timeout: Duration,
    connect_timeout: Duration,
    create_timeout: Duration,
}

/// Long enough for a hiccup of the service, short enough for a silo to notice that it is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that takes longer to accept a connection serves nobody.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// DynamoDB takes some ten seconds to make a table.
const DEFAULT_CREATE_TIMEOUT: Duration = Duration::from_secs(60);
/// Below this no network could be crossed.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
/// Above this nobody is waiting any more.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// The table that is taken when none is named.
const DEFAULT_TABLE: &str = "membership";

const OPTIONS: &str = "endpoint, profile, create, read_capacity, write_capacity, operation_timeout, connect_timeout and create_timeout";

impl DynamoConfig {
    /// A table of this name. Region, credentials and everything else come from where the AWS tools look for them: environment, shared
    /// configuration files, container or machine.
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
            operation_timeout: DEFAULT_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            create_timeout: DEFAULT_CREATE_TIMEOUT,
        }
    }

    /// A table reached by an existing client: its region, endpoint, credentials and HTTP client. Its own retries are turned off for the
    /// table, and stay as they are for everybody else.
    #[must_use]
    pub fn from_client(client: Client, table: impl Into<String>) -> Self {
        Self {
            client: Some(client),
            ..Self::new(table)
        }
    }

    /// Reads `dynamodb://[key:secret@][region]/[table][?option=value&…]`. `%hh` stands for a byte. Without a table it is `membership`;
    /// region and keys, where the URL has none, come from where the AWS tools look for them. The options have the names of the methods
    /// here: `endpoint`, `profile`, `create`, `operation_timeout`, `connect_timeout`, `create_timeout`; and `read_capacity` with
    /// `write_capacity` for [`provisioned`](Self::provisioned).
    ///
    /// # Errors
    /// `Configuration`: another scheme, a port, an unknown option, or a value that is none. Never shows what may be a secret.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let parts = ConnectionString::parse(STORE, &["dynamodb"], url)?;
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
                    "the host of a DynamoDB URL is a region, such as eu-west-1; a server has its place in ?endpoint=http://…",
                ));
            }
        }
        match (parts.user, parts.password) {
            (Some(key), Some(secret)) if !secret.is_empty() => config.keys = Some((key, secret)),
            (None, None) => {}
            _ => {
                return Err(wrong(
                    "a URL with keys has both: dynamodb://key:secret@region/table; without them the usual places are looked at",
                ));
            }
        }
        let (mut read, mut write) = (None, None);
        for option in &parts.options {
            config = match option.name() {
                "endpoint" => config.endpoint(option.text()),
                "profile" => config.profile(option.text()),
                "create" => config.create(option.flag()?),
                "operation_timeout" => config.operation_timeout(option.duration()?),
                "connect_timeout" => config.connect_timeout(option.duration()?),
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
                    "read_capacity and write_capacity come together; without them the table is billed by request",
                ));
            }
        };
        config.validate()?;
        Ok(config)
    }

    /// The region. Default: where the AWS tools look for it.
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

    /// An access key and its secret, instead of what the AWS tools would find.
    #[must_use]
    pub fn credentials(mut self, key: impl Into<String>, secret: impl Into<String>) -> Self {
        self.keys = Some((key.into(), secret.into()));
        self
    }

    /// Whether `initialize` makes the table where there is none. Default: yes. If not, it says what must be made.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// A table that is made gets this capacity, in units of its kind per second, instead of being billed by request. Changes no table
    /// that exists.
    #[must_use]
    pub fn provisioned(mut self, read: u32, write: u32) -> Self {
        self.capacity = Some((read, write));
        self
    }

    /// How long one request may take, connecting included: 10 ms to 1 h. Default 5 s. `commit`, `read_row` and heartbeats are one
    /// request; a read is one for each page.
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

    /// How long `initialize` waits for a table that is being made: 10 ms to 1 h. Default 1 min.
    #[must_use]
    pub fn create_timeout(mut self, timeout: Duration) -> Self {
        self.create_timeout = timeout;
        self
    }

    /// The definition of the table, for people who make it themselves: what `aws dynamodb create-table --cli-input-json` takes.
    #[must_use]
    pub fn definition(&self) -> String {
        let billing = match self.capacity {
            None => "\"BillingMode\": \"PAY_PER_REQUEST\"".to_owned(),
            Some((read, write)) => format!(
                "\"BillingMode\": \"PROVISIONED\",\n  \"ProvisionedThroughput\": {{ \"ReadCapacityUnits\": {read}, \"WriteCapacityUnits\": {write} }}"
            ),
        };
        format!(
            "{{\n  \"TableName\": \"{}\",\n  {billing},\n  \"AttributeDefinitions\": [\n    \
             {{ \"AttributeName\": \"cluster\", \"AttributeType\": \"S\" }},\n    \
             {{ \"AttributeName\": \"item\", \"AttributeType\": \"S\" }}\n  ],\n  \"KeySchema\": [\n    \
             {{ \"AttributeName\": \"cluster\", \"KeyType\": \"HASH\" }},\n    \
             {{ \"AttributeName\": \"item\", \"KeyType\": \"RANGE\" }}\n  ]\n}}\n",
            self.table
        )
    }

    pub(crate) fn table_name(&self) -> &str {
        &self.table
    }

    pub(crate) const fn may_create(&self) -> bool {
        self.create
    }

    pub(crate) const fn capacity(&self) -> Option<(u32, u32)> {
        self.capacity
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    pub(crate) const fn creating(&self) -> Duration {
        self.create_timeout
    }

    /// Refuses what cannot work whatever the server is.
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
            return Err(wrong("there are keys and a profile: name one of them"));
        }
        if self
            .capacity
            .is_some_and(|(read, write)| read == 0 || write == 0)
        {
            return Err(wrong("read_capacity and write_capacity are 1 or more"));
        }
        let times = [
            ("operation_timeout", self.operation_timeout),
            ("connect_timeout", self.connect_timeout),
            ("create_timeout", self.create_timeout),
        ];
        for (name, time) in times {
            if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&time) {
                return Err(wrong(format!("{name} is 10 ms to 1 h")));
            }
        }
        Ok(())
    }

    /// The client, and the server as people know it. Reads environment and files, and asks nobody yet.
    pub(crate) async fn open(&self) -> Result<(Client, String), TableError> {
        let builder = match &self.client {
            Some(client) => client.config().to_builder(),
            None => self.builder().await,
        };
        // What is sent again, and when, is decided by whoever knows whether that is harmless.
        let builder = builder
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        let client = Client::from_conf(builder.build());
        let region = client.config().region().map(ToString::to_string);
        let at = match (&self.endpoint, &region) {
            (Some(endpoint), _) => endpoint.trim_end_matches('/').to_owned(),
            (None, Some(region)) => format!("DynamoDB in {region}"),
            (None, None) => {
                return Err(wrong(
                    "no region is known: dynamodb://eu-west-1/table, AWS_REGION, or a profile that has one",
                ));
            }
        };
        Ok((client, at))
    }

    async fn builder(&self) -> Builder {
        let mut loader = aws_config::defaults(BehaviorVersion::latest());
        // A server of one's own does not care which region it is in; requests are signed for one all the same.
        let region = self.region.clone().or_else(|| {
            self.endpoint
                .as_ref()
                .and(self.keys.as_ref())
                .map(|_| "us-east-1".to_owned())
        });
        if let Some(region) = region {
            loader = loader.region(Region::new(region));
        }
        if let Some(profile) = &self.profile {
            loader = loader.profile_name(profile);
        }
        if let Some((key, secret)) = &self.keys {
            loader = loader.credentials_provider(Credentials::new(
                key,
                secret,
                None,
                None,
                "membership",
            ));
        }
        let connecting = TimeoutConfig::builder()
            .connect_timeout(self.connect_timeout.min(self.operation_timeout))
            .build();
        let mut builder = Builder::from(&loader.timeout_config(connecting).load().await);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.endpoint_url(endpoint);
        }
        builder
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
            .field("key", &self.keys.as_ref().map(|(key, _)| key))
            .field("secret", &self.keys.as_ref().map(|_| "…"))
            .field("create", &self.create)
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
        let url = "dynamodb://AKID:s%2Fcret@eu-west-1/silos?endpoint=http://127.0.0.1:8000&create=false&read_capacity=5&write_capacity=7";
        let config = DynamoConfig::from_url(url).unwrap();
        assert_eq!(
            (
                config.table_name(),
                config.region.as_deref(),
                config.may_create()
            ),
            ("silos", Some("eu-west-1"), false)
        );
        assert_eq!(config.keys, Some(("AKID".to_owned(), "s/cret".to_owned())));
        assert_eq!(
            (config.capacity(), config.endpoint.as_deref()),
            (Some((5, 7)), Some("http://127.0.0.1:8000"))
        );
        let least = DynamoConfig::from_url("dynamodb://").unwrap();
        assert_eq!(
            (
                least.table_name(),
                least.region.as_deref(),
                &least.keys,
                least.create
            ),
            ("membership", None, &None, true)
        );
        assert_eq!(
            DynamoConfig::from_url("dynamodb:///silos/?profile=ops")
                .unwrap()
                .table_name(),
            "silos"
        );
    }

    #[test]
    fn what_cannot_work_is_said_without_secrets() {
        for (url, why) in [
            ("mysql://h/db", "starts with"),
            ("dynamodb://localhost:8000/table", "endpoint"),
            ("dynamodb://k:hunter2@a,b/table", "region"),
            ("dynamodb://hunter2@eu-west-1/table", "both"),
            ("dynamodb://k:@eu-west-1/table", "both"),
            ("dynamodb://eu_west/table", "a region is"),
            ("dynamodb://eu-west-1/t", "3 to 255"),
            ("dynamodb://eu-west-1/ta%20ble", "3 to 255"),
            (
                "dynamodb://eu-west-1/table?endpoint=localhost:8000",
                "an endpoint is",
            ),
            (
                "dynamodb://eu-west-1/table?endpoint=http://k:hunter2@h",
                "an endpoint is",
            ),
            ("dynamodb://k:hunter2@eu-west-1/table?profile=x", "name one"),
            ("dynamodb://eu-west-1/table?create=perhaps", "true or false"),
            ("dynamodb://eu-west-1/table?read_capacity=5", "together"),
            (
                "dynamodb://eu-west-1/table?read_capacity=5&write_capacity=0",
                "1 or more",
            ),
            (
                "dynamodb://eu-west-1/table?operation_timeout=1ms",
                "10 ms to 1 h",
            ),
            (
                "dynamodb://eu-west-1/table?colour=hunter2",
                "there are endpoint",
            ),
        ] {
            let error = DynamoConfig::from_url(url)
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
    fn the_definition_is_json() {
        for config in [
            DynamoConfig::new("silos"),
            DynamoConfig::new("silos").provisioned(3, 4),
        ] {
            let text = config.definition();
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["TableName"], "silos", "{text}");
            assert_eq!(value["KeySchema"][1]["AttributeName"], "item", "{text}");
            assert_eq!(
                value["ProvisionedThroughput"]["WriteCapacityUnits"].as_u64(),
                config.capacity().map(|(_, write)| write.into())
            );
        }
    }
}
