//! A queue is bounded and drops the oldest messages.

use std::sync::Arc;

use bytes::Bytes;

use super::super::counters::Counters;
use super::super::frame::CHUNK;
use super::super::queue::{Bounds, Queue};
use crate::transport::{EncodedMessage, Lane};

fn item(tag: u8, len: usize) -> EncodedMessage {
    EncodedMessage::new(Lane::Bulk, vec![tag; 10].into(), vec![tag; len - 10].into())
}

fn queue(messages: usize, bytes: usize) -> (Queue, Arc<Counters>) {
    let counters = Arc::new(Counters::default());
    (
        Queue::new(bounds(messages, bytes), counters.clone()),
        counters,
    )
}

fn bounds(messages: usize, bytes: usize) -> Bounds {
    Bounds {
        messages,
        bytes,
        in_all: 1 << 30,
    }
}

#[test]
fn when_all_queues_hold_too_much_each_keeps_its_newest() {
    let counters = Arc::new(Counters::default());
    let in_all = 10 * CHUNK;
    let bounds = Bounds {
        in_all,
        ..bounds(100, 9 * CHUNK)
    };
    let [one, two] = [(); 2].map(|()| Queue::new(bounds, counters.clone()));
    for tag in 1..=50 {
        assert_eq!(one.push(item(tag, 20)), 0);
    }
    assert_eq!(one.push(item(1, 8 * CHUNK)), 0);
    assert_eq!(two.push(item(1, 3 * CHUNK)), 0, "one may always wait");
    assert_eq!(one.push(item(51, 20)), 43);
    assert_eq!(one.push(item(2, 2 * CHUNK)), 1);
    let kept = one.take(true);
    assert_eq!((kept.short.len(), kept.long.unwrap().head()[0]), (8, 2));
}

#[test]
fn the_oldest_short_messages_are_dropped() {
    let (q, counters) = queue(2, 0);
    assert_eq!((1..=5).map(|tag| q.push(item(tag, 20))).sum::<usize>(), 3);
    let tags: Vec<u8> = q.take(true).short.iter().map(|i| i.head()[0]).collect();
    assert_eq!(tags, [4, 5]);
    assert_eq!(
        (
            counters.read().dropped_queue_full,
            counters.read().queued_bytes
        ),
        (3, 0)
    );
}

#[test]
fn long_messages_are_bounded_by_bytes_but_one_may_always_wait() {
    let (q, counters) = queue(2, 3 * CHUNK);
    assert_eq!(q.push(item(1, 10 * CHUNK)), 0, "however long");
    assert_eq!(q.push(item(2, 2 * CHUNK)), 1);
    assert_eq!(q.push(item(3, CHUNK + 1)), 1);
    assert_eq!(
        q.push(item(4, 20)),
        0,
        "short ones have a bound of their own"
    );
    assert_eq!(counters.read().queued_bytes, CHUNK as u64 + 21);
    let batch = q.take(false);
    assert_eq!((batch.short.len(), batch.long.is_none()), (1, true));
    assert_eq!(q.take(true).long.unwrap().head()[0], 3);
    assert!(q.is_empty());
}

#[test]
fn a_closed_queue_takes_nothing() {
    let (q, counters) = queue(8, CHUNK);
    q.push(item(1, 20));
    q.push(item(1, 2 * CHUNK));
    q.close();
    q.push(item(2, 20));
    assert!(q.take(true).is_empty());
    assert_eq!(
        (
            counters.read().dropped_no_connection,
            counters.read().queued_bytes
        ),
        (3, 0)
    );
}

#[test]
fn messages_can_move_to_another_queue() {
    let (from, counters) = queue(8, 9 * CHUNK);
    let to = Queue::new(bounds(1, 9 * CHUNK), counters.clone());
    from.push(item(1, 20));
    from.push(item(2, 30));
    from.push(item(3, 2 * CHUNK));
    from.move_to(&to);
    assert!(from.is_empty());
    let batch = to.take(true);
    assert_eq!(
        (
            batch.short.iter().map(|i| i.head()[0]).collect::<Vec<_>>(),
            batch.long.unwrap().head()[0]
        ),
        (vec![2], 3)
    );
    assert_eq!(
        (
            counters.read().dropped_queue_full,
            counters.read().queued_bytes
        ),
        (1, 0)
    );
}

#[test]
fn pieces_cover_a_message_exactly() {
    let it = EncodedMessage::new(
        Lane::Bulk,
        Bytes::from_static(b"head"),
        Bytes::from_static(b"and body"),
    );
    for most in 1..=13 {
        let mut all = Vec::new();
        for from in (0..it.len()).step_by(most) {
            let [a, b] = it.part(from, most);
            assert!(a.len() + b.len() <= most);
            all.extend_from_slice(a);
            all.extend_from_slice(b);
        }
        assert_eq!(all, b"headand body", "{most}");
    }
}
