//! Whom a member watches: its successors on hash rings that all members order in the same way
//! (specification, failure detector).

use std::collections::BTreeSet;

use membership_core::SiloAddress;
use membership_core::protocol::{ring_place, successors};

use crate::Config;
use crate::convergence::Scope;
use crate::state::State;

/// The members that the judging one watches.
///
/// On one ring: the next that are reached, and those between them that are not, because otherwise
/// nobody would watch the dead. On many rings: one on each that is reached; whoever flags a member
/// goes on watching it anyway. Where too few are reached, those that others flag are watched, too: between two
/// groups that do not reach each other, or beside a member that flags everybody, nobody else would be missed.
#[must_use]
pub fn targets(state: &State, scope: &Scope, config: &Config) -> BTreeSet<SiloAddress> {
    nearest(state, scope, config, config.monitored_by)
}

/// The same with so many of them.
pub(crate) fn nearest(
    state: &State,
    scope: &Scope,
    config: &Config,
    wanted: u32,
) -> BTreeSet<SiloAddress> {
    let others: Vec<SiloAddress> = state
        .members()
        .iter()
        .filter(|m| m.address() != scope.me && scope.is_mine(m) && !m.end_confirmed())
        .map(|m| m.address())
        .collect();
    let count = wanted as usize;
    if others.len() <= count {
        return others.into_iter().collect();
    }
    let unreachable = scope.unreachable(state);
    if config.many_rings {
        let (flagged, reached): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|member| unreachable.contains(member));
        let mut chosen = successors(&scope.me, &reached, wanted);
        let more = count.saturating_sub(chosen.len());
        chosen.extend(successors(&scope.me, &flagged, more as u32));
        return chosen.into_iter().collect();
    }
    let place = |member: &SiloAddress| (ring_place(member), *member);
    let mut ring = others;
    ring.sort_unstable_by_key(place);
    let start = ring.partition_point(|member| place(member) < place(&scope.me));
    let mut chosen = BTreeSet::new();
    let mut reached = 0;
    for member in ring[start..].iter().chain(&ring[..start]) {
        chosen.insert(*member);
        reached += usize::from(!unreachable.contains(member));
        if reached == count {
            break;
        }
    }
    chosen
}
