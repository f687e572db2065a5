//! The options, the connection URL and the connection string. Nothing here uses the network.

mod connection_string;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::{Secret, TokenCredential};
use azure_core::http::{Transport, Url};
use membership_core::{ConnectionOption, ConnectionString, TableError};
use membership_provider::{Timeouts, environment};

use self::connection_string::{Parts, account_of};
use crate::STORE;
use crate::auth::{Credential, Identity};
use crate::error::wrong;

/// The schemes of URLs.
pub(crate) const SCHEMES: &[&str] = &["azure-table"];
/// The table if the URL names none.
const DEFAULT_TABLE: &str = "membership";
const TIMEOUTS: Timeouts = Timeouts::new(Duration::from_secs(10), Duration::from_secs(5));

const CONNECTION_STRING: &str = "AZURE_STORAGE_CONNECTION_STRING";
const ACCOUNT: &str = "AZURE_STORAGE_ACCOUNT";
const KEY: &str = "AZURE_STORAGE_KEY";
const SAS: &str = "AZURE_STORAGE_SAS_TOKEN";

const OPTIONS: &str = "account_key, sas, connection_string, credential, client_id, endpoint, endpoint_suffix, development, tls_ca, \
                       operation_timeout and connect_timeout";

/// How to reach a table in Azure Table storage.
///
/// ```
/// use membership_azure::{AzureTableConfig, Identity};
/// use std::time::Duration;
///
/// let config = AzureTableConfig::new("contoso", "membership")
///     .identity(Identity::Managed)
///     .operation_timeout(Duration::from_secs(5));
/// assert_eq!(config.endpoint_url()?.as_str(), "https://contoso.table.core.windows.net/");
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct AzureTableConfig {
    pub(crate) account: String,
    pub(crate) table: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) endpoint_suffix: String,
    pub(crate) credential: Option<Credential>,
    pub(crate) client_id: Option<String>,
    pub(crate) tls_ca: Option<PathBuf>,
    pub(crate) transport: Option<Transport>,
    pub(crate) timeouts: Timeouts,
}

/// Shows no secret (clause T15).
impl fmt::Debug for AzureTableConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("AzureTableConfig");
        shown
            .field("account", &self.account)
            .field("table", &self.table);
        if let Ok(endpoint) = self.endpoint_url() {
            shown.field("endpoint", &endpoint.as_str());
        }
        if let Some(credential) = &self.credential {
            shown.field("credential", credential);
        }
        shown
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

impl AzureTableConfig {
    /// The table `table` of the storage account `account`, in Azure's public cloud. The default
    /// credential is [`Identity::Default`].
    #[must_use]
    pub fn new(account: impl Into<String>, table: impl Into<String>) -> Self {
        Self {
            account: account.into(),
            table: table.into(),
            endpoint: None,
            endpoint_suffix: "core.windows.net".to_owned(),
            credential: None,
            client_id: None,
            tls_ca: None,
            transport: None,
            timeouts: TIMEOUTS,
        }
    }

