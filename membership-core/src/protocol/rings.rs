//! Whom to probe: one successor on each of several seeded hash rings. The union is an expander graph (as in Rapid, ATC 2018), so that every
//! silo is watched by several others, and the work per silo does not grow with the cluster.

use xxhash_rust::xxh3::xxh3_64;

use crate::SiloAddress;

/// A silo's place on ring 0, from which the others are derived.
pub(crate) fn place(silo: &SiloAddress) -> u64 {
    let mut bytes = [0; 26];
    match silo.ip() {
        std::net::IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
        std::net::IpAddr::V6(ip) => bytes[..16].copy_from_slice(&ip.octets()),
    }
    bytes[16..18].copy_from_slice(&silo.port().to_le_bytes());
    bytes[18..].copy_from_slice(&silo.epoch().to_le_bytes());
    xxh3_64(&bytes)
}

/// The same silo's place on another ring: SplitMix64's finalizer over the place and the ring's number.
fn on_ring(place: u64, ring: u64) -> u64 {
    let mut x = place ^ ring.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The silos that `me` probes by ring order: on each of `rings` rings the first silo after me that no earlier ring gave.
/// Costs one pass over the places of `silos` per ring: eight bytes each, so that those of a large cluster still fit into the cache.
#[must_use]
pub fn successors(me: &SiloAddress, silos: &[SiloAddress], rings: u32) -> Vec<SiloAddress> {
    let places: Vec<u64> = silos.iter().map(place).collect();
    chosen(me, silos, &places, rings)
}

/// The same when the places of the silos are known already.
pub(crate) fn chosen(me: &SiloAddress, silos: &[SiloAddress], places: &[u64], rings: u32) -> Vec<SiloAddress> {
    let mine = place(me);
    let mut chosen = Vec::new();
    for ring in 0..u64::from(rings) {
        let start = on_ring(mine, ring);
        let mut best: Option<(u64, usize)> = None;
        for (i, place) in places.iter().enumerate() {
            let distance = on_ring(*place, ring).wrapping_sub(start);
            let closer = best.is_none_or(|(least, at)| distance < least || (distance == least && silos[i] < silos[at]));
            // Asked last, because few are closer than all before them.
            if closer && silos[i] != *me && !chosen.contains(&i) {
                best = Some((distance, i));
            }
        }
        match best {
            Some((_, i)) => chosen.push(i),
            None => break,
        }
    }
    chosen.into_iter().map(|i| silos[i]).collect()
}

/// Whether `me` is among the first `share` of `probers` after `silo` on ring 0: divides work on many silos evenly.
pub(crate) fn is_my_share(me: &SiloAddress, silo: &SiloAddress, probers: &[SiloAddress], share: usize) -> bool {
    if probers.len() <= share {
        return true;
    }
    let start = on_ring(place(silo), 0);
    let distance = |s: &SiloAddress| (on_ring(place(s), 0).wrapping_sub(start), *s);
    let mine = distance(me);
    probers.iter().filter(|p| distance(p) < mine).count() < share
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silos(n: u16) -> Vec<SiloAddress> {
        (0..n).map(|i| SiloAddress::new([10, 0, 0, 1].into(), i + 1, 1)).collect()
    }

    #[test]
    fn small_clusters_probe_everybody() {
        let all = silos(11);
        for me in &all {
            assert_eq!(successors(me, &all, 10).len(), 10);
        }
        assert!(successors(&all[0], &all[..1], 10).is_empty());
    }

    #[test]
    fn everybody_is_watched_by_several() {
        let all = silos(300);
        let mut watchers = std::collections::BTreeMap::new();
        for me in &all {
            let targets = successors(me, &all, 10);
            assert_eq!(targets.len(), 10);
            for t in targets {
                assert_ne!(t, *me);
                *watchers.entry(t).or_insert(0) += 1;
            }
        }
        assert_eq!(watchers.len(), 300);
        assert!(watchers.values().all(|n| (3..=30).contains(n)), "{watchers:?}");
    }

    #[test]
    fn a_share_is_about_as_large_as_asked() {
        let all = silos(50);
        let target = SiloAddress::new([10, 0, 0, 9].into(), 1, 1);
        assert_eq!(all.iter().filter(|me| is_my_share(me, &target, &all, 3)).count(), 3);
    }
}
