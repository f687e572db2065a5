//! Zones: groups of hosts with a higher latency between them.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::network::Latency;

impl Cluster {
    /// Distributes all hosts, later ones too, over zones, and sets the latency between zones. 0 or
    /// 1: no zones.
    pub fn zones(&mut self, zones: usize, between: Latency) {
        self.note_world(match zones {
            0 | 1 => "there are no zones".to_owned(),
            _ => format!(
                "{zones} zones, up to {:.0} ms apart",
                between.slow.max(between.high).as_secs_f64() * 1e3
            ),
        });
        self.network.set_zones(zones, between);
        self.update_rough_network();
    }

    /// Cuts the link between two zones, for later hosts too, until [`heal`](Self::heal). A third
    /// zone still reaches both.
    pub fn cut_zones(&mut self, a: usize, b: usize) {
        if a == b || a.max(b) >= self.network.zones() {
            return;
        }
        self.note_world(format!("nothing gets from zone {a} to zone {b}, nor back"));
        self.stats.zone_cuts += 1;
        self.cut_direction(a, b);
        self.cut_direction(b, a);
    }

    /// Cuts one direction between two zones, for later hosts too, until [`heal`](Self::heal).
    pub fn cut_zones_one_way(&mut self, from: usize, to: usize) {
        if from == to || from.max(to) >= self.network.zones() {
            return;
        }
        self.note_world(format!("nothing gets from zone {from} to zone {to}"));
        self.stats.zone_cuts += 1;
        self.cut_direction(from, to);
    }

    fn cut_direction(&mut self, from: usize, to: usize) {
        self.cuts.push((from, to));
        for a in self.hosts_of_zone(from) {
            for b in self.hosts_of_zone(to) {
                self.block_hosts(a, b);
            }
        }
        self.mark_split_unclean();
        self.update_any_block();
    }

    fn hosts_of_zone(&self, zone: usize) -> Vec<usize> {
        self.all_hosts()
            .filter(|host| self.network.zone(*host) == zone)
            .collect()
    }

    /// Applies the cuts of its zone to a new host.
    pub(crate) fn join_cuts(&mut self, host: usize) {
        let zone = self.network.zone(host);
        for (from, to) in self.cuts.clone() {
            if zone == from {
                for there in self.hosts_of_zone(to) {
                    self.block_hosts(host, there);
                }
            } else if zone == to {
                for there in self.hosts_of_zone(from) {
                    self.block_hosts(there, host);
                }
            }
        }
    }

    /// The longest a message between zones takes; zero without zones.
    pub(super) fn between_zones(&self) -> Duration {
        if self.network.zones() < 2 {
            return Duration::ZERO;
        }
        let latency = self.network.latency_between(0, 1);
        latency.slow.max(latency.high)
    }
}
