//! The connections that are open, and which of them has to go when there are too many.
//!
//! A client that opens connections and sends nothing must not keep others out: the probes of a
//! supervisor among them, which would end the silo.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long a connection that has to go may take.
const CLOSING: Duration = Duration::from_secs(1);

pub(super) struct Seats {
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    seats: HashMap<u64, Arc<Chair>>,
}

struct Chair {
    /// Since when it has been quiet, if it is.
    quiet_since: Mutex<Instant>,
    /// Whether a request is answered, or a stream runs.
    busy: AtomicBool,
    leave: Notify,
}

/// The place of one connection.
pub(super) struct Seat {
    number: u64,
    chair: Arc<Chair>,
    seats: Arc<Seats>,
    _permit: OwnedSemaphorePermit,
}

impl Seats {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(most)),
            taken: Mutex::default(),
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection: a free one, or that of the connection that has been quiet for
    /// longest. None if all are busy.
    pub(super) async fn take(self: &Arc<Self>) -> Option<Seat> {
        let free = self.free.clone();
        let permit = match free.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.longest_quiet()?.leave.notify_one();
                let freed = tokio::time::timeout(CLOSING, free.acquire_owned());
                freed.await.ok()?.ok()?
            }
        };
        let chair = Arc::new(Chair {
            quiet_since: Mutex::new(Instant::now()),
            busy: AtomicBool::new(false),
            leave: Notify::new(),
        });
        let mut taken = self.taken();
        let number = taken.next;
        taken.next += 1;
        taken.seats.insert(number, chair.clone());
        drop(taken);
        Some(Seat {
            number,
            chair,
            seats: self.clone(),
            _permit: permit,
        })
    }

    fn longest_quiet(&self) -> Option<Arc<Chair>> {
        let taken = self.taken();
        let quiet = taken.seats.values().filter(|chair| !chair.is_busy());
        quiet.min_by_key(|chair| chair.quiet_since()).cloned()
    }
}

impl Chair {
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    fn quiet_since(&self) -> Instant {
        let since = self.quiet_since.lock();
        *since.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Whether the connection does something for its client now.
    pub(super) fn is_busy(&self, busy: bool) {
        let since = self.chair.quiet_since.lock();
        *since.unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.chair.busy.store(busy, Ordering::Relaxed);
    }

    /// Returns when another connection needs the place.
    pub(super) async fn must_leave(&self) {
        self.chair.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken().seats.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_quiet_one_gives_way_and_a_busy_one_never() {
        let seats = Seats::new(2);
        let (busy, quiet) = (seats.take().await.unwrap(), seats.take().await.unwrap());
        busy.is_busy(true);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let leaves = async {
            quiet.must_leave().await;
            drop(quiet);
        };
        let (third, ()) = tokio::join!(seats.take(), leaves);
        let third = third.unwrap();
        third.is_busy(true);
        assert!(seats.take().await.is_none());
        busy.is_busy(false);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (fourth, ()) = tokio::join!(seats.take(), async {
            busy.must_leave().await;
            drop(busy);
        });
        assert!(fourth.is_some());
    }
}
