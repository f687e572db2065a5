//! Many connections whose other sides prove nothing, and the few that must be made beside them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use membership::protocol::Message;
use membership::transport::{TcpConfig, Transport as _};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::strangers::reaches;
use super::support::{Peer, acquaint, answer, any_port};

/// The first message of TLS, as a silo sends it.
async fn first_message() -> Vec<u8> {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let a = Peer::new(99).await;
    a.probe(listener.local_addr().unwrap(), 1);
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = vec![0; 4096];
    let length = stream.read(&mut bytes).await.unwrap();
    bytes.truncate(length);
    bytes
}

/// A member whose row names another address than the one from which it dials.
#[tokio::test]
async fn a_member_that_dials_from_elsewhere_has_the_places_of_members() {
    let mut config = TcpConfig::default();
    config.max_handshakes_per_address = 4;
    let elsewhere: SocketAddr = "127.0.0.3:0".parse().unwrap();
    let mut a = Peer::with(1, elsewhere, "test", config).await;
    let mut b = Peer::with(
        2,
        "127.0.0.2:0".parse().unwrap(),
        "test",
        TcpConfig::default(),
    )
    .await;
    // Before it has proven itself, its address is a stranger's.
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(TcpStream::connect(a.endpoint()).await.unwrap());
    }
    a.until(|s| s.refused_too_many == 2).await;
    drop(silent);
    acquaint(&[&a, &b]);
    reaches(&mut b, &mut a).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(a.endpoint()).await.unwrap());
    }
    reaches(&mut b, &mut a).await;
    assert_eq!(a.transport.stats().refused_too_many, 2);
}

/// Each from another address, and each asks for keys and a signature.
#[tokio::test(flavor = "multi_thread")]
async fn first_messages_of_many_addresses_cost_a_bounded_number_of_keys() {
    let mut config = TcpConfig::default();
    config.max_handshakes_of_strangers_per_second = 50;
    let mut a = Peer::with(1, any_port(), "test", config).await;
    let mut b = Peer::new(2).await;
    let (to, first) = (a.endpoint(), first_message().await);
    let answered = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut threads = Vec::new();
    for thread in 0..2_u8 {
        let (first, answered) = (first.clone(), answered.clone());
        threads.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let mut tasks = tokio::task::JoinSet::new();
                for task in 0..20_u8 {
                    let (first, answered) = (first.clone(), answered.clone());
                    tasks.spawn(async move {
                        for n in (0..=255_u8).cycle() {
                            let socket = TcpSocket::new_v4().unwrap();
                            let from = SocketAddr::from(([127, 2 + thread + 2 * task, n, 9], 0));
                            socket.bind(from).unwrap();
                            let Ok(mut stream) = socket.connect(to).await else {
                                continue;
                            };
                            let stranger = async {
                                let _ =
                                    tokio::io::AsyncWriteExt::write_all(&mut stream, &first).await;
                                if stream.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {
                                    answered.fetch_add(1, Relaxed);
                                }
                            };
                            let _ = timeout(Duration::from_millis(50), stranger).await;
                        }
                    });
                }
                sleep(Duration::from_secs(4)).await;
                tasks.abort_all();
            });
        }));
    }
    sleep(Duration::from_secs(2)).await;
    let joins = Instant::now();
    reaches(&mut b, &mut a).await;
    let took = joins.elapsed();
    for thread in threads {
        tokio::task::spawn_blocking(|| thread.join().unwrap())
            .await
            .unwrap();
    }
    let (answered, seconds) = (
        answered.load(Relaxed),
        begun.elapsed().as_secs() as usize + 1,
    );
    println!(
        "{answered} answers in {seconds} s; a newcomer in {took:?}; {:?}",
        a.transport.stats()
    );
    assert!(answered > 20 && answered <= 50 * seconds, "{answered}");
    // On a quiet machine some milliseconds; without a bound on keys nobody gets in at all.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// Its peer takes no more connections. Both have rows, so nothing must be proven again.
#[tokio::test]
async fn a_connection_that_cannot_be_made_anew_is_kept() {
    let mut config = TcpConfig::default();
    config.max_age = Duration::from_millis(400);
    let mut a = Peer::with(1, any_port(), "test", config.clone()).await;
    config.max_incoming = 1;
    let mut b = Peer::with(2, any_port(), "test", config).await;
    acquaint(&[&a, &b]);
    let begun = Instant::now();
    let mut nonce = 0;
    while begun.elapsed() < Duration::from_secs(2) {
        nonce += 1;
        a.probe(b.endpoint(), nonce);
        let sent = Instant::now();
        answer(&mut b).await;
        let (_, _, answered) = a.message().await;
        assert_eq!(answered, Message::ProbeAck { nonce });
        assert!(sent.elapsed() < Duration::from_secs(2));
        sleep(Duration::from_millis(20)).await;
    }
    let stats = a.transport.stats();
    assert!(stats.dialled == 1 && stats.dials_failed > 0, "{stats:?}");
}
