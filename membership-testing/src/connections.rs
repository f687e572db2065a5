//! Connections: who learns that a process has ended.
//!
//! While its machine lives, the end of a process is seen twice: each connection with it ends at
//! once, and whoever dials it later is refused. When the machine ends too, nobody sees anything.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::clock::VirtualTime;
use crate::cluster::Cluster;
use crate::events::Event;
use crate::ground_truth::ProcessId;

/// A connection is kept for this long after its last message.
const KEPT: Duration = Duration::from_secs(60);
/// The most connections of one process. More than the protocol probes, or asks at once.
const MOST: usize = 512;

/// When the last message of a process arrives at each process that it has sent to. Protocols answer
/// what they get, so these are the connections in both directions.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(BTreeMap<ProcessId, VirtualTime>);

impl Connections {
    fn used(&mut self, peer: ProcessId, now: VirtualTime, arrives: VirtualTime) {
        if let Some(last) = self.0.get_mut(&peer) {
            *last = (*last).max(arrives);
            return;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, last| *last + KEPT > now);
        }
        if self.0.len() < MOST {
            self.0.insert(peer, arrives);
        }
    }
}

impl Cluster {
    /// Notes a message that leaves a process and will arrive at another one.
    pub(super) fn connect(&mut self, from: ProcessId, to: ProcessId, arrives: VirtualTime) {
        let now = self.now;
        if let Some(process) = self.processes.get_mut(from.0) {
            process.connections.used(to, now, arrives);
        }
    }

    /// Tells the processes that were connected with one that has ended, unless the network between
    /// them is closed. What it sent before arrives first.
    pub(super) fn end_connections(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(id.0) else {
            return;
        };
        let connections = std::mem::take(&mut process.connections);
        if !self.refuse {
            return;
        }
        let (peer, here) = (process.endpoint, process.host);
        for (other, last) in connections.0 {
            let Some(process) = self.processes.get(other.0).filter(|p| p.is_running()) else {
                continue;
            };
            let there = process.host;
            if other == id || last + KEPT <= self.now || !self.network.is_open(here, there) {
                continue;
            }
            let takes = self
                .network
                .latency_between(here, there)
                .draw(&mut self.endings);
            let at = (self.now + takes).max(last);
            let process = other;
            self.queue
                .schedule(at, Event::Disconnected { process, peer });
        }
    }

    /// Lets the machine at an address without a listener refuse a message, if it runs and the
    /// network between them is open.
    pub(super) fn refuse(&mut self, from: ProcessId, endpoint: SocketAddr) {
        if !self.refuse || self.silent.contains(&endpoint) {
            return;
        }
        let host = |p: &crate::process::Process| p.host;
        let Some(here) = self.processes.get(from.0).map(host) else {
            return;
        };
        let at = |p: &&crate::process::Process| p.endpoint == endpoint;
        let there = self.processes.iter().find(at).map_or(here, host);
        let after = self
            .network
            .latency_between(here, there)
            .draw(&mut self.rng)
            * 2;
        if self.network.passes(here, there, &mut self.rng)
            && self.network.passes(there, here, &mut self.rng)
        {
            let event = Event::Undeliverable { to: from, endpoint };
            self.queue.schedule(self.now + after, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::fake::tampered;
    use crate::machine::protocols;
    use membership_core::protocol::Input;

    const S: fn(u64) -> Duration = Duration::from_secs;

    /// What the silos of a cluster saw of the end of others.
    #[derive(Debug, Default)]
    struct Seen {
        disconnected: Vec<SocketAddr>,
        refused: usize,
    }

    /// Five silos that have joined, and what they see from then on.
    fn watched() -> (Cluster, Arc<Mutex<Seen>>) {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let notes = seen.clone();
        let machines = tampered(protocols(), move |input, _| {
            let mut seen = notes.lock().unwrap();
            match input {
                Input::Disconnected { peer } => seen.disconnected.push(*peer),
                Input::SendFailed { refused: true, .. } => seen.refused += 1,
                _ => {}
            }
        });
        let mut cluster = Cluster::builder()
            .seed(5)
            .silos(5)
            .machines(machines)
            .build()
            .unwrap();
        cluster.run_until_agreed(S(60)).unwrap();
        cluster.run_for(S(20)).unwrap();
        *seen.lock().unwrap() = Seen::default();
        (cluster, seen)
    }

    #[test]
    fn the_end_of_a_process_is_seen_by_those_connected_with_it() {
        let (mut cluster, seen) = watched();
        let victim = cluster.running()[2];
        let endpoint = cluster.truth().record(victim).unwrap().endpoint;
        cluster.kill(victim);
        cluster.run_for(Duration::from_millis(50)).unwrap();
        assert_eq!(seen.lock().unwrap().disconnected, [endpoint; 4]);
        cluster.run_for(S(10)).unwrap();
        let seen = seen.lock().unwrap();
        assert!(seen.disconnected.len() == 4 && seen.refused > 0, "{seen:?}");
    }

    #[test]
    fn the_end_of_a_machine_is_seen_by_nobody() {
        let (mut cluster, seen) = watched();
        let victim = cluster.running()[2];
        cluster.crash_machine(victim);
        cluster.run_for(S(60)).unwrap();
        assert_eq!(cluster.stats().voted_out, 1);
        let nothing = |seen: &Seen| seen.disconnected.is_empty() && seen.refused == 0;
        assert!(nothing(&seen.lock().unwrap()));
        // The next process there is one like any other.
        let again = cluster.restart(victim);
        cluster.run_until_agreed(S(60)).unwrap();
        cluster.kill(again);
        cluster.run_for(S(10)).unwrap();
        assert!(!nothing(&seen.lock().unwrap()));
    }

    #[test]
    fn nothing_is_seen_through_a_closed_network() {
        let (mut cluster, seen) = watched();
        let victim = cluster.running()[2];
        let lone = cluster.running()[0];
        cluster.block_both(victim, lone);
        cluster.kill(victim);
        cluster.run_for(S(1)).unwrap();
        assert_eq!(seen.lock().unwrap().disconnected.len(), 3);
    }
}
