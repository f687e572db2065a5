//! Describing a silo and starting it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use membership_core::protocol::{Identity, JoinProgress, Setup};
use membership_core::{Config, InstanceId, MembershipTable, Preset};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::driver::{Driver, INBOX, OnProgress, Parts, REQUESTS};
use super::error::StartError;
use super::handle::{Silo, Starting};
use super::host::host_name;
use super::request::Stage;
use super::state;
use crate::TimedTable;
use crate::transport::{Hello, Inbox, TcpTransport, Transport};

/// A silo about to start. What is not given has a default, except an address to listen on (or a transport).
#[must_use = "a builder does nothing until `start` is awaited"]
pub struct SiloBuilder {
    table: Arc<dyn MembershipTable>,
    listen: Option<SocketAddr>,
    advertise: Option<SocketAddr>,
    transport: Option<Arc<dyn Transport>>,
    gateway_port: u16,
    name: Option<String>,
    host: Option<String>,
    role: String,
    zone: String,
    metadata: BTreeMap<String, String>,
    config: Config,
    seed: Option<u64>,
    on_progress: Option<OnProgress>,
}

impl SiloBuilder {
    pub(super) fn new(table: impl MembershipTable) -> Self {
        Self {
            table: Arc::new(table),
            listen: None,
            advertise: None,
            transport: None,
            gateway_port: 0,
            name: None,
            host: None,
            role: String::new(),
            zone: String::new(),
            metadata: BTreeMap::new(),
            config: Config::default(),
            seed: None,
            on_progress: None,
        }
    }

    /// Where the TCP transport listens. Port 0 is any free one. On `0.0.0.0` or `[::]` an advertised address is needed too.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Where other silos dial this one. Default: where it listens. Port 0 stands for the port that was bound.
    pub fn advertise(mut self, address: SocketAddr) -> Self {
        self.advertise = Some(address);
        self
    }

    /// Carries the messages, instead of TCP connections of the silo's own. One silo uses one transport for its whole life.
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Where clients reach this silo, at its advertised ip address. Default 0: it is no gateway.
    pub fn gateway_port(mut self, port: u16) -> Self {
        self.gateway_port = port;
        self
    }

    /// The silo's name, for people. Default: the host's.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The machine's name, for people, and to tell two machines with one private address apart. Default: what the machine calls itself.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// What the silo is for; see [`ClusterView::role`](membership_core::ClusterView::role).
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.role = role.into();
        self
    }

    /// Its failure zone; see [`ClusterView::zone`](membership_core::ClusterView::zone).
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// Something that every silo should know of this one; see [`ClusterView::with`](membership_core::ClusterView::with). It is in the row
    /// that everybody reads: keep it small.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// The defaults for a kind of network, instead of [`Preset::Lan`]. Replaces a configuration given before.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.config = Config::preset(preset);
        self
    }

    /// The whole configuration; checked by [`start`](Self::start). Replaces a preset given before.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Seeds every random choice, to make two runs more alike. Default: from the system.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Called every 5 s while joining takes long, with who does not reach whom. Runs on the silo's own task: it must not block.
    pub fn on_progress(mut self, callback: impl Fn(&JoinProgress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(callback));
        self
    }

    /// Starts the silo and returns once it is Active. Needs a tokio runtime with time and input/output.
    ///
    /// # Errors
    /// [`StartError`]; after at most `max_join_attempt_time`, of the table's settings where there is a table, it says which silos could not be
    /// reached in which direction. Taking the row back may take up to 10 s more.
    ///
    /// # Cancellation
    /// Dropping the future stops the silo in the background: the others see it as left.
    pub async fn start(self) -> Result<Silo, StartError> {
        self.config.validate()?;
        let runtime = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let instance = InstanceId::new((u128::from(random()?) << 64) | u128::from(random()?));
        let seed = self.seed.map_or_else(random, Ok)?;
        check_advertised(
            self.transport.is_none().then_some(self.listen).flatten(),
            self.advertise,
        )?;
        let transport = match (self.transport, self.listen) {
            (Some(transport), _) => transport,
            (None, Some(listen)) => bind(listen).await?,
            (None, None) => return Err(StartError::NoListenAddress),
        };
        let advertise = advertised(transport.local_endpoint(), self.advertise)?;
        let host = self.host.unwrap_or_else(host_name);
        let identity = Identity {
            cluster: self.table.cluster().clone(),
            advertise,
            instance,
            gateway_port: self.gateway_port,
            silo_name: self.name.unwrap_or_else(|| host.clone()),
            host_name: host,
            role: self.role,
            zone: self.zone,
            metadata: self.metadata,
        };
        let (inbox, inbound) = Inbox::channel(INBOX);
        let hello = Hello {
            cluster: identity.cluster.clone(),
            advertise,
            instance,
            silo: None,
            table_id: None,
            version: 0,
            authentication: Vec::new(),
        };
        transport.start(hello, inbox).await?;
        let (requests, asked) = mpsc::channel(REQUESTS);
        let (stage, stages) = watch::channel(Stage::Running);
        let (teller, told) = state::channel();
        let cluster = identity.cluster.clone();
        let limits = self.table.limits();
        let parts = Parts {
            table: TimedTable::new(self.table, self.config.table_call_timeout),
            setup: Setup {
                identity,
                config: self.config,
                limits,
                seed,
            },
            transport,
            inbox: inbound,
            requests: asked,
            stage: stages,
            teller,
            on_progress: self.on_progress,
        };
        runtime.spawn(Driver::run(parts));
        Starting {
            told,
            requests,
            stage,
            cluster,
        }
        .active()
        .await
        .map_err(StartError::from_end)
    }
}

fn random() -> Result<u64, StartError> {
    getrandom::u64().map_err(|e| StartError::Random(e.to_string()))
}

/// What can be said before anything is bound.
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
    // As rows and messages name it: a socket for both kinds of addresses calls an IPv4 address an IPv6 one.
    address.set_ip(address.ip().to_canonical());
    Ok(address)
}

async fn bind(listen: SocketAddr) -> Result<Arc<dyn Transport>, StartError> {
    Ok(Arc::new(TcpTransport::bind(listen).await?))
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
    fn what_nobody_can_dial_is_refused_with_advice() {
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
    fn an_address_is_named_as_others_name_it() {
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
