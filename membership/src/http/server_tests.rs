//! Whoever sends nothing, or waits, keeps nobody out.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// Serves with three seats. Returns where.
async fn serve(turns: Turns) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answering = Answering {
        router: outer(Arc::default()),
        tls: None,
        exporter: None,
        seats: Seats::new(3),
        turns,
    };
    tokio::spawn(answering.accept(listener));
    address
}

/// Asks as a supervisor does.
async fn is_alive(address: SocketAddr) {
    let mut probe = TcpStream::connect(address).await.unwrap();
    let request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    probe.write_all(request).await.unwrap();
    let mut said = String::new();
    probe.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

#[tokio::test]
async fn who_waits_for_a_turn_keeps_nobody_out() {
    let turns = Turns::new();
    // Somebody else's is long.
    let _turn = turns.taken().await;
    let address = serve(turns).await;
    let mut waiting = Vec::new();
    for _ in 0..9 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let page = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(page).await.unwrap();
        // Its request is read.
        for _ in 0..99 {
            tokio::task::yield_now().await;
        }
        waiting.push(stream);
    }
    is_alive(address).await;
}

#[tokio::test]
async fn who_sends_nothing_keeps_nobody_out() {
    let address = serve(Turns::new()).await;
    let mut silent = Vec::new();
    let begun = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
    for sends in [begun.as_slice(), b"", b"GET / HTTP/1.1\r\nX: ", begun].repeat(2) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sends).await.unwrap();
        silent.push(stream);
    }
    is_alive(address).await;
}
