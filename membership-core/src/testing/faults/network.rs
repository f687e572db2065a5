//! What can go wrong between processes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::testing::circumstances::{ProcessId, Split};
use crate::testing::cluster::Cluster;
use crate::testing::events::Event;
use crate::testing::network::Latency;

impl Cluster {
    /// Shuts the direction from one process's machine to another's.
    pub fn block(&mut self, from: ProcessId, to: ProcessId) {
        let (Some(a), Some(b)) = (self.place(from), self.place(to)) else {
            return;
        };
        self.note_world(format!(
            "nothing gets from {} to {}",
            self.label(from),
            self.label(to)
        ));
        self.shut(a, b);
        self.taint_split();
        self.block_spell();
    }

    /// Shuts both directions between two.
    pub fn block_both(&mut self, a: ProcessId, b: ProcessId) {
        self.block(a, b);
        self.block(b, a);
    }

    /// Opens the direction from one to another again.
    pub fn unblock(&mut self, from: ProcessId, to: ProcessId) {
        let (Some(a), Some(b)) = (self.place(from), self.place(to)) else {
            return;
        };
        self.open(a, b);
        self.block_spell();
    }

    /// Shuts all directions from and to a process's machine. The table stays within its reach.
    pub fn isolate(&mut self, silo: ProcessId) {
        let Some(here) = self.place(silo) else { return };
        self.note_world(format!("{} is isolated", self.label(silo)));
        for there in self.all_places().filter(|p| *p != here).collect::<Vec<_>>() {
            self.shut(here, there);
            self.shut(there, here);
        }
        self.taint_split();
        self.block_spell();
    }

    /// Splits the network: between processes of different groups nothing gets through. Whoever is in no group is in one more.
    pub fn partition(&mut self, groups: &[Vec<ProcessId>]) {
        let clean_from = self.truth.ago(self.truth.memory_of_votes());
        let clean = !self.truth.any_block.touched(clean_from)
            && !self.truth.rough_network.touched(clean_from)
            && !self.truth.network_down.touched(clean_from);
        let mut group = BTreeMap::new();
        for (number, members) in groups.iter().enumerate() {
            group.extend(
                members
                    .iter()
                    .filter_map(|id| self.place(*id))
                    .map(|place| (place, number)),
            );
        }
        let places: Vec<usize> = self.all_places().collect();
        for a in &places {
            for b in &places {
                if a != b && group.get(a) != group.get(b) {
                    self.shut(*a, *b);
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
        self.block_spell();
        self.truth.split = Some(Split {
            since: self.now,
            healed: None,
            clean,
            group,
        });
    }

    /// A machine that appears while the network is split is in no group: it does not bridge what is split.
    pub(in crate::testing) fn join_split(&mut self, place: usize) {
        let Some(split) = self.truth.split.as_ref().filter(|s| s.healed.is_none()) else {
            return;
        };
        for there in split
            .group
            .keys()
            .copied()
            .filter(|p| *p != place)
            .collect::<Vec<_>>()
        {
            self.shut(place, there);
            self.shut(there, place);
        }
        self.block_spell();
    }

    /// Opens every direction, and ends a network outage.
    pub fn heal(&mut self) {
        if self.network.any_shut() {
            self.note_world("the network heals".to_owned());
        }
        for (a, b) in self.network.open_all() {
            self.truth
                .blocks
                .entry((a, b))
                .or_default()
                .set(false, self.now);
        }
        self.block_spell();
        if let Some(split) = &mut self.truth.split {
            split.healed.get_or_insert(self.now);
        }
        self.flaps.clear();
        self.cuts.clear();
        self.network_up();
    }

    /// Nothing gets from any machine to another for so long (or until [`heal`](Self::heal)).
    pub fn network_outage(&mut self, time: Duration) {
        self.note_world(format!(
            "the network is down for {:.1}s",
            time.as_secs_f64()
        ));
        self.stats.network_outages += 1;
        self.network.set_down(true);
        self.truth.network_down.set(true, self.now);
        self.taint_split();
        self.agenda.plan(self.now + time, Event::NetworkUp);
    }

    pub(in crate::testing) fn network_up(&mut self) {
        if self.network.is_down() {
            self.note_world("the network is up again".to_owned());
        }
        self.network.set_down(false);
        self.truth.network_down.set(false, self.now);
    }

    /// So many messages get lost at random: 0 to 1.
    pub fn message_loss(&mut self, rate: f64) {
        self.network.set_loss(rate);
        self.note_world(format!("{:.0} % of messages get lost", rate * 100.0));
        self.rough_spell();
    }

    /// How long messages take from now on.
    pub fn latency(&mut self, latency: Latency) {
        self.network.set_latency(latency);
        self.rough_spell();
    }

    /// So many messages arrive twice: 0 to 1.
    pub fn duplicates(&mut self, rate: f64) {
        self.note_world(format!("{:.0} % of messages arrive twice", rate * 100.0));
        self.network.set_duplicates(rate);
    }

    /// So many messages (0 to 1) take up to so much longer, and are overtaken by others.
    pub fn delayed(&mut self, share: f64, most: Duration) {
        self.note_world(format!(
            "{:.0} % of messages take up to {:.1}s longer",
            share * 100.0,
            most.as_secs_f64()
        ));
        self.network.set_delayed(share, most);
        self.rough_spell();
    }

    /// So much of what leaves a process's machine gets lost: 0 to 1. The way to the table is not concerned.
    pub fn egress_loss(&mut self, silo: ProcessId, rate: f64) {
        let Some(place) = self.place(silo) else {
            return;
        };
        self.note(
            silo,
            format!("loses {:.0} % of what it sends", rate * 100.0),
        );
        self.network.set_egress_loss(place, rate);
        self.lossy_spell(place);
    }

    /// So much of what gets to a process's machine gets lost there: 0 to 1. The way to the table is not concerned.
    pub fn ingress_loss(&mut self, silo: ProcessId, rate: f64) {
        let Some(place) = self.place(silo) else {
            return;
        };
        self.note(
            silo,
            format!("loses {:.0} % of what reaches it", rate * 100.0),
        );
        self.network.set_ingress_loss(place, rate);
        self.lossy_spell(place);
    }
}
