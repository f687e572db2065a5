//! Builds a simulated cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::checks::{self, Check};
use crate::cluster::{Cluster, Defaults};
use crate::events::EventQueue;
use crate::ground_truth::GroundTruth;
use crate::machine::{self, MachineFactory};
use crate::network::{Latency, Network};
use crate::rng::Rng;
use crate::size::Sizes;
use crate::stats::Stats;
use crate::store::{DEFAULT_LATENCY, Store};
use crate::trace::{Detail, Trace};
use membership_core::hooks::{Calls, ProtocolVariant};
use membership_core::{ClusterName, Config, ConfigError, ParseClusterError, Preset, TableLimits};

/// Lines of the trace that a violation shows.
const TAIL: usize = 160;

/// The settings of a [`Cluster`]; see [`Cluster::builder`].
pub struct Builder {
    seed: u64,
    silos: usize,
    config: Config,
    latency: Latency,
    table_latency: (Duration, Duration),
    count_bytes: bool,
    hash_inputs: bool,
    limits: TableLimits,
    refuse: bool,
    detail: Detail,
    checks: Option<Vec<Box<dyn Check>>>,
    variant: ProtocolVariant,
    factory: Option<MachineFactory>,
    zone_names: Option<ZoneNames>,
}

/// The zone that the row of a silo names, by the number of its host.
pub(crate) type ZoneNames = Box<dyn Fn(usize) -> String>;

impl Cluster {
    /// Starts to build a cluster.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            seed: 0,
            silos: 0,
            config: Config::preset(Preset::Lan),
            latency: Latency::default(),
            table_latency: DEFAULT_LATENCY,
            count_bytes: false,
            hash_inputs: true,
            limits: TableLimits::new(100, 64 << 10, 1 << 20, 10_000),
            refuse: true,
            detail: Detail::Tail(TAIL),
            checks: None,
            variant: ProtocolVariant::STANDARD,
            factory: None,
            zone_names: None,
        }
    }
}

impl Builder {
    /// The seed of every random choice. Default 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How many silos start within the first two seconds. Default 0.
    #[must_use]
    pub fn silos(mut self, n: usize) -> Self {
        self.silos = n;
        self
    }

    /// The configuration of every silo. Default: the `lan` preset.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The latency of messages. Default: one data centre.
    #[must_use]
    pub fn latency(mut self, latency: Latency) -> Self {
        self.latency = latency;
        self
    }

    /// The latency of table calls, in each direction, without faults. Default: 1 to 6 ms.
    #[must_use]
    pub fn table_latency(mut self, low: Duration, high: Duration) -> Self {
        self.table_latency = (low, high.max(low));
        self
    }

    /// Whether to count the bytes that each silo sends; see [`Cluster::bytes_sent`]. Default false,
    /// because it costs time.
    #[must_use]
    pub fn count_bytes(mut self, count: bool) -> Self {
        self.count_bytes = count;
        self
    }

    /// Whether the hash of the [trace](crate::Trace::hash) covers every input. Default true; a seventh of
    /// the time of a large cluster.
    #[must_use]
    pub fn hash_inputs(mut self, hash: bool) -> Self {
        self.hash_inputs = hash;
        self
    }

    /// The limits of the table. Default: 100 rows per commit.
    #[must_use]
    pub fn limits(mut self, limits: TableLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether others learn that a process has ended (true, the default): who sends to its address
    /// is refused, and who was connected with it sees the connection end. Otherwise every kill is
    /// like a crash of the machine: see [`Cluster::crash_machine`].
    #[must_use]
    pub fn connection_refused(mut self, refused: bool) -> Self {
        self.refuse = refused;
        self
    }

    /// How much of the run is kept as text. Default: the last 160 lines.
    #[must_use]
    pub fn detail(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    /// The checkers. Default: [`checks::all`].
    #[must_use]
    pub fn checks(mut self, checks: Vec<Box<dyn Check>>) -> Self {
        self.checks = Some(checks);
        self
    }

    /// How the protocol of each silo differs from the standard one.
    #[must_use]
    pub const fn variant(mut self, variant: ProtocolVariant) -> Self {
        self.variant = variant;
        self
    }

    /// The zone that the row of each silo names, by the number of its host: hosts are numbered in the
    /// order of their first starts. Default: none. It changes nothing in the network.
    #[must_use]
    pub fn zone_names(mut self, name: impl Fn(usize) -> String + 'static) -> Self {
        self.zone_names = Some(Box::new(name));
        self
    }

    /// Creates the state machine of each process. Default: the protocol.
    #[must_use]
    pub fn machines(mut self, factory: MachineFactory) -> Self {
        self.factory = Some(factory);
        self
    }

    /// Builds the cluster, at virtual time zero, with its first silos scheduled to start.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn build(self) -> Result<Cluster, BuildError> {
        self.config.validate()?;
        let name = ClusterName::new(membership_core::DEFAULT_SERVICE, "virtual")?;
        let mut truth = GroundTruth::new(self.config.clone());
        truth.full_check_limit = self.variant.full_check_limit;
        truth.flood_above = self.variant.flood_above;
        truth.heartbeat_spacing = self
            .variant
            .heartbeat_spacing
            .filter(|_| self.variant.calls == Calls::Everybody);
        let mut cluster = Cluster {
            seed: self.seed,
            rng: Rng::new(self.seed),
            now: Duration::ZERO,
            truth,
            config: self.config,
            limits: self.limits,
            refuse: self.refuse,
            queue: EventQueue::default(),
            processes: Vec::new(),
            listeners: BTreeMap::new(),
            silent: BTreeSet::new(),
            deaf: BTreeSet::new(),
            endings: Rng::new(self.seed ^ 0x656e_6473),
            network: Network::new(self.latency),
            store: Store::new(name.clone(), self.table_latency),
            name,
            checks: self.checks.unwrap_or_else(checks::all),
            trace: Trace::new(self.detail),
            stats: Stats::default(),
            violation: None,
            factory: self
                .factory
                .unwrap_or_else(|| machine::protocols_of(self.variant)),
            scratch: Vec::new(),
            load: None,
            flaps: BTreeMap::new(),
            flaps_so_far: 0,
            cuts: Vec::new(),
            zone_names: self.zone_names,
            defaults: Defaults {
                latency: self.latency,
                table: self.table_latency,
            },
            count_bytes: self.count_bytes,
            hash_inputs: self.hash_inputs,
            sizes: Sizes::default(),
            hostile: None,
            last_views: crate::describe::LastViews::default(),
            laggard: std::cell::Cell::default(),
            #[cfg(test)]
            planted_bug: None,
        };
        cluster.start(self.silos);
        Ok(cluster)
    }
}

/// Why a simulated cluster cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The cluster's name is not valid.
    #[error(transparent)]
    Name(#[from] ParseClusterError),
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("seed", &self.seed)
            .field("silos", &self.silos)
            .finish_non_exhaustive()
    }
}
