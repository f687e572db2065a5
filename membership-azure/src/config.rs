//! Which table of which account, who asks, and how long anything may take.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::{Secret, TokenCredential};
use azure_core::http::{Transport, Url};
use membership_core::TableError;

use crate::auth::{Credential, Identity};
use crate::error::wrong;
use crate::{settings, url};

/// The table if nobody names one.
pub(crate) const DEFAULT_TABLE: &str = "membership";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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
    operation_timeout: Duration,
    connect_timeout: Duration,
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
            .field("operation_timeout", &self.operation_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

impl AzureTableConfig {
    /// The table `table` of the storage account `account`, in Azure's public cloud. Without a credential, [`Identity::Default`].
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
            operation_timeout: DEFAULT_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
        }
    }

    /// From `azure-table://account/table?options`; see the crate's README for the options. What the URL leaves out comes from the environment:
    /// `AZURE_STORAGE_CONNECTION_STRING`, or `AZURE_STORAGE_ACCOUNT` with `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN`; and without any of
    /// these from Entra ID.
    ///
    /// # Errors
    /// `Configuration`, with what to write instead.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        url::parse(url, |name| {
            std::env::var(name)
                .ok()
                .filter(|value| !value.trim().is_empty())
        })
    }

    /// From a connection string as the portal shows it: `DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…;EndpointSuffix=…`, or with
    /// `TableEndpoint=` and `SharedAccessSignature=`, or `UseDevelopmentStorage=true`.
    ///
    /// # Errors
    /// `Configuration`, with what to write instead.
    pub fn from_connection_string(
        text: &str,
        table: impl Into<String>,
    ) -> Result<Self, TableError> {
        settings::parse(text, table.into())
    }

    /// Authorizes with a key of the account, in base64.
    #[must_use]
    pub fn account_key(mut self, key: impl Into<String>) -> Self {
        self.credential = Some(Credential::Key(Secret::new(key.into())));
        self
    }

    /// Authorizes with a shared access signature, with or without its `?`. It needs the permissions `raud` on the table, and for an account
    /// signature the service `t` and the resource types `co`; to make the table also `c` and `c`.
    #[must_use]
    pub fn shared_access_signature(mut self, signature: impl Into<String>) -> Self {
        let signature = signature.into();
        self.credential = Some(Credential::Sas(Secret::new(
            signature.trim_start_matches('?').to_owned(),
        )));
        self
    }

    /// Authorizes with tokens that this credential gives.
    #[must_use]
    pub fn token_credential(mut self, credential: Arc<dyn TokenCredential>) -> Self {
        self.credential = Some(Credential::Token(credential));
        self
    }

    /// Authorizes with tokens of Entra ID that this process finds by itself.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.credential = Some(Credential::Identity(identity));
        self
    }

    /// Which of several managed or workload identities is meant, by its client id.
    #[must_use]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = Some(id.into());
        self
    }

    /// The address of the table service, where it does not follow from the account: an emulator, a private address, Cosmos DB for Table.
    #[must_use]
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// The cloud: `core.windows.net` if nobody says otherwise, `core.chinacloudapi.cn`, `core.usgovcloudapi.net`.
    #[must_use]
    pub fn endpoint_suffix(mut self, suffix: impl Into<String>) -> Self {
        self.endpoint_suffix = suffix.into();
        self
    }

    /// A file of certificates (PEM) that are trusted besides the system's.
    #[must_use]
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_ca = Some(path.into());
        self
    }

    /// Sends over this client instead of one of its own: a `reqwest::Client` or any other transport of `azure_core`. It must not send anything
    /// twice by itself.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = Some(transport);
        self
    }

    /// No operation takes longer: 10 ms to 10 min, 10 s if nobody says otherwise. To delete a cluster takes as many requests as it has rows for;
    /// there it is the time of each of them.
    #[must_use]
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// No connection takes longer to be made: 10 ms to 10 min, 5 s if nobody says otherwise. Best shorter than an operation: then it is certain
    /// that nothing was sent.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
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

    pub(crate) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    pub(crate) fn time_to_connect(&self) -> Duration {
        self.connect_timeout.min(self.operation_timeout)
    }

    /// The address of the table service.
    ///
    /// # Errors
    /// `Configuration`: it is none.
    pub fn endpoint_url(&self) -> Result<Url, TableError> {
        let text = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => format!("https://{}.table.{}", self.account, self.endpoint_suffix),
        };
        let url = Url::parse(&text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some());
        let url = url.ok_or_else(|| {
            wrong("the endpoint is no address: write https://account.table.core.windows.net")
        })?;
        if url.query().is_some()
            || url.fragment().is_some()
            || !url.username().is_empty()
            || url.password().is_some()
        {
            return Err(wrong(
                "the endpoint is an address alone: a signature is given as `sas`, a key as `account_key`",
            ));
        }
        Ok(url)
    }

    /// Refuses what cannot work.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        let name = |text: &str, from: usize, to: usize| {
            (from..=to).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        // Emulators and Cosmos DB take other names, too.
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
        let range = Duration::from_millis(10)..=Duration::from_secs(600);
        if !range.contains(&self.operation_timeout) || !range.contains(&self.connect_timeout) {
            return Err(wrong(
                "operation_timeout and connect_timeout are from 10 ms to 10 min",
            ));
        }
        if let Some(credential) = &self.credential {
            credential.validate()?;
        }
        self.endpoint_url().map(drop)
    }
}
