//! G1: the merge of states that members have.

use membership_core::MonoTime;
use membership_gossip::state::State;

use super::Facts;

/// How two states become one.
pub type Merge = fn(&State, &State) -> State;

impl Facts {
    /// Merges states that members have at one moment, in different orders.
    pub fn merges(&mut self, at: MonoTime, states: &[State]) {
        let merge: Merge = |one, two| {
            let mut one = one.clone();
            one.merge(two);
            one
        };
        self.merges_by(at, states, merge);
    }

    /// The same with a merge of the caller's.
    pub fn merges_by(&mut self, at: MonoTime, states: &[State], merge: Merge) {
        let versions = states.iter().map(State::version);
        let different: std::collections::BTreeSet<_> = versions.collect();
        if different.len() > 1 {
            self.count("merges of different states");
        }
        for one in states {
            self.must(
                merge(one, one) == *one,
                at,
                "a state with itself is another",
            );
            for two in states {
                let both = merge(one, two);
                let same = both == merge(two, one);
                self.must(same, at, "two states, two results");
                self.must(merge(&both, two) == both, at, "a second time changes more");
                for three in states {
                    let first = merge(&both, three);
                    let last = merge(one, &merge(two, three));
                    self.must(first == last, at, "three states, two results");
                }
            }
        }
    }

    fn must(&mut self, holds: bool, at: MonoTime, what: &str) {
        if !holds {
            self.violations.push(format!("G1 {at}: {what}"));
        }
    }
}
