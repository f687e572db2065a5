//! A host that has a silo, or members behind the same NAT, is also the host of a stranger, whose
//! connections say nothing. Its silos still join, and are reached.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use membership::transport::TcpConfig;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::cluster::{Cluster, Member};
use super::silent::allow_open_files;
use super::watch::Watch;
use crate::common::PATIENCE;

/// More than an address of silos may have.
const CONNECTIONS: usize = 270;

/// Keeps a connection open for as long as the other side lets it, again and again.
async fn hold(to: SocketAddr) {
    loop {
        let begun = Instant::now();
        if let Ok(mut stream) = TcpSocket::new_v4().unwrap().connect(to).await {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        sleep(Duration::from_millis(100).saturating_sub(begun.elapsed())).await;
    }
}

/// Silent connections from the address of all silos to each of them, until it is dropped.
struct Crowd(Option<Runtime>);

impl Crowd {
    async fn before(cluster: &Cluster) -> Self {
        allow_open_files();
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        for silo in &cluster.silos {
            for _ in 0..CONNECTIONS {
                runtime.spawn(hold(silo.me().endpoint()));
            }
        }
        for silo in &cluster.silos {
            silo.until(|s| s.refused_too_many > 10).await;
        }
        Self(Some(runtime))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_joins_beside_silent_connections_of_its_own_address() {
    let cluster = Cluster::patient(|_| TcpConfig::default()).await;
    let watch = Watch::over(&cluster.table, cluster.honest());
    let _crowd = Crowd::before(&cluster).await;
    let begun = Instant::now();
    let newcomer = Member::start(&cluster.reached, TcpConfig::default());
    let newcomer = timeout(Duration::from_secs(8), newcomer).await;
    let newcomer = newcomer.expect("Active");
    let took = begun.elapsed();
    println!("a silo joins in {took:?}");
    // The machine may be busy; `benches/flood.rs` of the program judges the time.
    assert!(took < Duration::from_secs(5), "{took:?}");
    for silo in cluster.honest() {
        let joined = silo.wait_for(|view| view.get(&newcomer.me()).is_some(), PATIENCE);
        joined.await.unwrap();
    }
    cluster.probes_go_on().await;
    let seen = watch.end().await;
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);
}

/// Connections are made anew while it lasts.
#[tokio::test(flavor = "multi_thread")]
async fn connections_age_beside_silent_ones_and_nobody_is_accused() {
    let cluster = Cluster::patient(|_| {
        let mut config = TcpConfig::default();
        config.max_age = Duration::from_secs(3);
        config
    })
    .await;
    let watch = Watch::over(&cluster.table, cluster.honest());
    let _crowd = Crowd::before(&cluster).await;
    sleep(Duration::from_secs(6)).await;
    cluster.probes_go_on().await;
    let seen = watch.end().await;
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);
}
