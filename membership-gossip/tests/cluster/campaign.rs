//! Random faults over many seeds, under all checkers; then the faults end, and the living must agree.

use membership_gossip::downing::Downing;
use membership_gossip::{Config, Preset};
use membership_testing::gossip::campaign::{Counts, Fault, Options, run_with};

fn run(seed: u64, members: usize, config: &Config, counts: &mut Counts) {
    let options = Options {
        members,
        ..Options::default()
    };
    match run_with(seed, &options, config) {
        Ok(more) => {
            for (what, n) in more {
                *counts.entry(what).or_default() += n;
            }
        }
        Err(broken) => panic!("seed {seed}: {broken:#?}"),
    }
}

/// A campaign in which something never happens proves nothing about it.
#[allow(
    clippy::print_stdout,
    clippy::disallowed_macros,
    reason = "what happened is for whoever runs a campaign"
)]
fn floors(counts: &Counts, due: &[&str]) {
    println!("{counts:?}");
    let faults = Fault::ALL.map(Fault::name);
    if std::env::var("MEMBERSHIP_GOSSIP_SEEDS").is_err() {
        for what in faults.iter().chain(due) {
            assert!(
                counts.get(what).is_some_and(|n| *n > 0),
                "no {what}: {counts:?}"
            );
        }
    }
}

/// The seeds of a run: few by default, others by `MEMBERSHIP_GOSSIP_SEEDS=0..5000`.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("MEMBERSHIP_GOSSIP_SEEDS") else {
        return 0..usual;
    };
    let (from, to) = text
        .split_once("..")
        .expect("MEMBERSHIP_GOSSIP_SEEDS is from..to");
    from.parse().unwrap()..to.parse().unwrap()
}

#[test]
fn five_members_of_the_default_preset() {
    let mut counts = Counts::new();
    for seed in seeds(80) {
        run(seed, 5, &Config::default(), &mut counts);
    }
    floors(
        &counts,
        &[
            "agreements",
            "removals",
            "down-unreachable",
            "down-reachable",
            "broken links",
        ],
    );
    // Under the default founding and resolver both sides of a split do not live.
    assert_eq!(counts.get("both sides lived"), None, "{counts:?}");
}

#[test]
fn twenty_members_of_the_default_preset() {
    let mut counts = Counts::new();
    for seed in seeds(12) {
        run(seed, 20, &Config::default(), &mut counts);
    }
    floors(
        &counts,
        &["agreements", "removals", "down-unreachable", "broken links"],
    );
}

#[test]
fn five_members_of_the_specification() {
    let mut counts = Counts::new();
    let mut config = Config::preset(Preset::Akka);
    // The specification leaves downing to the operator.
    config.downing = Downing::default();
    for seed in seeds(30) {
        run(seed, 5, &config, &mut counts);
    }
    floors(
        &counts,
        &[
            "agreements",
            "removals",
            "down-unreachable",
            "down-reachable",
        ],
    );
}
