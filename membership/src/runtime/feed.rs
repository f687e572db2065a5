//! A stream of events that never slows its source down: a slow reader misses the oldest, and is told
//! how many.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::broadcast::{self, Receiver, Sender, WeakSender, error::RecvError};

/// The stream holds this many events for a slow reader.
const CAPACITY: usize = 256;

/// One item of a feed.
#[derive(Debug)]
pub(crate) enum Item<E> {
    Event(E),
    /// So many events are gone.
    Missed(u64),
}

/// The reader's side.
pub(crate) struct Feed<E> {
    waiting: Waiting<E>,
}

type Waiting<E> = Pin<Box<dyn Future<Output = (Result<E, RecvError>, Receiver<E>)> + Send + Sync>>;

fn wait<E: Clone + Send + Sync + 'static>(mut receiver: Receiver<E>) -> Waiting<E> {
    Box::pin(async move { (receiver.recv().await, receiver) })
}

impl<E: Clone + Send + Sync + 'static> Feed<E> {
    fn new(receiver: Receiver<E>) -> Self {
        Self {
            waiting: wait(receiver),
        }
    }

    /// The next item; none when the source has ended. Loses nothing if it is not polled again.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item<E>>> {
        let Poll::Ready((received, receiver)) = self.waiting.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        self.waiting = wait(receiver);
        Poll::Ready(match received {
            Ok(event) => Some(Item::Event(event)),
            Err(RecvError::Lagged(events)) => Some(Item::Missed(events)),
            Err(RecvError::Closed) => None,
        })
    }
}

/// The writer's side.
#[derive(Clone)]
pub(crate) struct FeedSender<E>(Sender<E>);

impl<E: Clone + Send + Sync + 'static> FeedSender<E> {
    pub(crate) fn new() -> Self {
        Self(Sender::new(CAPACITY))
    }

    pub(crate) fn subscribe(&self) -> Feed<E> {
        Feed::new(self.0.subscribe())
    }

    pub(crate) fn source(&self) -> FeedSource<E> {
        FeedSource(self.0.downgrade())
    }

    /// Whether anybody reads.
    pub(crate) fn is_read(&self) -> bool {
        self.0.receiver_count() > 0
    }

    pub(crate) fn send(&self, event: E) {
        // There may be no receiver.
        let _ = self.0.send(event);
    }
}

/// Where feeds come from, for as long as their writer lives. It does not keep the writer.
pub(crate) struct FeedSource<E>(WeakSender<E>);

impl<E> Clone for FeedSource<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: Clone + Send + Sync + 'static> FeedSource<E> {
    pub(crate) fn subscribe(&self) -> Feed<E> {
        Feed::new(match self.0.upgrade() {
            Some(sender) => sender.subscribe(),
            // It has stopped: no more events follow.
            None => broadcast::channel(1).1,
        })
    }
}
