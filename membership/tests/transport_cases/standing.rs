//! What a process may say depends on what the table says of it, also after the handshake.

use std::time::Duration;

use membership::protocol::{Destination, Message};
use membership::transport::{TcpConfig, Transport};
use membership::{InstanceId, SiloAddress, SiloStatus};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use super::large::snapshot;
use super::strangers::{is_refused, reaches};
use super::support::{
    DEADLINE, Peer, acquaint, answer, any_port, plain, recorded_hello, table_with,
};

const KEY: [u8; 32] = [7; 32];

fn row(peer: &Peer, status: SiloStatus) -> (SiloAddress, InstanceId, SiloStatus) {
    (peer.me, peer.instance, status)
}

#[tokio::test]
async fn only_members_send_views() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    // A newcomer: short messages and long ones.
    b.send(Destination::Endpoint(a.endpoint()), snapshot(20));
    b.send(Destination::Endpoint(a.endpoint()), snapshot(1_000));
    b.probe(a.endpoint(), 1);
    answer(&mut a).await;
    b.message().await;
    let stats = a.until(|s| s.dropped_of_others == 2).await;
    assert_eq!((stats.received, stats.open), (1, 1));
    // It is alive, and then it is not.
    acquaint(&[&a, &b]);
    b.send(Destination::Endpoint(a.endpoint()), snapshot(1_000));
    let (_, _, message) = a.message().await;
    assert!(matches!(message, Message::Delta(_)));
    let dead = table_with(&[KEY], [row(&b, SiloStatus::Dead)]);
    a.transport.update(Some(a.me), &dead);
    b.send(Destination::Endpoint(a.endpoint()), snapshot(1_000));
    let stats = a.until(|s| s.dropped_of_others == 3).await;
    assert_eq!(stats.open, 1, "it may still hear that it is Dead");
}

#[tokio::test]
async fn a_process_whose_row_is_gone_is_closed_out() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    acquaint(&[&a, &b]);
    reaches(&mut b, &mut a).await;
    a.until(|s| s.open == 1).await;
    let removed = table_with(&[KEY], [row(&a, SiloStatus::Active)]);
    a.transport.update(Some(a.me), &removed);
    a.until(|s| s.open == 0).await;
    // It has read the table and may come again, as a newcomer.
    reaches(&mut b, &mut a).await;
}

#[tokio::test]
async fn who_showed_a_key_that_is_gone_is_closed_out() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    reaches(&mut b, &mut a).await;
    a.until(|s| s.open == 1).await;
    a.transport
        .update(Some(a.me), &table_with(&[[9; 32], KEY], []));
    sleep(Duration::from_millis(50)).await;
    assert_eq!(a.transport.stats().open, 1, "its key is still there");
    a.transport.update(Some(a.me), &table_with(&[[9; 32]], []));
    a.until(|s| s.open == 0).await;
    is_refused(&mut b, &a).await;
}

#[tokio::test]
async fn a_process_with_a_row_has_no_other_address() {
    let (a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    let elsewhere = SiloAddress::at("127.0.0.9:7".parse().unwrap(), 1);
    for status in [SiloStatus::Active, SiloStatus::Dead] {
        let table = table_with(&[KEY], [(elsewhere, b.instance, status)]);
        a.transport.update(Some(a.me), &table);
        is_refused(&mut b, &a).await;
    }
}

#[tokio::test]
async fn a_dead_silo_has_one_connection() {
    let (a, b) = (Peer::new(1).await, Peer::new(2).await);
    let dead = table_with(&[KEY], [row(&b, SiloStatus::Dead)]);
    a.transport.update(Some(a.me), &dead);
    for n in 1..=4 {
        b.send(
            Destination::Fresh(a.endpoint()),
            Message::Probe { nonce: n },
        );
        a.until(|s| s.accepted == n && s.open == 1).await;
    }
}

#[tokio::test]
async fn connections_are_made_anew_without_a_loss() {
    let mut config = TcpConfig::default();
    config.max_age = Duration::from_millis(400);
    let mut a = Peer::with(1, any_port(), "test", config).await;
    let mut b = Peer::new(2).await;
    let end = Instant::now() + DEADLINE;
    let mut nonce = 0;
    while a.transport.stats().dialled < 4 {
        nonce += 1;
        a.probe(b.endpoint(), nonce);
        answer(&mut b).await;
        let (_, _, answered) = a.message().await;
        assert_eq!(answered, Message::ProbeAck { nonce });
        assert!(Instant::now() < end, "{:?}", a.transport.stats());
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn who_reads_nothing_is_closed_out() {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let hello = recorded_hello().await;
    let mut config = plain();
    config.write_timeout = Duration::from_millis(300);
    let a = Peer::with(1, any_port(), "test", config).await;
    a.send(Destination::Endpoint(endpoint), snapshot(30_000));
    let (mut silent, _) = listener.accept().await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut silent, &hello)
        .await
        .unwrap();
    a.until(|s| s.open == 1).await;
    // It says that it is there, again and again, and takes nothing.
    let pings = async {
        loop {
            let ping = [0, 0, 0, 1, 5];
            if tokio::io::AsyncWriteExt::write_all(&mut silent, &ping)
                .await
                .is_err()
            {
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        _ = a.until(|s| s.open == 0) => {}
        () = pings => unreachable!(),
    }
}
