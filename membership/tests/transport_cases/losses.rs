//! A process that is gone is told apart from one that does not answer: its connections end, and its
//! system refuses new ones. Each test that expects no report waits for a later one, which would come
//! after it.

use std::net::SocketAddr;
use std::time::Duration;

use membership::protocol::{Destination, Message};
use membership::transport::{Hello, Inbound, MessageInbox, TcpConfig, TcpTransport, Transport};
use membership::{InstanceId, SiloStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use super::support::{
    DEADLINE, Peer, acquaint, answer, any_port, plain, recorded_hello, table_with,
};

async fn members() -> (Peer, Peer) {
    let (a, b) = (Peer::new(1).await, Peer::new(2).await);
    acquaint(&[&a, &b]);
    (a, b)
}

/// One probes the other, over a connection of its own.
async fn reach(a: &mut Peer, b: &mut Peer) {
    a.probe(b.endpoint(), 1);
    answer(b).await;
    assert_eq!(a.message().await.2, Message::ProbeAck { nonce: 1 });
}

/// An address at which nobody listens.
async fn free() -> SocketAddr {
    TcpTransport::bind(any_port()).await.unwrap().local_addr()
}

/// A process without TLS that this one has dialled, and that says nothing after the handshake.
async fn silent(a: &Peer) -> (TcpListener, TcpStream, SocketAddr) {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let hello = recorded_hello().await;
    a.probe(endpoint, 1);
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_all(&hello).await.unwrap();
    a.until(|s| s.sent == 1).await;
    (listener, stream, endpoint)
}

#[tokio::test]
async fn a_process_that_goes_away_is_reported_once_for_each_connection() {
    let (mut a, mut b) = members().await;
    reach(&mut a, &mut b).await;
    reach(&mut b, &mut a).await;
    let gone = b.endpoint();
    drop(b);
    assert_eq!(a.loss().await, gone);
    assert_eq!(a.loss().await, gone);
    let mut quickest = Duration::MAX;
    for nonce in 2..8 {
        let begun = Instant::now();
        a.probe(gone, nonce);
        assert_eq!(a.refusal().await, gone);
        // The shortest timeout of a probe by default.
        assert!(begun.elapsed() < Duration::from_millis(1500));
        quickest = quickest.min(begun.elapsed());
    }
    // The machine may be busy. The first dial is immediate, so it does not count.
    assert!(quickest < Duration::from_millis(300), "{quickest:?}");
    assert_eq!(a.transport.stats().open, 0);
}

#[tokio::test]
async fn a_connection_for_one_message_is_reported_and_its_dial_refused() {
    let (mut a, mut b) = members().await;
    let to = Destination::Fresh(b.endpoint());
    a.send(to, Message::Probe { nonce: 1 });
    answer(&mut b).await;
    a.message().await;
    drop(b);
    let gone = a.loss().await;
    a.send(to, Message::Probe { nonce: 2 });
    assert_eq!(a.refusal().await, gone);
}

/// Another connection of the process at an endpoint to this one: lost.
async fn lose_a_twin(a: &mut Peer, endpoint: SocketAddr) {
    let twin = TcpTransport::bind_with(any_port(), plain()).await.unwrap();
    let (inbox, _messages) = MessageInbox::channel(8);
    let hello = Hello::new(a.cluster.clone(), endpoint, InstanceId::new(99));
    twin.start(hello, inbox).await.unwrap();
    let probe = Message::Probe { nonce: 2 }.into();
    let probe = a.encoder.encode(&a.header(), &probe).unwrap();
    twin.send(Destination::Endpoint(a.endpoint()), probe);
    a.message().await;
    drop(twin);
    assert_eq!(a.loss().await, endpoint);
}

#[tokio::test]
async fn after_a_loss_the_next_message_dials() {
    // One of two connections of the same process ends; the other one only seems to live.
    let mut a = Peer::plain(1).await;
    let (listener, _stays, endpoint) = silent(&a).await;
    lose_a_twin(&mut a, endpoint).await;
    a.probe(endpoint, 3);
    let dialled = timeout(DEADLINE, listener.accept()).await;
    dialled.expect("it dials").unwrap();
}

#[tokio::test]
async fn a_message_is_not_lost_with_the_last_connection_of_a_process_that_dies() {
    let mut a = Peer::plain(1).await;
    let (listener, stream, endpoint) = silent(&a).await;
    drop(listener);
    lose_a_twin(&mut a, endpoint).await;
    a.probe(endpoint, 3);
    // Its first dial is refused within this time.
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(stream);
    assert_eq!(a.loss().await, endpoint);
    assert_eq!(a.refusal().await, endpoint);
    assert_eq!(a.transport.stats().sent, 1, "the probe at the beginning");
}

#[tokio::test]
async fn a_process_that_dies_while_it_is_dialled_is_refused() {
    // Its system takes a connection before it closes the listener.
    let mut a = Peer::plain(1).await;
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    a.probe(endpoint, 1);
    let (stream, _) = listener.accept().await.unwrap();
    drop((listener, stream));
    assert_eq!(a.refusal().await, endpoint);
}

#[tokio::test]
async fn a_silent_process_is_neither_lost_nor_refused() {
    let mut a = Peer::plain(1).await;
    let (_listener, stream, endpoint) = silent(&a).await;
    for nonce in 2..=5 {
        a.probe(endpoint, nonce);
        a.until(|s| s.sent == nonce).await;
    }
    drop(stream);
    assert_eq!(a.loss().await, endpoint);
}

#[tokio::test]
async fn a_process_whose_system_accepts_for_it_is_not_refused() {
    let stopped = TcpListener::bind(any_port()).await.unwrap();
    let endpoint = stopped.local_addr().unwrap();
    let mut config = plain();
    config.handshake_timeout = Duration::from_millis(100);
    let mut a = Peer::with(1, any_port(), "test", config).await;
    for to in [
        Destination::Endpoint(endpoint),
        Destination::Fresh(endpoint),
    ] {
        a.send(to, Message::Probe { nonce: 1 });
        let (to, refused, reason) = a.any_failure().await;
        assert_eq!((to, refused), (endpoint, false), "{reason}");
    }
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_not_refused() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(any_port()).unwrap();
    let full = socket.listen(1).unwrap();
    let endpoint = full.local_addr().unwrap();
    // The system drops what comes when its queue is full.
    let mut waiting = Vec::new();
    while let Ok(stream) = timeout(
        Duration::from_millis(200),
        TcpStream::connect(full.local_addr().unwrap()),
    )
    .await
    {
        waiting.push(stream.unwrap());
    }
    let mut config = TcpConfig::default();
    config.connect_timeout = Duration::from_millis(100);
    let mut a = Peer::with(1, any_port(), "test", config).await;
    a.probe(endpoint, 1);
    let (to, refused, reason) = a.any_failure().await;
    assert_eq!((to, refused), (endpoint, false), "{reason}");
    assert!(reason.contains("no answer within"), "{reason}");
}

#[tokio::test]
async fn no_side_reports_an_idle_connection() {
    let mut config = TcpConfig::default();
    config.idle_timeout = Duration::from_millis(50);
    let mut a = Peer::with(1, any_port(), "test", config).await;
    let mut b = Peer::new(2).await;
    acquaint(&[&a, &b]);
    for _ in 0..2 {
        reach(&mut a, &mut b).await;
        a.until(|s| s.open == 0).await;
        b.until(|s| s.open == 0).await;
    }
    reach(&mut b, &mut a).await;
}

#[tokio::test]
async fn no_side_reports_surplus_connections() {
    let (mut a, mut b) = members().await;
    for nonce in 0..20 {
        let to = Destination::Fresh(b.endpoint());
        a.send(to, Message::Probe { nonce });
        answer(&mut b).await;
        a.message().await;
    }
    a.until(|s| s.open <= 16).await;
    reach(&mut b, &mut a).await;
}

#[tokio::test]
async fn no_side_reports_a_connection_that_the_view_ends() {
    let (mut a, mut b) = members().await;
    reach(&mut b, &mut a).await;
    let without_b = table_with(&[[7; 32]], [(a.me, a.instance, SiloStatus::Active)]);
    a.transport.update(Some(a.me), &without_b);
    a.until(|s| s.open == 0).await;
    b.until(|s| s.open == 0).await;
    reach(&mut b, &mut a).await;
}

#[tokio::test]
async fn a_process_that_stops_is_reported_by_others_only() {
    let (mut a, mut b) = members().await;
    reach(&mut a, &mut b).await;
    reach(&mut b, &mut a).await;
    a.transport.shutdown().await;
    assert_eq!(b.loss().await, a.endpoint());
    assert_eq!(b.loss().await, a.endpoint());
    drop(a.transport);
    let left = a.inbox.recv().await;
    assert!(left.is_none(), "{left:?}");
}

#[tokio::test]
async fn a_connection_that_garbage_ends_is_not_reported() {
    let mut a = Peer::plain(1).await;
    let (_listener, mut stream, _) = silent(&a).await;
    stream.write_all(&[0, 0, 0, 1, 200]).await.unwrap();
    a.until(|s| s.open == 0 && s.closed_garbage == 1).await;
    let free = free().await;
    a.probe(free, 2);
    assert_eq!(a.refusal().await, free);
}

#[tokio::test]
async fn a_newcomer_is_not_reported() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    reach(&mut b, &mut a).await;
    drop(b);
    a.until(|s| s.open == 0).await;
    let free = free().await;
    a.probe(free, 2);
    assert_eq!(a.refusal().await, free);
}

