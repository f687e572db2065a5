//! Around the size above which a joining silo meets a set instead of everybody. All invariants are
//! checked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use membership_core::SiloStatus;
use membership_core::hooks::ProtocolVariant;
use membership_testing::{Cluster, ProcessId};

const S: fn(u64) -> Duration = Duration::from_secs;
const SILOS: usize = 16;
const NEWCOMERS: usize = 8;

fn cluster(seed: u64, limit: usize, zones: usize) -> Cluster {
    let variant = ProtocolVariant {
        full_check_limit: Some(limit),
        flood_above: Some(5),
        ..ProtocolVariant::SCRIBE
    };
    let mut cluster = Cluster::builder()
        .seed(seed)
        .silos(SILOS)
        .variant(variant)
        .zone_names(move |host| format!("z{}", host % zones))
        .build()
        .unwrap();
    cluster.run_until_agreed(S(120)).unwrap();
    cluster
}

#[test]
fn all_join_at_the_limit() {
    for limit in [
        SILOS - 1,
        SILOS,
        SILOS + 1,
        SILOS + NEWCOMERS - 1,
        SILOS + NEWCOMERS,
    ] {
        for (seed, zones) in [(1, 1), (2, 3), (3, 1)] {
            let mut cluster = cluster(seed, limit, zones);
            cluster.start(NEWCOMERS);
            cluster.run_until_agreed(S(20)).unwrap();
            // One more that ends and comes again moves the number over the limit and back.
            cluster.kill(ProcessId(3));
            cluster.start(2);
            cluster.restart(ProcessId(5));
            cluster.run_until_agreed(S(60)).unwrap();
            cluster.settle().unwrap();
            assert_eq!(cluster.running().len(), SILOS + NEWCOMERS + 1);
        }
    }
}

#[test]
fn nobody_joins_whom_a_third_does_not_reach() {
    for limit in [4, SILOS, 100] {
        for (seed, both) in [(1, true), (2, false), (3, true), (4, false)] {
            let mut cluster = cluster(seed, limit, 1);
            let newcomer = cluster.start(1)[0];
            for other in (0..SILOS).step_by(3).map(ProcessId) {
                cluster.block(other, newcomer);
                if both {
                    cluster.block(newcomer, other);
                }
            }
            let others = cluster.start(3);
            cluster.run_for(S(40)).unwrap();
            let row = cluster.row(newcomer);
            assert!(row.is_none_or(|e| e.status != SiloStatus::Active));
            for other in others {
                let row = cluster.row(other).map(|e| e.status);
                assert_eq!(row, Some(SiloStatus::Active), "limit {limit}, seed {seed}");
            }
            cluster.heal();
            cluster.run_until_agreed(S(60)).unwrap();
            cluster.settle().unwrap();
        }
    }
}
