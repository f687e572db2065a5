//! Flapping links: blocked and unblocked in turns.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::events::Event;
use crate::ground_truth::ProcessId;
use crate::network::Flap;

impl Cluster {
    /// Makes the direction from one process's host to another's flap: blocked for `down_for`, open
    /// for `up_for`, and so on, until [`heal`](Self::heal).
    pub fn flap(&mut self, from: ProcessId, to: ProcessId, down_for: Duration, up_for: Duration) {
        let (Some(a), Some(b)) = (self.host(from), self.host(to)) else {
            return;
        };
        self.note_world(format!(
            "the link from {} to {} flaps",
            self.label(from),
            self.label(to)
        ));
        self.begin_flapping(vec![(a, b)], down_for, up_for);
    }

    /// Makes all directions to a process's host flap: blocked for `down_for`, open for `up_for`,
    /// and so on, until [`heal`](Self::heal). Hosts that start later are not affected.
    pub fn flap_ingress(&mut self, silo: ProcessId, down_for: Duration, up_for: Duration) {
        let Some(here) = self.host(silo) else { return };
        self.note_world(format!("all links to {} flap", self.label(silo)));
        let links = self
            .all_hosts()
            .filter(|there| *there != here)
            .map(|there| (there, here))
            .collect();
        self.begin_flapping(links, down_for, up_for);
    }

    fn begin_flapping(&mut self, links: Vec<(usize, usize)>, down_for: Duration, up_for: Duration) {
        let least = Duration::from_millis(1);
        let flap = Flap {
            links,
            down_for: down_for.max(least),
            up_for: up_for.max(least),
            is_blocked: false,
        };
        self.flaps_so_far += 1;
        self.flaps.insert(self.flaps_so_far, flap);
        self.toggle_flap(self.flaps_so_far);
    }

    /// Changes the state of flapping links, if they still flap.
    pub(crate) fn toggle_flap(&mut self, number: u64) {
        let Some(flap) = self.flaps.get_mut(&number) else {
            return;
        };
        flap.is_blocked = !flap.is_blocked;
        let flap = flap.clone();
        for (from, to) in flap.links {
            if flap.is_blocked {
                self.block_hosts(from, to);
            } else {
                self.unblock_hosts(from, to);
            }
        }
        self.stats.flaps += u64::from(flap.is_blocked);
        self.mark_split_unclean();
        self.update_any_block();
        let lasts = if flap.is_blocked {
            flap.down_for
        } else {
            flap.up_for
        };
        self.queue.schedule(self.now + lasts, Event::Flap(number));
    }
}
