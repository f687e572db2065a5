//! Runs 300 simulated clusters of 20 silos, with half an hour of faults each, and checks every
//! invariant; see `membership_testing::campaign`.
//!
//! Without `MEMBERSHIP_SEEDS` it runs the first 60. `MEMBERSHIP_SEEDS=usual` runs all 300, `rest`
//! the other 240, `1000..2000` other seeds. `membership-sim replay 17` prints one in full.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use membership_testing::campaign::{self, CampaignOptions, Fault, replay_command};
use membership_testing::{Stats, Violation};

/// The usual seeds. This many parts of them run side by side.
const SEEDS: Range<u64> = 0..300;
const PARTS: u64 = 2;

fn seeds() -> Range<u64> {
    membership_testing::seeds::chosen(SEEDS).unwrap()
}

/// What the runs of some seeds gave.
#[derive(Default)]
struct Runs {
    number: u64,
    total: Stats,
    kinds: BTreeMap<Fault, u64>,
    violations: Vec<Violation>,
}

impl Runs {
    fn run(&mut self, seed: u64, options: &CampaignOptions) {
        self.number += 1;
        match campaign::run(seed, options) {
            Ok(outcome) => {
                self.total.add(&outcome.stats);
                for kind in outcome.kinds {
                    *self.kinds.entry(kind).or_default() += 1;
                }
            }
            Err(violation) => self.violations.push(violation),
        }
    }

    fn add(&mut self, other: Self) {
        self.number += other.number;
        self.total.add(&other.total);
        for (kind, count) in other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        self.violations.extend(other.violations);
    }
}

/// Collects all violations, so that one run shows how many there are and of which kinds.
#[test]
fn invariants_hold() {
    let options = CampaignOptions::default();
    let part = |number: u64| {
        let mut runs = Runs::default();
        for seed in seeds().filter(|seed| seed % PARTS == number) {
            runs.run(seed, &options);
        }
        runs
    };
    let mut all = Runs::default();
    std::thread::scope(|scope| {
        let part = &part;
        let parts: Vec<_> = (0..PARTS)
            .map(|number| scope.spawn(move || part(number)))
            .collect();
        for part in parts {
            all.add(part.join().unwrap());
        }
    });
    let Runs {
        number: runs,
        total,
        kinds,
        violations,
    } = all;
    if let Some(first) = violations.first() {
        let all: Vec<String> = violations
            .iter()
            .map(|v| format!("{} seed {}: {}", v.invariant(), v.seed(), v.what()))
            .collect();
        panic!(
            "{} of {runs} runs violate an invariant\n{}\n\n{first}",
            all.len(),
            all.join("\n")
        );
    }
    not_vacuous(runs, &total, &kinds);
}

/// The least number of events of all runs together: with fewer events the runs prove nothing.
fn not_vacuous(runs: u64, total: &Stats, kinds: &BTreeMap<Fault, u64>) {
    if runs < 20 {
        return;
    }
    for kind in Fault::ALL {
        assert!(kinds.contains_key(&kind), "no run drew {kind:?}");
    }
    let floors = [
        ("dropped messages", total.dropped, 1_000),
        ("kills", total.kills, 5),
        ("restarts", total.restarts, 2),
        ("pauses", total.pauses, 3),
        ("leaves", total.leaves, 3),
        ("blocked directions", total.blocks, 20),
        ("conflicts", total.conflicts, 10),
        ("unknown outcomes", total.unknown, 2),
        ("unknown outcomes that landed", total.unknown_landed, 1),
        ("table outages", total.table_outages, 1),
        ("network outages", total.network_outages, 1),
        ("failed table calls", total.failed_calls, 10),
        ("wake-ups", total.wakes, 50_000),
        ("commits", total.commits, 60),
        ("views", total.views, 1_000),
        ("silos voted out", total.voted_out, 5),
        ("wrong clocks", total.clock_offsets, 2),
        ("drifting clocks", total.clock_drifts, 2),
        ("clocks set back", total.clocks_set_back, 1),
        ("messages that arrived twice", total.duplicated, 100),
        ("flaps", total.flaps, 2),
        ("cuts between zones", total.zone_cuts, 1),
        ("silos that were half dead", total.hangs, 1),
        ("signs of life from half-dead silos", total.heard, 100),
        ("silos that were held", total.holds, 1),
        (
            "unknown outcomes that were applied",
            total.unknown_applied,
            1,
        ),
        (
            "unknown outcomes that were applied late",
            total.unknown_late,
            1,
        ),
        (
            "unknown outcomes that were not applied",
            total.unknown_lost,
            1,
        ),
        ("table calls that queued", total.queued_calls, 10),
        ("wipes", total.wipes, 1),
        ("restores", total.restores, 1),
        ("rollbacks", total.rollbacks, 1),
        ("machines that crashed", total.machine_crashes, 1),
        ("ends of connections", total.disconnects, 20),
        ("links that became slow", total.slow_links, 1),
        ("silos that stalled twice", total.stutters, 1),
        ("executors that starved", total.starvations, 1),
        ("listeners that were lost", total.deaf, 1),
        ("commits judged by P6", total.outage_commits, 2),
        ("deaths judged by P10", total.deaths_judged, 20),
    ];
    for (what, count, per_run) in floors {
        assert!(
            count >= runs * per_run / 2,
            "{count} {what} in {runs} runs are too few"
        );
    }
    // A partition of a healthy network that leads to a death is rare.
    assert!(
        total.splits_judged >= runs / 30,
        "{} splits judged by P11 in {runs} runs are too few",
        total.splits_judged
    );
    let floors = [
        ("deaths judged by P12", total.majorities_judged, runs * 5),
        ("splits judged by P13", total.sides_judged, runs / 50),
        ("joins judged by P14", total.blocked_joins_judged, runs / 4),
        ("minutes judged by P15", total.minutes_judged, runs * 200),
    ];
    for (what, count, least) in floors {
        assert!(count >= least, "{count} {what} in {runs} runs are too few");
    }
}

