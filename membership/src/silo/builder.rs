//! Describes a silo and starts it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Identity, JoinProgress, Setup};
use membership_core::{ClusterKey, Config, InstanceId, MembershipTable, Preset, SiloInfo};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tracing::Span;
use tracing::field::Empty;

use super::driver::{Driver, INBOX, OnProgress, Parts, REQUESTS};
use super::error::StartError;
use super::events::{EventSender, Events};
use super::handle::Silo;
use super::host::host_name;
use super::request::Stage;
use super::starting::Starting;
use super::state;
use crate::TimedTable;
use crate::transport::{
    Hello, MessageInbox, Security, SiloKey, TcpConfig, TcpTransport, Transport, TransportError,
};

/// A silo to start. Everything has a default, except the address to listen on (or a transport).
#[must_use = "a builder does nothing until `start` is awaited"]
pub struct SiloBuilder {
    table: Arc<dyn MembershipTable>,
    listen: Option<SocketAddr>,
    advertise: Option<SocketAddr>,
    transport: Option<Arc<dyn Transport>>,
    security: Security,
    key: Option<SiloKey>,
    info: SiloInfo,
    config: Config,
    seed: Option<u64>,
    on_progress: Option<OnProgress>,
    events: EventSender,
}

impl Silo {
    /// Describes a silo of the table's cluster. Takes a table, or an `Arc` of one, including
    /// `Arc<dyn MembershipTable>`.
    pub fn builder(table: impl MembershipTable) -> SiloBuilder {
        SiloBuilder {
            table: Arc::new(table),
            listen: None,
            advertise: None,
            transport: None,
            security: Security::table(),
            key: None,
            info: SiloInfo::default(),
            config: Config::default(),
            seed: None,
            on_progress: None,
            events: EventSender::new(),
        }
    }
}

impl SiloBuilder {
    /// Where the TCP transport listens. Port 0 is any free one. `0.0.0.0` and `[::]` need an
    /// advertised address too.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Where other silos dial this one. Default: where it listens. Port 0 means the port that was
    /// bound.
    pub fn advertise(mut self, address: SocketAddr) -> Self {
        self.advertise = Some(address);
        self
    }

    /// The transport, instead of TCP connections of the silo's own. Not shared between silos.
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// How the TCP connections of [`listen`](Self::listen) are protected. Default:
    /// [`Security::table`], which needs no set-up. All silos of a cluster need the same.
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// The key pair of the TCP connections of [`listen`](Self::listen), for an application that
    /// proves with the same key who listens on a port of its own. Default: a new one. Not for two
    /// silos, and of no use with [`Security::none`].
    pub fn key(mut self, key: SiloKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Where clients reach this silo, at its advertised ip address. Default 0: not a gateway.
    pub fn gateway_port(mut self, port: u16) -> Self {
        self.info.gateway_port = port;
        self
    }

    /// The silo's name, for people. Default, also where this is empty: the host's.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.info.silo_name = name.into();
        self
    }

