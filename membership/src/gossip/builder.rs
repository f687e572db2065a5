//! Describes a member and starts it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use membership_core::{ClusterName, SiloInfo};
use membership_gossip::downing::Strategy;
use membership_gossip::protocol::{MAX_BYTES, Protocol, Setup};
use membership_gossip::state::{DEFAULT_DATA_CENTRE, Profile};
use membership_gossip::{Config, Preset};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::arbiter::{Arbiter, ArbiterError};
use super::driver::{ARBITER, Driver, Parts, silent};
use super::error::StartError;
use super::events::{EventSender, Events};
use super::handle::{Inner, Member};
use super::state::{self, Observed};
use super::wire::GossipWire;
use crate::runtime::clock::Clock;
use crate::runtime::host::named;
use crate::runtime::listen::{Bound, Listen, random};
use crate::runtime::stage::Stage;
use crate::runtime::{INBOX, REQUESTS};
use crate::transport::{Hello, Security, SiloKey, TcpConfig, Transport, WireInbox};

/// A member to start. Needed are an address to listen on (or a transport), and what says who may
/// join: a [secret or certificates](Security::tls), or [`Security::none`] on loopback addresses.
#[must_use = "a builder does nothing until `start` is awaited"]
pub struct MemberBuilder {
    cluster: ClusterName,
    at: Listen,
    info: SiloInfo,
    data_centre: String,
    config: Config,
    arbiter: Option<Arc<dyn Arbiter>>,
    seed: Option<u64>,
    events: EventSender,
}

impl Member {
    /// Describes a member of a cluster of this name.
    pub fn builder(cluster: ClusterName) -> MemberBuilder {
        MemberBuilder {
            cluster,
            at: Listen::new(Security::tls()),
            info: SiloInfo::default(),
            data_centre: DEFAULT_DATA_CENTRE.to_owned(),
            config: Config::default(),
            arbiter: None,
            seed: None,
            events: EventSender::new(),
        }
    }
}

impl MemberBuilder {
    /// Where the TCP transport listens. Port 0 is any free one, which no contact point can have.
    /// `0.0.0.0` and `[::]` need an advertised address too.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.at.listen = Some(address);
        self
    }

    /// Where other members dial this one. Default: where it listens. Port 0 means the port that was
    /// bound.
    pub fn advertise(mut self, address: SocketAddr) -> Self {
        self.at.advertise = Some(address);
        self
    }

    /// The transport, instead of TCP connections of the member's own. Not shared between members.
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.at.transport = Some(transport);
        self
    }

    /// How the TCP connections of [`listen`](Self::listen) are protected, the same for all members
    /// of a cluster. There is no table that says who may join, so [`Security::tls`] alone is refused:
    /// add a secret or certificates.
    pub fn security(mut self, security: Security) -> Self {
        self.at.security = security;
        self
    }

    /// The key pair of the TCP connections of [`listen`](Self::listen), as
    /// [`SiloBuilder::key`](crate::SiloBuilder::key).
    pub fn key(mut self, key: SiloKey) -> Self {
        self.at.key = Some(key);
        self
    }

    /// The member's name, for people. Default, also where this is empty: the host's.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.info.silo_name = name.into();
        self
    }

    /// The machine's name, for people. Default, also if this is empty: the name that the system
    /// gives.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.info.host_name = host.into();
        self
    }

    /// Its role; see [`Members::role`](crate::Members::role).
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.info.role = role.into();
        self
    }

    /// Its failure zone; see [`Members::zone`](crate::Members::zone).
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.info.zone = zone.into();
        self
    }

    /// Its data centre: agreement, leader and downing are matters of one data centre. Default:
    /// `default`.
    pub fn data_centre(mut self, data_centre: impl Into<String>) -> Self {
        self.data_centre = data_centre.into();
        self
    }

    /// Names, role, zone, metadata and gateway port at once. Replaces what was given before.
    pub fn info(mut self, info: SiloInfo) -> Self {
        self.info = info;
        self
    }

    /// Metadata that every member sees; see [`Members::with`](crate::Members::with). It is in the
    /// state that all members send each other: keep it small.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.info.metadata.insert(key.into(), value.into());
        self
    }

    /// The defaults of [`Preset::Lan`] or [`Preset::Akka`]. Replaces an earlier configuration.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.config = Config::preset(preset);
        self
    }

    /// The whole configuration, validated by [`start`](Self::start). Replaces an earlier preset.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Who gives the lease for `lease-majority`; the other strategies ask nobody.
    pub fn arbiter(mut self, arbiter: impl Arbiter) -> Self {
        self.arbiter = Some(Arc::new(arbiter));
        self
    }

    /// Seed of all random choices, to make two runs more alike. Default: random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The member's events from its start, including the join. See [`Member::events`].
    #[must_use]
    pub fn events(&self) -> Events {
        self.events.subscribe()
    }

    /// Starts the process. It listens, and is in no cluster until [`Member::join`]. Needs a tokio
    /// runtime with time and input/output.
    ///
    /// # Errors
    /// [`StartError`]: the configuration, the address, or what protects the connections.
    ///
    /// # Cancellation
    /// Nothing was started then.
    pub async fn start(mut self) -> Result<Member, StartError> {
        self.config.validate()?;
        let leases = matches!(self.config.downing.strategy, Strategy::LeaseMajority { .. });
        if leases && self.arbiter.is_none() {
            return Err(StartError::NoArbiter);
        }
        if let Some(arbiter) = self.arbiter.as_ref().filter(|_| leases) {
            let id = timeout(ARBITER, arbiter.id()).await;
            let id = id.unwrap_or_else(|_| Err(ArbiterError(silent().into())));
            if let Some(id) = id.map_err(StartError::Arbiter)? {
                self.config.downing.arbiter = Some(id);
            }
        }
        let strategy = self.config.downing.strategy.clone();
        let seed = match self.seed {
            Some(seed) => seed,
            None => u64::from_ne_bytes(random()?),
        };
        let limits = TcpConfig {
            max_message_bytes: MAX_BYTES,
            ..TcpConfig::default()
        };
        let Bound {
            transport,
            advertise,
            instance,
            runtime,
        } = self.at.open(&self.cluster, limits).await?;
        let (inbox, inbound) = WireInbox::<GossipWire>::channel(INBOX);
        let hello = Hello::new(self.cluster.clone(), advertise, instance).without_table();
        transport.start(hello, inbox).await?;
        let clock = Clock::new();
        let epoch = clock.now().wall.as_millis();
        let profile = Profile::in_data_centre(named(self.info), self.data_centre);
        let cluster = self.cluster;
        let mut setup = Setup::new(cluster.clone(), advertise, epoch, instance, profile, seed);
        setup.config = self.config;
        let protocol = Protocol::new(setup);
        let (requests, asked) = mpsc::channel(REQUESTS);
        let (stage, stages) = watch::channel(Stage::Running);
        let (publisher, subscriber) = state::channel(protocol.me(), self.events);
        let observed = Observed {
            subscriber,
            stage: stage.subscribe(),
            clock,
            cluster: cluster.clone(),
        };
        runtime.spawn(Driver::run(Parts {
            cluster,
            protocol,
            transport,
            inbox: inbound,
            requests: asked,
            stage: stages,
            publisher,
            arbiter: self.arbiter,
            strategy,
            instance,
            seed,
        }));
        Ok(Member {
            inner: Arc::new(Inner {
                observed,
                requests,
                stage,
            }),
        })
    }
}

impl fmt::Debug for MemberBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberBuilder")
            .field("cluster", &self.cluster)
            .field("listen", &self.at.listen)
            .field("advertise", &self.at.advertise)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
