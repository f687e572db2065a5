//! Many runs, side by side, with a bar that says how far they are.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for so many runs.
pub fn bar(runs: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(runs).with_message("");
    let style = format!("{what} {{bar:40}} {{pos}} of {{len}}, {{eta}} left{{msg}}");
    bar.set_style(ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Does each piece of work, on so many threads; the results are in the order of the pieces.
pub fn side_by_side<W: Sync, T: Send>(what: &str, pieces: &[W], threads: usize, work: impl Fn(&W) -> T + Sync) -> Vec<T> {
    let bar = bar(pieces.len() as u64, what);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, pieces.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(piece) = pieces.get(index) else { return };
                    let result = work(piece);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, result));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_their_order() {
        let pieces: Vec<u32> = (0..50).collect();
        assert_eq!(super::side_by_side("squares", &pieces, 4, |n| n * n), pieces.iter().map(|n| n * n).collect::<Vec<_>>());
    }
}
