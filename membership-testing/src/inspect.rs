//! What a test can ask a simulated cluster.

use std::time::Duration;

use crate::checks::{Fact, Load, Recovery};
use crate::clock::VirtualTime;
use crate::cluster::Cluster;
use crate::ground_truth::{GroundTruth, ProcessId};
use crate::network::Network;
use crate::stats::Stats;
use crate::trace::Trace;
use crate::traffic::TableTraffic;
use crate::violation::Violation;
use membership_core::protocol::{Notice, Termination};
use membership_core::{ClusterView, MembershipEntry, SiloAddress, SiloStatus, Snapshot};

/// Within this time every silo of a healthy cluster learns of a commit.
const SPREAD: Duration = Duration::from_secs(2);

impl Cluster {
    /// The virtual time now.
    #[must_use]
    pub fn now(&self) -> VirtualTime {
        self.now
    }

    /// Every running process, paused ones included, in the order of their starts.
    #[must_use]
    pub fn running(&self) -> Vec<ProcessId> {
        self.processes
            .iter()
            .enumerate()
            .filter(|(_, p)| p.is_running())
            .map(|(i, _)| ProcessId(i))
            .collect()
    }

    /// Whether a process runs.
    #[must_use]
    pub fn is_running(&self, silo: ProcessId) -> bool {
        self.processes
            .get(silo.0)
            .is_some_and(crate::process::Process::is_running)
    }

    /// Whether a process is paused.
    #[must_use]
    pub fn is_paused(&self, silo: ProcessId) -> bool {
        self.processes
            .get(silo.0)
            .is_some_and(|p| p.paused_until.is_some())
    }

    /// The view that a process published last.
    #[must_use]
    pub fn view(&self, silo: ProcessId) -> Option<&ClusterView> {
        self.processes.get(silo.0)?.view.as_ref()
    }

    /// The silo address of a process; none until it has chosen an epoch.
    #[must_use]
    pub fn address(&self, silo: ProcessId) -> Option<SiloAddress> {
        self.truth.record(silo)?.silo
    }

    /// The status that a process believes it has.
    #[must_use]
    pub fn status(&self, silo: ProcessId) -> Option<SiloStatus> {
        self.processes.get(silo.0).map(|p| p.machine.status())
    }

    /// Whether a process has suspended itself: it publishes nothing and writes nothing.
    #[must_use]
    pub fn is_suspended(&self, silo: ProcessId) -> bool {
        self.processes
            .get(silo.0)
            .is_some_and(|p| p.machine.is_suspended())
    }

    /// Why a process stopped, if it stopped by itself.
    #[must_use]
    pub fn termination(&self, silo: ProcessId) -> Option<&Termination> {
        self.processes.get(silo.0)?.termination.as_ref()
    }

    /// The notices that a process sent to its application, and when.
    #[must_use]
    pub fn notices(&self, silo: ProcessId) -> &[(VirtualTime, Notice)] {
        self.processes
            .get(silo.0)
            .map_or(&[], |p| p.notices.as_slice())
    }

    /// The real contents of the table; none when there is no table.
    #[must_use]
    pub fn table(&self) -> Option<&Snapshot> {
        self.store.truth.as_ref()
    }

