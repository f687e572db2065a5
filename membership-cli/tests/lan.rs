//! Five silos as processes with the preset `lan`, the usual one: killed, one or nearly all or all, and
//! stopped for a while each. Takes eight minutes; each test has the machine for itself.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::disallowed_macros,
    reason = "helpers of tests; what a run measured is worth a line"
)]

mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::secs;
use support::silos::{Cluster, Process, port};

/// A process that is busy beside others may be late.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all silos but the first `left`, some time after the last of them was Active. Returns how
/// long it took until each of the others had published that all of them were voted out.
fn killed(left: usize, after: Duration) -> Duration {
    let mut cluster = Cluster::started(5, "lan");
    std::thread::sleep(after);
    let names: Vec<String> = (left..5).map(|i| cluster.address(i)).collect();
    let killed = Instant::now();
    for silo in cluster.silos.drain(left..) {
        silo.signal(Signal::KILL);
    }
    let mut seen = killed;
    for silo in &cluster.silos {
        for name in &names {
            seen = seen.max(silo.sees_dead(name, "voted", secs(90)));
        }
    }
    cluster.agree(secs(5));
    seen - killed
}

#[test]
#[ignore = "eight minutes in all: .ci/run nightly runs it"]
fn one_is_killed() {
    let _alone = alone();
    for after in [0, 5, 20] {
        let took = killed(4, secs(after));
        println!("one of five, {after} s after the start: known after {took:.2?}");
        assert!(took <= secs(2), "{took:?}");
    }
}

#[test]
#[ignore = "eight minutes in all: .ci/run nightly runs it"]
fn four_are_killed() {
    let _alone = alone();
    let took = killed(1, secs(20));
    println!("four of five: known after {took:.1?}");
    assert!(took <= secs(30), "{took:?}");
}

#[test]
#[ignore = "eight minutes in all: .ci/run nightly runs it"]
fn all_are_killed_and_others_start_at_other_ports() {
    let _alone = alone();
    let mut cluster = Cluster::started(5, "lan");
    std::thread::sleep(secs(20));
    let killed = Instant::now();
    cluster.kill_all();
    cluster.silos = (0..5)
        .map(|_| Process::start(&cluster.place, port(), "lan", &[]))
        .collect();
    // Each of them publishes that only the five are left: no ghost is Active or Joining.
    let only_five = |silo: &Process| {
        silo.wait("five Active and no ghost", secs(90), |lines| {
            let last = lines.iter().rfind(|l| l.event["event"] == "view")?;
            let count = |status| support::silos::count(&last.event, status);
            (count("Active") == 5 && count("Joining") == 0).then_some(last.at)
        })
    };
    let took = cluster.silos.iter().map(only_five).max().unwrap() - killed;
    println!("all five, and five more: Active and no ghost after {took:.1?}");
    cluster.agree(secs(5));
    assert!(took <= secs(30), "{took:?}");
}

#[test]
#[ignore = "eight minutes in all: .ci/run nightly runs it"]
fn each_in_turn_is_stopped_for_three_seconds() {
    let _alone = alone();
    let mut cluster = Cluster::started(5, "lan");
    let until = Instant::now() + secs(300);
    let mut stops = 0;
    while Instant::now() < until {
        for silo in &cluster.silos {
            silo.signal(Signal::STOP);
            std::thread::sleep(secs(3));
            silo.signal(Signal::CONT);
            stops += 1;
        }
    }
    println!("{stops} stops of 3 s");
    cluster.is_whole();
}
