//! Since when each silo is Joining, as this one sees it. Whoever is for too long is stuck.

use std::sync::Arc;
use std::time::Duration;

use crate::{MonoTime, SiloAddress};

/// How many times may be kept that are none of a Joining silo any more.
const SPARE: usize = 256;

/// Since when this silo sees each silo Joining. The list is that of the view.
#[derive(Debug, Default)]
pub(super) struct Joining {
    silos: Arc<Vec<SiloAddress>>,
    /// Of each of them, which of the times it is: as many join at once, there are few.
    since: Vec<u32>,
    times: Vec<MonoTime>,
    /// The earliest of these times: nothing is checked until it is old enough.
    first: Option<MonoTime>,
}

impl Joining {
    /// Follows the list of the view at this time.
    pub(super) fn follow(&mut self, silos: &Arc<Vec<SiloAddress>>, now: MonoTime) {
        if Arc::ptr_eq(&self.silos, silos) {
            return;
        }
        let this = self.index(now);
        let mut before = self.silos.iter().zip(&self.since).peekable();
        let mut since = Vec::with_capacity(silos.len());
        for silo in silos.iter() {
            while before.next_if(|(s, _)| *s < silo).is_some() {}
            let known = before.next_if(|(s, _)| *s == silo);
            since.push(known.map_or(this, |(_, at)| *at));
        }
        (self.silos, self.since) = (silos.clone(), since);
        if self.times.len() > 2 * self.since.len() + SPARE {
            self.drop_unused();
        }
        self.find_first();
    }

    fn drop_unused(&mut self) {
        let mut used = self.since.clone();
        used.sort_unstable();
        used.dedup();
        for at in &mut self.since {
            let new = used.partition_point(|other| other < at);
            *at = u32::try_from(new).unwrap_or(u32::MAX);
        }
        self.times = used.into_iter().map(|at| self.time(at)).collect();
    }

    /// Everybody is seen since this time.
    pub(super) fn reset(&mut self, now: MonoTime) {
        self.times = vec![now];
        self.since.fill(0);
        self.find_first();
    }

    fn index(&mut self, now: MonoTime) -> u32 {
        if self.silos.is_empty() {
            self.times.clear();
        }
        if self.times.last() != Some(&now) {
            self.times.push(now);
        }
        u32::try_from(self.times.len() - 1).unwrap_or(u32::MAX)
    }

    fn time(&self, at: u32) -> MonoTime {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        self.times.get(at).copied().unwrap_or_default()
    }

    fn find_first(&mut self) {
        // The times rise.
        self.first = self.since.iter().min().map(|at| self.time(*at));
    }

    /// Those that have been seen for so long.
    pub(super) fn for_long(
        &self,
        now: MonoTime,
        limit: Duration,
    ) -> impl Iterator<Item = SiloAddress> {
        let any = self.first.is_some_and(|first| now.since(first) >= limit);
        let all = self.silos.iter().zip(&self.since).take_while(move |_| any);
        let long = all.filter(move |(_, at)| now.since(self.time(**at)) >= limit);
        long.map(|(silo, _)| *silo)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeMap;

    use rand_core::{Rng as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn silo(n: u64) -> SiloAddress {
        SiloAddress::new([10, 0, 0, 1].into(), 7100, n + 1)
    }

    #[test]
    fn each_silo_is_joining_since_it_was_first_seen() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut joining = Joining::default();
        let mut model: BTreeMap<SiloAddress, MonoTime> = BTreeMap::new();
        for step in 0..4_000_u64 {
            let now = MonoTime::ZERO + Duration::from_secs(step);
            match rng.next_u64() % 100 {
                0 => {
                    joining.reset(now);
                    model.values_mut().for_each(|since| *since = now);
                }
                1 => model.clear(),
                _ => {
                    let (first, joins) = (rng.next_u64() % 60, rng.next_u64() % 2 == 0);
                    for silo in (first..first + 3).map(silo) {
                        if joins {
                            model.entry(silo).or_insert(now);
                        } else {
                            model.remove(&silo);
                        }
                    }
                }
            }
            joining.follow(&Arc::new(model.keys().copied().collect()), now);
            let limit = Duration::from_secs(rng.next_u64() % 20);
            let long = model
                .iter()
                .filter(|(_, since)| now.since(**since) >= limit);
            let long: Vec<SiloAddress> = long.map(|(silo, _)| *silo).collect();
            let told: Vec<SiloAddress> = joining.for_long(now, limit).collect();
            assert_eq!(told, long, "step {step}");
            assert!(
                joining.times.len() <= 2 * model.len() + SPARE + 1,
                "step {step}"
            );
        }
    }
}
