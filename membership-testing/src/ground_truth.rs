//! The ground truth of a simulation: what really happened to processes, network and table. No silo
//! knows it; the checkers compare it with what silos do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::clock::{Skew, VirtualTime, wall};
use crate::interval::Interval;
use membership_core::{
    CommitId, Config, MembershipEntry, SiloAddress, SiloStatus, Snapshot, WallTime,
};

/// Identifies one process of the simulation. Processes are numbered in the order in which they
/// start; a restarted silo is a new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub usize);

/// What really happened to one process.
#[derive(Clone, Debug)]
pub struct ProcessRecord {
    /// The name in traces.
    pub name: String,
    /// The host that it runs on; the network connects hosts.
    pub host: usize,
    /// The address that it advertises.
    pub endpoint: SocketAddr,
    /// Its silo address; none until it has chosen an epoch.
    pub silo: Option<SiloAddress>,
    /// When it started.
    pub started: VirtualTime,
    /// When it was killed or stopped.
    pub ended: Option<VirtualTime>,
    /// When it was paused.
    pub paused: Interval,
    /// When nothing left it or reached it, although it ran.
    pub held: Interval,
    /// When it alone could not reach the table.
    pub table_cut: Interval,
    /// When the application asked it to leave.
    pub leaving: Option<VirtualTime>,
    /// The error of its wall clock.
    pub skew: Skew,
    /// Earlier errors of its wall clock, each with the time until which it applied.
    pub earlier_skews: Vec<(VirtualTime, Skew)>,
    /// Whether another process listens at the address that it advertises.
    pub hidden: bool,
}

/// A silo evaluates heartbeats at least this often.
pub(super) const JUDGED: Duration = Duration::from_secs(1);

impl ProcessRecord {
    pub(super) fn new(
        name: String,
        host: usize,
        endpoint: SocketAddr,
        started: VirtualTime,
    ) -> Self {
        Self {
            name,
            host,
            endpoint,
            silo: None,
            started,
            ended: None,
            paused: Interval::default(),
            held: Interval::default(),
            table_cut: Interval::default(),
            leaving: None,
            skew: Skew::default(),
            earlier_skews: Vec::new(),
            hidden: false,
        }
    }

    /// The error of its wall clock at a time, in milliseconds.
    #[must_use]
    pub fn skew_at(&self, at: VirtualTime) -> i64 {
        self.earlier_skews
            .iter()
            .find(|(until, _)| *until > at)
            .map_or(self.skew, |(_, skew)| *skew)
            .at(at)
    }

    /// The errors of its wall clock from `from` until now, in milliseconds: at the start and the
    /// end of each period between two clock changes.
    pub fn skews(&self, from: VirtualTime, now: VirtualTime) -> impl Iterator<Item = i64> + Clone {
        let earlier = self
            .earlier_skews
            .iter()
            .filter(move |(until, _)| *until >= from)
            .copied();
        earlier
            .chain([(now, self.skew)])
            .flat_map(move |(until, skew)| [skew.at(from), skew.at(until)])
    }
}

/// A partition of the network into groups that cannot reach each other.
#[derive(Clone, Debug)]
pub struct Split {
    /// When it began.
    pub since: VirtualTime,
    /// When it was healed.
    pub healed: Option<VirtualTime>,
    /// Whether the network had no other fault from well before the split until it healed.
    pub clean: bool,
    /// The group of each host. Hosts that are not listed form one more group.
    pub group: BTreeMap<usize, usize>,
}

