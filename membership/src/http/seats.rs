//! The connections that are open, and which of them has to go when there are too many, or when their
//! answers take too much memory.
//!
//! A client that opens connections and sends nothing must not keep others out: the probes of a
//! supervisor among them, which would end the silo. One that asks on many connections and takes no
//! answer must not take the memory of the silo.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long a connection that has to go may take.
const CLOSING: Duration = Duration::from_secs(1);
/// So many bytes of answers may wait for their clients; but one answer may always.
const MOST_UNTAKEN: usize = 32 << 20;

pub(super) struct Seats {
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    seats: HashMap<u64, Arc<Chair>>,
    /// Of all answers, in bytes.
    untaken: usize,
}

struct Chair {
    /// Since when it has been quiet, if it is.
    quiet_since: Mutex<Instant>,
    /// Whether a request is answered, or a stream runs.
    busy: AtomicBool,
    /// How many bytes of answers the client has not taken.
    untaken: AtomicUsize,
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
            untaken: AtomicUsize::new(0),
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

    /// An answer of so many bytes is on its way to a client. Where there are too many, those leave
    /// whose clients had the most time to take theirs.
    fn answers(&self, number: u64, bytes: usize) {
        let mut taken = self.taken();
        let Some(chair) = taken.seats.get(&number) else {
            return;
        };
        chair.untaken.fetch_add(bytes, Relaxed);
        taken.untaken += bytes;
        while taken.untaken > MOST_UNTAKEN {
            let others = taken.seats.iter().filter(|(n, _)| **n != number);
            let slow = others.filter(|(_, chair)| chair.untaken.load(Relaxed) > 0);
            let Some((_, chair)) = slow.min_by_key(|(_, chair)| chair.quiet_since()) else {
                break;
            };
            let freed = chair.untaken.swap(0, Relaxed);
            chair.leave.notify_one();
            taken.untaken -= freed;
        }
    }

    fn taken_by(&self, chair: &Chair) {
        // Most connections have nothing that waits.
        if chair.untaken.load(Relaxed) > 0 {
            let mut taken = self.taken();
            taken.untaken -= chair.untaken.swap(0, Relaxed);
        }
    }
}

impl Chair {
    fn is_busy(&self) -> bool {
        self.busy.load(Relaxed)
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
        self.chair.busy.store(busy, Relaxed);
    }

    /// Busy until this is dropped.
    pub(super) fn works(self: &Arc<Self>) -> Busy {
        self.is_busy(true);
        Busy(self.clone())
    }

    /// An answer of so many bytes is on its way to the client.
    pub(super) fn answers(&self, bytes: usize) {
        self.seats.answers(self.number, bytes);
    }

    /// The client has taken everything.
    pub(super) fn has_answered(&self) {
        self.seats.taken_by(&self.chair);
    }

    /// Returns when another connection needs the place.
    pub(super) async fn must_leave(&self) {
        self.chair.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken_by(&self.chair);
        self.seats.taken().seats.remove(&self.number);
    }
}

/// The connection does something for its client until this is dropped.
pub(super) struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.is_busy(false);
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

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_no_answer_gives_way_to_other_answers() {
        let seats = Seats::new(9);
        let seat = async || Arc::new(seats.take().await.unwrap());
        let leaves = async |seat: &Seat| {
            let left = tokio::time::timeout(Duration::from_millis(1), seat.must_leave());
            left.await.is_ok()
        };
        let (first, second, prompt) = (seat().await, seat().await, seat().await);
        let half = MOST_UNTAKEN / 2;
        for one in [&first, &prompt, &second] {
            drop(one.works());
            one.answers(half);
            tokio::time::sleep(Duration::from_secs(1)).await;
            prompt.has_answered();
        }
        assert!(!leaves(&first).await, "both have room");
        // One answer may be of any size.
        prompt.answers(2 * MOST_UNTAKEN);
        assert!(leaves(&first).await && leaves(&second).await);
        assert!(!leaves(&prompt).await);
        assert_eq!(seats.taken().untaken, 2 * MOST_UNTAKEN);
        drop((first, second, prompt));
        assert_eq!(seats.taken().untaken, 0);
    }
}
