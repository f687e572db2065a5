//! The check sets of many silos of one version: the same as [`check_set`](super::check_set::check_set) of
//! each. That one looks at everything that is known of every row; where hundreds become Active in one
//! commit, what they have in common is found once.

use std::collections::{BTreeMap, BTreeSet};

use super::check_set::{Drawn, OF_A_ZONE, OF_SUBNETS, OLDEST, RINGS, SAMPLE, subnet};
use crate::model::place::{on_ring, place};
use crate::{Rows, SiloAddress, SiloStatus};

/// One that was drawn: its number, and its place in the order of addresses.
type Pick = (u64, usize);

/// The first picks of a zone, or of a subnet in one.
type First = [Option<Pick>; OF_A_ZONE];

/// Keeps a pick, if it is among the first.
fn keep(first: &mut First, pick: Pick) {
    let mut pick = pick;
    for slot in first {
        match slot {
            Some(kept) if *kept <= pick => {}
            Some(kept) => std::mem::swap(kept, &mut pick),
            None => {
                *slot = Some(pick);
                return;
            }
        }
    }
}

#[derive(Debug)]
struct Member {
    silo: SiloAddress,
    place: u64,
    zone: usize,
    /// Among the subnets of all zones.
    subnet: usize,
}

/// The silos of one version that are Active or Joining, as check sets are chosen from them.
#[derive(Debug)]
pub(super) struct CheckSets {
    /// By address.
    members: Vec<Member>,
    zones: usize,
    subnets: usize,
    /// All members, by their places on each ring.
    rings: Vec<Vec<Pick>>,
    /// Those that became Active before the commit, the oldest first: a few more than are checked,
    /// because those at a silo's own endpoint do not count.
    oldest: Vec<Drawn>,
}

impl CheckSets {
    /// For a commit that makes this version: whoever becomes Active with it is not among the oldest.
    pub(super) fn of(rows: &Rows, version: u64) -> Self {
        let (mut zones, mut subnets) = (BTreeMap::new(), BTreeMap::new());
        let (mut members, mut oldest) = (Vec::new(), Vec::new());
        for entry in rows.entries() {
            if !matches!(entry.status, SiloStatus::Active | SiloStatus::Joining) {
                continue;
            }
            let silo = entry.address;
            let next = zones.len();
            let zone = *zones.entry(entry.info.zone.as_str()).or_insert(next);
            let next = subnets.len();
            let subnet = *subnets.entry((zone, subnet(&silo))).or_insert(next);
            members.push(Member {
                silo,
                place: place(&silo),
                zone,
                subnet,
            });
            let since = entry.active_since;
            if entry.status == SiloStatus::Active && since.is_none_or(|at| at < version) {
                oldest.push((since.unwrap_or(u64::MAX), silo));
            }
        }
        members.sort_unstable_by_key(|member| member.silo);
        oldest.sort_unstable();
        let ring = |ring: usize| {
            let places = members.iter().enumerate();
            let places = places.map(|(at, m)| (on_ring(m.place, ring as u64), at));
            let mut places: Vec<Pick> = places.collect();
            places.sort_unstable();
            places
        };
        Self {
            rings: (0..RINGS).map(ring).collect(),
            members,
            zones: zones.len(),
            subnets: subnets.len(),
            oldest,
        }
    }

    /// The check set of a silo; `None` = everybody, because there are at most `limit`.
    pub(super) fn set(&self, silo: &SiloAddress, limit: usize) -> Option<BTreeSet<SiloAddress>> {
        let counts = |other: &SiloAddress| !other.same_endpoint(silo);
        let mine = place(silo);
        let mut zones: Vec<First> = vec![First::default(); self.zones];
        let mut subnets: Vec<First> = vec![First::default(); self.subnets];
        let mut sample: Vec<Pick> = Vec::with_capacity(self.members.len());
        for (at, member) in self.members.iter().enumerate() {
            if counts(&member.silo) {
                let pick = (on_ring(member.place, mine | 1), at);
                sample.push(pick);
                keep(&mut zones[member.zone], pick);
                keep(&mut subnets[member.subnet], pick);
            }
        }
        if sample.len() <= limit {
            return None;
        }
        if sample.len() > SAMPLE {
            sample.select_nth_unstable(SAMPLE);
            sample.truncate(SAMPLE);
        }
        let mut of_subnets: Vec<Pick> = subnets.into_iter().flatten().flatten().collect();
        of_subnets.sort_unstable();
        of_subnets.truncate(OF_SUBNETS);
        let zones = zones.into_iter().flatten().flatten();
        let picks = zones.chain(of_subnets).chain(sample);
        let near = (0..).zip(&self.rings).flat_map(|(ring, places)| {
            let (before, after) =
                places.split_at(places.partition_point(|(place, _)| *place < on_ring(mine, ring)));
            let is_other = |(_, at): &&Pick| counts(&self.members[*at].silo);
            let next = after.iter().chain(before).find(is_other);
            let last = before.iter().rev().chain(after.iter().rev()).find(is_other);
            [next, last].into_iter().flatten().copied()
        });
        let picked = picks.chain(near).map(|(_, at)| self.members[at].silo);
        let oldest = self.oldest.iter().map(|(_, silo)| *silo).filter(counts);
        Some(picked.chain(oldest.take(OLDEST)).collect())
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::super::check_set::check_set_before;
    use super::*;
    use crate::{InstanceId, MembershipEntry, Row, WallTime};

    #[test]
    fn they_are_those_of_each_silo_by_itself() {
        let rng = &mut Xoshiro256PlusPlus::seed_from_u64(7);
        for round in 0..40_u64 {
            let mut below = |n: u64| rng.next_u64() % n;
            let (mut rows, mut silos) = (Rows::new(), Vec::new());
            let (subnets, zones) = (1 + below(40), 1 + below(4));
            for n in 0..3 + below(300) {
                let byte = |n: u64| u8::try_from(n).unwrap();
                let ip = match round % 3 {
                    0 => [0xfd00, 0, 0, u16::from(byte(below(subnets))), 0, 0, 0, 1].into(),
                    _ => std::net::IpAddr::from([10, 0, byte(below(subnets)), byte(n % 200)]),
                };
                // Some endpoints have several rows.
                let silo = SiloAddress::new(ip, 7100 + u16::from(byte(below(50))), 1 + below(2));
                let mut entry = MembershipEntry::new(
                    silo,
                    InstanceId::new(u128::from(n)),
                    WallTime::from_millis(1),
                );
                entry.info.zone = format!("z{}", below(zones));
                entry.status = match below(8) {
                    0 => SiloStatus::Dead,
                    1..=3 => SiloStatus::Joining,
                    _ => SiloStatus::Active,
                };
                entry.active_since = (below(9) > 0).then(|| below(12));
                rows.insert(Row::encode(entry));
                silos.push(silo);
            }
            silos.push(SiloAddress::new([10, 9, 9, 9].into(), 1, 1));
            let (version, limit) = (below(14), usize::try_from(below(20)).unwrap());
            let sets = CheckSets::of(&rows, version);
            for silo in silos {
                let alone = check_set_before(&rows, &silo, limit, version);
                assert_eq!(sets.set(&silo, limit), alone, "{round} {silo}");
            }
        }
    }
}