/// Everything that really happened and that decides which verdicts are justified.
#[derive(Clone, Debug)]
pub struct GroundTruth {
    /// The virtual time now.
    pub now: VirtualTime,
    /// How the silos are configured.
    pub config: Config,
    /// Every process that ever started.
    pub records: Vec<ProcessRecord>,
    /// The process that owns each silo address.
    pub owners: BTreeMap<SiloAddress, ProcessId>,
    /// Messages were lost at random, or took longer than the default latency.
    pub rough_network: Interval,
    /// The share of messages that arrive twice now.
    pub twice: f64,
    /// Some pair of hosts could not reach each other reliably.
    pub any_block: Interval,
    /// The longest latency of a message, each with the time from which it applied.
    pub latencies: Vec<(VirtualTime, Duration)>,
    /// No host could reach any other host.
    pub network_down: Interval,
    /// The table was unavailable to all processes.
    pub table_down: Interval,
    /// Table calls were slow, or the outcome of commits was unknown.
    pub rough_table: Interval,
    /// The table was wiped, restored or rolled back.
    pub table_changed: Interval,
    /// For each host that has a loss rate of its own: when it had one.
    pub lossy: BTreeMap<usize, Interval>,
    /// For each direction between two hosts: when it was blocked.
    pub blocks: BTreeMap<(usize, usize), Interval>,
    /// The last partition.
    pub split: Option<Split>,
    /// Evictions that an operator requested: the silo to evict, and the address of the silo that
    /// got the request, as text.
    pub evictions: BTreeSet<(SiloAddress, String)>,
    /// Up to how many silos a joining one contacts everybody; none = always.
    pub full_check_limit: Option<usize>,
    /// Above how many silos news is passed on from one to the next; none = never.
    pub flood_above: Option<usize>,
    /// The least usual time between two heartbeats of the whole cluster; none = there is none.
    pub heartbeat_spacing: Option<Duration>,
    /// A member lies in messages: what is only announced proves nothing.
    pub lies: bool,
    /// The largest rate error that any monotonic clock ever had, in parts per million.
    pub worst_ppm: u64,
    /// When the author of each commit sent it for the first time.
    pub decided: BTreeMap<CommitId, VirtualTime>,
    /// The last three times at which the heartbeat of each row advanced in the table.
    pub heartbeats: BTreeMap<SiloAddress, [Option<VirtualTime>; 3]>,
    /// The times at which each silo was challenged in the table, in order.
    pub challenged: BTreeMap<SiloAddress, Vec<VirtualTime>>,
    /// The times at which each silo got a vote in the table, of any kind, in order.
    pub accused: BTreeMap<SiloAddress, Vec<VirtualTime>>,
    /// Since when the table has had so many Active silos that they may write heartbeats rarely.
    pub pulse_since: Option<VirtualTime>,
    /// How rarely, as long as it lasts: the shortest time between two that was usual.
    pub rare: Duration,
}

