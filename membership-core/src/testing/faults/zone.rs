//! Zones: machines in other places of the world, farther away, behind a link of their own.

use std::time::Duration;

use crate::testing::cluster::Cluster;
use crate::testing::network::Latency;

impl Cluster {
    /// Deals the machines out to so many zones, later ones too, and messages between zones take so long from now on. 0 or 1: no zones.
    pub fn zones(&mut self, zones: usize, between: Latency) {
        self.note_world(match zones {
            0 | 1 => "there are no zones".to_owned(),
            _ => format!(
                "{zones} zones, up to {:.0} ms apart",
                between.slow.max(between.high).as_secs_f64() * 1e3
            ),
        });
        self.network.set_zones(zones, between);
        self.rough_spell();
    }

    /// The link between two zones is cut, for machines that come later too, until [`heal`](Self::heal). A third zone reaches both.
    pub fn cut_zones(&mut self, a: usize, b: usize) {
        if a == b || a.max(b) >= self.network.zones() {
            return;
        }
        self.note_world(format!("nothing gets from zone {a} to zone {b}, nor back"));
        self.stats.zone_cuts += 1;
        self.cuts.push((a, b));
        for place in self
            .all_places()
            .filter(|p| self.network.zone(*p) == a)
            .collect::<Vec<_>>()
        {
            self.shut_from_zone(place, b);
        }
        self.taint_split();
        self.block_spell();
    }

    /// A machine that appears in a zone is on that zone's side of every cut.
    pub(in crate::testing) fn join_cuts(&mut self, place: usize) {
        let zone = self.network.zone(place);
        for (a, b) in self.cuts.clone() {
            if zone == a {
                self.shut_from_zone(place, b);
            } else if zone == b {
                self.shut_from_zone(place, a);
            }
        }
    }

    fn shut_from_zone(&mut self, place: usize, zone: usize) {
        for there in self
            .all_places()
            .filter(|p| self.network.zone(*p) == zone)
            .collect::<Vec<_>>()
        {
            self.shut(place, there);
            self.shut(there, place);
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
