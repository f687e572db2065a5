//! Which silos a joining one must reach in a large cluster, instead of all: its neighbours on the
//! probe rings, the oldest Active ones, some of each zone and of each subnet in it, and a sample. The set follows from the
//! rows, so that whoever applies an activation can verify it, and it hardly moves as silos become
//! Active: it is drawn from the Joining silos, too. Invariant P9.
//!
//! [`Checks`] follows the rows from one version to the next: it costs one look at each row that has
//! changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::model::place::{on_ring, place};
use crate::{MembershipEntry, Rows, SiloAddress, SiloStatus};

/// Rings on which both neighbours are checked.
pub(super) const RINGS: usize = 10;
/// How many of the oldest Active silos are checked.
pub(super) const OLDEST: usize = 3;
/// How many silos are drawn from all.
pub(super) const SAMPLE: usize = 64;
/// How many are drawn from each zone, and from each subnet in a zone.
pub(super) const OF_A_ZONE: usize = 2;
/// How many are drawn at most because of their subnets: where each machine has a subnet of its own, the
/// sample is as good.
pub(super) const OF_SUBNETS: usize = 128;

/// The silos, Active or Joining, that `silo` must reach before it becomes Active; `None` = everybody,
/// because there are at most `limit`.
#[must_use]
pub fn check_set(rows: &Rows, silo: &SiloAddress, limit: usize) -> Option<BTreeSet<SiloAddress>> {
    check_set_before(rows, silo, limit, u64::MAX)
}

/// The same for a commit that makes this version: whoever becomes Active with it is not among the oldest.
/// Nobody who comes along could have met them.
pub(super) fn check_set_before(
    rows: &Rows,
    silo: &SiloAddress,
    limit: usize,
    version: u64,
) -> Option<BTreeSet<SiloAddress>> {
    if rows.len() <= limit {
        return None;
    }
    Checks::before(rows, silo, version).set(limit)
}

/// A silo with a number by which it is chosen: the smallest are. Those of equal numbers are chosen by
/// address.
pub(super) type Drawn = (u64, SiloAddress);

/// The first few of what was drawn.
#[derive(Clone, Debug, Default)]
struct First(Vec<Drawn>);

impl First {
    fn add(&mut self, drawn: Drawn, most: usize) {
        if self.0.len() == most && self.0.last().is_some_and(|last| *last <= drawn) {
            return;
        }
        let at = self.0.partition_point(|other| *other < drawn);
        self.0.insert(at, drawn);
        self.0.truncate(most);
    }

    fn has(&self, silo: &SiloAddress) -> bool {
        self.0.iter().any(|(_, s)| s == silo)
    }
}

/// What was drawn from one zone.
#[derive(Clone, Debug, Default)]
struct Zone {
    first: First,
    subnets: BTreeMap<u64, First>,
}

/// The check set of one silo, as of one version of the rows.
#[derive(Clone, Debug)]
pub(crate) struct Checks {
    silo: SiloAddress,
    /// Its place.
    mine: u64,
    rows: Rows,
    /// How many are Active or Joining, besides those at its own endpoint.
    count: usize,
    /// On each ring, the next one after it and the last one before it, with their distances after it.
    near: [Option<(Drawn, Drawn)>; RINGS],
    sample: First,
    zones: BTreeMap<String, Zone>,
    /// By the version at which they became Active, if before this one.
    oldest: First,
    version: u64,
}

impl Checks {
    pub(crate) fn of(rows: &Rows, silo: &SiloAddress) -> Self {
        Self::before(rows, silo, u64::MAX)
    }

    fn before(rows: &Rows, silo: &SiloAddress, version: u64) -> Self {
        let mut checks = Self {
            silo: *silo,
            mine: place(silo),
            rows: rows.clone(),
            count: 0,
            near: [None; RINGS],
            sample: First::default(),
            zones: BTreeMap::new(),
            oldest: First::default(),
            version,
        };
        for entry in rows.entries() {
            if checks.counts(entry) {
                checks.add(entry);
            }
        }
        checks
    }

    /// Follows the rows to another version.
    pub(crate) fn follow(&mut self, rows: &Rows) {
        let followed = rows
            .changed_since(&self.rows)
            .is_some_and(|changed| changed.iter().all(|silo| self.follow_one(silo, rows)));
        if followed {
            self.rows = rows.clone();
        } else {
            *self = Self::before(rows, &self.silo, self.version);
        }
    }

    /// Follows one row. Returns false if others may take its place now.
    fn follow_one(&mut self, silo: &SiloAddress, rows: &Rows) -> bool {
        let before = self.rows.get(silo).filter(|e| self.counts(e)).cloned();
        let now = rows.get(silo).filter(|e| self.counts(e));
        match (before, now) {
            (None, None) => true,
            (None, Some(now)) => {
                self.add(now);
                true
            }
            (Some(_), None) => {
                self.count = self.count.saturating_sub(1);
                !self.has(silo)
            }
            (Some(before), Some(now)) => {
                let age = |e: &MembershipEntry| (e.status, e.active_since);
                if age(&before) != age(now) {
                    if self.oldest.has(silo) {
                        return false;
                    }
                    self.age(now);
                }
                before.info.zone == now.info.zone
            }
        }
    }

