//! Two small tasks beside the driver: one measures how late the executor runs, one forwards hints.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use membership_core::HintStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The largest lag since it was last taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lag {
    cell: Arc<(AtomicU64, Notify)>,
}

impl Lag {
    /// Measures every 100 to 500 ms, at random, so as not to coincide with other periodic work.
    /// Runs until it is dropped.
    pub(crate) async fn measure(self, seed: u64) {
        let mut random = seed | 1;
        loop {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let due = Instant::now() + Duration::from_millis(100 + random % 400);
            sleep_until(due).await;
            let late = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.cell.0.fetch_max(late, Ordering::AcqRel);
            self.cell.1.notify_one();
        }
    }

    /// Waits for a measurement. Cancel safe.
    pub(crate) async fn next(&self) -> Duration {
        self.cell.1.notified().await;
        Duration::from_nanos(self.cell.0.swap(0, Ordering::AcqRel))
    }
}

/// The driver gets at most one hint in this time, however often the store gives one.
const MIN_HINT_INTERVAL: Duration = Duration::from_millis(20);

/// Passes hints on until the stream ends. Runs until it is dropped.
pub(crate) async fn forward_hints(mut hints: HintStream, to: Arc<Notify>) {
    while std::future::poll_fn(|cx| hints.as_mut().poll_next(cx))
        .await
        .is_some()
    {
        to.notify_one();
        tokio::time::sleep(MIN_HINT_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_blocked_executor_is_measured() {
        let lag = Lag::default();
        let task = tokio::spawn(lag.clone().measure(7));
        lag.next().await;
        std::thread::sleep(Duration::from_millis(900));
        assert!(
            lag.next().await >= Duration::from_millis(300),
            "the task was due at least 400 ms ago"
        );
        task.abort();
    }
}