    /// The machine's name, for people, and to tell apart two machines with the same private
    /// address. Default, also if this is empty: the name that the system gives.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.info.host_name = host.into();
        self
    }

    /// Its role; see [`ClusterView::role`](membership_core::ClusterView::role).
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.info.role = role.into();
        self
    }

    /// Its failure zone; see [`ClusterView::zone`](membership_core::ClusterView::zone).
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.info.zone = zone.into();
        self
    }

    /// All of it at once: gateway port, names, role, zone and metadata. Replaces what was given
    /// before.
    pub fn info(mut self, info: SiloInfo) -> Self {
        self.info = info;
        self
    }

    /// Metadata that every silo sees; see
    /// [`ClusterView::with`](membership_core::ClusterView::with). It is in the row that all silos
    /// read: keep it small.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.info.metadata.insert(key.into(), value.into());
        self
    }

    /// The defaults for a kind of network, instead of [`Preset::Lan`]. Replaces an earlier
    /// configuration.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.config = Config::preset(preset);
        self
    }

    /// The whole configuration, validated by [`start`](Self::start). Replaces an earlier preset.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Seed of all random choices, to make two runs more alike. Default: random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Called every 5 s during a long join, with the silos that delay it. Runs on the silo's own
    /// task: it must not block. [`events`](Self::events) has the same as a stream.
    pub fn on_progress(mut self, callback: impl Fn(&JoinProgress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(callback));
        self
    }

    /// The silo's events from its start, including the join. See [`Silo::events`].
    #[must_use]
    pub fn events(&self) -> Events {
        self.events.subscribe()
    }

    /// Starts the silo and returns once it is Active. Needs a tokio runtime with time and
    /// input/output.
    ///
    /// # Errors
    /// [`StartError`]. A join that takes longer than `max_join_attempt_time` (in an existing table,
    /// the setting of the table) fails with the silos that could not be reached, and in which
    /// direction. Undoing it may take another 10 s.
    ///
    /// # Cancellation
    /// Dropping the future stops the silo in the background: other silos see that it left.
    ///
    /// # Traces
    /// The join is a span of `tracing`, at the level info, with the target `membership::join`; the
    /// table's operations meanwhile are its children.
    pub async fn start(self) -> Result<Silo, StartError> {
        let join = tracing::info_span!(
            target: "membership::join",
            "join",
            otel.name = "membership join",
            otel.status_code = Empty,
            otel.status_description = Empty,
            cluster = %self.table.cluster(),
            silo = Empty,
            version = Empty,
        );
        let joined = self.join(&join).await;
        match &joined {
            Ok(silo) => {
                join.record("silo", tracing::field::display(silo.me()));
                join.record("version", silo.view().version());
            }
            Err(error) => {
                join.record("otel.status_code", "ERROR");
                join.record("otel.status_description", error.to_string());
            }
        }
        joined
    }

    async fn join(self, join: &Span) -> Result<Silo, StartError> {
        self.config.validate()?;
        let runtime = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let seed = match self.seed {
            Some(seed) => seed,
            None => u64::from_ne_bytes(random()?),
        };
        check_advertised(
            self.transport.is_none().then_some(self.listen).flatten(),
            self.advertise,
        )?;
        let certificates = self.security.certificates().cloned();
        let certificates = certificates.filter(|_| self.transport.is_none());
        let transport = match (self.transport, self.listen) {
            (Some(transport), _) => transport,
            (None, Some(listen)) => bind(listen, self.security, self.key, &self.config).await?,
            (None, None) => return Err(StartError::NoListenAddress),
        };
        let instance = match transport.instance() {
            Some(instance) => instance,
            None => InstanceId::new(u128::from_ne_bytes(random()?)),
        };
        let advertise = advertised(transport.local_endpoint(), self.advertise)?;
        if let Some(certificates) = certificates {
            certificates
                .check_own(self.table.cluster(), advertise.ip())
                .map_err(TransportError::Certificate)?;
        }
        let mut info = self.info;
        if info.host_name.is_empty() {
            info.host_name = host_name();
        }
        if info.silo_name.is_empty() {
            info.silo_name.clone_from(&info.host_name);
        }
        let identity = Identity::new(self.table.cluster().clone(), advertise, instance, info);
        let (inbox, inbound) = MessageInbox::channel(INBOX);
        let hello = Hello::new(identity.cluster.clone(), advertise, instance);
        transport.start(hello, inbox).await?;
        let (requests, asked) = mpsc::channel(REQUESTS);
        let (stage, stages) = watch::channel(Stage::Running);
        let mut events = self.events;
        events.suspect_after(self.config.num_missed_probes_limit);
        let (publisher, subscriber) = state::channel(events);
        let cluster = identity.cluster.clone();
        let limits = self.table.limits();
        let reads = self.table.guarantees().reads;
        let cluster_key = ClusterKey::new(random()?);
        let parts = Parts {
            table: TimedTable::new(self.table, self.config.table_call_timeout),
            setup: Setup::new(identity, self.config, limits, seed, cluster_key).with_reads(reads),
            transport,
            inbox: inbound,
            requests: asked,
            stage: stages,
            publisher,
            on_progress: self.on_progress,
            join: join.clone(),
        };
        runtime.spawn(Driver::run(parts));
        Starting {
            subscriber,
            requests,
            stage,
            cluster,
        }
        .active()
        .await
        .map_err(StartError::from_end)
    }
}

