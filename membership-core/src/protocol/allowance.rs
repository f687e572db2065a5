//! What the roll calls of one caller may make this silo do: each call and each suspect that has to be
//! probed costs one of its allowance, which grows again with time. A caller that names everybody again
//! and again gets *unknown* for an answer, then none, and no probes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{MonoTime, SiloAddress};

/// How many suspects a caller may have probed at once: a few, and all silos so many times. A call
/// about silos that crashed together has each of them probed up to three times.
const FEW: u32 = 64;
/// See [`FEW`].
const TIMES: u32 = 4;
/// The time in which one of them grows again.
const PRICE: Duration = Duration::from_secs(1);

/// The callers of roll calls, each with when its probes will be paid for.
#[derive(Debug, Default)]
pub(crate) struct Allowance(BTreeMap<SiloAddress, MonoTime>);

impl Allowance {
    /// Takes one probe from a caller's allowance; false = nothing is left of it.
    pub(crate) fn take(&mut self, now: MonoTime, caller: SiloAddress, silos: usize) -> bool {
        let silos = u32::try_from(silos).unwrap_or(u32::MAX);
        let most = silos.saturating_mul(TIMES).saturating_add(FEW);

        self.0.retain(|_, until| *until > now);
        let most = now + PRICE.saturating_mul(most);
        // What was asked in a larger cluster, most of which has died since, is not held against it.
        let owes = self.0.get(&caller).copied().unwrap_or(now).min(most);
        let left = owes + PRICE <= most;
        self.0
            .insert(caller, if left { owes + PRICE } else { owes });
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_has_so_many_probes_and_then_one_in_a_second() {
        let silo = |n| SiloAddress::new([10, 0, 0, n].into(), 7100, 1);
        let at = |ms| MonoTime::ZERO + Duration::from_millis(ms);
        let mut allowance = Allowance::default();
        let all = (0..2_000).filter(|_| allowance.take(at(0), silo(1), 100));
        assert_eq!(all.count(), 464);
        assert!(!allowance.take(at(999), silo(1), 100));
        assert!(allowance.take(at(1_000), silo(1), 100));
        assert!(!allowance.take(at(1_000), silo(1), 100));
        assert!(allowance.take(at(0), silo(2), 100), "each has its own");
        // All but four have died.
        assert!(!allowance.take(at(1_000), silo(1), 4));
        assert!(allowance.take(at(2_000), silo(1), 4));
        assert!(!allowance.take(at(2_500), silo(1), 4));
    }
}
