//! Messages and their answers.

use membership::protocol::{Destination, Header, LinkId, Message};
use membership::transport::{
    Hello, MessageInbox, TcpConfig, TcpTransport, Transport, TransportError,
};
use membership::{ClusterName, InstanceId, SiloAddress, TableId};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

use super::support::{DEADLINE, Peer, acquaint, answer, any_port};

#[tokio::test]
async fn a_probe_and_its_answer() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    for nonce in 0..100 {
        a.probe(b.endpoint(), nonce);
        answer(&mut b).await;
        let (_, header, body) = a.message().await;
        assert_eq!(
            (header.from, header.instance, body),
            (b.me, b.instance, Message::ProbeAck { nonce })
        );
    }
    let stats = a.transport.stats();
    assert_eq!(
        (stats.dialled, stats.sent, stats.received, stats.open),
        (1, 100, 100, 1)
    );
    // A peer uses an incoming connection for answers only.
    b.probe(a.endpoint(), 7);
    answer(&mut a).await;
    assert_eq!(b.message().await.2, Message::ProbeAck { nonce: 7 });
    assert_eq!(b.transport.stats().dialled, 1);
}

/// What the handshake has fixed is not said again.
#[tokio::test]
async fn a_probe_and_its_answer_have_some_twenty_bytes() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    acquaint(&[&a, &b]);
    let say = |from: &Peer, to: &Peer, over, body| {
        let mut header = from.header();
        (header.to, header.table_id) = (Some(to.me), Some(TableId::new(7)));
        (header.version, header.digest) = (300, u64::MAX);
        let message = from.encoder.encode(&header, &Arc::new(body)).unwrap();
        from.transport.send(over, message);
        header
    };
    let nonce = u64::from(u32::MAX);
    let said = say(
        &a,
        &b,
        Destination::Endpoint(b.endpoint()),
        Message::Probe { nonce },
    );
    let (link, heard, _) = b.message().await;
    assert_eq!(heard, said, "it arrives whole");
    let over = Destination::Link(link);
    let said = say(&b, &a, over, Message::ProbeAck { nonce });
    assert_eq!(a.message().await.1, said);
    for peer in [&a, &b] {
        let stats = peer.until(|s| s.bytes_sent == s.bytes_received).await;
        assert_eq!((stats.bytes_sent, stats.sent), (22, 1));
    }
    // Another sender, receiver or table than those of the handshake is said.
    for change in [
        |h: &mut Header| h.from = SiloAddress::at(h.from.endpoint(), 9),
        |h: &mut Header| h.instance = InstanceId::new(9),
        |h: &mut Header| h.to = None,
        |h: &mut Header| h.table_id = Some(TableId::new(8)),
        |h: &mut Header| h.cluster = 9,
    ] {
        let mut header = said.clone();
        change(&mut header);
        let body = Arc::new(Message::ProbeAck { nonce });
        let message = b.encoder.encode(&header, &body).unwrap();
        b.transport.send(over, message);
        assert_eq!(a.message().await.1, header);
    }
}

#[tokio::test]
async fn a_silo_reaches_itself() {
    let mut a = Peer::new(1).await;
    a.send(
        Destination::Fresh(a.endpoint()),
        Message::Identify { nonce: 3 },
    );
    let (link, header, _) = a.message().await;
    assert_eq!(header.instance, a.instance);
    a.send(Destination::Link(link), Message::ProbeAck { nonce: 3 });
    assert_eq!(a.message().await.2, Message::ProbeAck { nonce: 3 });
}

#[tokio::test]
async fn a_fresh_connection_is_always_dialled_and_carries_the_answer() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    let mut links = Vec::new();
    for nonce in 0..3 {
        a.send(Destination::Fresh(b.endpoint()), Message::Probe { nonce });
        links.push(answer(&mut b).await);
        assert_eq!(a.message().await.2, Message::ProbeAck { nonce });
    }
    links.dedup();
    assert_eq!((links.len(), a.transport.stats().dialled), (3, 3));
}