    /// From `azure-table://account/table?options`; see the crate's README for the options. What the
    /// URL leaves out comes from the environment: `AZURE_STORAGE_CONNECTION_STRING`, or
    /// `AZURE_STORAGE_ACCOUNT` with `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN`; and without
    /// any of these from Entra ID.
    ///
    /// # Errors
    /// `Configuration`, with what to write instead.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        parse_url(url, |name| {
            environment(name).filter(|value| !value.trim().is_empty())
        })
    }

    /// From a connection string as the portal shows it:
    /// `DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…;EndpointSuffix=…`, or with
    /// `TableEndpoint=` and `SharedAccessSignature=`, or `UseDevelopmentStorage=true`.
    ///
    /// # Errors
    /// `Configuration`, with what to write instead.
    pub fn from_connection_string(
        text: &str,
        table: impl Into<String>,
    ) -> Result<Self, TableError> {
        Ok(Self::of_parts(Parts::parse(text)?, table.into()))
    }

    fn of_parts(parts: Parts, table: String) -> Self {
        let mut config = Self::new(parts.account, table);
        if let Some(suffix) = parts.suffix {
            config = config.endpoint_suffix(suffix);
        }
        if let Some(endpoint) = parts.endpoint {
            config = config.endpoint(endpoint.trim_end_matches('/'));
        } else if parts.plain_http {
            let plain = format!("http://{}.table.{}", config.account, config.endpoint_suffix);
            config = config.endpoint(plain);
        }
        match (parts.key, parts.signature) {
            (Some(key), _) => config.account_key(key),
            (None, Some(signature)) => config.shared_access_signature(signature),
            (None, None) => config,
        }
    }

    /// Authorizes with a key of the account, in base64.
    #[must_use]
    pub fn account_key(mut self, key: impl Into<String>) -> Self {
        self.credential = Some(Credential::Key(Secret::new(key.into())));
        self
    }

    /// Authorizes with a shared access signature, with or without its `?`. It needs the permissions
    /// `raud` on the table, and an account signature also the service `t` and the resource types
    /// `co`. To create the table it needs the permission `c` and the resource type `c` as well.
    #[must_use]
    pub fn shared_access_signature(mut self, signature: impl Into<String>) -> Self {
        let signature = signature.into();
        self.credential = Some(Credential::Sas(Secret::new(
            signature.trim_start_matches('?').to_owned(),
        )));
        self
    }

    /// Authorizes with tokens from this credential.
    #[must_use]
    pub fn token_credential(mut self, credential: Arc<dyn TokenCredential>) -> Self {
        self.credential = Some(Credential::Token(credential));
        self
    }

    /// Authorizes with tokens of Entra ID, from a credential that this process finds.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.credential = Some(Credential::Identity(identity));
        self
    }

    /// The client id of one of several managed or workload identities.
    #[must_use]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = Some(id.into());
        self
    }

    /// The URL of the table service, if it does not follow from the account: an emulator, a private
    /// endpoint, Cosmos DB for Table.
    #[must_use]
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// The cloud: `core.windows.net` (the default), `core.chinacloudapi.cn`,
    /// `core.usgovcloudapi.net`.
    #[must_use]
    pub fn endpoint_suffix(mut self, suffix: impl Into<String>) -> Self {
        self.endpoint_suffix = suffix.into();
        self
    }

    /// A file of certificates (PEM) to trust in addition to the system's.
    #[must_use]
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_ca = Some(path.into());
        self
    }

    /// Sends with this client instead of its own: a `reqwest::Client` or any other transport of
    /// `azure_core`. It must not retry.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = Some(transport);
        self
    }

    /// The timeout of one operation: 10 ms to 1 h, default 10 s. Deleting a cluster takes many
    /// requests, and the timeout applies to each of them.
    #[must_use]
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.set_operation(timeout);
        self
    }

    /// The timeout of connecting: 10 ms to 1 h, default 5 s. If it is shorter than the operation
    /// timeout, a connection attempt that times out has certainly sent nothing.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.set_connect(timeout);
        self
    }

    /// The account's name.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.account
    }

    /// The table's name.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The URL of the table service.
    ///
    /// # Errors
    /// `Configuration`: it is not a URL.
    pub fn endpoint_url(&self) -> Result<Url, TableError> {
        let text = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => format!("https://{}.table.{}", self.account, self.endpoint_suffix),
        };
        let url = Url::parse(&text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some());
        let url = url.ok_or_else(|| {
            wrong("the endpoint is not a URL: write https://account.table.core.windows.net")
        })?;
        if url.query().is_some()
            || url.fragment().is_some()
            || !url.username().is_empty()
            || url.password().is_some()
        {
            return Err(wrong(
                "the endpoint must be a URL alone: give a signature as `sas`, a key as `account_key`",
            ));
        }
        Ok(url)
    }

    /// Refuses values that cannot work with any service.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        let name = |text: &str, from: usize, to: usize| {
            (from..=to).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        // Emulators and Cosmos DB accept other names, too.
        if self.account.is_empty()
            || self.account.len() > 50
            || !self
                .account
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        {
            return Err(wrong(
                "an account's name is 3 to 24 letters and digits: write azure-table://account/table",
            ));
        }
        if !name(&self.table, 3, 63)
            || self.table.starts_with(|c: char| c.is_ascii_digit())
            || self.table.eq_ignore_ascii_case("tables")
        {
            return Err(wrong(
                "a table's name is 3 to 63 letters and digits, the first a letter, and not `tables`",
            ));
        }
        self.timeouts.validate(STORE)?;
        if let Some(credential) = &self.credential {
            credential.validate()?;
        }
        self.endpoint_url().map(drop)
    }
}

