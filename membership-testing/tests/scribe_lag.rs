//! The executors of all silos lag again and again, so that they accuse nobody, and one of them has crashed:
//! a newcomer waits no longer than it takes to see that the heartbeat of that one stands still. All
//! invariants are checked, P14 among them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_macros
)]

use std::time::Duration;

use membership_core::hooks::{self, ProtocolVariant};
use membership_core::protocol::{Input, Setup};
use membership_core::{MonoTime, SiloStatus};
use membership_testing::{Altered, Cluster, Machine, ProcessId};

const S: fn(u64) -> Duration = Duration::from_secs;
const SILOS: usize = 12;
const LAG: Duration = Duration::from_millis(1_200);

/// Silos that are told every five seconds that their executor has lagged.
fn cluster(seed: u64, scribe: bool) -> Cluster {
    let mut number = 0;
    let machines = move |setup: Setup| -> Box<dyn Machine> {
        number += 1;
        let variant = ProtocolVariant {
            scribe,
            ..ProtocolVariant::STANDARD
        };
        let protocol = hooks::protocol(setup, variant);
        if number > SILOS {
            return Box::new(protocol);
        }
        let mut next = MonoTime::ZERO + S(60);
        Box::new(Altered::new(
            protocol,
            move |protocol, now, input, effects| {
                if now.mono >= next {
                    next = now.mono + S(5);
                    protocol.handle(now, Input::ExecutorLag(LAG), effects);
                }
                protocol.handle(now, input, effects);
            },
        ))
    };
    let mut cluster = Cluster::builder()
        .seed(seed)
        .machines(Box::new(machines))
        .build()
        .unwrap();
    let silos = cluster.start(SILOS);
    cluster.run_until_agreed(S(120)).unwrap();
    cluster.run_for(S(60)).unwrap();
    cluster.crash_machine(silos[3]);
    cluster
}

#[test]
fn a_crashed_silo_among_silos_that_lag_keeps_newcomers_out_for_three_periods() {
    // Three periods, and the half before the first read.
    let most = S(38);
    for newcomers in [1, 3, 12] {
        for seed in 0..4 {
            for scribe in [false, true] {
                let mut cluster = cluster(seed, scribe);
                let before = cluster.stats().conflicts;
                let (began, new) = (cluster.now(), cluster.start(newcomers));
                let active = |c: &Cluster| {
                    let row = |silo: &ProcessId| c.row(*silo);
                    let is = |silo| row(silo).is_some_and(|e| e.status == SiloStatus::Active);
                    new.iter().all(is)
                };
                let joined = cluster.run_until(S(150), active).unwrap();
                let took = cluster.now() - began;
                let conflicts = cluster.stats().conflicts - before;
                println!(
                    "{newcomers} newcomers, seed {seed}, scribe {scribe}: {took:.1?}, {conflicts} conflicts"
                );
                assert!(joined && took <= most, "seed {seed}: {took:?}");
            }
        }
    }
}