/// Campaigns that once violated an invariant, in addition to the default seeds.
#[test]
fn regressions_hold() {
    // A joiner did not know whether its row was in the table, did not answer probes, and was voted
    // out (P10). New silos that a partition isolated were not counted as cut off before it (P11, a
    // bug of the simulation); and a joiner was counted on the larger side, which was the larger one
    // of the Active silos only (P11, a bug of the check). A silo whose table was rolled back, which
    // reports that and writes no heartbeats, was considered healthy (P6, a bug of the check). An
    // intermediary whose table was rolled back voted against a silo that it knew as another one at
    // that address (P10). A silo that removed a row of a dead silo was asked for its view while the
    // table's answer was under way (P7, a bug of the check). The row of an older silo outlived the
    // row of the younger one at its address, and the next silo there, whose clock was behind, took
    // the younger one's epoch (P3). In a restored table another silo had had an address: heartbeats
    // that advanced nothing there were counted (P5, a bug of the check). A joiner skipped a silo,
    // and the clock of that silo was corrected while the joiner's commit was under way (P9, a bug
    // of the check). A backup in which a silo was not Dead was restored, and then one in which it
    // was: the silo learned of its death from a conflict (P4, a bug of the check). A removal that
    // was split doubled with each conflict: the waiting part was sent again with the whole (out of
    // memory). A silo waited for the table while another one took its address, and joined (P7). Where a
    // tenth of all messages was lost beside slow links, each roll call took 25 of 30 on as suspects (P15).
    for (silos, seed, faults) in [
        (
            20,
            207_780_380,
            "crashes pauses slow-table unknown-outcomes clocks table-cuts drift flapping half-dead wipes",
        ),
        (
            20,
            207_780_266,
            "restarts pauses partitions unknown-outcomes restores",
        ),
        (
            20,
            207_780_606,
            "crashes one-way table-outages slow-table set-back holds rollbacks",
        ),
        (30, 1_000_543, "crashes leaves clocks duplicates holds"),
        (
            30,
            1_000_178,
            "crashes leaves clocks table-cuts flapping half-dead set-back busy-table restores",
        ),
        (
            30,
            1_011_984,
            "crashes restarts pauses conflicts clocks duplicates busy-table holds restores rollbacks",
        ),
        (
            30,
            1_010_493,
            "drops restarts pauses one-way slow-table unknown-outcomes table-cuts flapping set-back restores",
        ),
        (30, 1_010_564, "one-way clocks set-back busy-table restores"),
        (
            30,
            72_000_223,
            "drops restarts table-outages unknown-outcomes leaves drift half-dead restores rollbacks partial-partitions slow-links starvation",
        ),
        (
            30,
            1_001_468,
            "table-outages slow-table clocks set-back restores",
        ),
        (
            30,
            1_012_543,
            "one-way unknown-outcomes clocks table-cuts half-dead set-back firewall holds wipes restores",
        ),
    ] {
        holds(seed, silos, false, faults);
    }
    // With members that lie. Needed votes were counted after the earlier deaths of a commit (P5). A
    // silo published a view that was a lie, and learned of its death from the table as it was before
    // a backup was restored (P4, a bug of the check).
    for (silos, seed, faults) in [
        (
            5,
            7_005_123,
            "partitions slow-table unknown-outcomes leaves clocks duplicates firewall",
        ),
        (
            12,
            7_012_045,
            "crashes restarts partitions table-outages leaves clocks table-cuts duplicates half-dead wipes",
        ),
        (18, 7_018_017, "restarts slow-table clocks holds restores"),
    ] {
        holds(seed, silos, true, faults);
    }
}

/// The faults are those that the seed drew when it violated an invariant.
fn holds(seed: u64, silos: usize, hostile: bool, faults: &str) {
    let only = faults.split_whitespace().map(|name| name.parse().unwrap());
    let options = CampaignOptions {
        silos,
        hostile,
        only: only.collect(),
        ..CampaignOptions::default()
    };
    if let Err(violation) = campaign::run(seed, &options) {
        panic!("{violation}");
    }
}

