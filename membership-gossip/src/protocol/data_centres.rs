//! What crosses data centres: the oldest members of each speak with the oldest of the others.

use std::collections::{BTreeMap, BTreeSet};

use membership_core::SiloAddress;

use super::context::Ctx;
use crate::state::State;

/// The oldest members of each data centre, those that cross its border. Where few are up yet, those
/// that join are among them: else two data centres that begin at one time would never hear of each
/// other.
fn oldest(state: &State, count: usize) -> BTreeMap<String, Vec<SiloAddress>> {
    let mut all = BTreeMap::<String, Vec<SiloAddress>>::new();
    for member in state.members().by_age() {
        let chosen = all.entry(member.data_centre().to_owned()).or_default();
        if member.status().is_present() && chosen.len() < count {
            chosen.push(member.address());
        }
    }
    all.retain(|_, chosen| !chosen.is_empty());
    all
}

fn borders(ctx: &Ctx) -> (bool, BTreeMap<String, Vec<SiloAddress>>) {
    let (state, scope) = (ctx.gossip.state(), ctx.scope());
    if state.members().iter().all(|m| scope.is_mine(m)) {
        return (false, BTreeMap::new());
    }
    let count = ctx.config.cross_data_center_connections as usize;
    let mut all = oldest(ctx.gossip.state(), count);
    let mine = all.remove(&ctx.profile.data_centre);
    (mine.is_some_and(|mine| mine.contains(&ctx.me)), all)
}

/// The members of other data centres that this one watches.
pub(crate) fn targets(ctx: &Ctx) -> BTreeSet<SiloAddress> {
    let (crosses, others) = borders(ctx);
    if crosses {
        others.into_values().flatten().collect()
    } else {
        BTreeSet::new()
    }
}

/// A member of another data centre for this round of gossip, if it is one for that.
pub(crate) fn peer(ctx: &mut Ctx) -> Option<SiloAddress> {
    let (crosses, others) = borders(ctx);
    if !crosses || others.is_empty() {
        return None;
    }
    let mine = ctx.profile.data_centre.clone();
    let members = ctx.gossip.state().members().iter();
    let local = members.filter(|m| m.data_centre() == mine).count();
    // A small data centre has few who could carry news.
    let probability = match local {
        0 | 1 => 1.0,
        2 => 0.75,
        3 => 0.5,
        4 => 0.25,
        _ => ctx.config.cross_data_center_gossip_probability,
    };
    let probability = probability.max(ctx.config.cross_data_center_gossip_probability);
    if !ctx.chance(probability) {
        return None;
    }
    let others: Vec<_> = others.into_values().collect();
    let at = ctx.below(others.len());
    let members: Vec<_> = others.get(at)?.to_vec();
    let reached: Vec<_> = members.into_iter().filter(|m| !ctx.flags(m)).collect();
    ctx.pick(&reached)
}
