//! Strangers, broken peers and frozen peers cost little.

use std::time::Duration;

use membership::protocol::{Destination, Message};
use membership::transport::Transport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::large::snapshot;
use super::support::{DEADLINE, Peer, answer, any_port, plain, recorded_hello};

/// A connection whose handshake is done.
async fn after_handshake(peer: &Peer) -> TcpStream {
    let hello = recorded_hello().await;
    let mut stream = TcpStream::connect(peer.endpoint()).await.unwrap();
    stream.write_all(&hello).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    let mut rest = vec![0; u32::from_be_bytes(head[8..].try_into().unwrap()) as usize];
    stream.read_exact(&mut rest).await.unwrap();
    stream
}

async fn is_closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // By an end of the stream, or by a reset.
    let _ = timeout(DEADLINE, stream.read_to_end(&mut rest))
        .await
        .expect("still open");
}

async fn still_works(peer: &mut Peer) {
    let mut other = Peer::plain(1000).await;
    other.probe(peer.endpoint(), 5);
    answer(peer).await;
    assert_eq!(other.message().await.2, Message::ProbeAck { nonce: 5 });
}

#[tokio::test]
async fn a_client_of_another_protocol_is_closed_at_once() {
    let mut a = Peer::plain(1).await;
    let mut client = TcpStream::connect(a.endpoint()).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    is_closed(client).await;
    drop(TcpStream::connect(a.endpoint()).await.unwrap());
    a.until(|s| s.refused_handshake == 2).await;
    still_works(&mut a).await;
}

#[tokio::test]
async fn garbage_after_the_handshake_closes_the_connection() {
    let mut a = Peer::plain(1).await;
    for garbage in [
        &[0, 0, 0, 3, 2, 9, 9][..],
        &[0, 0, 0, 1, 200],
        &[0, 0, 0, 2, 4, 1],
        &[0, 0, 0, 0],
        &[0, 0, 0, 1, 0],
    ] {
        let mut stream = after_handshake(&a).await;
        stream.write_all(garbage).await.unwrap();
        is_closed(stream).await;
    }
    assert_eq!(a.until(|s| s.closed_garbage == 5).await.received, 0);
    still_works(&mut a).await;
}

#[tokio::test]
async fn a_length_above_the_bound_closes_the_connection() {
    let mut a = Peer::plain(1).await;
    // A frame of 2 GiB, and a message of 2 GiB in pieces.
    for huge in [
        &[0x7f, 0xff, 0xff, 0xff, 2][..],
        &[0, 0, 0, 6, 3, 0x7f, 0xff, 0xff, 0xff, 1],
    ] {
        let mut stream = after_handshake(&a).await;
        stream.write_all(huge).await.unwrap();
        is_closed(stream).await;
    }
    a.until(|s| s.closed_oversized == 2).await;
    still_works(&mut a).await;
}

#[tokio::test]
async fn a_silent_client_is_closed_after_the_handshake_timeout() {
    let mut config = plain();
    config.handshake_timeout = Duration::from_millis(100);
    config.max_incoming_handshakes = 2;
    let mut a = Peer::with(1, any_port(), "test", config).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(a.endpoint()).await.unwrap());
    }
    a.until(|s| s.refused_too_many == 1 && s.handshake_timeouts == 2)
        .await;
    for stream in silent {
        is_closed(stream).await;
    }
    still_works(&mut a).await;
}

#[tokio::test]
async fn unfinished_messages_share_one_bound() {
    let mut config = plain();
    config.max_unfinished_bytes = 100_000;
    let a = Peer::with(1, any_port(), "test", config).await;
    let mut streams = Vec::new();
    // The greedy one goes, not the one that comes last.
    for bytes in [60_000, 20_000, 30_000] {
        let mut stream = after_handshake(&a).await;
        let piece = vec![1; bytes];
        stream
            .write_all(&u32::try_from(piece.len() + 5).unwrap().to_be_bytes())
            .await
            .unwrap();
        stream.write_all(&[3, 0, 1, 0, 0]).await.unwrap();
        stream.write_all(&piece).await.unwrap();
        streams.push(stream);
    }
    a.until(|s| s.closed_oversized == 1 && s.open == 2).await;
    is_closed(streams.remove(0)).await;
}

#[tokio::test]
async fn a_peer_that_does_not_read_costs_a_bounded_queue() {
    // The peer does not read after the handshake.
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let hello = recorded_hello().await;
    let a = Peer::plain(1).await;
    a.probe(endpoint, 0);
    let (mut frozen, _) = listener.accept().await.unwrap();
    frozen.write_all(&hello).await.unwrap();
    a.until(|s| s.sent == 1).await;

    // Each snapshot is a body of its own, so that no memory is shared.
    let template = snapshot(3_000);
    let one = membership::transport::encode(&a.header(), &template)
        .unwrap()
        .len();
    let mut largest = 0;
    for nonce in 1..=2_000 {
        a.probe(endpoint, nonce);
        if nonce % 10 == 0 {
            a.send(Destination::Endpoint(endpoint), template.clone());
            tokio::task::yield_now().await;
        }
        largest = largest.max(a.transport.stats().queued_bytes);
    }
    let bound = (8 << 20) + 128 * (64 << 10);
    assert!(
        largest as usize <= bound,
        "{largest} bytes waited; {one} each"
    );
    let stats = a.transport.stats();
    assert!(stats.dropped_queue_full > 1_000, "{stats:?}");
    drop(frozen);
    a.until(|s| s.open == 0 && s.queued_bytes == 0).await;
}

#[tokio::test]
async fn a_connection_without_answers_is_replaced() {
    // This is like a peer whose machine has lost power: sends succeed, and no answer ever arrives.
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let hello = recorded_hello().await;
    let a = Peer::plain(1).await;
    a.probe(endpoint, 0);
    let (mut gone, _) = listener.accept().await.unwrap();
    gone.write_all(&hello).await.unwrap();
    let second = async {
        let (mut again, _) = listener.accept().await.unwrap();
        again.write_all(&hello).await.unwrap();
        again
    };
    let probes = async {
        for nonce in 1.. {
            a.probe(endpoint, nonce);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let _again = tokio::select! {
        again = timeout(DEADLINE, second) => again.expect("dialled again"),
        () = probes => unreachable!(),
    };
    a.until(|s| s.dialled == 2).await;
}
