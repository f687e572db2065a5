//! G16: how much members send.

use std::collections::BTreeMap;
use std::time::Duration;

use membership_core::{MonoTime, SiloAddress};
use membership_gossip::Config;

use super::Facts;
use crate::gossip::NodeId;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// The most messages of one member in a second while all is well.
    most_calm: u64,
    /// The most states and deltas that may reach one member in a second.
    most_states: u64,
    calm: Option<MonoTime>,
    /// The second that is counted, and what was sent and arrived in it.
    second: MonoTime,
    sent: BTreeMap<SiloAddress, u64>,
    arrived: BTreeMap<NodeId, u64>,
    /// Those that had waited for a member that was paused: each is answered, and the answer may be.
    waited: BTreeMap<NodeId, u64>,
}

/// The states that one which waited leads to, itself included.
const CHAIN: u64 = 5;

impl Traffic {
    /// While all is well a member sends one heartbeat to each member that it watches, answers those of
    /// its watchers, begins one round of gossip, and answers some. Rings are not even: a member may
    /// have twice as many watchers.
    pub(super) fn configure(&mut self, config: &Config) {
        self.most_calm = u64::from(config.monitored_by) * 5 + 10;
        self.most_states = 0;
    }

    pub(super) const fn calm(&mut self, since: Option<MonoTime>) {
        self.calm = since;
    }
}

impl Facts {
    /// The most states and deltas that may reach one member in a second, for so many members: each
    /// begins three rounds in a second, and while all know something else each round is a chain of
    /// answers, of which the network may double some.
    pub fn bound_states(&mut self, members: usize) {
        self.traffic.most_states = 20 * members as u64 + 20;
    }

    fn next_second(&mut self, at: MonoTime) {
        if at.since(self.traffic.second) >= SECOND {
            self.traffic.second = at;
            self.traffic.sent.clear();
            self.traffic.arrived.clear();
            self.traffic.waited.clear();
        }
    }

    pub(super) fn load(&mut self, at: MonoTime, from: SiloAddress) {
        self.next_second(at);
        let sent = self.traffic.sent.entry(from).or_default();
        *sent += 1;
        let (sent, most) = (*sent, self.traffic.most_calm);
        // What was sent in the second in which it began is not judged.
        let calm = self
            .traffic
            .calm
            .is_some_and(|since| at.since(since) > SECOND * 2);
        if calm {
            self.count("messages while all was well");
            if sent == most + 1 {
                let what = format!("{from} sends more than {most} messages in a second");
                self.violations.push(format!("G16 {at}: {what}"));
            }
        }
    }

    /// A state or a delta reached a member that runs.
    pub fn state_arrived(&mut self, at: MonoTime, node: NodeId, has_waited: bool) {
        self.next_second(at);
        self.count("states that arrived");
        let arrived = self.traffic.arrived.entry(node).or_default();
        *arrived += 1;
        let waited = self.traffic.waited.entry(node).or_default();
        *waited += u64::from(has_waited);
        let (arrived, most) = (*arrived, self.traffic.most_states + *waited * CHAIN);
        if self.traffic.most_states > 0 && arrived == most + 1 {
            let what = format!("more than {most} states in a second");
            self.broken("G16", at, node, &what);
        }
    }
}
