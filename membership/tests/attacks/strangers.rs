//! All that a lying member could say, said by a stranger, and by a newcomer, who has read the table
//! but has no row. A stranger is not heard; of a newcomer no view is.

use std::time::Duration;

use membership::protocol::Message;
use membership::{CauseOfDeath, ClusterView, Delta, MAX_SAFE_INTEGER, SiloAddress, SiloStatus};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::cluster::Cluster;
use super::forged;
use super::stranger::{ALPN, Introduction, Newcomer, Stranger, framed};
use super::watch::Watch;
use crate::common::loopback;

/// Views and requests of which each would do harm if it were believed.
fn lies(cluster: &Cluster, now: &ClusterView, by: SiloAddress, to: SiloAddress) -> Vec<Message> {
    let next = |entry| forged::next(now, by, vec![entry], vec![]);
    let version = now.version() + 1;
    let mut lies = vec![
        forged::message(Delta::whole(&cluster.young)),
        forged::after_another_commit(now, by),
        forged::of_another_path(now, by, to),
        forged::next_with_a_note(now, by, to),
        forged::at_version(now, by, now.version() + 1000),
        forged::at_version(now, by, MAX_SAFE_INTEGER),
        forged::next(now, by, vec![], vec![to.row_key()]),
        next(forged::dead(now, to, CauseOfDeath::Left)),
        next(forged::voted_out(now, to)),
        next(forged::with_status(now, to, SiloStatus::ShuttingDown)),
    ];
    let farewells = lies.iter().filter_map(|lie| match lie {
        Message::Delta(delta) => Some(Message::Farewell {
            version,
            delta: Some(delta.clone()),
        }),
        _ => None,
    });
    let farewells: Vec<_> = farewells.collect();
    lies.extend(farewells);
    lies.push(Message::YouAreDead { version });
    // It proves contact, and says what others have proven.
    let (nonce, word) = (1, 2);
    lies.push(Message::Vouch { nonce, word });
    let words = vec![(by, word)];
    lies.push(Message::AskVouched { nonce, words });
    let silos = vec![by, to];
    lies.push(Message::Vouched { nonce, silos });
    lies
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_stranger_says_is_heard() {
    let cluster = Cluster::start().await;
    let now = cluster.as_read();
    let [silo, other, ..] = cluster.honest() else {
        panic!("more than two silos")
    };
    let watch = Watch::over(&cluster.table, cluster.honest());
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let stranger = Stranger::new();
    let mut all = lies(&cluster, &now, other.me(), silo.me());
    all.push(Message::DialMe { nonce: 1, endpoint });
    let before = silo.stats();
    let attempts = all.len() as u64;
    for lie in all {
        // It says to be a silo of the cluster, and does not wait for an answer.
        let mut me = Introduction::of(stranger.instance);
        (me.silo, me.at) = (Some(other.me()), other.me().endpoint());
        let mut header = other.transport.header(silo.me());
        header.version += 1;
        let says = [me.to_bytes(), framed(&header, &lie)].concat();
        let answer = stranger.talk(silo.me().endpoint(), ALPN, move |_| says);
        assert!(answer.await.said.is_empty());
    }
    let refused = move |s: &membership::transport::TransportStats| {
        s.refused_unproven + s.refused_handshake == before.refused_unproven + attempts
    };
    let after = silo.until(refused).await;
    assert_eq!(after.accepted, before.accepted);
    let dialled = timeout(Duration::from_millis(500), listener.accept()).await;
    assert!(dialled.is_err(), "{dialled:?}");
    cluster.settle().await;
    let seen = watch.end().await;
    assert_eq!(cluster.as_read(), now);
    assert!(seen.published.is_empty() && seen.withdrawn.is_empty());
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_view_of_a_newcomer_is_believed() {
    let cluster = Cluster::start().await;
    let now = cluster.as_read();
    let [silo, other, ..] = cluster.honest() else {
        panic!("more than two silos")
    };
    let watch = Watch::over(&cluster.table, cluster.honest());
    let mut newcomer = Newcomer::knowing(&now).await;
    let honest = newcomer.header(&now, silo.me());
    let mut ahead = honest.clone();
    ahead.version = u64::MAX;
    let mut as_other = other.transport.header(silo.me());
    as_other.version += 1;
    let mut as_other_process = as_other.clone();
    as_other_process.instance = newcomer.instance;
    let received = silo.stats().received;
    let lies = lies(&cluster, &now, other.me(), silo.me());
    for lie in &lies {
        for header in [&honest, &ahead, &as_other, &as_other_process] {
            newcomer.say(header, lie.clone());
            newcomer.say(header, Message::Probe { nonce: 1 });
        }
        newcomer.answered(&honest).await;
    }
    let said = 2 * lies.len() as u64;
    silo.until(|s| s.received >= received + said).await;
    for _ in 0..3 {
        cluster.settle().await;
    }
    // Requests of silos without a row cause reads, but nothing is published.
    cluster.probes_go_on().await;
    let seen = watch.end().await;
    assert_eq!(cluster.as_read(), now);
    assert!(seen.published.is_empty() && seen.withdrawn.is_empty());
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);
}
