//! Which server, and how to use it: options and URLs.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use membership_core::{ConnectionString, TableError, TableErrorKind};
use membership_provider::{Endpoint, check_timeout, environment, one_line, read_file};
use tiberius::{AuthMethod, Config, EncryptionLevel};

use super::error::error;
use super::{STORE, schema};

/// How connections are encrypted, with the names of SQL Server's own clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MssqlEncryption {
    /// Never, not even the password: for a server on this machine.
    Never,
    /// The login only, or everything if the server asks for it.
    Optional,
    /// Always; a server without it is refused.
    #[default]
    Mandatory,
    /// Always, from the first byte (TDS 8): SQL Server 2022, Azure SQL.
    Strict,
}

/// The values of the option `encrypt`.
const ENCRYPTIONS: &[(&str, MssqlEncryption)] = &[
    ("never", MssqlEncryption::Never),
    ("optional", MssqlEncryption::Optional),
    ("mandatory", MssqlEncryption::Mandatory),
    ("strict", MssqlEncryption::Strict),
];

/// Where access tokens of Microsoft Entra ID come from.
#[async_trait]
pub trait MssqlTokenSource: Send + Sync + 'static {
    /// A token for `https://database.windows.net/.default`. Asked for before each new connection,
    /// within the time of the operation; a server ends no connection because its token has expired.
    ///
    /// # Errors
    /// Why there is none; the text appears in errors and logs.
    async fn token(&self) -> Result<String, String>;
}

/// A token in a file, which another program keeps fresh.
struct TokenFile(PathBuf);

#[async_trait]
impl MssqlTokenSource for TokenFile {
    async fn token(&self) -> Result<String, String> {
        let bytes = read_file(STORE, &self.0).map_err(|e| e.message().to_owned())?;
        let text = String::from_utf8(bytes).map_err(|_| "the token file is not text".to_owned())?;
        match text.trim() {
            "" => Err(format!("{} is empty", self.0.display())),
            token => Ok(token.to_owned()),
        }
    }
}

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_sql::MssqlConfig;
///
/// let url = "mssql://silo:secret@db.example/app?operation_timeout=3s";
/// let config = MssqlConfig::from_url(url)?;
/// assert!(!format!("{config:?}").contains("secret"));
/// // For a user who may create tables:
/// assert!(MssqlConfig::schema_sql().contains("CREATE TABLE membership_version"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone)]
pub struct MssqlConfig {
    server: Endpoint,
    database: String,
    user: Option<String>,
    password: Option<String>,
    token: Option<Arc<dyn MssqlTokenSource>>,
    encryption: MssqlEncryption,
    trust_server_certificate: bool,
    tls_ca: Option<PathBuf>,
    host_name_in_certificate: Option<String>,
    create: bool,
    require_durable: bool,
    failover_may_lose: Option<bool>,
    operation_timeout: Duration,
}

/// The schemes of its URLs.
pub(super) const SCHEMES: &[&str] = &["mssql"];
/// Longer than a restart of a server, and short enough for a silo to notice that it is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Less is too short for a connection, and no caller waits longer.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// The port that SQL Server listens on.
const DEFAULT_PORT: u16 = 1433;
const OPTIONS: &str = "encrypt, trust_server_certificate, tls_ca, host_name_in_certificate, access_token_file, create, require_durable, \
                       failover_may_lose and operation_timeout";

impl MssqlConfig {
    /// The database `database` of the server at `host`, port 1433. A user with a password, or a
    /// source of tokens, must be added.
    #[must_use]
    pub fn new(host: impl Into<String>, database: impl Into<String>) -> Self {
        Self {
            server: Endpoint::new(host, DEFAULT_PORT),
            database: database.into(),
            user: None,
            password: None,
            token: None,
            encryption: MssqlEncryption::default(),
            trust_server_certificate: false,
            tls_ca: None,
            host_name_in_certificate: None,
            create: true,
            require_durable: false,
            failover_may_lose: None,
            operation_timeout: DEFAULT_TIMEOUT,
        }
    }

