//! Chooses which silos to probe: one successor on each of several seeded hash rings. The union of
//! the rings is an expander graph (as in Rapid, ATC 2018): several silos watch each silo, and the
//! work per silo does not grow with the cluster.

use std::collections::{BTreeSet, BinaryHeap};

use super::members::Members;
use crate::SiloAddress;
use crate::model::place::{on_ring, place};

/// The place of a silo on ring 0. All who know a silo agree on it; silos are ordered by place, then by
/// address.
#[must_use]
pub fn ring_place(silo: &SiloAddress) -> u64 {
    on_ring(place(silo), 0)
}

/// The number of silos to probe, and whether all are successors on one ring instead of on one ring
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rings {
    pub(crate) silos: u32,
    pub(crate) one: bool,
}

impl Rings {
    /// For each silo to probe, the number of the ring that it is chosen on.
    fn numbers(self) -> impl Iterator<Item = u64> {
        (0..u64::from(self.silos)).map(move |ring| if self.one { 0 } else { ring })
    }
}

/// The silos that `me` probes by ring order: on each of `rings` rings the first silo after `me`
/// that no earlier ring has chosen. Costs one pass per ring over the places of `silos`: eight bytes
/// each, so that those of a large cluster fit into the CPU cache.
#[must_use]
pub fn successors(me: &SiloAddress, silos: &[SiloAddress], rings: u32) -> Vec<SiloAddress> {
    let places: Vec<u64> = silos.iter().map(place).collect();
    choose(
        me,
        silos,
        &places,
        Rings {
            silos: rings,
            one: false,
        },
    )
    .into_iter()
    .map(|(_, silo)| silo)
    .collect()
}

/// For each ring, the distance to the chosen silo and that silo.
fn choose(
    me: &SiloAddress,
    silos: &[SiloAddress],
    places: &[u64],
    rings: Rings,
) -> Vec<(u64, SiloAddress)> {
    let mine = place(me);
    let mut chosen: Vec<(u64, usize)> = Vec::new();
    for ring in rings.numbers() {
        let start = on_ring(mine, ring);
        let mut best: Option<(u64, usize)> = None;
        for (i, place) in places.iter().enumerate() {
            let distance = on_ring(*place, ring).wrapping_sub(start);
            let closer = best.is_none_or(|(least, at)| {
                distance < least || (distance == least && silos[i] < silos[at])
            });
            // The most expensive condition comes last, because few silos are closer than all before
            // them.
            if closer && silos[i] != *me && !chosen.iter().any(|(_, c)| *c == i) {
                best = Some((distance, i));
            }
        }
        match best {
            Some(next) => chosen.push(next),
            None => break,
        }
    }
    chosen
        .into_iter()
        .map(|(distance, i)| (distance, silos[i]))
        .collect()
}

/// The silos that probe this one by ring order, or nearly so: the last one before it on each of `rings`
/// rings. Costs as much as [`successors`].
pub(crate) fn watchers(
    silo: &SiloAddress,
    silos: &[SiloAddress],
    places: &[u64],
    rings: Rings,
) -> BTreeSet<SiloAddress> {
    let its = place(silo);
    let last = |ring: u64| {
        let end = on_ring(its, ring);
        let others = silos.iter().zip(places).filter(|(other, _)| *other != silo);
        let distance = |place: u64| end.wrapping_sub(on_ring(place, ring));
        others.min_by_key(|(_, place)| distance(**place))
    };
    let last = rings.numbers().filter_map(last);
    last.map(|(watcher, _)| *watcher).collect()
}

/// The silos that this silo probes by ring order, updated as the cluster changes. A new silo
/// matters only if on some ring it is at most as far as the chosen one; a silo that is gone matters
/// only if it was chosen.
#[derive(Debug, Default)]
pub(crate) struct Successors {
    /// The silo and the rings that the choice is for.
    of: Option<(SiloAddress, Rings)>,
    /// For each ring, the distance to the chosen silo and that silo.
    chosen: Vec<(u64, SiloAddress)>,
}

impl Successors {
    /// Updates the choice after the silos in `moved` came or went; none: unknown, any silo may
    /// have.
    pub(crate) fn follow(
        &mut self,
        me: SiloAddress,
        members: &Members,
        moved: Option<&[SiloAddress]>,
        rings: Rings,
    ) {
        let known = self.of == Some((me, rings));
        if !known
            || moved.is_none_or(|moved| {
                moved
                    .iter()
                    .any(|silo| self.matters(&me, members, silo, rings))
            })
        {
            self.of = Some((me, rings));
            self.chosen = choose(&me, &members.alive, &members.places, rings);
        }
    }

    fn matters(
        &self,
        me: &SiloAddress,
        members: &Members,
        silo: &SiloAddress,
        rings: Rings,
    ) -> bool {
        if silo == me {
            return false;
        }
        if members.alive.binary_search(silo).is_err() {
            return self.chosen.iter().any(|(_, chosen)| chosen == silo);
        }
        let (mine, its) = (place(me), place(silo));
        let closer = |(ring, (distance, _)): (u64, &(u64, SiloAddress))| {
            on_ring(its, ring).wrapping_sub(on_ring(mine, ring)) <= *distance
        };
        self.chosen.len() < rings.silos as usize || rings.numbers().zip(&self.chosen).any(closer)
    }

    /// The chosen silos.
    pub(crate) fn silos(&self) -> impl Iterator<Item = SiloAddress> {
        self.chosen.iter().map(|(_, silo)| *silo)
    }
}

