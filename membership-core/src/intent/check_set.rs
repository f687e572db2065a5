//! Which silos a joining one must reach in a large cluster, instead of all: its neighbours on the
//! probe rings, the oldest Active ones, some of each zone and of each subnet in it, and a sample. The set follows from the
//! rows, so that whoever applies an activation can verify it, and it hardly moves as silos become
//! Active: it is drawn from the Joining silos, too. Invariant P9.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::model::place::{on_ring, place};
use crate::{MembershipEntry, Rows, SiloAddress, SiloStatus};

/// Rings on which both neighbours are checked.
const RINGS: u64 = 10;
/// How many of the oldest Active silos are checked.
const OLDEST: usize = 3;
/// How many silos are drawn from all.
const SAMPLE: usize = 64;
/// How many are drawn from each zone, and from each subnet in a zone.
const OF_A_ZONE: usize = 2;
/// How many are drawn at most because of their subnets: where each machine has a subnet of its own, the
/// sample is as good.
const OF_SUBNETS: usize = 128;

/// The silos, Active or Joining, that `silo` must reach before it becomes Active; `None` = everybody,
/// because there are at most `limit`.
#[must_use]
pub fn check_set(rows: &Rows, silo: &SiloAddress, limit: usize) -> Option<BTreeSet<SiloAddress>> {
    let counts = |e: &&MembershipEntry| {
        matches!(e.status, SiloStatus::Active | SiloStatus::Joining)
            && !e.address.same_endpoint(silo)
    };
    if rows.len() <= limit {
        return None;
    }
    let all: Vec<&MembershipEntry> = rows.entries().filter(counts).collect();
    if all.len() <= limit {
        return None;
    }
    let mine = place(silo);
    let places: Vec<u64> = all.iter().map(|e| place(&e.address)).collect();
    let mut set = BTreeSet::new();
    for ring in 0..RINGS {
        let start = on_ring(mine, ring);
        let distance = |i: &usize| on_ring(places[*i], ring).wrapping_sub(start);
        set.extend((0..all.len()).min_by_key(distance));
        set.extend((0..all.len()).max_by_key(distance));
    }
    let mut drawn: Vec<(u64, usize)> = places
        .iter()
        .enumerate()
        .map(|(i, place)| (on_ring(*place, mine | 1), i))
        .collect();
    drawn.sort_unstable();
    set.extend(drawn.iter().take(SAMPLE).map(|(_, i)| *i));
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    let mut subnets: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    let mut of_subnets = 0;
    for (_, i) in &drawn {
        let zone = all[*i].info.zone.as_str();
        let of_the_zone = zones.entry(zone).or_default();
        *of_the_zone += 1;
        let of_the_subnet = subnets.entry((zone, subnet(&all[*i].address))).or_default();
        *of_the_subnet += 1;
        let is_of_a_subnet = *of_the_subnet <= OF_A_ZONE && of_subnets < OF_SUBNETS;
        of_subnets += usize::from(is_of_a_subnet);
        if *of_the_zone <= OF_A_ZONE || is_of_a_subnet {
            set.insert(*i);
        }
    }
    let mut active: Vec<(u64, usize)> = all
        .iter()
        .enumerate()
        .filter(|(_, e)| e.status == SiloStatus::Active)
        .map(|(i, e)| (e.active_since.unwrap_or(u64::MAX), i))
        .collect();
    active.sort_unstable();
    set.extend(active.iter().take(OLDEST).map(|(_, i)| *i));
    Some(set.into_iter().map(|i| all[i].address).collect())
}

/// The subnet of a silo: the first 24 bits of an IPv4 address, the first 64 of an IPv6 address.
fn subnet(silo: &SiloAddress) -> u64 {
    match silo.ip() {
        IpAddr::V4(ip) => u64::from(ip.to_bits() >> 8),
        IpAddr::V6(ip) => u64::try_from(ip.to_bits() >> 64).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
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
}
