//! A member that sends much in one message: many rows, or rows with much that nobody knows.

use std::time::Duration;

use bytes::Bytes;
use membership::Row;
use membership::protocol::Destination;

use super::cluster::Cluster;
use super::forged;
use super::memory::Growth;
use super::watch::{Seen, Watch};

const MIB: usize = 1 << 20;
/// So much memory may a message cost, in MiB.
const COST: u64 = 256;

/// Has the liar send a message to the first silo, twice. Fails if that costs too much, or if
/// anybody misses an answer.
async fn send(cluster: &Cluster, body: &Bytes) -> Seen {
    let (liar, victim) = (cluster.liar(), &cluster.honest()[0]);
    cluster.forget_probes();
    let watch = Watch::over(&cluster.table, cluster.honest());
    let growth = Growth::measure();
    for _ in 0..2 {
        let over = Destination::Endpoint(victim.me().endpoint());
        let arrived = victim.stats().bytes_received + body.len() as u64;
        liar.say_bytes(victim.me(), over, body.clone());
        victim.until(|s| s.bytes_received >= arrived).await;
        // Short messages may pass the last piece of a long one, but only once.
        for _ in 0..2 {
            liar.caught_up(victim.me()).await;
        }
    }
    cluster.probes_go_on().await;
    let grown = growth.end();
    let (longest, unanswered) = cluster.probes();
    let seen = watch.end().await;
    let kib = body.len() / 1024;
    println!("{kib} KiB, twice: +{grown} MiB, probes {longest:?}, {unanswered} unanswered");
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);
    assert!(grown < COST, "{grown} MiB");
    assert_eq!(unanswered, 0);
    assert!(longest < Duration::from_millis(500), "{longest:?}");
    seen
}

/// A message with so many rows, each with an unknown field of so many bytes. A value of two bytes
/// takes some 32 in memory.
fn with_unknown_fields(cluster: &Cluster, rows: u64, bytes: usize) -> Bytes {
    let view = cluster.as_read();
    let entry = view.get(&cluster.liar().me()).unwrap();
    let row = |i| {
        let mut entry = entry.clone();
        entry.address = entry.address.with_epoch(entry.address.epoch() + 1 + i);
        entry.written_at = view.version() + 1;
        let row = Row::encode(entry);
        let start = row.body().strip_suffix('}').unwrap();
        let unknown = format!("{start},\"x\":[0{}]}}", ",0".repeat(bytes / 2));
        (row.key().to_owned(), unknown)
    };
    let rows: Vec<_> = (0..rows).map(row).collect();
    let body = forged::next_with_rows(&view, cluster.liar().me(), &rows);
    assert!(body.len() > 18 * MIB, "{}", body.len());
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_in_a_short_message_are_dropped() {
    let cluster = Cluster::start().await;
    let view = cluster.as_read();
    let rows: Vec<_> = (0..131_000)
        .map(|n: u32| {
            let digit = |i: u32| char::from_digit(n / 36_u32.pow(i) % 36, 36).unwrap();
            ((0..4).map(digit).collect(), String::new())
        })
        .collect();
    let body = forged::next_with_rows(&view, cluster.liar().me(), &rows);
    assert!(body.len() < MIB, "{}", body.len());
    let seen = send(&cluster, &body).await;
    assert!(seen.published.is_empty() && seen.withdrawn.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_with_long_unknown_fields_are_dropped() {
    let cluster = Cluster::start().await;
    let body = with_unknown_fields(&cluster, 19, MIB - 1024);
    let seen = send(&cluster, &body).await;
    assert!(seen.published.is_empty() && seen.withdrawn.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_with_unknown_fields_cost_bounded_memory() {
    let cluster = Cluster::start().await;
    let body = with_unknown_fields(&cluster, 310, 62 * 1024);
    send(&cluster, &body).await;
}
