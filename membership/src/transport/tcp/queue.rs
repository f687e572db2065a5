//! Messages that wait to be sent on one connection. Bounded, whatever the other side does: the
//! oldest are dropped, because an old probe or an old delta is useless.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::counters::{Counters, add, sub};
use super::frame::CHUNK;
use crate::transport::EncodedMessage;

/// The bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Messages of at most [`CHUNK`] bytes.
    pub(super) messages: usize,
    /// Bytes of longer messages; one may always wait, however long.
    pub(super) bytes: usize,
    /// Bytes of all messages of all queues; above it each keeps only its newest.
    pub(super) in_all: usize,
}

/// How many short messages a queue keeps when all queues hold too much.
const NEWEST: usize = 8;

/// What the writer sends next.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) ping: bool,
    pub(super) pong: bool,
    /// Nothing comes after this.
    pub(super) close: bool,
    /// Short messages, together a little more than [`CHUNK`] bytes at most.
    pub(super) short: Vec<EncodedMessage>,
    /// A long message, if the writer wanted one.
    pub(super) long: Option<EncodedMessage>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        !self.ping && !self.pong && !self.close && self.short.is_empty() && self.long.is_none()
    }
}

#[derive(Debug, Default)]
struct Waiting {
    short: VecDeque<EncodedMessage>,
    long: VecDeque<EncodedMessage>,
    long_bytes: usize,
    ping: bool,
    pong: bool,
    close: bool,
    closed: bool,
}

/// The queue of one connection, or of one that is being dialled.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Notify,
    bounds: Bounds,
    counters: Arc<Counters>,
}

impl Queue {
    pub(super) fn new(bounds: Bounds, counters: Arc<Counters>) -> Self {
        Self {
            waiting: Mutex::default(),
            changed: Notify::new(),
            bounds,
            counters,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message. If the queue is full, older ones are dropped; gives how many. Not 0 means
    /// that the other side does not read.
    pub(super) fn push(&self, item: EncodedMessage) -> usize {
        let mut waiting = self.lock();
        if waiting.closed {
            add(&self.counters.dropped_no_connection, 1);
            return 0;
        }
        add(&self.counters.queued_bytes, item.len());
        let all = self.counters.queued_bytes.load(Relaxed);
        let is_full = all > u64::try_from(self.bounds.in_all).unwrap_or(u64::MAX);
        let (messages, bytes) = match is_full {
            true => (NEWEST.min(self.bounds.messages), 0),
            false => (self.bounds.messages, self.bounds.bytes),
        };
        let mut dropped = 0;
        if item.len() <= CHUNK {
            waiting.short.push_back(item);
            while waiting.short.len() > messages {
                dropped += 1;
                let old = waiting.short.pop_front().map_or(0, |i| i.len());
                sub(&self.counters.queued_bytes, old);
            }
        } else {
            waiting.long_bytes += item.len();
            waiting.long.push_back(item);
            while waiting.long.len() > 1 && waiting.long_bytes > bytes {
                dropped += 1;
                let old = waiting.long.pop_front().map_or(0, |i| i.len());
                waiting.long_bytes -= old;
                sub(&self.counters.queued_bytes, old);
            }
        }
        drop(waiting);
        add(&self.counters.dropped_queue_full, dropped);
        self.changed.notify_one();
        dropped
    }

    /// Asks for a ping.
    pub(super) fn ping(&self) {
        self.lock().ping = true;
        self.changed.notify_one();
    }

    /// Asks for an answer to a ping; several requests are one.
    pub(super) fn pong(&self) {
        self.lock().pong = true;
        self.changed.notify_one();
    }

    /// Drops everything, and asks to tell the other side that this side closes the connection.
    pub(super) fn say_close(&self) {
        self.close();
        self.lock().close = true;
        self.changed.notify_one();
    }

    /// What to send next; may be empty.
    pub(super) fn take(&self, want_long: bool) -> Batch {
        let mut waiting = self.lock();
        let mut batch = Batch {
            ping: std::mem::take(&mut waiting.ping),
            pong: std::mem::take(&mut waiting.pong),
            close: std::mem::take(&mut waiting.close),
            ..Batch::default()
        };
        let (mut taken, mut short) = (0, 0);
        while short < CHUNK {
            let Some(item) = waiting.short.pop_front() else {
                break;
            };
            short += item.len();
            batch.short.push(item);
        }
        taken += short;
        if want_long {
            batch.long = waiting.long.pop_front();
            let long = batch.long.as_ref().map_or(0, EncodedMessage::len);
            waiting.long_bytes -= long;
            taken += long;
        }
        sub(&self.counters.queued_bytes, taken);
        batch
    }

    /// Waits until there may be something to take. Cancel safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn is_empty(&self) -> bool {
        let waiting = self.lock();
        waiting.short.is_empty() && waiting.long.is_empty()
    }

    /// Moves all messages to the queue of another connection.
    pub(super) fn move_to(&self, other: &Self) {
        let (short, long) = {
            let mut waiting = self.lock();
            waiting.long_bytes = 0;
            (
                std::mem::take(&mut waiting.short),
                std::mem::take(&mut waiting.long),
            )
        };
        for item in short.into_iter().chain(long) {
            sub(&self.counters.queued_bytes, item.len());
            other.push(item);
        }
    }

    /// Drops all messages.
    pub(super) fn clear(&self) {
        let mut waiting = self.lock();
        let (items, bytes) = waiting
            .short
            .drain(..)
            .fold((0, 0), |(n, b), i| (n + 1, b + i.len()));
        add(
            &self.counters.dropped_no_connection,
            items + waiting.long.len(),
        );
        sub(&self.counters.queued_bytes, bytes + waiting.long_bytes);
        waiting.long.clear();
        waiting.long_bytes = 0;
    }

    /// Drops everything that waits, and everything that comes later.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.clear();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.clear();
    }
}
