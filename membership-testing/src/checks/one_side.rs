//! P13: a partition costs one side only.

use super::{Check, Fact, active, newly_dead};
use crate::clock::VirtualTime;
use crate::ground_truth::{GroundTruth, Split};
use membership_core::{MembershipEntry, SiloAddress, SiloStatus, Snapshot};

/// P13: of a partition in which all silos reach the table, at most one side loses silos that run.
/// Of more than two sides, one may declare silos of several others dead; then it loses none itself.
///
/// A silo runs if it [answered](GroundTruth::answered) and has its table. A side that has declared
/// silos of another one dead can become smaller than a third one, or than what is left of the other,
/// only because silos of its own crash or pause, or, where few are Active, because silos start on
/// that side; then that side may declare the rest dead, and the check does not judge that.
#[derive(Debug, Default)]
pub struct OneSide {
    judged: u64,
    /// The start of the partition that the losses belong to.
    since: Option<VirtualTime>,
    losses: Vec<Loss>,
}

/// A side of a partition: the group of its hosts.
type Side = Option<usize>;

/// The death of a silo that ran.
#[derive(Clone, Debug)]
struct Loss {
    name: String,
    side: Side,
    /// The side of the silo that wrote the death.
    by: Side,
}

impl Loss {
    /// Whether both losses cannot be the doing of one surviving side.
    fn contradicts(&self, other: &Self) -> bool {
        self.side != other.side
            && (self.by != other.by || self.by == self.side || other.by == other.side)
    }
}

fn side(silo: &SiloAddress, split: &Split, truth: &GroundTruth) -> Option<Side> {
    truth
        .owner(silo)
        .map(|record| split.group.get(&record.host).copied())
}

/// How many silos of a side run that count in majorities: the Active ones, and where at most two
/// silos are Active that are certainly not stale, the Joining ones. `from`: since when they ran.
fn running(
    of: Side,
    table: &Snapshot,
    split: &Split,
    from: VirtualTime,
    truth: &GroundTruth,
) -> usize {
    let is_new = |silo: &SiloAddress| {
        let since = truth.ago(truth.shortest_staleness());
        truth
            .owner(silo)
            .is_some_and(|record| record.started > since)
    };
    let few = active(table)
        .filter(|e| is_new(&e.address) || truth.certainly_fresh(&e.address, truth.now))
        .count()
        <= 2;
    let counts = |e: &&MembershipEntry| {
        e.status == SiloStatus::Active || (few && e.status == SiloStatus::Joining)
    };
    table
        .rows
        .entries()
        .filter(counts)
        .filter(|e| side(&e.address, split, truth) == Some(of))
        .filter(|e| truth.answered(&e.address, from, truth.now))
        .count()
}

impl Check for OneSide {
    fn invariant(&self) -> &'static str {
        "P13"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        let (
            Fact::Committed {
                before,
                after,
                request,
            },
            Some(split),
        ) = (fact, &truth.split)
        else {
            return Ok(());
        };
        let decided = truth.decided(request.id);
        let over = split
            .healed
            .is_some_and(|healed| decided > healed + truth.config.failure_window);
        let unreached = truth.table_down.overlaps(split.since)
            || truth.table_changed.overlaps(split.since)
            || truth
                .records
                .iter()
                .any(|record| record.table_cut.overlaps(split.since));
        if !split.clean || over || unreached || decided < split.since {
            return Ok(());
        }
        if self.since != Some(split.since) {
            (self.since, self.losses) = (Some(split.since), Vec::new());
        }
        let from = decided.saturating_sub(truth.roll_call_lookback());
        for dead in newly_dead(before, after, request).filter(|dead| dead.is_verdict(truth)) {
            let silo = dead.silo();
            let by = request.committer.and_then(|c| side(&c, split, truth));
            let (Some(side), Some(by)) = (side(&silo, split, truth), by) else {
                continue;
            };
            if !truth.answered(&silo, from, decided) || !truth.has_original_table(&silo) {
                continue;
            }
            let loss = Loss {
                name: truth.name(&silo),
                side,
                by,
            };
            let count = |of, from| running(of, before, split, from, truth);
            let left = count(side, split.since);
            // Whoever stood still at its start, or before it joined, may have a part in the call.
            let of_late = truth.ago(truth.config.failure_window * 2).max(split.since);
            // Which side must have outgrown the one that loses a silo now.
            let winner = |earlier: &Loss| if by == side { earlier.side } else { by };
            let earlier = self
                .losses
                .iter()
                .find(|l| l.contradicts(&loss) && left >= count(winner(l), of_late));
            if let Some(earlier) = earlier {
                return Err(format!(
                    "{} is declared dead on one side of the partition, after {} on another side",
                    loss.name, earlier.name
                ));
            }
            self.judged += u64::from(self.losses.is_empty());
            self.losses.push(loss);
        }
        Ok(())
    }

    fn judged(&self) -> u64 {
        self.judged
    }
}
