//! The memory of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Resident memory of this process in MiB; 0 where the system does not show it.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

/// Measures from now on how much it grows.
pub struct Growth {
    before: u64,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Growth {
    pub fn measure() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        Self {
            before: resident(),
            stop,
            thread: std::thread::spawn(move || {
                let mut most = 0;
                while !stopped.load(Ordering::Relaxed) {
                    most = most.max(resident());
                    std::thread::sleep(Duration::from_millis(2));
                }
                most
            }),
        }
    }

    /// By how many MiB it grew at most.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().saturating_sub(self.before)
    }
}
