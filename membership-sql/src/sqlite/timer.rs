//! One thread per process that ends operations that take too long.
//!
//! It needs no runtime, so that the table works with any, and it answers while the table's own
//! thread hangs in the operating system. It ends after a while without work, and starts again when
//! it is needed.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Something that has a deadline.
pub(super) trait Expire: Send + Sync {
    /// The deadline passed. Must not block.
    fn expire(&self);
}

struct State {
    watched: BTreeMap<(Instant, u64), Arc<dyn Expire>>,
    next: u64,
    running: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    watched: BTreeMap::new(),
    next: 0,
    running: false,
});
static WAKE: Condvar = Condvar::new();
const IDLE: Duration = Duration::from_secs(30);

/// Stops watching when dropped.
pub(super) struct Watch((Instant, u64));

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `expire` at `deadline`, unless the answer is dropped before.
///
/// # Errors
/// When the thread cannot be started.
pub(super) fn watch(deadline: Instant, what: Arc<dyn Expire>) -> std::io::Result<Watch> {
    let mut s = state();
    if !s.running {
        std::thread::Builder::new()
            .name("membership-timer".to_owned())
            .spawn(run)?;
        s.running = true;
    }
    let key = (deadline, s.next);
    s.next += 1;
    let first = s
        .watched
        .first_key_value()
        .is_none_or(|(earliest, _)| key < *earliest);
    s.watched.insert(key, what);
    drop(s);
    if first {
        WAKE.notify_one();
    }
    Ok(Watch(key))
}

impl Drop for Watch {
    fn drop(&mut self) {
        let gone = state().watched.remove(&self.0);
        drop(gone);
    }
}

fn run() {
    let mut s = state();
    loop {
        let now = Instant::now();
        match s.watched.first_key_value().map(|(key, _)| *key) {
            Some(key) if key.0 <= now => {
                let due = s.watched.remove(&key);
                drop(s);
                if let Some(due) = due {
                    due.expire();
                }
                s = state();
            }
            Some((at, _)) => {
                s = WAKE
                    .wait_timeout(s, at - now)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
            None => {
                let (back, waited) = WAKE
                    .wait_timeout(s, IDLE)
                    .unwrap_or_else(PoisonError::into_inner);
                s = back;
                if waited.timed_out() && s.watched.is_empty() {
                    s.running = false;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct Sent(Mutex<mpsc::Sender<u32>>, u32);
    impl Expire for Sent {
        fn expire(&self) {
            self.0.lock().unwrap().send(self.1).unwrap();
        }
    }

    #[test]
    fn deadlines_expire_in_order_and_not_after_the_end() {
        let (tx, rx) = mpsc::channel();
        let now = Instant::now();
        let send = |n| Arc::new(Sent(Mutex::new(tx.clone()), n));
        let late = watch(now + Duration::from_millis(60), send(2)).unwrap();
        let over = watch(now + Duration::from_millis(30), send(9)).unwrap();
        let early = watch(now + Duration::from_millis(20), send(1)).unwrap();
        drop(over);
        assert_eq!(rx.recv_timeout(Duration::from_secs(10)), Ok(1));
        assert_eq!(rx.recv_timeout(Duration::from_secs(10)), Ok(2));
        drop((late, early));
    }
}
