//! G15: who is gone ends.

use std::collections::BTreeMap;
use std::time::Duration;

use membership_core::MonoTime;

use super::Facts;
use crate::gossip::NodeId;

#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Members that live and are gone for a living member of their cluster that they can meet, and
    /// since when.
    gone_since: BTreeMap<NodeId, MonoTime>,
}

impl Facts {
    /// While nothing is cut: the members that live, although a living member of their cluster knows
    /// that they are gone: each with one who does. Each ends within `most`.
    pub fn gone_but_alive(&mut self, at: MonoTime, now: &BTreeMap<NodeId, NodeId>, most: Duration) {
        self.ends
            .gone_since
            .retain(|node, _| now.contains_key(node));
        for (node, by) in now {
            if !self.ends.gone_since.contains_key(node) {
                self.count("members that were gone and met one that knew");
            }
            let since = *self.ends.gone_since.entry(*node).or_insert(at);
            if at.since(since) > most {
                let what =
                    format!("it is gone since {since} for {by} and maybe others, and goes on");
                self.broken("G15", at, *node, &what);
            }
        }
    }

    /// A member handled an input: whether it is down or removed in its own state, and has not ended.
    pub fn knows_and_goes_on(&mut self, at: MonoTime, node: NodeId) {
        self.broken(
            "G15",
            at,
            node,
            "it knows that it is down or gone, and goes on",
        );
    }
}
