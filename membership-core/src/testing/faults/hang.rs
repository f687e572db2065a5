//! A process that is half dead: its protocol hangs, but other threads of it go on answering their peers.

use std::time::Duration;

use crate::protocol::Input;
use crate::testing::circumstances::ProcessId;
use crate::testing::cluster::Cluster;
use crate::testing::events::Event;
use crate::{MonoTime, SiloStatus};

/// How often the other threads answer each peer.
const CHATTER: Duration = Duration::from_secs(1);

impl Cluster {
    /// For so long the protocol of a process hangs: it takes no input, and no timer fires. Meanwhile the rest of the process answers the
    /// applications of all others every second, and they say so ([`Input::Heard`]).
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
            self.agenda.plan(self.now + CHATTER, Event::Chatter(silo));
        }
    }

    pub(in crate::testing) fn chatter(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get(id.0).filter(|p| p.hung) else {
            return;
        };
        let (Some(from), here) = (self.address(id), process.place) else {
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
            let there = peer.place;
            let (Some(to), Some(back)) = (
                self.network.carry(there, here, &mut self.dice),
                self.network.carry(here, there, &mut self.dice),
            ) else {
                continue;
            };
            let asked = peer.mono.shows(self.now.saturating_sub(to + back));
            let asked = MonoTime::from_nanos(u64::try_from(asked.as_nanos()).unwrap_or(u64::MAX));
            self.stats.heard += 1;
            self.feed(other, None, Input::Heard { from, asked });
        }
        self.agenda.plan(self.now + CHATTER, Event::Chatter(id));
    }
}
