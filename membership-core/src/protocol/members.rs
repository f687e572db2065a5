//! Sorted lists derived from the view. They are rebuilt when the changed rows are unknown, and
//! otherwise updated for the changed rows.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::model::place::place;
use crate::{
    InstanceId, MembershipEntry, MonoTime, Rows, SiloAddress, SiloStatus, Suspicion, WallTime,
};

/// Of so many changes at once, and more than one in as many silos, the lists are made anew: an insertion
/// moves half a list.
const MANY: usize = 32;

/// When a vote was seen to appear: the time of the vote, and this silo's clock. The clock is none
/// when this silo was not reading the table shortly before: the vote may then have any age.
type Sighting = (WallTime, Option<MonoTime>);

/// Lists that follow from the rows alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    /// Active silos, by address.
    pub(crate) active: Vec<SiloAddress>,
    /// Every silo that is not Dead, by address.
    pub(crate) alive: Vec<SiloAddress>,
    /// Their places on the rings, in the same order.
    pub(crate) places: Vec<u64>,
    /// Their instance ids, in the same order.
    pub(crate) instances: Vec<InstanceId>,
    /// Joining silos, by address.
    pub(crate) joining: Arc<Vec<SiloAddress>>,
    /// Silos that are not Dead and have votes against them.
    pub(crate) accused: Vec<SiloAddress>,
    /// The Active silo that has been Active for longest, with its place in that order.
    oldest: Option<(u64, SiloAddress)>,
}

impl Lists {
    fn of(rows: &Rows) -> Self {
        let (mut lists, mut joining) = (Self::default(), Vec::new());
        for entry in rows.entries().filter(|e| e.status != SiloStatus::Dead) {
            let silo = entry.address;
            lists.alive.push(silo);
            lists.places.push(place(&silo));
            lists.instances.push(entry.instance_id);
            match entry.status {
                SiloStatus::Active => {
                    lists.active.push(silo);
                    let oldest = lists.oldest.into_iter().chain([entry.seniority()]);
                    lists.oldest = oldest.min();
                }
                SiloStatus::Joining => joining.push(silo),
                _ => {}
            }
            if !entry.suspicions.is_empty() {
                lists.accused.push(silo);
            }
        }
        lists.joining = Arc::new(joining);
        lists
    }

    /// The leader: the Active silo that has been Active for longest.
    pub(crate) fn leader(&self) -> Option<SiloAddress> {
        self.oldest.map(|(_, silo)| silo)
    }

    /// Updates the lists for this silo, whose row is this one, if it is not Dead. Returns whether
    /// only all rows show who leads now.
    fn follow(&mut self, silo: SiloAddress, entry: Option<&MembershipEntry>) -> bool {
        let is = |status: SiloStatus| entry.is_some_and(|e| e.status == status);
        match (self.alive.binary_search(&silo), entry) {
            (Ok(at), Some(entry)) => self.instances[at] = entry.instance_id,
            (Err(at), Some(entry)) => {
                self.alive.insert(at, silo);
                self.places.insert(at, place(&silo));
                self.instances.insert(at, entry.instance_id);
            }
            (Ok(at), None) => {
                self.alive.remove(at);
                self.places.remove(at);
                self.instances.remove(at);
            }
            (Err(_), None) => {}
        }
        set(&mut self.active, silo, is(SiloStatus::Active));
        let joins = is(SiloStatus::Joining);
        if self.joining.binary_search(&silo).is_ok() != joins {
            set(Arc::make_mut(&mut self.joining), silo, joins);
        }
        let is_accused = entry.is_some_and(|e| !e.suspicions.is_empty());
        set(&mut self.accused, silo, is_accused);
        let active = entry.filter(|_| is(SiloStatus::Active));
        let its = active.map(MembershipEntry::seniority);
        let (before, led) = (self.oldest, self.leader() == Some(silo));
        if its.is_some() && (led || before.is_none() || its < before) {
            self.oldest = its;
        }
        led && (its.is_none() || its > before)
    }

    /// Looks through all rows for the leader.
    fn find_leader(&mut self, rows: &Rows) {
        let active = rows.entries().filter(|e| e.status == SiloStatus::Active);
        self.oldest = active.map(MembershipEntry::seniority).min();
    }
}

/// The lists for the current view.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    /// Shared with other silos of a simulation.
    lists: Arc<Lists>,
    /// The votes against each accused silo, by accuser.
    pub(crate) first_seen: BTreeMap<SiloAddress, BTreeMap<SiloAddress, Sighting>>,
    /// Increases whenever a silo may have stopped being alive.
    pub(crate) losses: u64,
    /// Silos that became alive or ceased to be since this was last taken; none: unknown, any silo
    /// may have.
    pub(crate) moved: Option<Vec<SiloAddress>>,
}

impl Deref for Members {
    type Target = Lists;

    fn deref(&self) -> &Lists {
        &self.lists
    }
}

impl Members {
    /// Rebuilds all lists. `appeared` is the time at which new votes appeared. `lists` are those for
    /// these rows, if somebody else has made them.
    pub(crate) fn rebuild(
        &mut self,
        rows: &Rows,
        appeared: Option<MonoTime>,
        lists: Option<Arc<Lists>>,
    ) {
        let before = std::mem::take(self);
        self.losses = before.losses + 1;
        self.lists = lists.unwrap_or_else(|| Arc::new(Lists::of(rows)));
        for silo in &self.lists.accused {
            let votes = rows.get(silo).map_or(&[][..], |e| &e.suspicions);
            let sightings = sightings(votes, before.first_seen.get(silo), appeared);
            self.first_seen.insert(*silo, sightings);
        }
    }

