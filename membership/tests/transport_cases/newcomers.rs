//! Processes that have read the table, once, and have no row in it.

use std::time::Duration;

use membership::SiloStatus;
use membership::protocol::{Destination, Message};
use membership::transport::{Security, TcpConfig, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;

use super::certificates::{Authority, CLUSTER, Says, peer, signed};
use super::impostors::{BINDING, Binding, Key, MARK, Shown, hello, params};
use super::strangers::reaches;
use super::support::{DEADLINE, Peer, any_port, table_with};

/// Introduces itself, and reads the answer, if there is one.
async fn introduces_itself(stream: &mut TlsStream<TcpStream>, key: &Key) -> bool {
    let (_, tls) = stream.get_ref();
    let binding = tls.export_keying_material(Binding::default(), BINDING, None);
    let says = hello(
        key,
        key.instance(),
        (0, "default/test"),
        any_port(),
        binding.unwrap(),
    );
    stream.write_all(&says).await.unwrap();
    let mut mark = [0; 8];
    let read = timeout(DEADLINE, stream.read_exact(&mut mark)).await;
    read.unwrap().is_ok() && mark == *MARK
}

#[tokio::test]
async fn a_key_that_goes_during_a_handshake_is_gone() {
    let authority = Authority::new();
    let a = peer(1, signed(&authority, Says::default())).await;
    let shown = Shown::by(&authority, &params("127.0.0.1", CLUSTER));
    let key = Key::new();
    let mut stream = shown.dial(a.endpoint()).await.unwrap();
    sleep(Duration::from_millis(200)).await;
    a.transport.update(Some(a.me), &table_with(&[[9; 32]], []));
    introduces_itself(&mut stream, &key).await;
    a.until(|s| s.accepted == 1 && s.open == 0).await;
}

#[tokio::test]
async fn newcomers_leave_room_for_members() {
    let authority = Authority::new();
    let mut config = TcpConfig::default();
    let certificates = signed(&authority, Says::default());
    config.security = Security::table().with_certificates(certificates);
    config.max_incoming = 64;
    let mut a = Peer::with(1, any_port(), "test", config).await;
    let mut b = peer(2, signed(&authority, Says::default())).await;
    let both = [&a, &b].map(|p| (p.me, p.instance, SiloStatus::Active));
    let table = table_with(&[[7; 32]], both);
    for p in [&a, &b] {
        p.transport.update(Some(p.me), &table);
    }
    let shown = Shown::by(&authority, &params("127.0.0.1", CLUSTER));
    let mut held = Vec::new();
    for _ in 0..100 {
        let Ok(mut stream) = shown.dial(a.endpoint()).await else {
            break;
        };
        if !introduces_itself(&mut stream, &Key::new()).await {
            break;
        }
        held.push(stream);
    }
    println!("{} newcomers are connected", held.len());
    reaches(&mut b, &mut a).await;
}

#[tokio::test]
async fn many_addresses_that_are_gone_keep_nobody_out() {
    let (mut a, mut b) = (Peer::new(1).await, Peer::new(2).await);
    let begun = std::time::Instant::now();
    for n in 0..1030_u16 {
        let [high, low] = n.to_be_bytes();
        let socket = TcpSocket::new_v4().unwrap();
        socket
            .bind(format!("127.9.{high}.{low}:0").parse().unwrap())
            .unwrap();
        drop(socket.connect(a.endpoint()).await.unwrap());
    }
    println!("{:?}, {:?}", begun.elapsed(), a.transport.stats());
    reaches(&mut b, &mut a).await;
}

#[tokio::test]
async fn a_reason_of_the_other_side_is_one_line_as_it_stands() {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let mut a = Peer::plain(1).await;
    let to = listener.local_addr().unwrap();
    a.send(Destination::Fresh(to), Message::Probe { nonce: 1 });
    let (mut stream, _) = listener.accept().await.unwrap();
    let reason = "\u{202e}gnihton\u{2028}INFO it is a member\u{2066}\u{85}\n";
    let length = u32::try_from(reason.len() + 1).unwrap().to_be_bytes();
    let says = [&MARK[..], &length[..], &[1], reason.as_bytes()].concat();
    stream.write_all(&says).await.unwrap();
    let (_, why) = a.failure().await;
    let odd: Vec<char> = why
        .chars()
        .filter(|c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
        .collect();
    assert!(odd.is_empty(), "{odd:?} in {why:?}");
}

/// Without a row a process may say any address, also that of a member.
#[tokio::test]
async fn a_claim_to_an_address_costs_one_dial() {
    let authority = Authority::new();
    let own = || signed(&authority, Says::default());
    let mut a = peer(1, own()).await;
    let mut v = peer(2, own()).await;
    let both = [&a, &v].map(|p| (p.me, p.instance, SiloStatus::Active));
    let table = table_with(&[[7; 32]], both);
    for p in [&a, &v] {
        p.transport.update(Some(p.me), &table);
    }
    a.probe(v.endpoint(), 0);
    super::support::answer(&mut v).await;
    a.message().await;
    let shown = Shown::by(&authority, &params("127.0.0.1", CLUSTER));
    let mut held = Vec::new();
    let mut longest = Duration::ZERO;
    for nonce in 1..=100 {
        let mut stream = shown.dial(a.endpoint()).await.unwrap();
        let (_, tls) = stream.get_ref();
        let binding = tls.export_keying_material(Binding::default(), BINDING, None);
        let key = Key::new();
        let (instance, at) = (key.instance(), v.endpoint());
        let says = hello(&key, instance, (0, "default/test"), at, binding.unwrap());
        stream.write_all(&says).await.unwrap();
        let mut mark = [0; 8];
        stream.read_exact(&mut mark).await.unwrap();
        held.push(stream);
        let begun = std::time::Instant::now();
        a.probe(v.endpoint(), nonce);
        super::support::answer(&mut v).await;
        a.message().await;
        longest = longest.max(begun.elapsed());
    }
    println!("{longest:?}, {:?}", a.transport.stats());
    println!("{:?}", v.transport.stats());
}
