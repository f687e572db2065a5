//! How much slower this machine is than a quiet one, because others compute on it.
//!
//! Only for limits of time that are promised of a quiet machine. It says nothing of a disk or a
//! network.

use std::hint::black_box;
use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

/// How long each core is measured.
const LONG: Duration = Duration::from_millis(200);
/// Turns of a computation of about a tenth of a millisecond: shorter than a thread's turn on a core.
const TURNS: u64 = 10_000;

/// How many times as long the same computations take on average as the fastest of them, with one
/// thread per core: at least 1, and near 1 on a quiet machine. Takes a fifth of a second, in which
/// the caller should compute nothing.
pub(crate) async fn slowness() -> f64 {
    let measured = tokio::task::spawn_blocking(|| {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads: Vec<_> = (0..cores).map(|_| thread::spawn(of_one)).collect();
        let all: Vec<f64> = threads
            .into_iter()
            .flat_map(thread::JoinHandle::join)
            .collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    });
    measured.await.unwrap_or(1.0).max(1.0)
}

fn of_one() -> f64 {
    let (began, mut fastest, mut times) = (Instant::now(), LONG, 0_u32);
    while began.elapsed() < LONG {
        let since = Instant::now();
        black_box((0..TURNS).fold(1_u64, |a, n| black_box(a.wrapping_mul(31) ^ n)));
        fastest = fastest.min(since.elapsed());
        times += 1;
    }
    let average = began.elapsed().as_secs_f64() / f64::from(times.max(1));
    average / fastest.as_secs_f64().max(f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn more_threads_than_cores_make_a_machine_slower() {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let until = Instant::now() + 6 * LONG;
        let busy = move || while black_box(Instant::now()) < until {};
        let others: Vec<_> = (0..4 * cores).map(|_| thread::spawn(busy)).collect();
        let slow = slowness().await;
        others.into_iter().for_each(|other| other.join().unwrap());
        // Each core has five threads; even with other work before, they get less of it than one.
        assert!(slow > 1.5, "{slow}");
    }
}