    /// Reads `mssql://user:password@host:port/database?option=value&…`; `%hh` is a byte. A missing
    /// password comes from the environment variable `MSSQL_PASSWORD`. The options are named as the
    /// methods of this type; `encrypt` is `strict`, `mandatory`, `optional` or `never`, and
    /// `access_token_file` names a file with a token of Microsoft Entra ID, read again for each
    /// connection.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no database, an unknown option or a bad value. Never shows
    /// a password.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        Self::from_url_and(url, environment("MSSQL_PASSWORD"))
    }

    fn from_url_and(url: &str, password: Option<String>) -> Result<Self, TableError> {
        let url = ConnectionString::parse(STORE, SCHEMES, url)?;
        let server = Endpoint::single(STORE, &url, DEFAULT_PORT)?;
        let Some(database) = url.path else {
            return Err(wrong(
                "no database is named: write mssql://user:password@host:port/database",
            ));
        };
        let mut config = Self::new(server.host, database);
        config.server.port = server.port;
        config.password = url.password.or_else(|| url.user.as_ref().and(password));
        config.user = url.user;
        for option in url.options {
            match option.name() {
                "create" => config.create = option.flag()?,
                "require_durable" => config.require_durable = option.flag()?,
                "failover_may_lose" => config.failover_may_lose = Some(option.flag()?),
                "encrypt" => config.encryption = option.one_of(ENCRYPTIONS)?,
                "trust_server_certificate" => config.trust_server_certificate = option.flag()?,
                "tls_ca" => config.tls_ca = Some(option.text().into()),
                "host_name_in_certificate" => config.host_name_in_certificate = Some(option.text()),
                "access_token_file" => {
                    config.token = Some(Arc::new(TokenFile(option.text().into())));
                }
                "operation_timeout" => config.operation_timeout = option.duration()?,
                _ => return Err(option.unknown(OPTIONS)),
            }
        }
        config.validate()?;
        Ok(config)
    }

    /// The batch that creates the tables, for silos that may not. Running it again changes nothing.
    #[must_use]
    pub fn schema_sql() -> String {
        schema::script()
    }

    /// The port. Default: 1433.
    #[must_use]
    pub const fn port(mut self, port: u16) -> Self {
        self.server.port = port;
        self
    }

    /// The user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The password.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// A source of access tokens of Microsoft Entra ID, instead of user and password.
    #[must_use]
    pub fn access_tokens(mut self, source: impl MssqlTokenSource) -> Self {
        self.token = Some(Arc::new(source));
        self
    }

    /// How connections are encrypted. Default: `Mandatory`.
    #[must_use]
    pub const fn encrypt(mut self, encryption: MssqlEncryption) -> Self {
        self.encryption = encryption;
        self
    }

    /// Whether to accept any certificate, which protects from nobody who can change what is sent.
    /// Default: false.
    #[must_use]
    pub const fn trust_server_certificate(mut self, trust: bool) -> Self {
        self.trust_server_certificate = trust;
        self
    }

    /// A PEM file with certificates that are trusted beside those of the operating system.
    #[must_use]
    pub fn tls_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_ca = Some(path.into());
        self
    }

    /// The name in the server's certificate. Default: the host.
    #[must_use]
    pub fn host_name_in_certificate(mut self, name: impl Into<String>) -> Self {
        self.host_name_in_certificate = Some(name.into());
        self
    }

    /// Whether `initialize` creates missing tables. Default: true. No other operation does.
    #[must_use]
    pub const fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether to refuse a database whose crash can lose acknowledged commits (`DELAYED_DURABILITY =
    /// FORCED`). Default: false: it is used with a warning in the log, and
    /// [`guarantees`](membership_core::MembershipTable::guarantees) says so.
    #[must_use]
    pub const fn require_durable(mut self, require: bool) -> Self {
        self.require_durable = require;
        self
    }

    /// What a failover of an availability group does. `false` promises that no secondary without the
    /// last acknowledged commits is ever made the primary; `true` that the primary is stopped before
    /// one is, which may lose commits. Without a promise, reads in an availability group are not
    /// linearizable, and one with a barrier is refused.
    #[must_use]
    pub const fn failover_may_lose(mut self, may_lose: bool) -> Self {
        self.failover_may_lose = Some(may_lose);
        self
    }

    /// The time of one operation, including connecting and waiting: 100 ms to 1 h. Default: 10 s.
    #[must_use]
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    pub(super) const fn creates(&self) -> bool {
        self.create
    }

    pub(super) const fn must_be_durable(&self) -> bool {
        self.require_durable
    }

    pub(super) const fn loses_at_failover(&self) -> Option<bool> {
        self.failover_may_lose
    }

    pub(super) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    pub(super) const fn server(&self) -> &Endpoint {
        &self.server
    }

    pub(super) fn warn_if_exposed(&self) {
        let plain = self.encryption == MssqlEncryption::Never;
        let servers = [self.server.clone()];
        Endpoint::warn_if_exposed(STORE, &servers, plain, "use encrypt=mandatory");
    }

    /// For the driver, with a fresh token where one is needed. Certificates are checked for the host
    /// that was named, also when a gateway sends the client elsewhere.
    ///
    /// # Errors
    /// `PermissionDenied`: there is no token.
    pub(super) async fn driver(&self) -> Result<Config, TableError> {
        let mut driver = Config::new();
        driver.host(&self.server.host);
        driver.port(self.server.port);
        driver.database(&self.database);
        driver.application_name("membership");
        // Operations have times of their own.
        driver.handshake_timeout(None);
        driver.command_timeout(None);
        driver.encryption(match self.encryption {
            MssqlEncryption::Never => EncryptionLevel::NotSupported,
            MssqlEncryption::Optional => EncryptionLevel::Off,
            MssqlEncryption::Mandatory => EncryptionLevel::Required,
            MssqlEncryption::Strict => EncryptionLevel::Strict,
        });
        if let Some(name) = &self.host_name_in_certificate {
            driver.hostname_in_certificate(name);
        }
        // Together the driver would panic; `validate` has refused that.
        match &self.tls_ca {
            Some(path) => driver.trust_cert_ca_bundle(read_file(STORE, path)?),
            None if self.trust_server_certificate => driver.trust_cert(),
            None => {}
        }
        driver.authentication(match &self.token {
            Some(source) => {
                let none = |why: String| {
                    let message = format!("there is no access token: {}", one_line(&why));
                    error(TableErrorKind::PermissionDenied, message)
                };
                AuthMethod::aad_token(source.token().await.map_err(none)?)
            }
            None => AuthMethod::sql_server(
                self.user.as_deref().unwrap_or_default(),
                self.password.as_deref().unwrap_or_default(),
            ),
        });
        Ok(driver)
    }

    /// Refuses what cannot work with any server.
    pub(super) fn validate(&self) -> Result<(), TableError> {
        if self.server.host.is_empty() || self.database.is_empty() {
            return Err(wrong("a host and a database are needed"));
        }
        let timeout = self.operation_timeout;
        check_timeout(STORE, "operation_timeout", timeout, &TIMEOUTS)?;
        match (&self.user, &self.token) {
            (None, None) => Err(wrong(
                "name a user with a password, or access_token_file for Microsoft Entra ID",
            )),
            (Some(_), Some(_)) => Err(wrong("a token replaces the user: leave one of them out")),
            _ if self.tls_ca.as_ref().is_some_and(|path| !path.is_file()) => {
                Err(wrong("there is no file where tls_ca says"))
            }
            _ if self.tls_ca.is_some() && self.trust_server_certificate => Err(wrong(
                "tls_ca checks certificates, trust_server_certificate does not: leave one of them out",
            )),
            (_, Some(_)) if self.encryption == MssqlEncryption::Never => Err(wrong(
                "a token is never sent unencrypted: leave encrypt=never out",
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for MssqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MssqlConfig")
            .field("server", &self.server.to_string())
            .field("database", &self.database)
            .field("user", &self.user)
            .field("encrypt", &self.encryption)
            .field("operation_timeout", &self.operation_timeout)
            .finish_non_exhaustive()
    }
}

fn wrong(message: impl Into<String>) -> TableError {
    error(TableErrorKind::Configuration, message)
}

#[cfg(test)]
#[path = "../../tests/unit/mssql/config.rs"]
mod tests;
