//! Requests take turns: what one works on without a pause ends before another one begins.
//!
//! One thread answers everybody, in the order in which they are ready. A thousand requests for a page
//! of a thousand silos are ready at once, and whoever asks then whether the silo lives would wait for
//! all of them: for so long that a supervisor kills the silo. What supervisors ask needs no turn, so
//! it waits for one other request at most.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::Semaphore;
use tokio::task::yield_now;

#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Semaphore>);

impl Turns {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Keeps all others waiting until it is dropped.
    #[cfg(test)]
    pub(super) async fn taken(&self) -> tokio::sync::OwnedSemaphorePermit {
        self.0.clone().acquire_owned().await.unwrap()
    }

    /// The outcome of a future that does each piece of its work in a turn of its own. While it waits
    /// for something, others have theirs.
    pub(super) async fn take<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        loop {
            let turn = self.0.acquire().await;
            // All others that are ready come first, and find the turn taken.
            yield_now().await;
            let polled = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
            drop(turn);
            if let Poll::Ready(outcome) = polled {
                return outcome;
            }
            // The work wakes this task.
            let mut waits = true;
            poll_fn(|_| match std::mem::take(&mut waits) {
                true => Poll::Pending,
                false => Poll::Ready(()),
            })
            .await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use tokio::task::LocalSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_needs_no_turn_waits_for_one_piece_of_work_at_most() {
        let (turns, done) = (Turns::new(), Rc::new(Cell::new(0)));
        let local = LocalSet::new();
        for _ in 0..1000 {
            let (turns, done) = (turns.clone(), done.clone());
            local.spawn_local(async move {
                turns.take(async { done.set(done.get() + 1) }).await;
            });
        }
        local
            .run_until(async {
                yield_now().await;
                assert!(done.get() <= 2, "{} before this one", done.get());
            })
            .await;
        local.await;
        assert_eq!(done.get(), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_something_holds_no_turn() {
        let turns = Turns::new();
        let waits = turns.take(tokio::time::sleep(Duration::from_secs(9)));
        let other = async {
            yield_now().await;
            turns.take(async { 7 }).await
        };
        let began = tokio::time::Instant::now();
        tokio::pin!(waits);
        let seven = tokio::select! {
            biased;
            () = &mut waits => 0,
            seven = other => seven,
        };
        assert_eq!((seven, began.elapsed()), (7, Duration::ZERO));
        waits.await;
        assert_eq!(began.elapsed(), Duration::from_secs(9));
    }
}
