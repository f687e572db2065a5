//! Floors: how many events a campaign needs for its success to mean something, as in the tests of
//! `membership-testing`, for any size and length.

use std::collections::BTreeMap;

use membership_testing::Stats;
use membership_testing::campaign::Fault;

/// With fewer runs some kinds of faults are not drawn, or not often enough.
pub(super) const ENOUGH: u64 = 20;
/// Each kind of fault must be drawn in at least one of this many runs.
const SHARE: u64 = 20;
/// The silos and minutes of the campaigns for which the floors are written.
const SILOS: u64 = 20;
const MINUTES: u64 = 30;

/// A floor for a hundred runs of [`SILOS`] for [`MINUTES`]: as in the tests of
/// `membership-testing`, at most half of the usual count.
struct Floor {
    what: &'static str,
    count: fn(&Stats) -> u64,
    per_hundred: u64,
    /// Whether the count grows with the cluster. The number of faults depends on the time alone.
    grows: bool,
    /// Clusters of fewer silos than this have no such event, or next to none.
    from: u64,
}

const fn floor(what: &'static str, count: fn(&Stats) -> u64, per_hundred: u64) -> Floor {
    Floor {
        what,
        count,
        per_hundred,
        grows: false,
        from: 0,
    }
}

const fn growing(what: &'static str, count: fn(&Stats) -> u64, per_hundred: u64) -> Floor {
    Floor {
        what,
        count,
        per_hundred,
        grows: true,
        from: 0,
    }
}

/// A floor of clusters that have at least this many silos.
const fn among(from: u64, what: &'static str, count: fn(&Stats) -> u64, per_hundred: u64) -> Floor {
    Floor {
        from,
        ..floor(what, count, per_hundred)
    }
}

const FLOORS: &[Floor] = &[
    growing("dropped messages", |s| s.dropped, 50_000),
    floor("kills", |s| s.kills, 250),
    floor("restarts", |s| s.restarts, 100),
    floor("pauses", |s| s.pauses, 150),
    floor("leaves", |s| s.leaves, 150),
    floor("blocked directions", |s| s.blocks, 1_000),
    floor("conflicts", |s| s.conflicts, 500),
    floor("unknown outcomes", |s| s.unknown, 100),
    floor("unknown outcomes that landed", |s| s.unknown_landed, 50),
    floor("table outages", |s| s.table_outages, 50),
    floor("network outages", |s| s.network_outages, 50),
    floor("failed table calls", |s| s.failed_calls, 500),
    growing("wake-ups", |s| s.wakes, 2_500_000),
    floor("commits", |s| s.commits, 3_000),
    growing("views", |s| s.views, 50_000),
    floor("silos voted out", |s| s.voted_out, 250),
    floor("wrong clocks", |s| s.clock_offsets, 100),
    floor("drifting clocks", |s| s.clock_drifts, 100),
    floor("clocks set back", |s| s.clocks_set_back, 50),
    growing("messages that arrived twice", |s| s.duplicated, 5_000),
    floor("flaps", |s| s.flaps, 100),
    floor("cuts between zones", |s| s.zone_cuts, 20),
    floor("silos that were half dead", |s| s.hangs, 50),
    growing("signs of life from half-dead silos", |s| s.heard, 5_000),
    floor("silos that were held", |s| s.holds, 50),
    floor(
        "unknown outcomes that were applied",
        |s| s.unknown_applied,
        50,
    ),
    floor(
        "unknown outcomes that were applied late",
        |s| s.unknown_late,
        50,
    ),
    floor(
        "unknown outcomes that were not applied",
        |s| s.unknown_lost,
        50,
    ),
    floor("table calls that queued", |s| s.queued_calls, 500),
    floor("wipes", |s| s.wipes, 50),
    floor("restores", |s| s.restores, 50),
    floor("rollbacks", |s| s.rollbacks, 50),
    // Not the commits: a tenth of the runs have all of them, between one and hundreds each, so that
    // their sum says little about sixty runs.
    floor("runs in which P6 judged commits", |s| s.outage_runs, 5),
    // Of two silos neither can be outvoted: the other one is the only witness.
    among(3, "deaths judged by P10", |s| s.deaths_judged, 1_000),
    among(3, "splits judged by P11", |s| s.splits_judged, 4),
];

impl Floor {
    /// The floor for this many runs. Rare events vary, so three times the square root is
    /// subtracted; but the floor is at least one if six are usual: then there is none in one of four
    /// hundred campaigns. If two are, as in twenty runs, that is so in each eighth.
    fn due(&self, runs: u64, silos: u64, minutes: u64) -> u64 {
        if silos < self.from {
            return 0;
        }
        let size = if self.grows { silos } else { silos.min(SILOS) };
        let due = runs * self.per_hundred * size * minutes / (100 * SILOS * MINUTES);
        due.saturating_sub(3 * due.isqrt()).max(u64::from(due >= 3))
    }
}

/// The count of every event that has a floor.
pub fn counts(stats: &Stats) -> String {
    FLOORS
        .iter()
        .map(|floor| format!("{} {}", (floor.count)(stats), floor.what))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The events that are below their floor, as messages of an error; none for few runs.
pub fn missed(
    runs: u64,
    silos: u64,
    minutes: u64,
    stats: &Stats,
    kinds: &BTreeMap<Fault, u64>,
) -> Vec<String> {
    if runs < ENOUGH {
        return Vec::new();
    }
    let drawn = |kind: &Fault| kinds.get(kind).copied().unwrap_or(0);
    let seldom = Fault::ALL
        .into_iter()
        .filter(|kind| drawn(kind) < runs / SHARE);
    let seldom = seldom.map(|kind| {
        format!(
            "{kind:?} in {} of {runs} runs, at least one in {SHARE} is expected",
            drawn(&kind)
        )
    });
    let low = FLOORS
        .iter()
        .filter(|floor| (floor.count)(stats) < floor.due(runs, silos, minutes));
    let low = low.map(|floor| {
        let (count, due) = ((floor.count)(stats), floor.due(runs, silos, minutes));
        format!(
            "{count} {} in {runs} runs, at least {due} are expected",
            floor.what
        )
    });
    seldom.chain(low).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_without_events_misses_every_floor() {
        let nothing = (Stats::default(), BTreeMap::new());
        assert_eq!(
            missed(19, 20, 30, &nothing.0, &nothing.1),
            Vec::<String>::new()
        );
        assert_eq!(
            missed(75, 20, 30, &nothing.0, &nothing.1).len(),
            Fault::ALL.len() + FLOORS.len()
        );
    }

    #[test]
    fn floors_follow_size_and_length() {
        let (wipes, wakes) = (
            floor("wipes", |s| s.wipes, 50),
            growing("wake-ups", |s| s.wakes, 2_500_000),
        );
        assert_eq!(
            [
                wipes.due(200, 20, 30),
                wipes.due(200, 200, 30),
                wipes.due(200, 20, 6),
                wipes.due(200, 10, 30)
            ],
            [70, 70, 8, 29]
        );
        assert_eq!(
            [
                wipes.due(20, 20, 30),
                wipes.due(20, 20, 5),
                wipes.due(20, 20, 1)
            ],
            [1, 0, 0]
        );
        let wakes = [
            wakes.due(20, 20, 30),
            wakes.due(20, 200, 30),
            wakes.due(20, 20, 6),
        ];
        assert_eq!(wakes, [500_000 - 2_121, 5_000_000 - 6_708, 100_000 - 948]);
    }
}