    /// The row of a process in the table.
    #[must_use]
    pub fn row(&self, silo: ProcessId) -> Option<&MembershipEntry> {
        self.table()?.rows.get(&self.address(silo)?)
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The ground truth.
    #[must_use]
    pub fn truth(&self) -> &GroundTruth {
        &self.truth
    }

    /// Counts of what happened so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The trace.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Removes the lines of the trace so far, so that a transcript starts here. The hash still
    /// covers everything.
    pub fn forget_trace(&mut self) {
        self.trace.forget();
    }

    /// Whether a line of the trace contains this text.
    #[must_use]
    pub fn trace_contains(&self, what: &str) -> bool {
        self.trace.lines().any(|line| line.what.contains(what))
    }

    /// The random number generator of this simulation, for choices of a test.
    pub fn rng(&mut self) -> &mut crate::Rng {
        &mut self.rng
    }

    /// Whether all running processes publish the current table, and exactly they are Active in it.
    #[must_use]
    pub fn agrees(&self) -> bool {
        if !self.all_are_current() {
            return false;
        }
        let Some(table) = self.table() else {
            return false;
        };
        let mut active = table
            .rows
            .entries()
            .filter(|e| e.status != SiloStatus::Dead)
            .peekable();
        active.peek().is_some()
            && active.all(|e| {
                e.status == SiloStatus::Active
                    && self
                        .truth
                        .owners
                        .get(&e.address)
                        .is_some_and(|p| self.is_running(*p))
            })
    }

    /// Whether all running processes publish the current table and are Active in it. While the one that
    /// lagged behind at the last call still does, the others are not looked at: this is asked after every
    /// publication.
    fn all_are_current(&self) -> bool {
        let all = self.processes.len();
        let last = self.laggard.get();
        let lags = |i: &usize| self.is_running(ProcessId(*i)) && !self.is_current(ProcessId(*i));
        let found = (last..all).chain(0..last.min(all)).find(lags);
        self.laggard.set(found.unwrap_or(0));
        found.is_none()
    }

    /// Whether a process publishes the current table and is Active in it.
    fn is_current(&self, silo: ProcessId) -> bool {
        let current = |(v, table): (&ClusterView, &Snapshot)| {
            v.version() == table.version() && v.token().same_commit(&table.token)
        };
        self.view(silo).zip(self.table()).is_some_and(current)
            && self
                .row(silo)
                .is_some_and(|e| e.status == SiloStatus::Active)
    }

    /// Starts to measure the messages per silo (invariant P8), for the silos that run now.
    pub fn measure_load(&mut self) {
        self.load = Some(Load::of(self.running().len(), self.now));
    }

    /// The most messages per silo per second in any 60 s since
    /// [`measure_load`](Self::measure_load).
    #[must_use]
    pub fn peak_load(&self) -> f64 {
        self.load.as_ref().map_or(0.0, Load::peak)
    }

    /// How many messages a process has sent so far, lost ones included.
    #[must_use]
    pub fn messages_sent(&self, silo: ProcessId) -> u64 {
        self.processes.get(silo.0).map_or(0, |p| p.sent.messages)
    }

    /// How many bytes a process has sent so far: messages as the transport encodes and frames them,
    /// without lower layers. 0 unless the cluster was built with
    /// [`Builder::count_bytes`](crate::Builder::count_bytes).
    #[must_use]
    pub fn bytes_sent(&self, silo: ProcessId) -> u64 {
        self.processes.get(silo.0).map_or(0, |p| p.sent.bytes)
    }

    /// The requests to the table so far.
    #[must_use]
    pub const fn table_traffic(&self) -> TableTraffic {
        self.store.traffic
    }

    /// Ends all faults, waits for the time that invariant P7 allows, and checks that the cluster
    /// has recovered. A cluster that agreed in time and then changed its table shortly before the
    /// end (rows of dead silos can be removed at any time) gets a few seconds to spread that
    /// change.
    ///
    /// # Errors
    /// P7 if it has not recovered, or any other invariant that was violated meanwhile.
    pub fn settle(&mut self) -> Result<(), Violation> {
        self.end_faults();
        let within = self.truth.longest(Recovery::within(&self.config));
        self.run_for(within.saturating_sub(SPREAD))?;
        let agreed = self
            .agrees()
            .then(|| self.table().map(Snapshot::version))
            .flatten();
        self.run_for(within.min(SPREAD))?;
        if agreed
            .is_some_and(|version| self.table().is_some_and(|table| table.version() != version))
        {
            self.run_until(SPREAD, Self::agrees)?;
        }
        let live: Vec<(ProcessId, Option<ClusterView>)> = self
            .running()
            .into_iter()
            .map(|id| (id, self.view(id).cloned()))
            .collect();
        let table = self.table().cloned();
        self.observe(&Fact::Settled {
            live: &live,
            table: table.as_ref(),
        });
        self.violation.clone().map_or(Ok(()), Err)
    }

    /// Advances virtual time until all running silos are Active and agree.
    ///
    /// # Errors
    /// A violated invariant; or `P7`, with the silos that are not Active, if that takes longer than
    /// `at_most`.
    pub fn run_until_agreed(&mut self, at_most: Duration) -> Result<(), Violation> {
        let agreed = self.run_until(at_most, Self::agrees)?;
        if agreed {
            return Ok(());
        }
        let missing: Vec<String> = self
            .running()
            .into_iter()
            .filter(|id| self.row(*id).is_none_or(|e| e.status != SiloStatus::Active))
            .filter_map(|id| self.truth.record(id).map(|l| l.name.clone()))
            .collect();
        self.fail(
            "P7",
            format!(
                "no agreement within {at_most:?}; not Active: {}",
                missing.join(" ")
            ),
        );
        self.violation.clone().map_or(Ok(()), Err)
    }
}
