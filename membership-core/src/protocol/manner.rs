//! Where other protocols of this family do otherwise: knobs for comparisons in a virtual world. A silo of a cluster has none of them.

use std::time::Duration;

/// How a silo behaves beyond what its configuration says. The default is this protocol; [`Protocol::behaving`](super::Protocol::behaving)
/// takes another, so that an older protocol can be measured beside it. All silos of a world should have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Those to be probed are successors on one ring, and not one on each of several: accusers are neighbours of each other.
    pub one_ring: bool,
    /// The last probe before a vote goes through an intermediary, which may add a vote of its own.
    pub indirect_probes: bool,
    /// Before a vote a silo asks whether its side is the larger one.
    pub partition_checks: bool,
    /// A silo that feels sick accuses nobody and waits longer.
    pub self_monitoring: bool,
    /// An answer to anything else holds a vote back.
    pub evidence_of_life: bool,
    /// So many changes at most are written in one commit; at least 1.
    pub changes_per_commit: usize,
    /// After n conflicts in a row: evenly between the first, and the first plus the second times 2ⁿ, but at most the third. None: as
    /// [`conflict_backoff`](super::conflict_backoff) says.
    pub conflict_backoff: Option<[Duration; 3]>,
}

impl Manner {
    /// This protocol's own.
    pub const OWN: Self = Self {
        one_ring: false,
        indirect_probes: true,
        partition_checks: true,
        self_monitoring: true,
        evidence_of_life: true,
        changes_per_commit: usize::MAX,
        conflict_backoff: None,
    };

    /// The bounds of the wait after so many conflicts in a row, if they are not this protocol's own.
    pub(crate) fn backoff(&self, conflicts: u32) -> Option<(Duration, Duration)> {
        let [least, step, most] = self.conflict_backoff?;
        Some((
            least,
            least
                .saturating_add(step.saturating_mul(2u32.saturating_pow(conflicts)))
                .min(most)
                .max(least),
        ))
    }
}

impl Default for Manner {
    fn default() -> Self {
        Self::OWN
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::protocol::Protocol;
    use crate::testing::{Cluster, Detail, ProcessId};

    /// Nine silos, of which one crashes, and what the trace says until nobody counts it any more.
    fn crash(manner: Manner) -> Vec<String> {
        let machines = move |setup| -> Box<dyn crate::testing::Machine> {
            Box::new(Protocol::new(setup).behaving(manner))
        };
        let builder = Cluster::builder()
            .seed(1)
            .silos(9)
            .detail(Detail::Everything)
            .checks(Vec::new())
            .machines(Box::new(machines));
        let mut cluster = builder.build().unwrap();
        cluster.run_for(Duration::from_secs(60)).unwrap();
        cluster.kill(ProcessId(4));
        cluster.run_for(Duration::from_secs(60)).unwrap();
        assert!(cluster.agrees() && cluster.running().len() == 8);
        cluster
            .trace()
            .lines()
            .map(|line| format!("{line:?}"))
            .collect()
    }

    #[test]
    fn what_is_switched_off_does_not_happen() {
        let indirect = |lines: &[String]| {
            lines
                .iter()
                .filter(|line| line.contains("indirect-probe"))
                .count()
        };
        let plain = Manner {
            indirect_probes: false,
            partition_checks: false,
            changes_per_commit: 1,
            ..Manner::OWN
        };
        assert!(indirect(&crash(Manner::OWN)) > 0);
        assert_eq!(indirect(&crash(plain)), 0);
    }

    #[test]
    fn another_backoff_grows_between_its_bounds() {
        let s = Duration::from_secs;
        let other = Manner {
            conflict_backoff: Some([s(2), s(2), s(64)]),
            ..Manner::OWN
        };
        assert_eq!(other.backoff(1), Some((s(2), s(6))));
        assert_eq!(other.backoff(4), Some((s(2), s(34))));
        assert_eq!(other.backoff(u32::MAX), Some((s(2), s(64))));
        assert_eq!(Manner::default().backoff(3), None);
    }
}