/// See [`AzureTableConfig::from_url`].
fn parse_url(
    url: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<AzureTableConfig, TableError> {
    let url = ConnectionString::parse(STORE, SCHEMES, url)?;
    let account = match url.hosts.as_slice() {
        [] => None,
        [(account, None)] => Some(account.clone()),
        _ => {
            return Err(wrong(
                "the URL names one account, without a port: azure-table://account/table; name a server with the option `endpoint`",
            ));
        }
    };
    let table = url
        .path
        .as_deref()
        .unwrap_or_default()
        .trim_end_matches('/');
    let table = if table.is_empty() {
        DEFAULT_TABLE
    } else {
        table
    }
    .to_owned();
    if url.user.is_some() {
        return Err(wrong(
            "the URL names a user: an account key is written azure-table://:KEY@account/table, or as the option `account_key`",
        ));
    }

    let value = |name: &str| url.options.iter().find(|option| option.name() == name);
    let development = value("development")
        .map(ConnectionOption::flag)
        .transpose()?
        .unwrap_or(false);
    let credentials = ["account_key", "sas", "connection_string", "credential"];
    let given: Vec<&str> = credentials
        .into_iter()
        .filter(|name| value(name).is_some())
        .collect();
    if given.len() + usize::from(url.password.is_some()) + usize::from(development) > 1 {
        return Err(wrong(
            "the URL has more than one credential: keep one of account_key, sas, connection_string, credential and development",
        ));
    }
    let by_url = !given.is_empty() || url.password.is_some();
    let named = value("connection_string").map(ConnectionOption::text);
    let of_environment = || {
        if by_url || value("endpoint").is_some() {
            None
        } else {
            environment(CONNECTION_STRING)
        }
    };
    let mut config = if development {
        AzureTableConfig::of_parts(Parts::emulator(), table)
    } else if let Some(text) = named.or_else(of_environment) {
        AzureTableConfig::from_connection_string(&text, table)?
    } else {
        let of_endpoint = || account_of(&value("endpoint")?.text());
        let account = account.clone().or_else(of_endpoint).or_else(|| environment(ACCOUNT)).ok_or_else(|| {
            wrong(format!("the URL names no account: write azure-table://account/table, or set {CONNECTION_STRING} or {ACCOUNT}"))
        })?;
        let config = AzureTableConfig::new(account, table);
        match (&url.password, environment(KEY), environment(SAS)) {
            (Some(key), ..) => config.account_key(key.clone()),
            _ if by_url => config,
            (None, Some(key), _) => config.account_key(key),
            (None, None, Some(sas)) => config.shared_access_signature(sas),
            (None, None, None) => config,
        }
    };
    if let Some(account) = account.filter(|account| *account != config.account) {
        let from = if development {
            "the emulator has"
        } else {
            "the connection string is for"
        };
        return Err(wrong(format!(
            "the URL names the account `{account}`, and {from} `{}`: leave it out of the URL, or correct one",
            config.account
        )));
    }
    for option in &url.options {
        if !config.timeouts.set(option)? {
            config = set(config, option)?;
        }
    }
    config.validate()?;
    Ok(config)
}

fn set(
    config: AzureTableConfig,
    option: &ConnectionOption,
) -> Result<AzureTableConfig, TableError> {
    Ok(match option.name() {
        "account_key" => config.account_key(option.text()),
        "sas" => config.shared_access_signature(option.text()),
        "connection_string" | "development" => config,
        "credential" => config.identity(option.one_of(&[
            ("default", Identity::Default),
            ("environment", Identity::Environment),
            ("workload", Identity::Workload),
            ("managed", Identity::Managed),
            ("developer", Identity::Developer),
        ])?),
        "client_id" => config.client_id(option.text()),
        "endpoint" => config.endpoint(option.text().trim_end_matches('/')),
        "endpoint_suffix" => config.endpoint_suffix(option.text()),
        "tls_ca" => config.tls_ca_file(option.text()),
        _ => return Err(option.unknown(OPTIONS)),
    })
}
