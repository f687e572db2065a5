//! Faults of the network between processes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::events::Event;
use crate::ground_truth::{ProcessId, Split};
use crate::network::Latency;

impl Cluster {
    /// Blocks the direction from one process's host to another's.
    pub fn block(&mut self, from: ProcessId, to: ProcessId) {
        let (Some(a), Some(b)) = (self.host(from), self.host(to)) else {
            return;
        };
        self.note_world(format!(
            "nothing gets from {} to {}",
            self.label(from),
            self.label(to)
        ));
        self.block_hosts(a, b);
        self.mark_split_unclean();
        self.update_any_block();
    }

    /// Blocks both directions between two processes.
    pub fn block_both(&mut self, a: ProcessId, b: ProcessId) {
        self.block(a, b);
        self.block(b, a);
    }

    /// Unblocks the direction from one process's host to another's.
    pub fn unblock(&mut self, from: ProcessId, to: ProcessId) {
        let (Some(a), Some(b)) = (self.host(from), self.host(to)) else {
            return;
        };
        self.unblock_hosts(a, b);
        self.update_any_block();
    }

    /// Blocks all directions from and to a process's host. The table stays reachable.
    pub fn isolate(&mut self, silo: ProcessId) {
        let Some(here) = self.host(silo) else { return };
        self.note_world(format!("{} is isolated", self.label(silo)));
        for there in self.all_hosts().filter(|p| *p != here).collect::<Vec<_>>() {
            self.block_hosts(here, there);
            self.block_hosts(there, here);
        }
        self.mark_split_unclean();
        self.update_any_block();
    }

    /// Partitions the network: processes of different groups cannot reach each other. Processes
    /// that are in no group form one more group.
    pub fn partition(&mut self, groups: &[Vec<ProcessId>]) {
        let clean_from = self.truth.ago(self.truth.vote_lookback());
        let clean = !self.truth.any_block.overlaps(clean_from)
            && !self.truth.rough_network.overlaps(clean_from)
            && !self.truth.network_down.overlaps(clean_from);
        let mut group = BTreeMap::new();
        for (number, members) in groups.iter().enumerate() {
            group.extend(
                members
                    .iter()
                    .filter_map(|id| self.host(*id))
                    .map(|host| (host, number)),
            );
        }
        let hosts: Vec<usize> = self.all_hosts().collect();
        for a in &hosts {
            for b in &hosts {
                if a != b && group.get(a) != group.get(b) {
                    self.block_hosts(*a, *b);
                }
            }
        }
        let sizes: Vec<String> = groups
            .iter()
            .map(|g| {
                g.iter()
                    .map(|p| self.label(*p))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        self.note_world(format!(
            "the network splits: {} | everybody else",
            sizes.join(" | ")
        ));
        self.update_any_block();
        self.truth.split = Some(Split {
            since: self.now,
            healed: None,
            clean,
            group,
        });
    }

    /// Puts a new host into the group of hosts that are in no group, so that it does not connect
    /// the groups of a partition.
    pub(crate) fn join_split(&mut self, host: usize) {
        let Some(split) = self.truth.split.as_ref().filter(|s| s.healed.is_none()) else {
            return;
        };
        for there in split
            .group
            .keys()
            .copied()
            .filter(|p| *p != host)
            .collect::<Vec<_>>()
        {
            self.block_hosts(host, there);
            self.block_hosts(there, host);
        }
        self.update_any_block();
    }

    /// Unblocks every direction, and ends an outage of the network.
    pub fn heal(&mut self) {
        if self.network.any_blocked() {
            self.note_world("the network heals".to_owned());
        }
        for (a, b) in self.network.unblock_all() {
            self.truth
                .blocks
                .entry((a, b))
                .or_default()
                .set(false, self.now);
        }
        self.update_any_block();
        if let Some(split) = &mut self.truth.split {
            split.healed.get_or_insert(self.now);
        }
        self.flaps.clear();
        self.cuts.clear();
        self.network_up();
    }

    /// Starts an outage: no host reaches another for `time` (or until [`heal`](Self::heal)).
    pub fn network_outage(&mut self, time: Duration) {
        self.note_world(format!(
            "the network is down for {:.1}s",
            time.as_secs_f64()
        ));
        self.stats.network_outages += 1;
        self.network.set_down(true);
        self.truth.network_down.set(true, self.now);
        self.mark_split_unclean();
        self.queue.schedule(self.now + time, Event::NetworkUp);
    }

    pub(crate) fn network_up(&mut self) {
        if self.network.is_down() {
            self.note_world("the network is up again".to_owned());
        }
        self.network.set_down(false);
        self.truth.network_down.set(false, self.now);
    }

    /// Sets the share of messages that are lost at random, 0 to 1.
    pub fn message_loss(&mut self, rate: f64) {
        self.network.set_loss(rate);
        self.note_world(format!("{:.0} % of messages get lost", rate * 100.0));
        self.update_rough_network();
    }

    /// Sets the latency of messages.
    pub fn latency(&mut self, latency: Latency) {
        self.network.set_latency(latency);
        self.update_rough_network();
    }

    /// Sets the share of messages that are duplicated, 0 to 1.
    pub fn duplicates(&mut self, rate: f64) {
        self.note_world(format!("{:.0} % of messages arrive twice", rate * 100.0));
        self.truth.twice = rate;
        self.network.set_duplicates(rate);
        self.truth.twice = rate;
    }

    /// Sets the share of messages (0 to 1) that are delayed by up to `most`, so that others
    /// overtake them.
    pub fn delayed(&mut self, share: f64, most: Duration) {
        self.note_world(format!(
            "{:.0} % of messages take up to {:.1}s longer",
            share * 100.0,
            most.as_secs_f64()
        ));
        self.network.set_delayed(share, most);
        self.update_rough_network();
    }

    /// Sets the share of messages that are lost when they leave a process's host, 0 to 1. Table
    /// calls are not affected.
    pub fn egress_loss(&mut self, silo: ProcessId, rate: f64) {
        let Some(host) = self.host(silo) else {
            return;
        };
        self.note(
            silo,
            format!("loses {:.0} % of what it sends", rate * 100.0),
        );
        self.network.set_egress_loss(host, rate);
        self.update_lossy(host);
    }

    /// Sets the share of messages that are lost when they arrive at a process's host, 0 to 1. Table
    /// calls are not affected.
    pub fn ingress_loss(&mut self, silo: ProcessId, rate: f64) {
        let Some(host) = self.host(silo) else {
            return;
        };
        self.note(
            silo,
            format!("loses {:.0} % of what reaches it", rate * 100.0),
        );
        self.network.set_ingress_loss(host, rate);
        self.update_lossy(host);
    }
}
