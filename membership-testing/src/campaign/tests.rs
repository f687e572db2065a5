//! Tests of campaigns: which faults they draw, and how failing ones shrink.

use super::*;
use crate::Builder;
use crate::fake::tampered;
use crate::machine::protocols;
use membership_core::protocol::{Effect, Input, Message};

fn small() -> CampaignOptions {
    CampaignOptions {
        silos: 8,
        minutes: 6,
        ..CampaignOptions::default()
    }
}

#[test]
fn faults_parse_from_their_names() {
    for kind in Fault::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let error = "earthquakes".parse::<Fault>().unwrap_err().to_string();
    assert!(
        error.contains("\"earthquakes\"") && error.contains("drops, crashes"),
        "{error}"
    );
    let options = CampaignOptions {
        only: vec![Fault::HalfDead, Fault::Drops],
        skip: [3, 5].into(),
        ..small()
    };
    let command = replay_command(17, &options);
    assert!(
        command.ends_with("replay 17 --silos 8 --minutes 6 --faults half-dead,drops --skip 3,5"),
        "{command}"
    );
    assert!(shrink_command(17, &CampaignOptions::default()).ends_with("shrink 17"));
}

#[test]
fn campaigns_draw_every_kind_but_not_always() {
    let defaults = CampaignOptions::default();
    let mut counts = std::collections::BTreeMap::new();
    for seed in 0..200 {
        let kinds = drawn(seed, &defaults);
        assert!((6..=12).contains(&kinds.len()));
        for kind in kinds {
            *counts.entry(kind).or_insert(0_u32) += 1;
        }
    }
    assert_eq!(counts.len(), Fault::ALL.len());
    assert!(counts.values().all(|n| (20..100).contains(n)), "{counts:?}");
    assert_eq!(
        drawn(
            1,
            &CampaignOptions {
                only: vec![Fault::Leaves],
                ..defaults.clone()
            }
        ),
        [Fault::Leaves].into()
    );
    assert!(
        (35..90).contains(&steps(1, &defaults)),
        "{}",
        steps(1, &defaults)
    );
}

#[test]
fn each_kind_of_fault_has_an_effect_and_the_cluster_recovers() {
    for (seed, kind) in Fault::ALL.into_iter().enumerate() {
        let options = CampaignOptions {
            only: vec![kind],
            ..small()
        };
        let stats = run(seed as u64, &options)
            .map_err(|v| format!("{kind}: {v}"))
            .unwrap()
            .stats;
        let done = match kind {
            Fault::Drops => stats.dropped > 20,
            Fault::Crashes => stats.kills > 0,
            Fault::Restarts => stats.restarts > 0,
            Fault::Pauses => stats.pauses > 0,
            Fault::Partitions | Fault::OneWay | Fault::Firewall => stats.blocks > 0,
            Fault::TableOutages => {
                stats.table_outages > 0
                    && stats.network_outages > 0
                    && stats.failed_calls > 0
                    && stats.dropped > 100
            }
            Fault::SlowTable => stats.failed_calls > 0,
            Fault::Conflicts => stats.conflicts > 0,
            Fault::UnknownOutcomes => stats.unknown > 0,
            Fault::Leaves => stats.leaves > 0,
            Fault::Clocks => stats.clock_offsets > 0,
            Fault::TableCuts => stats.failed_calls > 0,
            Fault::Drift => stats.clock_drifts > 1,
            Fault::Duplicates => stats.duplicated > 10,
            Fault::Flapping => stats.flaps > 2,
            Fault::Zones => stats.zone_cuts > 0 && stats.blocks > 0,
            Fault::HalfDead => stats.hangs > 0 && stats.heard > 5,
            Fault::SetBack => stats.clocks_set_back > 0,
            Fault::BusyTable => stats.queued_calls > 0 || stats.failed_calls > 0,
            Fault::Holds => stats.holds > 0,
            Fault::Lossy => stats.dropped > 20,
            Fault::Wipes => stats.wipes > 0 && stats.restarts > 4,
            Fault::Restores => stats.restores > 0 && stats.restarts > 4,
            Fault::Rollbacks => stats.rollbacks > 0 && stats.restarts > 4,
            Fault::PartialPartitions => stats.blocks > 0 && stats.dropped > 20,
            Fault::SlowLinks => stats.slow_links > 0,
            Fault::Machines => stats.machine_crashes > 0,
            Fault::Stutter => stats.stutters > 0 && stats.pauses > stats.stutters,
            Fault::Starvation => stats.starvations > 0 && stats.pauses > 5,
            Fault::Listeners => stats.deaf > 0 && stats.dropped > 5,
        };
        assert!(done, "{kind} had no effect: {stats:?}");
    }
}

#[test]
fn skipping_a_step_changes_no_other_step() {
    let options = CampaignOptions {
        only: vec![Fault::Clocks, Fault::Drops],
        ..small()
    };
    let told = |options: &CampaignOptions| {
        let (text, violation) = replay(3, options);
        assert!(violation.is_none());
        text.lines()
            .filter(|l| l.contains("% of messages get lost"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let all = told(&options);
    let fewer = told(&CampaignOptions {
        skip: [0].into(),
        ..options.clone()
    });
    let later = told(&CampaignOptions {
        only: vec![Fault::Drops],
        ..options
    });
    assert!(
        all.len() > 2 && fewer.iter().all(|line| all.contains(line)),
        "{all:#?} {fewer:#?}"
    );
    assert!(
        all.iter().all(|line| later.contains(line)),
        "{all:#?} {later:#?}"
    );
}

/// A planted bug that appears only after a silo is gone: a silo that cannot deliver a message
/// publishes its view again.
fn plant(builder: Builder) -> Builder {
    let mut last = None;
    builder.machines(tampered(protocols(), move |input, effects| {
        if let Some(view) = effects.iter().rev().find(|e| matches!(e, Effect::Publish(_))) {
            last = Some(view.clone());
        }
        let gone = matches!(input, Input::SendFailed { .. });
        let asked = matches!(input, Input::Message { body, .. } if matches!(**body, Message::RollCall { .. }));
        if gone && !asked && effects.is_empty() {
            effects.extend(last.take());
        }
    }))
}

#[test]
fn a_failing_campaign_shrinks() {
    let options = CampaignOptions {
        silos: 12,
        minutes: 20,
        only: vec![
            Fault::Crashes,
            Fault::Clocks,
            Fault::Duplicates,
            Fault::SlowTable,
            Fault::TableCuts,
        ],
        prepare: Some(plant),
        ..CampaignOptions::default()
    };
    let seed = (0..50)
        .find(|seed| run(*seed, &options).is_err_and(|v| v.at().as_secs() > 300))
        .unwrap();
    let shrunk = shrink(seed, &options).unwrap();
    let small = &shrunk.options;
    assert!(
        small.silos <= 6 && small.minutes < 20 && small.only.len() == 1,
        "{}: {}",
        shrunk.command(),
        shrunk.violation
    );
    assert!(
        steps(seed, small) as usize - small.skip.len() <= 2,
        "{}",
        shrunk.command()
    );
    assert_eq!(
        shrink(seed, &options).unwrap().command(),
        shrunk.command(),
        "the same again"
    );
    let again = run(seed, small).unwrap_err();
    assert_eq!(
        (again.invariant(), again.what()),
        (shrunk.violation.invariant(), shrunk.violation.what())
    );
    assert!(again.to_string().contains("to shrink it: cargo run"));
    assert!(
        shrink(
            seed,
            &CampaignOptions {
                prepare: None,
                ..small.clone()
            }
        )
        .is_none()
    );
}