#[tokio::test]
async fn what_the_old_connection_takes_is_not_refused() {
    let mut a = Peer::plain(1).await;
    let (listener, mut stream, endpoint) = silent(&a).await;
    drop(listener);
    // Another process says that it is at that address, so the next message dials.
    let claimant = TcpTransport::bind_with(any_port(), plain()).await.unwrap();
    let (inbox, _messages) = MessageInbox::channel(8);
    let hello = Hello::new(a.cluster.clone(), endpoint, InstanceId::new(66));
    claimant.start(hello, inbox).await.unwrap();
    let probe = Message::Probe { nonce: 2 }.into();
    let probe = a.encoder.encode(&a.header(), &probe).unwrap();
    claimant.send(Destination::Endpoint(a.endpoint()), probe);
    a.message().await;
    a.probe(endpoint, 3);
    let (to, refused, reason) = a.any_failure().await;
    assert_eq!((to, refused), (endpoint, false), "{reason}");
    a.until(|s| s.sent == 2).await;
    let mut bytes = [0; 64];
    assert!(stream.read(&mut bytes).await.unwrap() > 0);
}

#[tokio::test]
async fn a_full_inbox_drops_reports() {
    let (inbox, mut messages) = MessageInbox::channel(2);
    let peer = any_port();
    for _ in 0..5 {
        inbox.disconnected(peer);
    }
    drop(inbox);
    let mut kept = 0;
    while let Some(inbound) = messages.recv().await {
        assert!(matches!(inbound, Inbound::Disconnected { peer: p } if p == peer));
        kept += 1;
    }
    assert_eq!(kept, 2);
}