/// The silos that one of many probers probes for all of them: those after which it is among the first
/// few probers on ring 0. This divides work on many silos evenly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    mine: u64,
    /// How far back this prober is among the first; none: it is for every silo.
    reach: Option<u64>,
}

impl Share {
    /// The share of `me` where the first `share` of `probers` after each silo probe it. Costs one pass
    /// over the probers.
    pub(crate) fn of<'a>(
        me: &SiloAddress,
        probers: impl Iterator<Item = &'a SiloAddress>,
        share: usize,
    ) -> Self {
        let mine = on_ring(place(me), 0);
        // The distances of the nearest probers before this one, the largest first.
        let (mut nearest, mut count) = (BinaryHeap::with_capacity(share + 1), 0);
        for prober in probers {
            count += 1;
            let back = mine.wrapping_sub(on_ring(place(prober), 0));
            if prober != me && (back > 0 || prober < me) {
                nearest.push(back);
                if nearest.len() > share {
                    nearest.pop();
                }
            }
        }
        let is_full = count > share && nearest.len() == share;
        let reach = nearest.peek().copied().filter(|_| is_full);
        Self { mine, reach }
    }

    pub(crate) fn is_mine(&self, silo: &SiloAddress) -> bool {
        let back = self.mine.wrapping_sub(on_ring(place(silo), 0));
        self.reach.is_none_or(|reach| back < reach)
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn silos(n: u16) -> Vec<SiloAddress> {
        (0..n)
            .map(|i| SiloAddress::new([10, 0, 0, 1].into(), i + 1, 1))
            .collect()
    }

    #[test]
    fn watchers_are_those_whose_successor_a_silo_is() {
        let all = silos(200);
        let places: Vec<u64> = all.iter().map(place).collect();
        for one in &all[..20] {
            let rings = Rings {
                silos: 10,
                one: false,
            };
            let watchers = watchers(one, &all, &places, rings);
            let probes = |other: &&SiloAddress| successors(other, &all, 10).contains(one);
            let by: BTreeSet<_> = all.iter().filter(probes).copied().collect();
            // A ring on which both are neighbours again has another successor.
            assert!(
                watchers.intersection(&by).count() >= 8,
                "{watchers:?} {by:?}"
            );
        }
    }

    #[test]
    fn in_small_clusters_each_silo_probes_all_others() {
        let all = silos(11);
        for me in &all {
            assert_eq!(successors(me, &all, 10).len(), 10);
        }
        assert!(successors(&all[0], &all[..1], 10).is_empty());
    }

    #[test]
    fn each_silo_is_probed_by_several() {
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
        assert!(
            watchers.values().all(|n| (3..=30).contains(n)),
            "{watchers:?}"
        );
    }

    #[test]
    fn on_one_ring_a_silo_probes_its_neighbours() {
        let all = silos(300);
        let mut order: Vec<(u64, SiloAddress)> = all
            .iter()
            .map(|silo| (on_ring(place(silo), 0), *silo))
            .collect();
        order.sort_unstable();
        let after = |at: usize| order[(at + 1) % 300].1;
        let places: Vec<u64> = all.iter().map(place).collect();
        for (at, (_, me)) in order.iter().enumerate() {
            let chosen = choose(
                me,
                &all,
                &places,
                Rings {
                    silos: 3,
                    one: true,
                },
            );
            let chosen: Vec<SiloAddress> = chosen.into_iter().map(|(_, silo)| silo).collect();
            assert_eq!(chosen, [after(at), after(at + 1), after(at + 2)]);
        }
    }

    #[test]
    fn following_changes_chooses_the_same_silos_as_a_full_pass() {
        following(Rings {
            silos: 10,
            one: false,
        });
        following(Rings {
            silos: 10,
            one: true,
        });
    }

    fn following(rings: Rings) {
        let (all, mut rng) = (silos(60), Xoshiro256PlusPlus::seed_from_u64(5));
        let mut below = move |n: usize| usize::try_from(rng.next_u64() % n as u64).unwrap();
        let (mut members, mut kept, me) = (Members::default(), Successors::default(), all[0]);
        let mut counted = 0;
        for step in 0..3_000 {
            let moved: Vec<SiloAddress> = (0..below(3)).map(|_| all[below(all.len())]).collect();
            let lists = members.lists_mut();
            for silo in &moved {
                match lists.alive.binary_search(silo) {
                    Ok(at) => drop((lists.alive.remove(at), lists.places.remove(at))),
                    Err(at) => {
                        lists.alive.insert(at, *silo);
                        lists.places.insert(at, place(silo));
                    }
                }
            }
            let before = kept.chosen.clone();
            kept.follow(me, &members, Some(&moved), rings);
            counted += usize::from(kept.chosen == before);
            assert_eq!(
                kept.chosen,
                choose(&me, &members.alive, &members.places, rings),
                "step {step}"
            );
        }
        assert!((500..2_900).contains(&counted), "{counted}");
    }

    #[test]
    fn a_silo_is_in_the_share_of_the_first_probers_after_it() {
        for probers in [1, 2, 3, 4, 50] {
            let all = silos(probers);
            for port in 1..=40 {
                let silo = SiloAddress::new([10, 0, 0, 9].into(), port, 1);
                let start = on_ring(place(&silo), 0);
                let after = |p: &SiloAddress| (on_ring(place(p), 0).wrapping_sub(start), *p);
                let mut first = all.clone();
                first.sort_by_key(after);
                first.truncate(3);
                for me in &all {
                    let share = Share::of(me, all.iter(), 3);
                    assert_eq!(share.is_mine(&silo), first.contains(me), "{me} {silo}");
                }
            }
        }
    }
}