    fn counts(&self, entry: &MembershipEntry) -> bool {
        matches!(entry.status, SiloStatus::Active | SiloStatus::Joining)
            && !entry.address.same_endpoint(&self.silo)
    }

    fn has(&self, silo: &SiloAddress) -> bool {
        let is_near = |(next, last): &(Drawn, Drawn)| next.1 == *silo || last.1 == *silo;
        self.near.iter().flatten().any(is_near)
            || self.sample.has(silo)
            || self.oldest.has(silo)
            || self.zones.values().any(|zone| {
                let subnet = zone.subnets.get(&subnet(silo));
                zone.first.has(silo) || subnet.is_some_and(|first| first.has(silo))
            })
    }

    fn add(&mut self, entry: &MembershipEntry) {
        let silo = entry.address;
        let its = place(&silo);
        self.count += 1;
        for (ring, near) in (0..).zip(&mut self.near) {
            let distance = on_ring(its, ring).wrapping_sub(on_ring(self.mine, ring));
            let drawn = (distance, silo);
            match near {
                Some((next, last)) => {
                    if drawn < *next {
                        *next = drawn;
                    }
                    if drawn > *last {
                        *last = drawn;
                    }
                }
                None => *near = Some((drawn, drawn)),
            }
        }
        let drawn = (on_ring(its, self.mine | 1), silo);
        self.sample.add(drawn, SAMPLE);
        let name = entry.info.zone.as_str();
        let zone = match self.zones.get_mut(name) {
            Some(zone) => zone,
            None => self.zones.entry(name.to_owned()).or_default(),
        };
        zone.first.add(drawn, OF_A_ZONE);
        let subnet = zone.subnets.entry(subnet(&silo)).or_default();
        subnet.add(drawn, OF_A_ZONE);
        self.age(entry);
    }

    fn age(&mut self, entry: &MembershipEntry) {
        let since = entry.active_since;
        if entry.status == SiloStatus::Active && since.is_none_or(|at| at < self.version) {
            let since = since.unwrap_or(u64::MAX);
            self.oldest.add((since, entry.address), OLDEST);
        }
    }

    /// The set; `None` = everybody, because there are at most `limit`.
    pub(crate) fn set(&self, limit: usize) -> Option<BTreeSet<SiloAddress>> {
        if self.count <= limit {
            return None;
        }
        let zones = self.zones.values();
        let subnets = zones.clone().flat_map(|zone| zone.subnets.values());
        let mut of_subnets: Vec<&Drawn> = subnets.flat_map(|first| &first.0).collect();
        of_subnets.sort_unstable();
        let mut set: BTreeSet<SiloAddress> = self
            .near
            .iter()
            .flatten()
            .flat_map(|(next, last)| [next.1, last.1])
            .collect();
        let drawn = zones
            .flat_map(|zone| &zone.first.0)
            .chain(of_subnets.into_iter().take(OF_SUBNETS))
            .chain(&self.sample.0)
            .chain(&self.oldest.0);
        set.extend(drawn.map(|(_, silo)| *silo));
        Some(set)
    }
}

