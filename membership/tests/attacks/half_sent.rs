//! A member that begins long messages on many connections and does not end them.

use std::net::SocketAddr;

use bytes::Bytes;
use membership::protocol::Destination;
use membership::transport::TcpConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::{TcpListener, TcpStream};

use super::cluster::Cluster;
use super::memory::Growth;
use super::watch::Watch;
use crate::common::loopback;

const MIB: usize = 1 << 20;
/// What the silo may hold of unfinished messages.
const BOUND: usize = 32 * MIB;
/// What each connection carries of a longer message: together far more than that.
const SENT: usize = 6 * MIB;
const CONNECTIONS: usize = 40;

/// Forwards connections, but of what the side that dialled sends no more than [`SENT`] bytes.
async fn narrow(listener: TcpListener, to: SocketAddr) {
    loop {
        let (near, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let far = TcpStream::connect(to).await.unwrap();
            let (near_read, mut near_write) = near.into_split();
            let (mut far_read, mut far_write) = far.into_split();
            let back = async {
                let _ = copy(&mut far_read, &mut near_write).await;
            };
            let forth = async {
                let _ = copy(&mut near_read.take(SENT as u64), &mut far_write).await;
                // The rest waits for ever.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = back => {}
                () = forth => {}
            }
            let _ = far_write.shutdown().await;
            let _ = copy(&mut far_read, &mut sink()).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_messages_close_no_honest_connection() {
    let bounded = |silo| {
        let mut config = TcpConfig::default();
        if silo == 0 {
            config.max_unfinished_bytes = BOUND;
        }
        config
    };
    let cluster = Cluster::with(bounded).await;
    cluster.probes_go_on().await;
    let liar = cluster.liar();
    let (victim, others) = cluster.honest().split_first().unwrap();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let through = listener.local_addr().unwrap();
    let proxy = tokio::spawn(narrow(listener, victim.me().endpoint()));
    let long = Bytes::from(vec![0; 2 * SENT]);
    cluster.forget_probes();
    let watch = Watch::over(&cluster.table, cluster.honest());
    let connections = || -> Vec<_> {
        let all = others.iter().map(|silo| silo.stats());
        all.map(|s| (s.dialled, s.dials_failed, s.dropped_no_connection))
            .collect()
    };
    let (before, at_first) = (connections(), victim.stats());
    let growth = Growth::measure();

    for n in 1..=CONNECTIONS {
        liar.say_bytes(victim.me(), Destination::Fresh(through), long.clone());
        victim
            .until(|s| s.accepted >= at_first.accepted + n as u64)
            .await;
    }
    let after = victim
        .until(|s| s.closed_oversized > at_first.closed_oversized)
        .await;
    cluster.probes_go_on().await;
    let grown = growth.end();
    let (longest, unanswered) = cluster.probes();
    println!(
        "{CONNECTIONS} half-sent messages: +{grown} MiB, {} connections closed, probes {longest:?}",
        after.closed_oversized - at_first.closed_oversized
    );
    assert_eq!(connections(), before, "(dialled, failed, dropped)");
    assert_eq!(victim.stats().dialled, at_first.dialled);
    assert_eq!(unanswered, 0);
    assert!(grown < 128, "{grown} MiB");
    let seen = watch.end().await;
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);
    proxy.abort();
}
