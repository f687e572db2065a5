//! One connection to one server: addresses, TLS, user, RESP3, scripts, and the knowledge that it has ended.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use membership_core::{TableError, TableErrorKind};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisConnectionInfo, Value,
};

use crate::config::{Address, RedisConfig, Servers, wrong};
use crate::error::{Refusal, Secrets, error, not_connected};
use crate::scripts::SCRIPTS;

/// How connections are made.
pub(crate) struct Dialer {
    /// An application's own client: its address and everything about it.
    base: Option<redis::ConnectionInfo>,
    settings: RedisConnectionInfo,
    sentinel: RedisConnectionInfo,
    tls: Option<redis::TlsCertificates>,
    encrypted: bool,
    timeout: Duration,
    wait: bool,
    pub(crate) secrets: Secrets,
}

/// A connection that several operations share.
pub(crate) struct Conn {
    redis: MultiplexedConnection,
    alive: Arc<AtomicBool>,
    pub(crate) at: Address,
}

impl Conn {
    /// Whether it is worth a try.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Nobody shall use it any more.
    pub(crate) fn condemn(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    /// Sends one command.
    pub(crate) async fn command(&self, command: &redis::Cmd) -> redis::RedisResult<Value> {
        self.redis.clone().send_packed_command(command).await
    }

    /// Sends commands in one flight; what the server refuses is among the answers.
    pub(crate) async fn flight(
        &self,
        commands: &redis::Pipeline,
    ) -> redis::RedisResult<Vec<Value>> {
        self.redis
            .clone()
            .send_packed_commands(commands, 0, commands.len())
            .await
    }

    /// The connection itself, for what only it can do.
    pub(crate) fn raw(&self) -> MultiplexedConnection {
        self.redis.clone()
    }
}

impl Dialer {
    /// Reads the certificate files.
    ///
    /// # Errors
    /// `Configuration` where a file cannot be read.
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, TableError> {
        let settings = |user: Option<&str>, password: Option<&str>, database: u32| {
            let mut all = RedisConnectionInfo::default()
                .set_db(i64::from(database))
                .set_skip_set_lib_name();
            if let Some(user) = user {
                all = all.set_username(user);
            }
            if let Some(password) = password {
                all = all.set_password(password);
            }
            all
        };
        let (user, password) = config.user();
        let (base, sentinel) = match config.servers() {
            Servers::Client(info) => (Some((**info).clone()), settings(None, None, 0)),
            Servers::Sentinel {
                username, password, ..
            } => (None, settings(username.as_deref(), password.as_deref(), 0)),
            Servers::Single(_) | Servers::Cluster(_) => (None, settings(None, None, 0)),
        };
        if config.uses_tls() {
            // Whoever was first has chosen; what matters is that somebody has, or rustls panics.
            let _chosen = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        Ok(Self {
            base,
            settings: settings(user, password, config.database_number())
                .set_protocol(ProtocolVersion::RESP3),
            sentinel,
            tls: certificates(config)?,
            encrypted: config.uses_tls(),
            timeout: config.dial_timeout(),
            wait: config.wait().is_some(),
            secrets: Secrets::new(config.secrets()),
        })
    }

    fn client(&self, at: &Address, settings: &RedisConnectionInfo) -> redis::RedisResult<Client> {
        let (host, port) = (at.host.clone(), at.port);
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
        let info = (at.host.as_str(), port)
            .into_connection_info()?
            .set_addr(addr)
            .set_tcp_settings(tcp)
            .set_redis_settings(settings.clone());
        match &self.tls {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        }
    }

    /// A connection to a server, ready for scripts.
    ///
    /// # Errors
    /// Nothing was sent that changes anything.
    pub(crate) async fn connect(&self, at: &Address) -> Result<Conn, TableError> {
        let conn = self.open(at, |_| {}).await?;
        self.prepare(&conn).await?;
        Ok(conn)
    }

    /// Loads the scripts.
    ///
    /// # Errors
    /// Nothing was sent that changes anything.
    pub(crate) async fn prepare(&self, conn: &Conn) -> Result<(), TableError> {
        let mut setup = redis::pipe();
        for script in SCRIPTS.all() {
            setup.cmd("SCRIPT").arg("LOAD").arg(script.text);
        }
        if self.wait {
            setup.cmd("WAIT").arg(0).arg(0);
        }
        let answers = tokio::time::timeout(self.timeout, conn.flight(&setup))
            .await
            .map_err(|_| self.silent(&conn.at))?
            .map_err(|e| self.not_connected(&conn.at, &e))?;
        for (n, answer) in answers.iter().enumerate() {
            if let Value::ServerError(e) = answer {
                let refusal = Refusal::new(e);
                // A script that may not be loaded may be there all the same.
                if refusal.code != "NOPERM" || n >= SCRIPTS.all().len() {
                    return Err(refusal.into_error(&self.secrets).at(conn.at.to_string()));
                }
            }
        }
        Ok(())
    }

    /// A connection whose push messages somebody wants.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub(crate) async fn open(
        &self,
        at: &Address,
        push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Conn, TableError> {
        let alive = Arc::new(AtomicBool::new(true));
        let ended = Arc::clone(&alive);
        let told = move |info: PushInfo| -> Result<(), ()> {
            if info.kind == PushKind::Disconnection {
                ended.store(false, Ordering::Relaxed);
            }
            push(info);
            Ok(())
        };
        // Operations have deadlines of their own; the client's would cut them off after half a second.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(None)
            .set_push_sender(told);
        let redis = self.multiplexed(at, &self.settings, &config).await?;
        Ok(Conn {
            redis,
            alive,
            at: at.clone(),
        })
    }

    /// Asks a sentinel. The connection is closed again.
    ///
    /// # Errors
    /// Nothing was sent that changes anything.
    pub(crate) async fn ask_sentinel(
        &self,
        at: &Address,
        command: &redis::Cmd,
    ) -> Result<Value, TableError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let mut redis = self.multiplexed(at, &self.sentinel, &config).await?;
        redis
            .send_packed_command(command)
            .await
            .map_err(|e| self.not_connected(at, &e))
    }