/// The first seeds that together draw every kind of fault at least twice, because not every drawn
/// fault has an effect.
fn seeds_of_all_kinds(options: &CampaignOptions) -> Vec<u64> {
    let mut missing: BTreeMap<Fault, u32> = Fault::ALL.into_iter().map(|kind| (kind, 2)).collect();
    let mut seeds = Vec::new();
    for seed in 0.. {
        if missing.is_empty() {
            break;
        }
        let drawn = campaign::drawn(seed, options);
        if drawn.iter().any(|kind| missing.contains_key(kind)) {
            missing
                .iter_mut()
                .filter(|(kind, _)| drawn.contains(kind))
                .for_each(|(_, times)| *times -= 1);
            missing.retain(|_, times| *times > 0);
            seeds.push(seed);
        }
    }
    seeds
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let options = CampaignOptions {
        silos: 10,
        minutes: 20,
        ..CampaignOptions::default()
    };
    let seeds = seeds_of_all_kinds(&options);
    let outcome = |seed: &u64| campaign::run(*seed, &options).unwrap();
    let mut total = Stats::default();
    let mut hashes = BTreeSet::new();
    for seed in &seeds {
        let once = outcome(seed);
        assert_eq!(once, outcome(seed), "seed {seed}");
        total.add(&once.stats);
        hashes.insert(once.hash);
    }
    assert_eq!(
        hashes.len(),
        seeds.len(),
        "seeds {seeds:?} give different runs"
    );
    let processes = [
        total.kills,
        total.restarts,
        total.leaves,
        total.pauses,
        total.hangs,
        total.holds,
    ];
    let clocks = [
        total.clock_offsets,
        total.clock_drifts,
        total.clocks_set_back,
    ];
    let network = [
        total.dropped,
        total.duplicated,
        total.blocks,
        total.flaps,
        total.zone_cuts,
        total.network_outages,
    ];
    let table = [
        total.table_outages,
        total.failed_calls,
        total.queued_calls,
        total.conflicts,
        total.unknown,
    ];
    let operators = [total.wipes, total.restores, total.rollbacks];
    let all = [
        &processes[..],
        &clocks[..],
        &network[..],
        &table[..],
        &operators[..],
    ]
    .concat();
    assert!(
        all.iter().all(|count| *count > 0),
        "something did not happen in seeds {seeds:?}: {total:?}"
    );
}

/// A replay gives the same result as the run.
#[test]
fn replay() {
    let options = CampaignOptions {
        silos: 6,
        minutes: 3,
        ..CampaignOptions::default()
    };
    let (text, violation) = campaign::replay(1, &options);
    assert_eq!(
        violation.map(|v| v.to_string()),
        campaign::run(1, &options).err().map(|v| v.to_string())
    );
    assert!(
        text.lines().count() > 100 && replay_command(1, &options).contains("replay 1 --silos 6")
    );
}

/// Two to five silos: each fault takes a large part of the cluster, and often its majority.
#[test]
fn invariants_hold_in_tiny_clusters() {
    let mut total = Stats::default();
    for seed in 0..40 {
        let options = CampaignOptions {
            silos: 2 + (seed % 4) as usize,
            ..CampaignOptions::default()
        };
        match campaign::run(seed, &options) {
            Ok(outcome) => total.add(&outcome.stats),
            Err(violation) => panic!("{violation}"),
        }
    }
    assert!(total.kills > 40 && total.blocks > 100, "{total:?}");
}

/// P16, with a stranger, former members and one member that forge messages of every kind all the
/// time.
#[test]
fn hostile_peers_change_nothing() {
    let mut total = Stats::default();
    for seed in 0..20 {
        let options = CampaignOptions {
            silos: 5 + seed as usize,
            minutes: 10,
            hostile: true,
            ..CampaignOptions::default()
        };
        match campaign::run(seed, &options) {
            Ok(outcome) => total.add(&outcome.stats),
            Err(violation) => panic!("{violation}"),
        }
    }
    let enough = total.forged > 20_000 && total.strange > 8_000 && total.withdrawn > 100;
    assert!(enough, "{total:?}");
}

/// Seeds of few silos that once broke an invariant: a ghost that nobody asked about again (the first),
/// a commit that was sent again to a table that had been restored (the second), a silo that was ended by
/// words of before the window was over (241064), one that stayed away after an outage (240498), and runs that
/// a check misjudged.
#[test]
fn few_silos_hold_with_seeds_that_found_something() {
    let found = [
        (3, 40_002_016),
        (3, 9_700_301_101),
        (3, 40_002_601),
        (3, 40_000_393),
        (3, 40_001_105),
        (4, 40_000_958),
        (4, 40_001_793),
        (4, 241_064),
        (4, 242_206),
        (5, 240_498),
        (5, 50_000_046),
        (5, 50_001_215),
        (5, 50_004_959),
    ];
    for (silos, seed) in found {
        let options = CampaignOptions {
            silos,
            ..CampaignOptions::default()
        };
        let ran = campaign::run(seed, &options);
        assert!(ran.is_ok(), "{silos} silos, seed {seed}: {:?}", ran.err());
    }
}
