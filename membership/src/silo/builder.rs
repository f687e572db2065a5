//! Describes a silo and starts it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::protocol::{Identity, JoinProgress, Setup};
use membership_core::{ClusterKey, Config, MembershipTable, Preset, SiloInfo};
use tokio::sync::{mpsc, watch};
use tracing::Span;
use tracing::field::Empty;

use super::driver::{Driver, OnProgress, Parts};
use super::error::StartError;
use super::events::{EventSender, Events};
use super::handle::Silo;
use super::starting::Starting;
use super::state;
use crate::TimedTable;
use crate::runtime::host::named;
use crate::runtime::listen::{Bound, Listen, random};
use crate::runtime::stage::Stage;
use crate::runtime::{INBOX, REQUESTS};
use crate::transport::{Hello, MessageInbox, Security, SiloKey, TcpConfig, Transport};

/// A silo to start. Everything has a default, except the address to listen on (or a transport).
#[must_use = "a builder does nothing until `start` is awaited"]
pub struct SiloBuilder {
    table: Arc<dyn MembershipTable>,
    at: Listen,
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
            at: Listen::new(Security::table()),
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
        self.at.listen = Some(address);
        self
    }

    /// Where other silos dial this one. Default: where it listens. Port 0 means the port that was
    /// bound.
    pub fn advertise(mut self, address: SocketAddr) -> Self {
        self.at.advertise = Some(address);
        self
    }

    /// The transport, instead of TCP connections of the silo's own. Not shared between silos.
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.at.transport = Some(transport);
        self
    }

    /// How the TCP connections of [`listen`](Self::listen) are protected. Default:
    /// [`Security::table`], which needs no set-up. All silos of a cluster need the same.
    pub fn security(mut self, security: Security) -> Self {
        self.at.security = security;
        self
    }

    /// The key pair of the TCP connections of [`listen`](Self::listen), for an application that
    /// proves with the same key who listens on a port of its own. Default: a new one. Not for two
    /// silos, and of no use with [`Security::none`].
    pub fn key(mut self, key: SiloKey) -> Self {
        self.at.key = Some(key);
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
        let seed = match self.seed {
            Some(seed) => seed,
            None => u64::from_ne_bytes(random()?),
        };
        let mut limits = TcpConfig::default();
        if self.config.probe_timeout() > FAR || self.config.scribe {
            limits.handshake_timeout = FAR_HANDSHAKE;
        }
        let Bound {
            transport,
            advertise,
            instance,
            runtime,
        } = self.at.open(self.table.cluster(), limits).await?;
        let info = named(self.info);
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

impl fmt::Debug for SiloBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiloBuilder")
            .field("table", &self.table)
            .field("listen", &self.at.listen)
            .field("advertise", &self.at.advertise)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
