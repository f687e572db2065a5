//! One connection to one server: address, TLS, user, RESP3, scripts, and whether it is still alive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use membership_provider::{Endpoint, Secrets, TlsFiles, install_crypto_provider};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, Value,
};

use crate::config::{RedisConfig, Servers};
use crate::error::{Refusal, error, not_connected};
use crate::scripts::SCRIPTS;
use crate::{STORE, codec};

/// Makes connections.
pub(crate) struct Connector {
    /// The address and settings of an application's own client.
    base: Option<redis::ConnectionInfo>,
    settings: RedisConnectionInfo,
    sentinel: RedisConnectionInfo,
    /// Read at each connection: certificates are replaced while silos run.
    tls_files: TlsFiles,
    encrypted: bool,
    pub(crate) timeout: Duration,
    wait: bool,
    pub(crate) secrets: Secrets,
}

/// A connection that several operations share.
pub(crate) struct Connection {
    redis: MultiplexedConnection,
    alive: Arc<AtomicBool>,
    pub(crate) endpoint: Endpoint,
    /// Whether the server has no replicas, if that is known.
    pub(crate) alone: OnceLock<bool>,
    /// Whether the server was a replica when the connection was made: one may take writes
    /// (`replica-read-only no`), and loses them.
    replica: AtomicBool,
}

impl Connection {
    /// Whether it can be used.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Whether it leads to a replica.
    pub(crate) fn is_replica(&self) -> bool {
        self.replica.load(Ordering::Relaxed)
    }

    /// No new operation uses it.
    pub(crate) fn retire(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    /// Sends one command.
    pub(crate) async fn command(&self, command: &redis::Cmd) -> redis::RedisResult<Value> {
        self.redis.clone().send_packed_command(command).await
    }

    /// Sends commands together; the server's refusals are among the answers.
    pub(crate) async fn pipeline(
        &self,
        commands: &redis::Pipeline,
    ) -> redis::RedisResult<Vec<Value>> {
        self.redis
            .clone()
            .send_packed_commands(commands, 0, commands.len())
            .await
    }

    /// The client library's connection.
    pub(crate) fn raw(&self) -> MultiplexedConnection {
        self.redis.clone()
    }
}

impl Connector {
    /// Reads the certificate files.
    ///
    /// # Errors
    /// `Configuration` where a file cannot be read.
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, TableError> {
        let (base, sentinel) = match &config.servers {
            Servers::Client(info) => (Some((**info).clone()), login(None, None)),
            Servers::Sentinel {
                username, password, ..
            } => (None, login(username.as_deref(), password.as_deref())),
            Servers::Single(_) | Servers::Cluster(_) => (None, login(None, None)),
        };
        if config.tls {
            install_crypto_provider();
        }
        certificates(&config.tls_files)?;
        warn_if_exposed(config);
        let settings = login(config.username.as_deref(), config.password.as_deref())
            .set_db(i64::from(config.database))
            .set_protocol(ProtocolVersion::RESP3);
        let sentinel_password = sentinel.password().map(str::to_owned);
        Ok(Self {
            base,
            settings,
            tls_files: config.tls_files.clone(),
            encrypted: config.tls,
            timeout: config.timeouts.connect(),
            wait: config.wait().is_some(),
            secrets: Secrets::new([config.password.clone(), sentinel_password]),
            sentinel,
        })
    }

    fn client(
        &self,
        endpoint: &Endpoint,
        settings: &RedisConnectionInfo,
    ) -> Result<redis::Client, TableError> {
        let certificates = certificates(&self.tls_files)?;
        let wrong = |e: redis::RedisError| self.not_connected(endpoint, &e);
        let (host, port) = (endpoint.host.clone(), endpoint.port);
        let addr = match &self.base {
            Some(base) => base.addr().clone(),
            None if self.encrypted => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
            None => ConnectionAddr::Tcp(host, port),
        };
        let tcp = match &self.base {
            Some(base) => base.tcp_settings().clone(),
            None => TcpSettings::default(),
        };
        // Without it, every second small request waits for an acknowledgement of the first.
        let tcp = tcp.set_nodelay(true);
        let info = (endpoint.host.as_str(), port)
            .into_connection_info()
            .map_err(wrong)?
            .set_addr(addr)
            .set_tcp_settings(tcp)
            .set_redis_settings(settings.clone());
        match certificates {
            Some(certificates) => redis::Client::build_with_tls(info, certificates),
            None => redis::Client::open(info),
        }
        .map_err(wrong)
    }

    /// A connection to a server, ready for scripts.
    ///
    /// # Errors
    /// Nothing that changes the store was sent.
    pub(crate) async fn connect(&self, endpoint: &Endpoint) -> Result<Connection, TableError> {
        let connection = self.open(endpoint, |_| {}).await?;
        self.prepare(&connection).await?;
        Ok(connection)
    }

    /// Loads the scripts.
    ///
    /// # Errors
    /// Nothing that changes the store was sent.
    pub(crate) async fn prepare(&self, connection: &Connection) -> Result<(), TableError> {
        let mut setup = redis::pipe();
        for script in SCRIPTS.all() {
            setup.cmd("SCRIPT").arg("LOAD").arg(script.text);
        }
        if self.wait {
            setup.cmd("WAIT").arg(0).arg(0);
        }
        setup.add_command(hello());
        let endpoint = &connection.endpoint;
        let mut answers = tokio::time::timeout(self.timeout, connection.pipeline(&setup))
            .await
            .map_err(|_| self.no_answer(endpoint))?
            .map_err(|e| self.not_connected(endpoint, &e))?;
        let role = says(answers.pop(), "role");
        let replica = role.is_some_and(|role| role == "replica" || role == "slave");
        connection.replica.store(replica, Ordering::Relaxed);
        for (n, answer) in answers.iter().enumerate() {
            if let Value::ServerError(e) = answer {
                let refusal = Refusal::new(e);
                // A user who may not load scripts may still run those that are loaded.
                if refusal.code != "NOPERM" || n >= SCRIPTS.all().len() {
                    return Err(refusal.into_error(&self.secrets).at(endpoint.to_string()));
                }
            }
        }
        Ok(())
    }