impl GroundTruth {
    /// A simulation without faults and without processes.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            now: Duration::ZERO,
            config,
            records: Vec::new(),
            owners: BTreeMap::new(),
            rough_network: Interval::default(),
            twice: 0.0,
            any_block: Interval::default(),
            latencies: Vec::new(),
            network_down: Interval::default(),
            table_down: Interval::default(),
            rough_table: Interval::default(),
            table_changed: Interval::default(),
            lossy: BTreeMap::new(),
            blocks: BTreeMap::new(),
            split: None,
            evictions: BTreeSet::new(),
            full_check_limit: None,
            flood_above: None,
            heartbeat_spacing: None,
            lies: false,
            worst_ppm: 0,
            decided: BTreeMap::new(),
            heartbeats: BTreeMap::new(),
            challenged: BTreeMap::new(),
            accused: BTreeMap::new(),
            pulse_since: None,
            rare: Duration::ZERO,
        }
    }

    /// The record of a process.
    #[must_use]
    pub fn record(&self, process: ProcessId) -> Option<&ProcessRecord> {
        self.records.get(process.0)
    }

    /// The record of the process that owns an address.
    #[must_use]
    pub fn owner(&self, silo: &SiloAddress) -> Option<&ProcessRecord> {
        self.owners.get(silo).and_then(|p| self.record(*p))
    }

    /// A commit has inserted this row. Two processes of one host may have chosen the same epoch: the silo
    /// is the one whose row it is.
    pub(super) fn record_row(&mut self, before: &Snapshot, after: &Snapshot, silo: SiloAddress) {
        let inserted = after
            .rows
            .get(&silo)
            .filter(|_| before.rows.get(&silo).is_none());
        let Some(entry) = inserted else { return };
        let is_it = |r: &ProcessRecord| r.silo == Some(silo) && r.name == entry.info.silo_name;
        if let Some(process) = self.records.iter().rposition(is_it) {
            self.owners.insert(silo, ProcessId(process));
        }
    }

    /// The name of a process in traces.
    #[must_use]
    pub fn process_name(&self, process: ProcessId) -> &str {
        self.record(process).map_or("?", |record| &record.name)
    }

    /// The name of a silo in traces: the name of its process, or the address if no process owns it.
    #[must_use]
    pub fn name(&self, silo: &SiloAddress) -> String {
        self.owner(silo)
            .map_or_else(|| silo.to_string(), |record| record.name.clone())
    }

    /// Whether the silo's process ran without interruption, and was not held, since `from` (or
    /// since its start).
    #[must_use]
    pub fn ran_since(&self, silo: &SiloAddress, from: VirtualTime) -> bool {
        self.owner(silo).is_some_and(|l| {
            l.ended.is_none() && !l.paused.overlaps(from) && !l.held.overlaps(from) && !l.hidden
        })
    }

    /// Whether the table is still the one that existed when the silo's process started. After a
    /// wipe, a restore or a rollback the silo reports the change and writes no heartbeat until it
    /// is restarted.
    #[must_use]
    pub fn has_original_table(&self, silo: &SiloAddress) -> bool {
        self.owner(silo)
            .is_some_and(|record| !self.table_changed.overlaps(record.started))
    }

    /// Whether the silo may not know yet that its row is in the table: its heartbeat never
    /// advanced, and table calls were slow or had unknown outcomes. A silo writes no heartbeat
    /// until it knows.
    #[must_use]
    pub fn may_not_know_its_row(&self, silo: &SiloAddress, from: VirtualTime) -> bool {
        self.rough_table.overlaps(from)
            && self
                .heartbeats
                .get(silo)
                .is_none_or(|beats| beats[0].is_none())
    }

    /// Whether both silos ran and could reach each other in both directions since `from` (or since
    /// the start of the younger one).
    #[must_use]
    pub fn connected_since(&self, a: &SiloAddress, b: &SiloAddress, from: VirtualTime) -> bool {
        let (Some(la), Some(lb)) = (self.owner(a), self.owner(b)) else {
            return false;
        };
        let open = |x, y| {
            self.blocks
                .get(&(x, y))
                .is_none_or(|interval| !interval.overlaps(from))
        };
        let lossless = |host| {
            self.lossy
                .get(&host)
                .is_none_or(|interval: &Interval| !interval.overlaps(from))
        };
        self.ran_since(a, from)
            && self.ran_since(b, from)
            && !self.network_down.overlaps(from)
            && (la.host == lb.host
                || (open(la.host, lb.host)
                    && open(lb.host, la.host)
                    && lossless(la.host)
                    && lossless(lb.host)))
    }

    /// How far back the causes of a vote that counts now can lie: votes stay valid for a while, and
    /// they are formed before they are written.
    #[must_use]
    pub fn vote_lookback(&self) -> Duration {
        let c = &self.config;
        let time = c.death_vote_expiration
            + c.failure_window * 2
            + c.max_probe_timeout * c.num_missed_probes_limit;
        self.longest(time + c.table_refresh_period)
    }

    /// The longest real time in which a process's clock measures `time`.
    #[must_use]
    pub fn longest(&self, time: Duration) -> Duration {
        if self.worst_ppm == 0 {
            time
        } else {
            time.mul_f64(1e6 / (1e6 - self.worst_ppm.min(900_000) as f64))
        }
    }

    /// The shortest real time in which a process's clock measures `time`.
    #[must_use]
    pub fn shortest(&self, time: Duration) -> Duration {
        if self.worst_ppm == 0 {
            time
        } else {
            time.mul_f64(1e6 / (1e6 + self.worst_ppm as f64))
        }
    }

    /// `now` minus `back`, but not before the start of the simulation.
    #[must_use]
    pub fn ago(&self, back: Duration) -> VirtualTime {
        self.now.saturating_sub(back)
    }

    /// When the author of a commit decided on it. Its knowledge and its clock are those of that
    /// time.
    #[must_use]
    pub fn decided(&self, commit: CommitId) -> VirtualTime {
        self.decided.get(&commit).copied().unwrap_or(self.now)
    }

    /// The shortest time without a heartbeat after which a silo is stale.
    #[must_use]
    pub fn shortest_staleness(&self) -> Duration {
        let settings = &self.config;
        self.shortest(settings.i_am_alive_period * settings.num_missed_i_am_alive_limit)
    }

    /// Whether no silo that decided at `decided` can have taken this one for one that no longer
    /// writes: it was certainly not stale, and if it was challenged, its heartbeat certainly did not
    /// stand still for half of that time either.
    #[must_use]
    pub fn certainly_writes(&self, silo: &SiloAddress, decided: VirtualTime) -> bool {
        let half = || self.certainly_beat(silo, decided, self.shortest_staleness() / 2);
        self.certainly_fresh(silo, decided) && (!self.is_challenged(silo, decided) || half())
    }

    /// Whether at most one Active silo certainly wrote heartbeats when a commit was decided. Then the
    /// challenge of the others may have made the decision easier.
    #[must_use]
    pub fn may_be_lost(&self, table: &Snapshot, decided: VirtualTime) -> bool {
        let is_active = |e: &&MembershipEntry| e.status == SiloStatus::Active;
        let active = table.rows.entries().filter(is_active);
        active
            .filter(|e| self.certainly_writes(&e.address, decided))
            .nth(1)
            .is_none()
    }

    /// Whether no silo that decided at `decided` can have considered this row stale: the heartbeat
    /// advanced early enough to be read and evaluated by then, and not too long ago.
    #[must_use]
    pub fn certainly_fresh(&self, silo: &SiloAddress, decided: VirtualTime) -> bool {
        self.certainly_beat(silo, decided, self.shortest_staleness())
            || self.pulse_speaks_for(silo, decided)
    }

    fn certainly_beat(&self, silo: &SiloAddress, decided: VirtualTime, within: Duration) -> bool {
        let period = self.config.i_am_alive_period;
        let oldest = self.ago(within);
        let newest = decided.saturating_sub(self.longest(period + JUDGED));
        self.heartbeats.get(silo).is_some_and(|beats| {
            beats
                .iter()
                .flatten()
                .any(|t| (oldest..=newest).contains(t))
        })
    }

    /// What the wall clock of a silo's process showed at a time.
    #[must_use]
    pub fn wall(&self, silo: &SiloAddress, at: VirtualTime) -> WallTime {
        wall(at, self.owner(silo).map_or(0, |record| record.skew_at(at)))
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use membership_core::{
        Config, InstanceId, MembershipEntry, Row, Rows, SharedSettings, SiloInfo, TableId,
        VersionRow, WallTime,
    };

    use super::*;

    #[test]
    fn of_two_processes_with_one_address_the_row_says_which_is_the_silo() {
        let silo: SiloAddress = "10.0.0.7:7100@9".parse().unwrap();
        let mut truth = GroundTruth::new(Config::default());
        for name in ["s7'", "s7''"] {
            truth.records.push(ProcessRecord {
                silo: Some(silo),
                ..ProcessRecord::new(name.to_owned(), 7, silo.endpoint(), Duration::ZERO)
            });
        }
        truth.owners.insert(silo, ProcessId(1));
        let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        let with = |rows| Snapshot::new(row.token(&[]), row.clone(), rows);
        let mut entry = MembershipEntry::new(silo, InstanceId::new(1), WallTime::default());
        entry.info = SiloInfo::named("s7'");
        let rows: Rows = [Row::encode(entry)].into_iter().collect();
        truth.record_row(&with(Rows::new()), &with(rows), silo);
        assert_eq!(truth.process_name(truth.owners[&silo]), "s7'");
    }
}
