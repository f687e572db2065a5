//! Silos with the preset `lan` under load that must not kill any silo: a busy machine, a stopped
//! machine, many silos. They take a minute and a half, so `cargo test` leaves them out and `.ci/run`
//! runs them: `cargo test --test endurance -- --ignored`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use support::secs;
use support::silos::Cluster;

/// Run side by side, the busy machine and the large cluster would spoil each other's measurements.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
#[ignore = "takes more than a minute: .ci/run nightly runs it"]
fn a_busy_or_stopped_machine_kills_no_silo() {
    let _machine = MACHINE.lock().unwrap_or_else(|e| e.into_inner());
    let (mut busy, mut stopped) = (Cluster::started(5, "lan"), Cluster::started(5, "lan"));
    for silo in &stopped.silos {
        silo.signal(Signal::STOP);
    }
    let spinning = AtomicBool::new(true);
    let threads = 2 * thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while spinning.load(Ordering::Relaxed) {
                    black_box((0..10_000u64).sum::<u64>());
                }
            });
        }
        thread::sleep(secs(60));
        spinning.store(false, Ordering::Relaxed);
    });
    for silo in &stopped.silos {
        silo.signal(Signal::CONT);
    }
    busy.is_whole();
    // If a silo were voted out because of the pause, that would happen within a failure window or
    // two of it.
    thread::sleep(secs(25));
    busy.is_whole();
    stopped.is_whole();
    busy.agree(secs(10));
    stopped.agree(secs(10));
}

#[test]
#[ignore = "starts twenty processes: .ci/run nightly runs it"]
fn twenty_silos_started_at_once_are_all_active_within_a_minute() {
    let _machine = MACHINE.lock().unwrap_or_else(|e| e.into_inner());
    let mut crowd = Cluster::start(20, "lan");
    crowd.all_active(secs(60));
    crowd.is_whole();
    crowd.agree(secs(10));
}