    /// A connection without scripts, and with a callback for push messages.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub(crate) async fn open(
        &self,
        endpoint: &Endpoint,
        push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, TableError> {
        let alive = Arc::new(AtomicBool::new(true));
        let ended = Arc::clone(&alive);
        let pushed = move |info: PushInfo| -> Result<(), ()> {
            if info.kind == PushKind::Disconnection {
                ended.store(false, Ordering::Relaxed);
            }
            push(info);
            Ok(())
        };
        // Operations have their own deadlines; the client's default would end them after 500 ms.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(None)
            .set_push_sender(pushed);
        let redis = self.multiplexed(endpoint, &self.settings, &config).await?;
        Ok(Connection {
            redis,
            alive,
            endpoint: endpoint.clone(),
            alone: OnceLock::new(),
            replica: AtomicBool::new(false),
        })
    }

    /// Sends commands to a sentinel, over a connection of its own.
    ///
    /// # Errors
    /// Nothing that changes the store was sent.
    pub(crate) async fn ask_sentinel(
        &self,
        endpoint: &Endpoint,
        commands: &redis::Pipeline,
    ) -> Result<Vec<Value>, TableError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let mut redis = self.multiplexed(endpoint, &self.sentinel, &config).await?;
        redis
            .send_packed_commands(commands, 0, commands.len())
            .await
            .map_err(|e| self.not_connected(endpoint, &e))
    }

    async fn multiplexed(
        &self,
        endpoint: &Endpoint,
        settings: &RedisConnectionInfo,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, TableError> {
        let client = self.client(endpoint, settings)?;
        let made = client.get_multiplexed_async_connection_with_config(config);
        tokio::time::timeout(self.timeout, made)
            .await
            .map_err(|_| self.no_answer(endpoint))?
            .map_err(|e| self.not_connected(endpoint, &e))
    }

    fn no_answer(&self, endpoint: &Endpoint) -> TableError {
        let hint = if self.encrypted {
            " (use redis:// for a server without TLS)"
        } else {
            ""
        };
        error(
            TableErrorKind::Unavailable,
            format!("no answer within {:?}{hint}", self.timeout),
        )
        .at(endpoint.to_string())
    }

    pub(crate) fn not_connected(&self, endpoint: &Endpoint, e: &redis::RedisError) -> TableError {
        not_connected(e, self.encrypted, &self.secrets).at(endpoint.to_string())
    }
}

/// What a server says of itself; every user may ask.
pub(crate) fn hello() -> redis::Cmd {
    let mut command = redis::cmd("HELLO");
    command.arg(3);
    command
}

/// One thing that it says.
pub(crate) fn says(hello: Option<Value>, what: &str) -> Option<String> {
    let mut said = codec::pairs(hello?).into_iter();
    said.find(|(name, _)| name == what).map(|(_, value)| value)
}

fn login(user: Option<&str>, password: Option<&str>) -> RedisConnectionInfo {
    let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    settings
}

fn certificates(files: &TlsFiles) -> Result<Option<redis::TlsCertificates>, TableError> {
    if files.is_empty() {
        return Ok(None);
    }
    let identity = files.read_identity(STORE)?;
    Ok(Some(redis::TlsCertificates {
        client_tls: identity.map(|(client_cert, client_key)| redis::ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: files.read_ca(STORE)?,
    }))
}

/// A server on another machine to which a password is sent without encryption.
fn warn_if_exposed(config: &RedisConfig) -> Option<Endpoint> {
    let tcp = |info: &redis::ConnectionInfo| match info.addr() {
        ConnectionAddr::Tcp(host, port) => Some(Endpoint::new(host, *port)),
        _ => None,
    };
    let (servers, secret) = match &config.servers {
        Servers::Single(one) => (vec![one.clone()], &None),
        Servers::Client(info) => (tcp(info).into_iter().collect(), &None),
        Servers::Sentinel {
            sentinels,
            password,
            ..
        } => (sentinels.clone(), password),
        Servers::Cluster(nodes) => (nodes.clone(), &None),
    };
    let plain = !config.tls && (config.password.is_some() || secret.is_some());
    Endpoint::warn_if_exposed(STORE, &servers, plain, "use rediss:// or tls=true").cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_exposed_to_the_network_without_tls() {
        for (url, server) in [
            ("redis://:p@10.0.0.1", Some("10.0.0.1:6379")),
            ("redis://:p@127.0.0.1", None),
            ("redis://:p@LOCALHOST", None),
            ("rediss://:p@10.0.0.1", None),
            ("redis+cluster://:p@[::1],b", Some("b:6379")),
            ("redis+sentinel://:p@a/main?tls=true", None),
            (
                "redis+sentinel://a/main?sentinel_password=p",
                Some("a:26379"),
            ),
        ] {
            let config = RedisConfig::from_url(url).unwrap();
            let exposed = warn_if_exposed(&config).map(|server| server.to_string());
            assert_eq!(exposed.as_deref(), server, "{url}");
        }
        let (host, port) = ("10.0.0.1", 6379);
        assert_eq!(warn_if_exposed(&RedisConfig::new(host, port)), None);
    }
}
