//! G10, G11, G12: what the resolvers of members decide.

use std::collections::BTreeMap;
use std::time::Duration;

use membership_core::{MonoTime, SiloAddress};
use membership_gossip::downing::Decision;

use super::Facts;
use crate::gossip::NodeId;

#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// When somebody that goes on first decided that a member is downed.
    downed: BTreeMap<SiloAddress, MonoTime>,
}

impl Facts {
    /// A member decided: what it announced, and what follows for it and for all others from the state
    /// that it had.
    pub fn decided(
        &mut self,
        at: MonoTime,
        (node, me): (NodeId, SiloAddress),
        told: &Decision,
        same: &[Decision],
    ) {
        self.count("decisions");
        // Who downs itself, too, has no heir.
        if !told.down.contains(&me) {
            for downed in &told.down {
                self.decisions.downed.entry(*downed).or_insert(at);
            }
        }
        // Where things did not settle, or the lease was asked, more than the state counts.
        let Some((own, others)) = same.split_first().filter(|(own, _)| *own == told) else {
            return;
        };
        for other in others {
            self.count("decisions compared");
            if other != own {
                let what = format!("{own:?} here, and {other:?} from the same facts");
                self.broken("G10", at, node, &what);
            }
        }
    }

    /// A split begins while all agree: nobody is downed by an earlier decision. One of a side that ended
    /// afterwards is forgotten with it.
    pub fn split_begins(&mut self) {
        self.decisions.downed.clear();
    }

    /// After a split, once all sides have decided: who of each side lives and is in service.
    pub fn split_is_over(&mut self, at: MonoTime, living: [&[NodeId]; 2]) {
        self.count("splits judged");
        match living {
            [[], []] => self.count("splits that nobody survived"),
            [[], _] | [_, []] => {}
            [left, right] => {
                let what = format!("{left:?} and {right:?} live after a split");
                self.broken("G11", at, *left.first().unwrap_or(&0), &what);
            }
        }
    }

    /// Two members live that have each been downed by the side of the other one.
    pub fn both_live(&mut self, at: MonoTime, one: NodeId, two: NodeId) {
        let what = format!("it and {two} live, and each is gone for the other");
        self.broken("G11", at, one, &what);
    }

    /// Members of a split that still live: none was downed longer ago than its heir waits.
    pub fn heirs(&mut self, at: MonoTime, margin: Duration, living: &[(NodeId, SiloAddress)]) {
        for (node, member) in living {
            let Some(downed) = self.decisions.downed.get(member).copied() else {
                continue;
            };
            self.count("members downed in a split while they live");
            let since = at.since(downed);
            if since > margin {
                let what = format!("{member} lives {since:?} after it was downed");
                self.broken("G12", at, *node, &what);
            }
        }
    }
}
