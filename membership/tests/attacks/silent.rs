//! A host that holds connections open and says nothing on them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use membership::transport::TcpConfig;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::cluster::{Cluster, Member};
use super::watch::Watch;
use crate::common::PATIENCE;

const CONNECTIONS: usize = 1_400;
/// How long the host waits before it connects again, if it was refused. A connection that timed out
/// is replaced at once.
const AGAIN: Duration = Duration::from_secs(1);

/// Both ends of the connections are files of this process.
#[cfg(target_os = "linux")]
pub fn allow_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let allowed = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: allowed.maximum,
        ..allowed
    };
    setrlimit(Resource::Nofile, most).unwrap();
}

#[cfg(not(target_os = "linux"))]
pub fn allow_open_files() {}

/// Keeps a connection open for as long as the other side lets it, again and again.
async fn hold(to: SocketAddr) {
    loop {
        let begun = Instant::now();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.66:0".parse().unwrap()).unwrap();
        if let Ok(mut stream) = socket.connect(to).await {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        sleep(AGAIN.saturating_sub(begun.elapsed())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_keep_nobody_out() {
    allow_open_files();
    let cluster = Cluster::start().await;
    let victim = &cluster.honest()[0];
    cluster.forget_probes();
    let watch = Watch::over(&cluster.table, cluster.honest());
    let mut silent = JoinSet::new();
    for _ in 0..CONNECTIONS {
        silent.spawn(hold(victim.me().endpoint()));
    }
    let refused = |n: usize| victim.until(move |s| s.refused_too_many >= n as u64);
    let stats = refused(CONNECTIONS * 9 / 10).await;

    let begun = Instant::now();
    let newcomer = Member::start(&cluster.reached, TcpConfig::default());
    let newcomer = timeout(PATIENCE, newcomer).await.expect("Active");
    let took = begun.elapsed();
    println!("a silo joins in {took:?} beside {CONNECTIONS} silent connections");
    assert!(took < Duration::from_secs(10), "{took:?}");
    for silo in cluster.honest() {
        let joined = silo.wait_for(|view| view.active().count() == 6, PATIENCE);
        joined.await.unwrap();
        assert!(silo.view().get(&newcomer.me()).is_some());
    }
    // The host has opened them all again, and some have run into the timeout.
    let again = usize::try_from(stats.refused_too_many).unwrap() + CONNECTIONS;
    let stats = refused(again).await;
    cluster.probes_go_on().await;
    let (longest, unanswered) = cluster.probes();
    println!(
        "probes {longest:?}, handshakes timed out {}",
        stats.handshake_timeouts
    );
    assert_eq!(unanswered, 0);
    assert!(longest < Duration::from_millis(500), "{longest:?}");
    let seen = watch.end().await;
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);
    silent.shutdown().await;
}
