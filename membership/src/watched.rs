//! A stream over a tokio watch channel. A slow reader misses values, never the newest.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::watch;

type Waiting<T> = Pin<Box<dyn Future<Output = (bool, watch::Receiver<T>)> + Send + Sync>>;

/// Yields the value of the channel at once, and then after each change. Ends with the sender.
pub(crate) struct Watched<T> {
    waiting: Waiting<T>,
}

impl<T: Clone + Send + Sync + 'static> Watched<T> {
    pub(crate) fn new(mut receiver: watch::Receiver<T>) -> Self {
        receiver.mark_changed();
        Self {
            waiting: wait(receiver),
        }
    }
}

fn wait<T: Send + Sync + 'static>(mut receiver: watch::Receiver<T>) -> Waiting<T> {
    Box::pin(async move {
        let open = receiver.changed().await.is_ok();
        (open, receiver)
    })
}

impl<T: Clone + Send + Sync + 'static> Stream for Watched<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match self.waiting.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready((open, mut receiver)) => {
                let value = open.then(|| receiver.borrow_and_update().clone());
                self.waiting = wait(receiver);
                Poll::Ready(value)
            }
        }
    }
}
