//! A half-dead process: its protocol hangs, but its other threads still answer their peers.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::events::Event;
use crate::ground_truth::ProcessId;
use membership_core::protocol::Input;
use membership_core::{MonoTime, SiloStatus};

/// How often the other threads answer each peer.
const CHATTER: Duration = Duration::from_secs(1);

impl Cluster {
    /// Hangs the protocol of a process for `time`: it handles no input, and no timer fires.
    /// Meanwhile the rest of the process answers the applications of all other silos every second,
    /// and they report that ([`Input::Heard`]).
    pub fn hang(&mut self, silo: ProcessId, time: Duration) {
        self.pause(silo, time);
        let Some(process) = self
            .processes
            .get_mut(silo.0)
            .filter(|p| p.paused_until.is_some())
        else {
            return;
        };
        let already = std::mem::replace(&mut process.hung, true);
        self.stats.hangs += 1;
        self.note(
            silo,
            "is half dead: its application still answers".to_owned(),
        );
        if !already {
            self.queue
                .schedule(self.now + CHATTER, Event::Chatter(silo));
        }
    }

    pub(crate) fn chatter(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get(id.0).filter(|p| p.hung) else {
            return;
        };
        let (Some(from), here) = (self.address(id), process.host) else {
            return;
        };
        for other in self.running() {
            let Some(peer) = self.processes.get(other.0) else {
                continue;
            };
            if other == id
                || peer.paused_until.is_some()
                || peer.machine.status() != SiloStatus::Active
            {
                continue;
            }
            let there = peer.host;
            let (Some(to), Some(back)) = (
                self.network.delay(there, here, &mut self.rng),
                self.network.delay(here, there, &mut self.rng),
            ) else {
                continue;
            };
            let asked = peer.mono.shows(self.now.saturating_sub(to + back));
            let asked = MonoTime::from_nanos(u64::try_from(asked.as_nanos()).unwrap_or(u64::MAX));
            self.stats.heard += 1;
            self.feed(other, None, Input::Heard { from, asked });
        }
        self.queue.schedule(self.now + CHATTER, Event::Chatter(id));
    }
}