    /// Updates the lists for these silos; no other row has changed.
    pub(crate) fn follow(
        &mut self,
        rows: &Rows,
        changed: &[SiloAddress],
        appeared: Option<MonoTime>,
        lists: Option<Arc<Lists>>,
    ) {
        let alive = |silo: &SiloAddress| rows.get(silo).filter(|e| e.status != SiloStatus::Dead);
        for silo in changed {
            let entry = alive(silo);
            let was_alive = self.lists.alive.binary_search(silo).is_ok();
            if was_alive != entry.is_some() {
                self.losses += u64::from(was_alive);
                self.moved.iter_mut().for_each(|moved| moved.push(*silo));
            }
            let votes = entry.map_or(&[][..], |e| &e.suspicions);
            let before = self.first_seen.remove(silo);
            if !votes.is_empty() {
                self.first_seen
                    .insert(*silo, sightings(votes, before.as_ref(), appeared));
            }
        }
        if let Some(lists) = lists {
            self.lists = lists;
        } else if changed.len() > MANY && changed.len() > self.lists.alive.len() / MANY {
            self.lists = Arc::new(Lists::of(rows));
        } else if !changed.is_empty() {
            let lists = Arc::make_mut(&mut self.lists);
            let mut is_lost = false;
            for silo in changed {
                is_lost |= lists.follow(*silo, alive(silo));
            }
            if is_lost {
                lists.find_leader(rows);
            }
        }
    }

    /// The lists, to be shared.
    pub(crate) const fn lists(&self) -> &Arc<Lists> {
        &self.lists
    }

    #[cfg(test)]
    pub(crate) fn lists_mut(&mut self) -> &mut Lists {
        Arc::make_mut(&mut self.lists)
    }

    /// The instance id of an alive silo.
    pub(crate) fn instance(&self, silo: &SiloAddress) -> Option<InstanceId> {
        self.alive
            .binary_search(silo)
            .ok()
            .and_then(|at| self.instances.get(at).copied())
    }

    /// When this silo saw a vote appear, if known.
    pub(crate) fn sighted(&self, suspect: &SiloAddress, vote: &Suspicion) -> Option<MonoTime> {
        let (at, when) = self.first_seen.get(suspect)?.get(&vote.accuser)?;
        when.filter(|_| *at == vote.at)
    }
}

fn sightings(
    votes: &[Suspicion],
    before: Option<&BTreeMap<SiloAddress, Sighting>>,
    appeared: Option<MonoTime>,
) -> BTreeMap<SiloAddress, Sighting> {
    let known = |vote: &Suspicion| {
        before
            .and_then(|b| b.get(&vote.accuser))
            .filter(|(at, _)| *at == vote.at)
            .copied()
    };
    votes
        .iter()
        .map(|vote| (vote.accuser, known(vote).unwrap_or((vote.at, appeared))))
        .collect()
}

/// Inserts a silo into a sorted list, or removes it.
fn set(list: &mut Vec<SiloAddress>, silo: SiloAddress, is_in: bool) {
    match (list.binary_search(&silo), is_in) {
        (Err(at), true) => list.insert(at, silo),
        (Ok(at), false) => drop(list.remove(at)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::{Evidence, MembershipEntry, Row, SuspicionReason};

    fn silo(n: usize) -> SiloAddress {
        SiloAddress::new([10, 0, 0, 1].into(), u16::try_from(n).unwrap() + 1, 1)
    }

    fn below(rng: &mut Xoshiro256PlusPlus, n: usize) -> usize {
        usize::try_from(rng.next_u64() % n as u64).unwrap()
    }

    fn row(n: usize, rng: &mut Xoshiro256PlusPlus) -> Row {
        let mut entry = MembershipEntry::new(
            silo(n),
            InstanceId::new(rng.next_u64().into()),
            WallTime::default(),
        );
        entry.status = [
            SiloStatus::Joining,
            SiloStatus::Active,
            SiloStatus::ShuttingDown,
            SiloStatus::Dead,
        ][below(rng, 4)];
        entry.active_since = (below(rng, 4) > 0).then(|| below(rng, 9) as u64);
        for _ in 0..below(rng, 3) {
            let (accuser, at) = (
                silo(below(rng, 8)),
                WallTime::from_millis(below(rng, 3) as u64),
            );
            entry.suspicions.push(Suspicion::new(
                accuser,
                at,
                SuspicionReason::Silent,
                Evidence::default(),
            ));
        }
        Row::encode(entry)
    }

    #[test]
    fn following_changes_equals_a_rebuild() {
        let rng = &mut Xoshiro256PlusPlus::seed_from_u64(3);
        let (mut rows, mut followed) = (Rows::new(), Members::default());
        for step in 0..2_000 {
            let mut looked_at = Members {
                first_seen: followed.first_seen.clone(),
                ..Members::default()
            };
            let changed: Vec<usize> = (0..below(rng, 4)).map(|_| below(rng, 40)).collect();
            for n in &changed {
                if below(rng, 5) == 0 {
                    rows.remove(&silo(*n).row_key());
                } else {
                    rows.insert(row(*n, rng));
                }
            }
            let appeared = Some(MonoTime::from_nanos(step));
            let looked_at_by_others = below(rng, 3) == 0;
            let changed: Vec<SiloAddress> = changed.into_iter().map(silo).collect();
            let made = looked_at_by_others.then(|| Arc::new(Lists::of(&rows)));
            followed.follow(&rows, &changed, appeared, made.clone());
            looked_at.rebuild(&rows, appeared, made);
            looked_at.losses = followed.losses;
            looked_at.moved.clone_from(&followed.moved);
            assert_eq!(followed, looked_at, "step {step}");
        }
        assert!(followed.losses > 100);
    }
}
