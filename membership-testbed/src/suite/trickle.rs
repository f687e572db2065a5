//! A server that accepts connections and says nothing or closes them, with TLS and without, and one
//! whose answers come byte by byte: every call ends within its time. T13.
//!
//! A timeout that begins anew with each byte would never end such a call.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use conformance_tests::helpers::{fill, heartbeat, initialize, insert, read, silo, unique, until};
use conformance_tests::servers::{Store, with_options};
use membership_core::{
    ClusterName, CommitOutcome, MembershipTable, NextStep, ReadRequest, TableError, TableErrorKind,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::Server;

/// The longest operation of these clients, and what a busy machine may add.
const LIMIT: Duration = Duration::from_secs(2 + 10);
/// The pause after each byte.
const PAUSE: Duration = Duration::from_millis(50);

/// Passes everything on; what the server says goes byte by byte while `slowly` is set.
async fn in_front_of(server: SocketAddr, slowly: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut pipes = tokio::task::JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(server).await else {
                continue;
            };
            pipes.spawn(pipe(client, server, slowly.clone()));
        }
    });
    address
}

async fn pipe(client: TcpStream, server: TcpStream, slowly: Arc<AtomicBool>) -> Option<()> {
    let (mut requests, mut to_client) = client.into_split();
    let (mut answers, mut to_server) = server.into_split();
    let forward = tokio::io::copy(&mut requests, &mut to_server);
    let back = async {
        let mut part = [0; 16 << 10];
        loop {
            let said = match answers.read(&mut part).await.ok()? {
                0 => return None::<()>,
                n => part.get(..n)?,
            };
            let mut rest = said;
            while let ([first, more @ ..], true) = (rest, slowly.load(Ordering::Relaxed)) {
                to_client.write_all(&[*first]).await.ok()?;
                rest = more;
                sleep(PAUSE).await;
            }
            to_client.write_all(rest).await.ok()?;
        }
    };
    tokio::select! {
        _ = forward => None,
        ended = back => ended,
    }
}

/// What a call comes to, which must be in time.
async fn in_time<T>(
    what: &str,
    call: impl Future<Output = Result<T, TableError>>,
) -> Result<T, TableError> {
    let began = Instant::now();
    let answer = tokio::time::timeout(4 * LIMIT, call).await;
    let took = began.elapsed();
    assert!(took < LIMIT, "{what} took {took:?}");
    answer.unwrap()
}

/// An error of a server that is away.
fn is_away<T>(what: &str, answer: Result<T, TableError>) -> TableError {
    match answer {
        Ok(_) => panic!("{what} succeeds"),
        Err(e) if e.next_step() == NextStep::GiveUp => panic!("{what}: {e}"),
        Err(e) => e,
    }
}

/// Requires of the clients of this server, which must be the test's own: their calls end in time
/// while its answers trickle, and connecting does where nothing is said. `encrypted` makes a URL with
/// TLS for an address.
///
/// # Panics
/// If a call takes longer, or calls the server's silence something else.
pub async fn slow_answers_end_in_time<S: Store>(
    store: &S,
    server: &Server,
    encrypted: impl Fn(SocketAddr) -> String,
) {
    let cluster: ClusterName = format!("trickle/{}", unique()).parse().unwrap();
    let slowly = Arc::new(AtomicBool::new(false));
    let address = in_front_of(server.address(), slowly.clone()).await;
    let url = server
        .url()
        .replace(&server.address().to_string(), &address.to_string());
    let url = with_options(&url, store.short_timeouts());
    let table = store.connect(&url, &cluster).await.unwrap();
    let token = fill(&*table, 20).await;
    slowly.store(true, Ordering::Relaxed);
    let (request, all, one, beat) = (
        insert(&token, [77]),
        ReadRequest::all(),
        silo(1),
        heartbeat(1, 1),
    );
    let (committed, found, row, beaten, made, opened) = tokio::join!(
        in_time("commit", table.commit(&request)),
        in_time("read", table.read(&all)),
        in_time("read_row", table.read_row(&one, None)),
        in_time("heartbeat", table.update_i_am_alive(&beat)),
        in_time("initialize", initialize(&*table)),
        in_time("connect", store.connect(&url, &cluster)),
    );
    is_away("read", found);
    is_away("read_row", row);
    // The answers to these are short.
    for (what, answer) in [
        ("heartbeat", beaten),
        ("initialize", made),
        ("connect", opened.map(drop)),
    ] {
        if answer.is_err() {
            is_away(what, answer);
        }
    }
    slowly.store(false, Ordering::Relaxed);
    until("the client is back", async || {
        table.read(&ReadRequest::all()).await.is_ok()
    })
    .await;
    match committed {
        Ok(CommitOutcome::Committed(_)) => {}
        Ok(other) => panic!("{other:?}"),
        // It may arrive late, or not at all: sent again, it is there.
        Err(e) if e.next_step() == NextStep::FindOut => {
            let answer = table.commit(&request.again()).await.unwrap();
            assert!(matches!(answer, CommitOutcome::Committed(_)), "{answer:?}");
        }
        Err(e) => {
            assert_eq!(e.next_step(), NextStep::Retry, "{e}");
            sleep(Duration::from_secs(1)).await;
            let (now, _) = read(&*table).await;
            assert!(now.token.same_commit(&token), "it has happened: {e}");
        }
    }
    table.delete().await.unwrap();
    // As a load balancer does that has no server.
    let closes = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closing = closes.local_addr().unwrap();
    tokio::spawn(async move { while closes.accept().await.is_ok() {} });
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = silent
        .local_addr()
        .map(|address| (address, silent))
        .unwrap();
    let plain = |to: SocketAddr| url.replace(&address.to_string(), &to.to_string());
    let tls = |to| with_options(&encrypted(to), store.short_timeouts());
    let (server, handshake) = ("a silent server", "a silent handshake");
    let (closed, broken) = ("a server that closes", "a handshake that is closed");
    let urls = [plain(silent.0), tls(silent.0), plain(closing), tls(closing)];
    let [silent_plain, silent_tls, closing_plain, closing_tls] = &urls;
    let answers = tokio::join!(
        in_time(server, store.connect(silent_plain, &cluster)),
        in_time(handshake, store.connect(silent_tls, &cluster)),
        in_time(closed, store.connect(closing_plain, &cluster)),
        in_time(broken, store.connect(closing_tls, &cluster)),
    );
    for (what, answer) in [
        (server, answers.0),
        (handshake, answers.1),
        (closed, answers.2),
        (broken, answers.3),
    ] {
        let e = is_away(what, answer);
        assert_eq!(e.kind(), TableErrorKind::Unavailable, "{what}: {e}");
    }
}
