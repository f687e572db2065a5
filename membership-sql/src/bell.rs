//! "The version may have moved": a bell that a table rings, and the streams that hear it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

#[derive(Default)]
struct State {
    rung: bool,
    closed: bool,
    waker: Option<Waker>,
}

/// All listeners of one table.
#[derive(Default)]
pub(crate) struct Bell(Mutex<Vec<Weak<Mutex<State>>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bell {
    /// One more listener.
    pub(crate) fn listen(&self) -> Listener {
        let state = Arc::new(Mutex::new(State::default()));
        lock(&self.0).push(Arc::downgrade(&state));
        Listener(state)
    }

    /// Whether anybody listens.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_heard(&self) -> bool {
        let mut all = lock(&self.0);
        all.retain(|l| l.strong_count() > 0);
        !all.is_empty()
    }

    pub(crate) fn ring(&self) {
        self.each(|s| s.rung = true);
    }

    /// The streams end.
    pub(crate) fn close(&self) {
        self.each(|s| s.closed = true);
    }

    fn each(&self, change: impl Fn(&mut State)) {
        for listener in lock(&self.0).iter().filter_map(Weak::upgrade) {
            let mut state = lock(&listener);
            change(&mut state);
            let waker = state.waker.take();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Hints that nobody has taken yet are one hint.
pub(crate) struct Listener(Arc<Mutex<State>>);

impl Stream for Listener {
    type Item = ();
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let mut state = lock(&self.0);
        if std::mem::take(&mut state.rung) {
            return Poll::Ready(Some(()));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
