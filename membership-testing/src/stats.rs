//! Counts of what happened in a run, to detect runs that prove nothing.

/// Counts of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Processes started.
    pub starts: u64,
    /// Processes killed.
    pub kills: u64,
    /// Of those, processes whose machine crashed.
    pub machine_crashes: u64,
    /// Ends of connections that processes saw.
    pub disconnects: u64,
    /// Processes that started at the address of an earlier one.
    pub restarts: u64,
    /// Pauses.
    pub pauses: u64,
    /// Pauses that were followed by another one at once.
    pub stutters: u64,
    /// Executors that starved.
    pub starvations: u64,
    /// Listeners that were lost.
    pub deaf: u64,
    /// Times that links between two sets of hosts became slow.
    pub slow_links: u64,
    /// Holds.
    pub holds: u64,
    /// Requested leaves.
    pub leaves: u64,
    /// Directions of the network that were blocked.
    pub blocks: u64,
    /// Messages sent.
    pub sent: u64,
    /// Forged messages that were delivered.
    pub forged: u64,
    /// Messages judged by P16: from somebody who was not alive in the receiver's confirmed view.
    pub strange: u64,
    /// Announced views that the table contradicted.
    pub withdrawn: u64,
    /// Messages that did not arrive.
    pub dropped: u64,
    /// Messages that arrived twice.
    pub duplicated: u64,
    /// Times that flapping links were blocked.
    pub flaps: u64,
    /// Cuts between two zones.
    pub zone_cuts: u64,
    /// Times that a protocol hung while its process was alive.
    pub hangs: u64,
    /// Signs of life from such processes that other silos received.
    pub heard: u64,
    /// Commits that landed.
    pub commits: u64,
    /// Commits that met a conflict.
    pub conflicts: u64,
    /// Commits reported with an unknown outcome.
    pub unknown: u64,
    /// Of those, commits that were applied nevertheless, at once or later.
    pub unknown_landed: u64,
    /// Unknown outcomes of commits that were applied at once.
    pub unknown_applied: u64,
    /// Unknown outcomes of commits that were to be applied later.
    pub unknown_late: u64,
    /// Unknown outcomes of commits that were never applied.
    pub unknown_lost: u64,
    /// Table calls that waited because the table was busy.
    pub queued_calls: u64,
    /// Times that the table was wiped.
    pub wipes: u64,
    /// Times that a backup of the table was restored.
    pub restores: u64,
    /// Times that the table was rolled back.
    pub rollbacks: u64,
    /// Table calls that failed for other reasons.
    pub failed_calls: u64,
    /// Outages of the table.
    pub table_outages: u64,
    /// Outages of the network.
    pub network_outages: u64,
    /// Timers that fired.
    pub wakes: u64,
    /// Inputs that processes handled.
    pub inputs: u64,
    /// Processes that ended, killed or by themselves.
    pub stops: u64,
    /// Views published.
    pub views: u64,
    /// Rows voted out.
    pub voted_out: u64,
    /// Of those, rows whose process was alive.
    pub voted_out_alive: u64,
    /// Processes whose wall clock was wrong.
    pub clock_offsets: u64,
    /// Clocks that began to run fast or slow.
    pub clock_drifts: u64,
    /// Restarts with the clock set back.
    pub clocks_set_back: u64,
    /// Commits that invariant P6 judged: during or shortly after an outage that affected all silos
    /// alike, without other faults.
    pub outage_commits: u64,
    /// Runs in which it judged any: most have no such outage, and a run that has one has up to
    /// hundreds of such commits.
    pub outage_runs: u64,
    /// Deaths that invariant P10 judged.
    pub deaths_judged: u64,
    /// Partitions in which invariant P11 judged a death while there was a larger side.
    pub splits_judged: u64,
    /// Deaths that invariant P12 judged: it could tell who reached the silo.
    pub majorities_judged: u64,
    /// Partitions in which invariant P13 judged the death of a silo that ran.
    pub sides_judged: u64,
    /// Pairs of a joining silo and an unreachable one that invariant P14 judged.
    pub blocked_joins_judged: u64,
    /// Minutes that invariant P15 judged.
    pub minutes_judged: u64,
}

impl Stats {
    /// Adds the counts of another run.
    pub fn add(&mut self, o: &Self) {
        for (mine, theirs) in self.fields().into_iter().zip(o.clone().fields()) {
            *mine += *theirs;
        }
    }

    fn fields(&mut self) -> [&mut u64; 54] {
        [
            &mut self.forged,
            &mut self.strange,
            &mut self.withdrawn,
            &mut self.starts,
            &mut self.kills,
            &mut self.machine_crashes,
            &mut self.disconnects,
            &mut self.restarts,
            &mut self.pauses,
            &mut self.stutters,
            &mut self.starvations,
            &mut self.deaf,
            &mut self.slow_links,
            &mut self.holds,
            &mut self.leaves,
            &mut self.blocks,
            &mut self.sent,
            &mut self.dropped,
            &mut self.duplicated,
            &mut self.flaps,
            &mut self.zone_cuts,
            &mut self.hangs,
            &mut self.heard,
            &mut self.commits,
            &mut self.conflicts,
            &mut self.unknown,
            &mut self.unknown_landed,
            &mut self.unknown_applied,
            &mut self.unknown_late,
            &mut self.unknown_lost,
            &mut self.queued_calls,
            &mut self.wipes,
            &mut self.restores,
            &mut self.rollbacks,
            &mut self.failed_calls,
            &mut self.table_outages,
            &mut self.network_outages,
            &mut self.wakes,
            &mut self.inputs,
            &mut self.stops,
            &mut self.views,
            &mut self.voted_out,
            &mut self.voted_out_alive,
            &mut self.clock_offsets,
            &mut self.clock_drifts,
            &mut self.clocks_set_back,
            &mut self.outage_commits,
            &mut self.outage_runs,
            &mut self.deaths_judged,
            &mut self.splits_judged,
            &mut self.majorities_judged,
            &mut self.sides_judged,
            &mut self.blocked_joins_judged,
            &mut self.minutes_judged,
        ]
    }
}
