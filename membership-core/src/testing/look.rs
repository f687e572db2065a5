//! What a test may ask a virtual cluster.

use std::time::Duration;

use super::checks::{Fact, Load, Recovery};
use super::circumstances::{Circumstances, ProcessId, VirtualTime};
use super::cluster::Cluster;
use super::network::Network;
use super::stats::Stats;
use super::trace::Trace;
use super::traffic::TableTraffic;
use super::violation::Violation;
use crate::protocol::{Notice, Termination};
use crate::{ClusterView, MembershipEntry, SiloAddress, SiloStatus, Snapshot};

/// A commit of a healthy cluster is known to everybody long before this has passed.
const NEWS: Duration = Duration::from_secs(2);

impl Cluster {
    /// How much virtual time has passed.
    #[must_use]
    pub fn now(&self) -> VirtualTime {
        self.now
    }

    /// Every process that runs, paused ones included, in the order of their starts.
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
            .is_some_and(super::process::Process::is_running)
    }

    /// Whether a process is paused.
    #[must_use]
    pub fn is_paused(&self, silo: ProcessId) -> bool {
        self.processes
            .get(silo.0)
            .is_some_and(|p| p.paused_until.is_some())
    }

    /// The view a process published last.
    #[must_use]
    pub fn view(&self, silo: ProcessId) -> Option<&ClusterView> {
        self.processes.get(silo.0)?.view.as_ref()
    }

    /// The address of a process, once decided.
    #[must_use]
    pub fn address(&self, silo: ProcessId) -> Option<SiloAddress> {
        self.truth.life(silo)?.silo
    }

    /// Where a process thinks it is in its life.
    #[must_use]
    pub fn status(&self, silo: ProcessId) -> Option<SiloStatus> {
        self.processes.get(silo.0).map(|p| p.machine.status())
    }

    /// Whether a process publishes and writes nothing for now.
    #[must_use]
    pub fn is_suspended(&self, silo: ProcessId) -> bool {
        self.processes
            .get(silo.0)
            .is_some_and(|p| p.machine.is_suspended())
    }

    /// How a process ended, if it stopped by itself.
    #[must_use]
    pub fn termination(&self, silo: ProcessId) -> Option<&Termination> {
        self.processes.get(silo.0)?.termination.as_ref()
    }

    /// What a process told its application, and when.
    #[must_use]
    pub fn notices(&self, silo: ProcessId) -> &[(VirtualTime, Notice)] {
        self.processes
            .get(silo.0)
            .map_or(&[], |p| p.notices.as_slice())
    }

    /// What is really in the table; none when there is none.
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

    /// Everything that really happened.
    #[must_use]
    pub fn truth(&self) -> &Circumstances {
        &self.truth
    }

    /// How much happened.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The trace.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Forgets the lines of the trace so far, so that a transcript tells only what comes now. The hash still covers everything.
    pub fn forget_trace(&mut self) {
        self.trace.forget();
    }

    /// Whether a line of the trace says this.
    #[must_use]
    pub fn tells(&self, what: &str) -> bool {
        self.trace.lines().any(|line| line.what.contains(what))
    }

    /// The dice of this world: to decide what a test leaves open.
    pub fn dice(&mut self) -> &mut super::Dice {
        &mut self.dice
    }

    /// Whether all running processes publish the table as it is, and exactly they are Active in it.
    #[must_use]
    pub fn agrees(&self) -> bool {
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
            && self.running().into_iter().all(|id| self.is_current(id))
    }

    /// Whether a process publishes the table as it is, and is Active in it.
    fn is_current(&self, silo: ProcessId) -> bool {
        let current = |(v, table): (&ClusterView, &Snapshot)| {
            v.version() == table.version() && v.token().same_commit(&table.token)
        };
        self.view(silo).zip(self.table()).is_some_and(current)
            && self
                .row(silo)
                .is_some_and(|e| e.status == SiloStatus::Active)
    }

    /// Begins to measure the messages per silo (invariant P8), for the silos that run now.
    pub fn measure_load(&mut self) {
        self.load = Some(Load::of(self.running().len(), self.now));
    }

    /// The most messages per silo per second in any 60 s since [`measure_load`](Self::measure_load).
    #[must_use]
    pub fn peak_load(&self) -> f64 {
        self.load.as_ref().map_or(0.0, Load::peak)
    }

    /// How many messages a process has sent so far, those that got lost included.
    #[must_use]
    pub fn messages_sent(&self, silo: ProcessId) -> u64 {
        self.processes.get(silo.0).map_or(0, |p| p.sent.messages)
    }

    /// How many bytes a process has sent so far: its messages as the transport encodes and frames them, nothing below that. 0 unless the
    /// world was built with [`Builder::count_bytes`](super::Builder::count_bytes).
    #[must_use]
    pub fn bytes_sent(&self, silo: ProcessId) -> u64 {
        self.processes.get(silo.0).map_or(0, |p| p.sent.bytes)
    }

    /// What was asked of the table so far.
    #[must_use]
    pub const fn table_traffic(&self) -> TableTraffic {
        self.store.traffic
    }

    /// Ends all faults, lets the time pass that invariant P7 allows, and asks whether everything is well again. A cluster that was well in
    /// time and changed its table a moment before the end (rows of the dead are removed at any time) may tell everybody first.
    ///
    /// # Errors
    /// P7, if it is not; or any other invariant broken meanwhile.
    pub fn settle(&mut self) -> Result<(), Violation> {
        self.end_faults();
        let within = self.truth.stretched(Recovery::within(&self.config));
        self.run_for(within.saturating_sub(NEWS))?;
        let agreed = self
            .agrees()
            .then(|| self.table().map(Snapshot::version))
            .flatten();
        self.run_for(within.min(NEWS))?;
        if agreed
            .is_some_and(|version| self.table().is_some_and(|table| table.version() != version))
        {
            self.run_until(NEWS, Self::agrees)?;
        }
        let live: Vec<(ProcessId, Option<ClusterView>)> = self
            .running()
            .into_iter()
            .map(|id| (id, self.view(id).cloned()))
            .collect();
        let table = self.table().cloned();
        self.show(&Fact::Settled {
            live: &live,
            table: table.as_ref(),
        });
        self.violation.clone().map_or(Ok(()), Err)
    }

    /// Lets time pass until all running silos are Active and agree.
    ///
    /// # Errors
    /// An invariant that does not hold; or `P7`, with what is missing, if that takes longer than `at_most`.
    pub fn run_until_agreed(&mut self, at_most: Duration) -> Result<(), Violation> {
        // As long as one that lagged behind still does, nobody else needs to be asked.
        let mut laggard = None;
        let agreed = self.run_until(at_most, |c| {
            if laggard.is_some_and(|id| c.is_running(id) && !c.is_current(id)) {
                return false;
            }
            laggard = c.running().into_iter().rev().find(|id| !c.is_current(*id));
            laggard.is_none() && c.agrees()
        })?;
        if agreed {
            return Ok(());
        }
        let missing: Vec<String> = self
            .running()
            .into_iter()
            .filter(|id| self.row(*id).is_none_or(|e| e.status != SiloStatus::Active))
            .filter_map(|id| self.truth.life(id).map(|l| l.name.clone()))
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