/// The subnet of a silo: the first 24 bits of an IPv4 address, the first 64 of an IPv6 address.
pub(super) fn subnet(silo: &SiloAddress) -> u64 {
    match silo.ip() {
        IpAddr::V4(ip) => u64::from(ip.to_bits() >> 8),
        IpAddr::V6(ip) => u64::try_from(ip.to_bits() >> 64).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::{InstanceId, Row, WallTime};

    fn entry(n: u32, active: bool) -> MembershipEntry {
        let [_, a, b, c] = n.to_be_bytes();
        let silo = SiloAddress::new([10, a, b, c].into(), 7100, 1);
        let mut entry = MembershipEntry::new(
            silo,
            InstanceId::new(u128::from(n)),
            WallTime::from_millis(1),
        );
        if active {
            entry.status = SiloStatus::Active;
            entry.active_since = Some(u64::from(n));
        }
        entry.info.zone = format!("z{}", n % 3);
        entry
    }

    fn rows(active: u32, joining: u32) -> Rows {
        let all = (1..=active + joining).map(|n| Row::encode(entry(n, n <= active)));
        let mut rows = Rows::new();
        all.for_each(|row| rows.insert(row));
        rows
    }

    #[test]
    fn few_silos_check_everybody() {
        let silo = entry(1, true).address;
        assert_eq!(check_set(&rows(200, 56), &silo, 256), None);
        assert!(check_set(&rows(200, 58), &silo, 256).is_some());
    }

    #[test]
    fn the_set_is_small_and_hardly_moves_as_silos_become_active() {
        let silo = entry(2_000, false).address;
        let before = check_set(&rows(100, 1_900), &silo, 256).unwrap();
        let after = check_set(&rows(1_000, 1_000), &silo, 256).unwrap();
        let subnets = 3 * 2_000_usize.div_ceil(256);
        assert!(before.len() <= 20 + OLDEST + SAMPLE + (3 + subnets) * OF_A_ZONE);
        assert!(before.len() >= SAMPLE && before == after);
        for n in 1..=3 {
            assert!(before.contains(&entry(n, true).address), "the oldest");
        }
        let more = check_set(&rows(1_000, 1_100), &silo, 256).unwrap();
        assert!(more.difference(&before).count() <= 20);
    }

    #[test]
    fn those_of_the_same_commit_are_not_among_the_oldest() {
        let (rows, silo) = (rows(10, 1_990), entry(2_000, false).address);
        let set = |version| check_set_before(&rows, &silo, 256, version).unwrap();
        let third = entry(3, true).address;
        assert!(set(4).contains(&third) && !set(3).contains(&third));
        assert_eq!(set(11), check_set(&rows, &silo, 256).unwrap());
    }

    #[test]
    fn a_subnet_that_is_cut_off_is_met_in_each_zone() {
        let mut rows = rows(2_000, 0);
        let apart = |n: u16| [0xfd00, 0, 0, 7, 0, 0, 0, n];
        for n in 1..=3 {
            let mut one = entry(3_000 + u32::from(n), true);
            one.address = SiloAddress::new(apart(n).into(), 7100, 1);
            one.info.zone = "z1".to_owned();
            rows.insert(Row::encode(one));
        }
        for n in 1..=200 {
            let silo = entry(n, true).address;
            let set = check_set(&rows, &silo, 256).unwrap();
            let there = set.iter().filter(|s| s.ip().is_ipv6()).count();
            assert!(there >= OF_A_ZONE, "{there}");
            // 2,000 addresses in a row are in eight subnets, and three zones.
            for (zone, third) in (0..3).flat_map(|z| (0..8).map(move |third| (z, third))) {
                let is_there = |s: &&SiloAddress| {
                    let IpAddr::V4(ip) = s.ip() else { return false };
                    ip.octets()[2] == third && rows.get(s).unwrap().info.zone == format!("z{zone}")
                };
                assert!(set.iter().filter(is_there).count() >= OF_A_ZONE);
            }
        }
    }

    #[test]
    fn many_subnets_do_not_make_the_set_large() {
        let mut rows = Rows::new();
        for n in 1..=3_000_u32 {
            let mut one = entry(n, true);
            let [_, a, b, c] = n.to_be_bytes();
            one.address = SiloAddress::new([10, b, c, a].into(), 7100, 1);
            rows.insert(Row::encode(one));
        }
        let set = check_set(&rows, &entry(5_000, false).address, 256).unwrap();
        let most = 20 + OLDEST + SAMPLE + 3 * OF_A_ZONE + OF_SUBNETS;
        assert!(set.len() <= most, "{}", set.len());
    }

    #[test]
    fn a_zone_that_is_cut_off_is_met() {
        let rows = rows(2_000, 0);
        for n in 1..=200 {
            let silo = entry(n, true).address;
            let set = check_set(&rows, &silo, 256).unwrap();
            let zone = |z: u32| {
                set.iter()
                    .filter(|s| rows.get(s).unwrap().info.zone == format!("z{z}"))
                    .count()
            };
            assert!((0..3).all(|z| zone(z) >= OF_A_ZONE));
        }
    }

    #[test]
    fn following_the_rows_gives_the_set_of_the_last_ones() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut below = move |n: u32| u32::try_from(rng.next_u64() % u64::from(n)).unwrap();
        let silo = entry(2_000, false).address;
        let mut rows = rows(40, 40);
        rows.seal();
        let mut checks = Checks::of(&rows, &silo);
        let mut anew = 0;
        for step in 0..600_u32 {
            for _ in 0..below(4) {
                let n = 1 + below(600);
                let old = rows.get(&entry(n, false).address).cloned();
                match (old, below(40)) {
                    (Some(old), 0) => drop(rows.remove(&old.address.row_key())),
                    (old, kind) => {
                        let mut new = old.unwrap_or_else(|| entry(n, false));
                        if kind == 1 {
                            new.info.zone = format!("z{}", below(5));
                        } else if kind == 2 {
                            new.status = SiloStatus::Dead;
                        } else if kind > 20 && new.status == SiloStatus::Joining {
                            new.status = SiloStatus::Active;
                            new.active_since = Some(u64::from(step));
                        }
                        rows.insert(Row::encode(new));
                    }
                }
            }
            rows.seal();
            let known = rows.changed_since(&checks.rows).is_some();
            anew += usize::from(!known);
            checks.follow(&rows);
            let fresh = Checks::of(&rows, &silo);
            assert_eq!(checks.set(64), fresh.set(64), "step {step}");
            assert_eq!(checks.count, fresh.count, "step {step}");
        }
        assert_eq!(anew, 0);
        assert!(checks.count > 200, "{}", checks.count);
    }
}
