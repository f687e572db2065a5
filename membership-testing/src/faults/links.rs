//! Links between chosen processes: cut, or slower for a while. A link joins two hosts and has two
//! directions.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::ground_truth::ProcessId;
use crate::network::Latency;

impl Cluster {
    /// Blocks each direction between the hosts of two running processes for which `cut(from, to)`
    /// is true. Any partial partition can be made this way. Hosts that start later are not
    /// affected. Returns how many directions are blocked now that were open.
    pub fn cut_links(&mut self, cut: impl Fn(ProcessId, ProcessId) -> bool) -> usize {
        let chosen = self.directions(cut);
        let before = self.stats.blocks;
        for (from, to) in chosen {
            self.block_hosts(from, to);
        }
        let blocked = self.stats.blocks - before;
        self.note_world(format!("{blocked} directions are cut"));
        self.mark_split_unclean();
        self.update_any_block();
        usize::try_from(blocked).unwrap_or(usize::MAX)
    }

    /// Unblocks each direction between the hosts of two running processes for which
    /// `mended(from, to)` is true.
    pub fn mend_links(&mut self, mended: impl Fn(ProcessId, ProcessId) -> bool) {
        for (from, to) in self.directions(mended) {
            if self.network.is_blocked(from, to) {
                self.unblock_hosts(from, to);
            }
        }
        self.note_world("some links are mended".to_owned());
        self.update_any_block();
    }

    /// Blocks the direction from every process of one set to every process of another, and not the
    /// way back.
    pub fn cut_one_way(&mut self, from: &[ProcessId], to: &[ProcessId]) {
        self.cut_links(|a, b| from.contains(&a) && to.contains(&b));
    }

    /// Blocks both directions between every process of one set and every process of another.
    pub fn cut_both_ways(&mut self, these: &[ProcessId], those: &[ProcessId]) {
        self.cut_links(|a, b| {
            (these.contains(&a) && those.contains(&b)) || (those.contains(&a) && these.contains(&b))
        });
    }

    /// Sets the latency of all links between two sets of processes, in both directions, until
    /// [`usual_links`](Self::usual_links). Of several such sets the last one counts.
    pub fn slow_links(&mut self, these: &[ProcessId], those: &[ProcessId], latency: Latency) {
        let hosts = |set: &[ProcessId]| -> BTreeSet<usize> {
            set.iter().filter_map(|id| self.host(*id)).collect()
        };
        let (a, b) = (hosts(these), hosts(those));
        self.note_world(format!(
            "the links between {} hosts and {} others take up to {:.1}s",
            a.len(),
            b.len(),
            latency.high.max(latency.slow).as_secs_f64()
        ));
        self.stats.slow_links += 1;
        self.network.set_latency_between(a, b, latency);
        self.update_rough_network();
    }

    /// Ends what [`slow_links`](Self::slow_links) began.
    pub fn usual_links(&mut self) {
        self.note_world("all links are as fast as usual".to_owned());
        self.network.clear_latency_between();
        self.update_rough_network();
    }

    /// The directions between the hosts of running processes that a predicate chooses.
    fn directions(
        &self,
        chosen: impl Fn(ProcessId, ProcessId) -> bool,
    ) -> BTreeSet<(usize, usize)> {
        let all = self.running();
        let mut directions = BTreeSet::new();
        for from in &all {
            for to in &all {
                if let (Some(a), Some(b)) = (self.host(*from), self.host(*to))
                    && a != b
                    && chosen(*from, *to)
                {
                    directions.insert((a, b));
                }
            }
        }
        directions
    }
}