/// A longer probe timeout is for networks with long round trips, in which handshakes take longer.
const FAR: Duration = Duration::from_secs(3);
const FAR_HANDSHAKE: Duration = Duration::from_secs(8);

fn random<const N: usize>() -> Result<[u8; N], StartError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| StartError::Random(e.to_string()))?;
    Ok(bytes)
}

/// The checks that are possible before anything is bound.
fn check_advertised(
    listen: Option<SocketAddr>,
    advertise: Option<SocketAddr>,
) -> Result<(), StartError> {
    let unspecified = |address: &SocketAddr| address.ip().to_canonical().is_unspecified();
    match (listen, advertise) {
        (_, Some(advertise)) if unspecified(&advertise) => {
            Err(StartError::AdvertiseUnspecified { advertise })
        }
        (Some(listen), None) if unspecified(&listen) => {
            Err(StartError::AdvertiseMissing { listen })
        }
        _ => Ok(()),
    }
}

fn advertised(bound: SocketAddr, advertise: Option<SocketAddr>) -> Result<SocketAddr, StartError> {
    check_advertised(Some(bound), advertise)?;
    let mut address = advertise.unwrap_or(bound);
    if address.port() == 0 {
        address.set_port(bound.port());
    }
    // As in rows and messages: a dual-stack socket gives an IPv4 address as an IPv6 one.
    address.set_ip(address.ip().to_canonical());
    Ok(address)
}

async fn bind(
    listen: SocketAddr,
    security: Security,
    key: Option<SiloKey>,
    config: &Config,
) -> Result<Arc<dyn Transport>, StartError> {
    let mut tcp = TcpConfig {
        security,
        key,
        ..TcpConfig::default()
    };
    if config.probe_timeout() > FAR {
        tcp.handshake_timeout = FAR_HANDSHAKE;
    }
    Ok(Arc::new(TcpTransport::bind_with(listen, tcp).await?))
}

impl fmt::Debug for SiloBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiloBuilder")
            .field("table", &self.table)
            .field("listen", &self.listen)
            .field("advertise", &self.advertise)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_that_cannot_be_dialled_is_refused_with_advice() {
        for listen in ["0.0.0.0:7100", "[::]:0", "[::ffff:0.0.0.0]:7100"] {
            let error = check_advertised(Some(at(listen)), None)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(".advertise(address)") && error.contains(listen),
                "{error}"
            );
        }
        let error = advertised(at("127.0.0.1:7100"), Some(at("0.0.0.0:7100"))).unwrap_err();
        assert!(
            matches!(error, StartError::AdvertiseUnspecified { .. }),
            "{error}"
        );
    }

    #[test]
    fn port_0_is_the_port_that_was_bound() {
        assert_eq!(
            advertised(at("0.0.0.0:7100"), Some(at("10.0.0.1:0"))).unwrap(),
            at("10.0.0.1:7100")
        );
        assert_eq!(
            advertised(at("0.0.0.0:7100"), Some(at("10.0.0.1:9"))).unwrap(),
            at("10.0.0.1:9")
        );
        assert_eq!(
            advertised(at("127.0.0.1:7100"), None).unwrap(),
            at("127.0.0.1:7100")
        );
    }

    #[test]
    fn an_ipv4_address_is_advertised_as_one() {
        assert_eq!(
            advertised(at("[::]:7100"), Some(at("[::ffff:10.0.0.5]:7100"))).unwrap(),
            at("10.0.0.5:7100")
        );
        assert_eq!(
            advertised(at("[::ffff:127.0.0.1]:7100"), None).unwrap(),
            at("127.0.0.1:7100")
        );
        assert_eq!(
            advertised(at("[::1]:7100"), None).unwrap(),
            at("[::1]:7100")
        );
    }
}
