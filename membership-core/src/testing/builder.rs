//! How a virtual cluster is put together.

use std::collections::BTreeMap;
use std::time::Duration;

use super::checks::{self, Check};
use super::circumstances::Circumstances;
use super::cluster::{Cluster, Usual};
use super::dice::Dice;
use super::events::Agenda;
use super::machine::{self, MachineFactory};
use super::network::{Latency, Network};
use super::size::Sizes;
use super::stats::Stats;
use super::store::{Store, USUAL_LATENCY};
use super::trace::{Detail, Trace};
use crate::{ClusterName, Config, ConfigError, ParseClusterError, Preset, TableLimits};

/// Lines of the trace that a violation shows.
const TAIL: usize = 160;

/// What a [`Cluster`] is made of; see [`Cluster::builder`].
pub struct Builder {
    seed: u64,
    silos: usize,
    config: Config,
    latency: Latency,
    table_latency: (Duration, Duration),
    count_bytes: bool,
    limits: TableLimits,
    refuse: bool,
    detail: Detail,
    checks: Option<Vec<Box<dyn Check>>>,
    factory: Option<MachineFactory>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            seed: 0,
            silos: 0,
            config: Config::preset(Preset::Lan),
            latency: Latency::default(),
            table_latency: USUAL_LATENCY,
            count_bytes: false,
            limits: TableLimits {
                rows_per_commit: 100,
                bytes_per_row: 64 << 10,
                bytes_per_commit: 1 << 20,
                rows: 10_000,
            },
            refuse: true,
            detail: Detail::Tail(TAIL),
            checks: None,
            factory: None,
        }
    }
}

impl Builder {
    /// Decides every throw of the dice. Default 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How many silos start with the world, within its first two seconds. Default 0.
    #[must_use]
    pub fn silos(mut self, n: usize) -> Self {
        self.silos = n;
        self
    }

    /// How every silo is configured. Default: the `lan` preset.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// How long messages take. Default: one data centre.
    #[must_use]
    pub fn latency(mut self, latency: Latency) -> Self {
        self.latency = latency;
        self
    }

    /// How long a table call takes in either direction when nothing is wrong. Default: 1 to 6 ms.
    #[must_use]
    pub fn table_latency(mut self, low: Duration, high: Duration) -> Self {
        self.table_latency = (low, high.max(low));
        self
    }

    /// Whether the bytes that each silo sends are counted; see [`Cluster::bytes_sent`]. Default false: it takes time.
    #[must_use]
    pub fn count_bytes(mut self, count: bool) -> Self {
        self.count_bytes = count;
        self
    }

    /// What the table takes at once. Default: 100 rows per commit.
    #[must_use]
    pub fn limits(mut self, limits: TableLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether a sender learns that nobody listens at an address (true, the default), or hears nothing.
    #[must_use]
    pub fn connection_refused(mut self, told: bool) -> Self {
        self.refuse = told;
        self
    }

    /// How much of the run is kept as text. Default: the last 160 lines.
    #[must_use]
    pub fn detail(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    /// Which checkers watch. Default: [`checks::all`].
    #[must_use]
    pub fn checks(mut self, checks: Vec<Box<dyn Check>>) -> Self {
        self.checks = Some(checks);
        self
    }

    /// What makes the machine of each process. Default: the protocol.
    #[must_use]
    pub fn machines(mut self, factory: MachineFactory) -> Self {
        self.factory = Some(factory);
        self
    }

    /// The cluster, at virtual time zero, with its first silos about to start.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn build(self) -> Result<Cluster, BuildError> {
        self.config.validate()?;
        let name = ClusterName::new(crate::DEFAULT_SERVICE, "virtual")?;
        let mut cluster = Cluster {
            seed: self.seed,
            dice: Dice::new(self.seed),
            now: Duration::ZERO,
            truth: Circumstances::new(self.config.clone()),
            config: self.config,
            limits: self.limits,
            refuse: self.refuse,
            agenda: Agenda::default(),
            processes: Vec::new(),
            listeners: BTreeMap::new(),
            network: Network::new(self.latency),
            store: Store::new(name.clone(), self.table_latency),
            name,
            checks: self.checks.unwrap_or_else(checks::all),
            trace: Trace::new(self.detail),
            stats: Stats::default(),
            violation: None,
            factory: self.factory.unwrap_or_else(machine::protocols),
            scratch: Vec::new(),
            load: None,
            flaps: BTreeMap::new(),
            flaps_so_far: 0,
            cuts: Vec::new(),
            usual: Usual {
                latency: self.latency,
                table: self.table_latency,
            },
            count_bytes: self.count_bytes,
            sizes: Sizes::default(),
            told: super::describe::Told::default(),
            #[cfg(test)]
            lie: None,
        };
        cluster.start(self.silos);
        Ok(cluster)
    }
}

/// Why a virtual cluster cannot be built.
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
