//! Who has neither a row in the table nor its key is not heard, and learns nothing.

use std::time::Duration;

use membership::protocol::{Destination, Message};
use membership::transport::{TcpConfig, TcpTransport, Transport, TransportError};
use membership::{InstanceId, SiloStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use super::support::{Peer, answer, any_port, empty_table, plain, table_with};

pub async fn reaches(a: &mut Peer, b: &mut Peer) {
    a.send(
        Destination::Fresh(b.endpoint()),
        Message::Probe { nonce: 1 },
    );
    answer(b).await;
    a.message().await;
}

pub async fn is_refused(a: &mut Peer, b: &Peer) -> String {
    let before = b.transport.stats().refused_unproven;
    a.send(
        Destination::Fresh(b.endpoint()),
        Message::Probe { nonce: 1 },
    );
    let (_, reason) = a.failure().await;
    b.until(|s| s.refused_unproven == before + 1).await;
    reason
}

#[tokio::test]
async fn a_silo_of_another_table_is_refused() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    reaches(&mut a, &mut b).await;
    a.transport.update(Some(a.me), &empty_table([8; 32]));
    let reason = is_refused(&mut a, &b).await;
    assert!(reason.contains("closed the connection"), "{reason}");
    assert_eq!(b.transport.stats().received, 1);
}

#[tokio::test]
async fn a_rotation_of_the_key_cuts_nobody_off() {
    let (old, new) = ([7; 32], [9; 32]);
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    a.transport
        .update(Some(a.me), &table_with(&[old, new], None));
    reaches(&mut a, &mut b).await;
    reaches(&mut b, &mut a).await;
    b.transport
        .update(Some(b.me), &table_with(&[old, new], None));
    a.transport.update(Some(a.me), &table_with(&[new], None));
    reaches(&mut a, &mut b).await;
    reaches(&mut b, &mut a).await;
    b.transport.update(Some(b.me), &table_with(&[old], None));
    is_refused(&mut a, &b).await;
}

#[tokio::test]
async fn a_silo_with_a_row_needs_no_key_of_the_cluster() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    b.transport
        .update(Some(b.me), &table_with(&[[9; 32]], None));
    is_refused(&mut a, &b).await;
    // Each has the other's row, and its own keys.
    let row_of = |peer: &Peer| Some((peer.me, peer.instance, SiloStatus::Active));
    b.transport
        .update(Some(b.me), &table_with(&[[9; 32]], row_of(&a)));
    a.transport
        .update(Some(a.me), &table_with(&[[7; 32]], row_of(&b)));
    reaches(&mut a, &mut b).await;
    // A row of the same address and another process proves nothing.
    let other = Some((a.me, InstanceId::new(5), SiloStatus::Active));
    b.transport
        .update(Some(b.me), &table_with(&[[9; 32]], other));
    is_refused(&mut a, &b).await;
}

#[tokio::test]
async fn before_it_has_read_the_table_a_silo_hears_itself_alone() {
    let mut known = Peer::new(1).await;
    let mut early = Peer::unread(2).await;
    is_refused(&mut known, &early).await;
    early.send(
        Destination::Fresh(early.endpoint()),
        Message::Identify { nonce: 4 },
    );
    assert_eq!(early.message().await.2, Message::Identify { nonce: 4 });
}

#[tokio::test]
async fn a_stranger_who_talks_too_much_is_cut_off() {
    for peer in [Peer::new(1).await, Peer::plain(1).await] {
        let mut stream = TcpStream::connect(peer.endpoint()).await.unwrap();
        // A TLS record, or a hello, that does not end.
        let begin: &[u8] = match peer.transport.instance() {
            Some(_) => &[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc],
            None => b"\x93silo\r\n\x01\x00\x00\xff\xff\x00",
        };
        let _ = stream.write_all(begin).await;
        for _ in 0..64 {
            if stream.write_all(&[0; 1024]).await.is_err() {
                break;
            }
        }
        let _ = stream.read_to_end(&mut Vec::new()).await;
        peer.until(|s| s.refused_handshake == 1).await;
    }
}

#[tokio::test]
async fn a_host_that_holds_connections_keeps_nobody_else_out() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    let mut silent = Vec::new();
    for _ in 0..600 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.66:0".parse().unwrap()).unwrap();
        silent.push(socket.connect(a.endpoint()).await.unwrap());
    }
    let refused = a.until(|s| s.refused_too_many >= 500).await;
    assert_eq!(refused.accepted, 0);
    let begun = Instant::now();
    reaches(&mut b, &mut a).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn a_peer_has_a_few_connections_and_the_newest_stay() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    for _ in 0..40 {
        reaches(&mut a, &mut b).await;
    }
    let stats = b.until(|s| s.open <= 17).await;
    assert_eq!(stats.accepted, 40);
    reaches(&mut a, &mut b).await;
}

#[tokio::test]
async fn plain_tcp_is_for_loopback_addresses() {
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let error = TcpTransport::bind_with(everywhere, plain())
        .await
        .unwrap_err();
    assert!(matches!(error, TransportError::Insecure { .. }), "{error}");
    assert!(error.to_string().contains("insecure"), "{error}");
    let plain = Peer::plain(1).await;
    let mut secure = Peer::with(2, any_port(), "test", TcpConfig::default()).await;
    secure.send(
        Destination::Fresh(plain.endpoint()),
        Message::Probe { nonce: 1 },
    );
    let (_, reason) = secure.failure().await;
    assert!(reason.contains("security"), "{reason}");
}
