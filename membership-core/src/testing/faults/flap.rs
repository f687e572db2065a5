//! Links that work and do not work in turns.

use std::time::Duration;

use crate::testing::circumstances::ProcessId;
use crate::testing::cluster::Cluster;
use crate::testing::events::Event;

/// Directions that are shut and opened again, over and over.
#[derive(Clone, Debug)]
pub(in crate::testing) struct Flap {
    links: Vec<(usize, usize)>,
    shut_for: Duration,
    open_for: Duration,
    is_shut: bool,
}

impl Cluster {
    /// From now on the direction from one process's machine to another's is shut for so long, open for so long, and so on, until
    /// [`heal`](Self::heal).
    pub fn flap(&mut self, from: ProcessId, to: ProcessId, shut_for: Duration, open_for: Duration) {
        let (Some(a), Some(b)) = (self.place(from), self.place(to)) else {
            return;
        };
        self.note_world(format!(
            "the link from {} to {} flaps",
            self.label(from),
            self.label(to)
        ));
        self.begin_flapping(vec![(a, b)], shut_for, open_for);
    }

    /// From now on everything that goes to a process's machine is shut out for so long, let in for so long, and so on, until
    /// [`heal`](Self::heal). Machines that come later are not concerned.
    pub fn flap_ingress(&mut self, silo: ProcessId, shut_for: Duration, open_for: Duration) {
        let Some(here) = self.place(silo) else { return };
        self.note_world(format!("all links to {} flap", self.label(silo)));
        let links = self
            .all_places()
            .filter(|there| *there != here)
            .map(|there| (there, here))
            .collect();
        self.begin_flapping(links, shut_for, open_for);
    }

    fn begin_flapping(
        &mut self,
        links: Vec<(usize, usize)>,
        shut_for: Duration,
        open_for: Duration,
    ) {
        let least = Duration::from_millis(1);
        let flap = Flap {
            links,
            shut_for: shut_for.max(least),
            open_for: open_for.max(least),
            is_shut: false,
        };
        self.flaps_so_far += 1;
        self.flaps.insert(self.flaps_so_far, flap);
        self.flap_on(self.flaps_so_far);
    }

    /// The other state of links that flap, if they still do.
    pub(in crate::testing) fn flap_on(&mut self, number: u64) {
        let Some(flap) = self.flaps.get_mut(&number) else {
            return;
        };
        flap.is_shut = !flap.is_shut;
        let flap = flap.clone();
        for (from, to) in flap.links {
            if flap.is_shut {
                self.shut(from, to);
            } else {
                self.open(from, to);
            }
        }
        self.stats.flaps += u64::from(flap.is_shut);
        self.taint_split();
        self.block_spell();
        let lasts = if flap.is_shut {
            flap.shut_for
        } else {
            flap.open_for
        };
        self.agenda.plan(self.now + lasts, Event::Flap(number));
    }
}