#[tokio::test]
async fn messages_sent_during_a_dial_arrive_in_order() {
    let (a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    (0..50).for_each(|nonce| a.probe(b.endpoint(), nonce));
    for nonce in 0..50 {
        assert_eq!(b.message().await.2, Message::Probe { nonce });
    }
    assert_eq!(a.transport.stats().dialled, 1);
}

#[tokio::test]
async fn an_answer_to_a_closed_connection_is_lost() {
    let a = Peer::new(1).await;
    a.send(
        Destination::Link(LinkId(77)),
        Message::ProbeAck { nonce: 1 },
    );
    assert_eq!(a.transport.stats().dropped_no_connection, 1);
}

#[tokio::test]
async fn a_dead_endpoint_is_reported_and_not_dialled_too_often() {
    let free = TcpTransport::bind(any_port()).await.unwrap().local_addr();
    let mut a = Peer::new(1).await;
    let begun = tokio::time::Instant::now();
    for round in 0..5 {
        a.probe(free, round);
        let (to, refused, reason) = a.any_failure().await;
        assert_eq!((to, refused), (free, true));
        assert!(
            reason.contains("cannot connect") && reason.contains(&free.to_string()),
            "{reason}"
        );
    }
    // The first dial is immediate, each later one at least 100 ms after the one before.
    assert!(
        begun.elapsed() >= Duration::from_millis(390),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(a.transport.stats().dials_failed, 5);
}

#[tokio::test]
async fn another_cluster_is_refused_and_learns_nothing() {
    let (mut a, b) = (
        Peer::new(1).await,
        Peer::with(2, any_port(), "shop/green", TcpConfig::default()).await,
    );
    for to in [
        Destination::Endpoint(b.endpoint()),
        Destination::Fresh(b.endpoint()),
    ] {
        a.send(to, Message::Probe { nonce: 1 });
        let (_, refused, reason) = a.any_failure().await;
        assert!(!refused, "a process is there");
        assert!(
            reason.contains("another cluster") && !reason.contains("green"),
            "{reason}"
        );
    }
    // Whether an endpoint that closes at once is a process that dies, a second dial tells.
    b.until(|s| s.refused_unproven == 3).await;
    assert_eq!(
        (
            a.transport.stats().dials_failed,
            b.transport.stats().accepted
        ),
        (3, 0)
    );
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_dialled_again() {
    let config = || {
        let mut config = TcpConfig::default();
        config.idle_timeout = Duration::from_millis(50);
        config
    };
    let mut a = Peer::with(1, any_port(), "test", config()).await;
    let mut b = Peer::with(2, any_port(), "test", config()).await;
    for nonce in 0..2 {
        a.probe(b.endpoint(), nonce);
        answer(&mut b).await;
        a.message().await;
        a.until(|s| s.open == 0).await;
        b.until(|s| s.open == 0).await;
    }
    let stats = a.transport.stats();
    assert_eq!((stats.dialled, stats.dropped_no_connection), (2, 0));
}

#[tokio::test]
async fn a_farewell_is_sent_before_the_shutdown() {
    let (a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    // The address is not even dialled yet.
    a.send(
        Destination::Endpoint(b.endpoint()),
        Message::Farewell {
            version: 9,
            delta: None,
        },
    );
    timeout(DEADLINE, a.transport.shutdown()).await.unwrap();
    assert_eq!(
        b.message().await.2,
        Message::Farewell {
            version: 9,
            delta: None
        }
    );
    a.probe(b.endpoint(), 1);
    assert_eq!(a.transport.stats().dropped_no_connection, 1);
    a.transport.shutdown().await;
    TcpTransport::bind(a.endpoint())
        .await
        .expect("the port is free again");
}

#[tokio::test]
async fn a_port_in_use_is_named_and_a_second_start_refused() {
    let a = Peer::new(1).await;
    let error = TcpTransport::bind(a.endpoint()).await.unwrap_err();
    assert!(matches!(error, TransportError::Bind { .. }));
    assert!(
        error
            .to_string()
            .contains(&format!("cannot listen on {}", a.endpoint())),
        "{error}"
    );
    let cluster = ClusterName::new("a", "b").unwrap();
    let hello = Hello::new(cluster, a.endpoint(), InstanceId::new(1));
    let (inbox, _receiver) = MessageInbox::channel(1);
    assert!(matches!(
        a.transport.start(hello, inbox).await,
        Err(TransportError::AlreadyStarted)
    ));
}
