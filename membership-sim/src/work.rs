//! Runs many simulations side by side, with a progress bar.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar for this many runs.
pub fn bar(runs: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(runs).with_message("");
    let style = format!("{what} {{bar:40}} {{pos}} of {{len}}, {{eta}} left{{msg}}");
    bar.set_style(
        ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

/// Runs each piece of work, on this many threads. The results are in the order of the pieces.
pub fn side_by_side<W: Sync, T: Send>(
    what: &str,
    pieces: &[W],
    threads: usize,
    work: impl Fn(&W) -> T + Sync,
) -> Vec<T> {
    let bar = bar(pieces.len() as u64, what);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, pieces.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(piece) = pieces.get(index) else {
                        return;
                    };
                    let result = work(piece);
                    done.lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push((index, result));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Measures the work of this thread: time on a core if the system reports it, so that other
/// programs on the machine do not matter.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    began: Instant,
    on_core: Option<Duration>,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self {
            began: Instant::now(),
            on_core: on_core(),
        }
    }

    pub fn seconds(&self) -> f64 {
        let on_core = on_core()
            .zip(self.on_core)
            .map(|(now, then)| now.saturating_sub(then));
        on_core
            .unwrap_or_else(|| self.began.elapsed())
            .as_secs_f64()
    }
}

fn on_core() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace()
        .next()?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    #[test]
    fn work_takes_time() {
        let watch = super::Stopwatch::start();
        let mut sum = 0_u64;
        while watch.seconds() < 0.01 {
            sum = (0..100_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(watch.began.elapsed().as_secs_f64() >= 0.009, "{sum}");
    }

    #[test]
    fn results_keep_their_order() {
        let pieces: Vec<u32> = (0..50).collect();
        assert_eq!(
            super::side_by_side("squares", &pieces, 4, |n| n * n),
            pieces.iter().map(|n| n * n).collect::<Vec<_>>()
        );
    }
}