    async fn multiplexed(
        &self,
        at: &Address,
        settings: &RedisConnectionInfo,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, TableError> {
        let made = async {
            self.client(at, settings)?
                .get_multiplexed_async_connection_with_config(config)
                .await
        };
        tokio::time::timeout(self.timeout, made)
            .await
            .map_err(|_| self.silent(at))?
            .map_err(|e| self.not_connected(at, &e))
    }

    fn silent(&self, at: &Address) -> TableError {
        let hint = if self.encrypted {
            " (a server without TLS is redis://)"
        } else {
            ""
        };
        error(
            TableErrorKind::Unavailable,
            format!("no answer within {:?}{hint}", self.timeout),
        )
        .at(at.to_string())
    }

    pub(crate) fn not_connected(&self, at: &Address, e: &redis::RedisError) -> TableError {
        not_connected(e, self.encrypted, &self.secrets).at(at.to_string())
    }
}

fn certificates(config: &RedisConfig) -> Result<Option<redis::TlsCertificates>, TableError> {
    let [ca, certificate, key] = config.tls_files();
    if ca.is_none() && certificate.is_none() {
        return Ok(None);
    }
    let client_tls = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(redis::ClientTlsConfig {
            client_cert: read(certificate)?,
            client_key: read(key)?,
        }),
        _ => None,
    };
    Ok(Some(redis::TlsCertificates {
        client_tls,
        root_cert: ca.map(read).transpose()?,
    }))
}

fn read(path: &Path) -> Result<Vec<u8>, TableError> {
    std::fs::read(path).map_err(|e| {
        wrong(format!("the file {} cannot be read ({e})", path.display())).with_source(e)
    })
}
