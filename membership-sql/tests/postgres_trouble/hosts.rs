//! Several hosts in one URL, of which some do not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use membership_core::{MembershipTable, ReadRequest};
use membership_sql::{PostgresConfig, PostgresFailover, PostgresTable};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::postgres::{Options, Shell};
use crate::standby::url_of;
use crate::{blue, commit, initialize, insert, read, server, until};

/// A host that answers nothing: it accepts connections, or swallows packets.
struct Silent {
    address: String,
    /// How many connections it has accepted.
    accepted: Arc<AtomicUsize>,
    _backlog: (Option<TcpListener>, Vec<TcpStream>),
}

impl Silent {
    async fn that_accepts() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                open.push(stream);
            }
        });
        Self {
            address,
            accepted,
            _backlog: (None, Vec::new()),
        }
    }

    async fn that_swallows_packets() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = socket.listen(1).unwrap();
        let (address, mut waiting) = (full.local_addr().unwrap(), Vec::new());
        let short = Duration::from_millis(200);
        while let Ok(connected) = tokio::time::timeout(short, TcpStream::connect(address)).await {
            waiting.push(connected.unwrap());
        }
        Self {
            address: address.to_string(),
            accepted: Arc::default(),
            _backlog: (Some(full), waiting),
        }
    }
}

/// Uses the default timeout of an operation, so that none can end in time by chance.
async fn table_at(url: &str) -> PostgresTable {
    let began = Instant::now();
    let config = PostgresConfig::from_url(url).unwrap();
    let config = config.failover(PostgresFailover::Safe);
    let table = PostgresTable::connect(config, blue()).await.unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    table
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_first_host_leaves_time_for_the_others() {
    let server = server(Options::default()).await;
    let here = server.address().to_string();
    let accepts = Silent::that_accepts().await;
    let swallows = Silent::that_swallows_packets().await;
    for hosts in [
        format!("{},{here}", swallows.address),
        format!("{},{here},{}", accepts.address, swallows.address),
    ] {
        let table = table_at(&url_of(&server, &hosts)).await;
        initialize(&table).await.unwrap();
        let token = read(&table).await.token;
        commit(&table, &insert(&token, token.version() + 1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_begins_with_the_host_that_worked() {
    let server = server(Options::default()).await;
    let silent = Silent::that_accepts().await;
    let hosts = format!("{},{}", silent.address, server.address());
    let table = table_at(&url_of(&server, &hosts)).await;
    initialize(&table).await.unwrap();
    let before = silent.accepted.load(Ordering::Relaxed);
    let admin = Shell::connect(server.url()).await.unwrap();
    for _ in 0..3 {
        admin
            .run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'membership'")
            .await
            .unwrap();
        until("the table is back", async || {
            table.read(&ReadRequest::all()).await.is_ok()
        })
        .await;
    }
    let after = silent.accepted.load(Ordering::Relaxed);
    assert_eq!(after, before, "the silent host was asked again");
}
