//! Silos with the preset `lan` under hardship that must not kill anybody: a busy machine, a stopped machine, a crowd. Takes two minutes.
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

/// The busy machine and the crowd would make each other's measurements meaningless.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
fn nobody_dies_of_a_busy_machine_nor_of_a_stopped_one() {
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
    // A silo that would be voted out for the pause would be within a failure window or two of it.
    thread::sleep(secs(25));
    busy.is_whole();
    stopped.is_whole();
    busy.agree(secs(10));
    stopped.agree(secs(10));
}

#[test]
fn twenty_silos_started_at_once_are_all_active_within_a_minute() {
    let _machine = MACHINE.lock().unwrap_or_else(|e| e.into_inner());
    let mut crowd = Cluster::start(20, "lan");
    crowd.all_active(secs(60));
    crowd.is_whole();
    crowd.agree(secs(10));
}
