//! A server that was the primary, and answers nevertheless.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use conformance_tests::helpers::{commit as committed, silo, unique};
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::RawAccess as _;
use membership_core::{
    Durability, Guarantees, MembershipTable, ReadAnswer, ReadRequest, Recency, TableError,
    TableErrorKind,
};
use membership_sql::{MysqlConfig, MysqlTable};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{MariaDb, Raw, SECRET};
use crate::{cluster, insert, made, open};

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_primary_is_left_once_its_answer_is_older_than_what_is_known() {
    let (former, new) = tokio::join!(MariaDb::start(""), MariaDb::start(""));
    // An address that always leads to the primary, for new connections.
    let address = Proxy::to(former.server.address()).unwrap();
    let here = former.server.address().to_string();
    let url = former.url().replace(&here, &address.address().to_string());
    let config = MysqlConfig::from_url(&url).unwrap();
    let (reads, token) = made(config.clone(), "deposed").await;
    let (rows, commits) = (
        open(config.clone(), "deposed").await.unwrap(),
        open(config, "deposed").await.unwrap(),
    );
    // One of the connections of `commits` writes.
    let token = committed(&commits, &insert(&token, 2)).await;
    let name = cluster("deposed");
    let mut from = Raw::open(former.server.url(), &name).await.unwrap();
    let mut to = Raw::open(new.server.url(), &name).await.unwrap();
    new.make_schema().await;
    to.restore(&from.save().await.unwrap()).await.unwrap();
    address.set_target(new.server.address());
    let other = open(new.config(), "deposed").await.unwrap();
    let newer = committed(&other, &insert(&token, 3)).await;
    // The clients still use the former primary, and hear of the new commit from another silo.
    let known = |token| ReadRequest::all().with_known(Some(token));
    let old = reads.read(&known(token)).await.unwrap();
    assert!(matches!(old, ReadAnswer::Unchanged { .. }), "{old:?}");
    let seen = reads.read(&known(newer.clone())).await.unwrap();
    assert!(matches!(seen, ReadAnswer::Unchanged { .. }), "{seen:?}");
    let row = rows.read_row(&silo(3), Some(&newer)).await.unwrap();
    assert!(row.row.is_some() && row.token == newer);
    let next = committed(&commits, &insert(&newer, 4)).await;
    // Later operations use the new connections.
    let later = reads.read(&known(next)).await.unwrap();
    assert!(matches!(later, ReadAnswer::Unchanged { .. }), "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_hosts_the_one_that_accepts_writes_is_used() {
    let (first, second) = tokio::join!(MariaDb::start(""), MariaDb::start(""));
    first.sql("SET GLOBAL read_only = 1").await.unwrap();
    let here = first.server.address().to_string();
    let both = format!("{here},{}", second.server.address());
    let config = MysqlConfig::from_url(&first.url().replace(&here, &both)).unwrap();
    let (table, token) = made(config.clone(), "several").await;
    // They could have changed places before, as far as the client knows.
    let promised = table.guarantees();
    assert_eq!(promised.reads, Recency::MonotonicPerClient);
    let refused = barrier(&table).await.unwrap_err().to_string();
    assert!(refused.contains("another host"), "{refused}");
    // The other one takes over, with all that was committed.
    let name = cluster("several");
    let mut from = Raw::open(second.server.url(), &name).await.unwrap();
    let mut to = Raw::open(first.server.url(), &name).await.unwrap();
    first.sql("SET GLOBAL read_only = 0").await.unwrap();
    first.make_schema().await;
    to.restore(&from.save().await.unwrap()).await.unwrap();
    second.sql("SET GLOBAL read_only = 1").await.unwrap();
    let known = ReadRequest::all().with_known(Some(token.clone()));
    let read = table.read(&known).await.unwrap();
    assert!(matches!(read, ReadAnswer::Unchanged { .. }), "{read:?}");
    committed(&table, &insert(&token, 2)).await;
    // With none that accepts writes, the error names all of them.
    first.sql("SET GLOBAL read_only = 1").await.unwrap();
    let refused = open(config, "several").await.unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains(&both), "{refused}");
}

/// What is promised, and whether a read with a barrier is answered.
async fn promised(config: MysqlConfig) -> (Recency, Durability, bool) {
    let (table, _) = made(config, &format!("promised-{}", unique())).await;
    let Guarantees {
        reads, durability, ..
    } = table.guarantees();
    let answered = match barrier(&table).await {
        Ok(()) => true,
        Err(e) => {
            assert_eq!(e.kind(), TableErrorKind::Unavailable, "{e}");
            assert!(e.to_string().contains("failover_may_lose=false"), "{e}");
            false
        }
    };
    (reads, durability, answered)
}

async fn barrier(table: &MysqlTable) -> Result<(), TableError> {
    let newest = ReadRequest::all().with_barrier(true);
    table.read(&newest).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_was_checked_or_asserted_is_promised() {
    use Durability::{Kept, MayBeLost};
    use Recency::{Linearizable, MonotonicPerClient};
    let log = ["--log-bin", "--binlog-format=ROW", "--sync-binlog=1"];
    let args = |id| [&[id][..], &log].concat();
    let (first, second) = (args("--server-id=1"), args("--server-id=2"));
    let (plain, source, replica) = tokio::join!(
        MariaDb::start(""),
        MariaDb::start_with("", &first),
        MariaDb::start_with("", &second)
    );
    // Without a binary log there can be no replica; with one there is none yet.
    let alone = (Linearizable, Kept, true);
    assert_eq!(promised(plain.config()).await, alone);
    assert_eq!(promised(source.config()).await, alone);
    let (before, _) = made(source.config(), "before").await;
    let port = source.server.address().port();
    for sql in [
        format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root', MASTER_PASSWORD = '{SECRET}'"
        ),
        "START SLAVE".to_owned(),
    ] {
        replica.sql(&sql).await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let connected = "SHOW GLOBAL STATUS LIKE 'Slaves_connected'";
    while source.sql(connected).await.unwrap()[0].get::<String, _>(1) != Some("1".to_owned()) {
        assert!(Instant::now() < deadline, "the replica does not connect");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // It came later than the connection.
    assert_eq!(before.guarantees().reads, Linearizable);
    let refused = barrier(&before).await.unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Unavailable, "{refused}");
    before.read(&ReadRequest::all()).await.unwrap();
    let now = before.guarantees();
    assert_eq!((now.reads, now.durability), (MonotonicPerClient, MayBeLost));
    let config = || source.config();
    let unknown = (MonotonicPerClient, MayBeLost, false);
    assert_eq!(promised(config()).await, unknown);
    let safe = config().failover_may_lose(false);
    assert_eq!(promised(safe).await, alone);
    let lossy = config().failover_may_lose(true);
    assert_eq!(promised(lossy).await, (Linearizable, MayBeLost, true));
    // A replica that confirms commits keeps them, unless the server stops to wait for it.
    source
        .sql("SET GLOBAL rpl_semi_sync_master_enabled = 1")
        .await
        .unwrap();
    assert_eq!(
        open(config(), "x").await.unwrap().guarantees().durability,
        MayBeLost
    );
    source
        .sql("SET GLOBAL rpl_semi_sync_master_timeout = 86400000000")
        .await
        .unwrap();
    assert_eq!(
        open(config(), "x").await.unwrap().guarantees().durability,
        Kept
    );
}

/// MariaDB as a member of a replication group, which it cannot be: a relay gives one of its
/// variables the name that such a member has, and counts what sets it.
async fn as_a_member(server: SocketAddr, sets: Arc<AtomicUsize>) -> SocketAddr {
    const NAME: &[u8] = b"group_replication_consistency";
    const OTHER: &[u8] = b"performance_schema_users_size";
    const SET: &[u8] = b"SET SESSION group_replication_consistency = 'BEFORE'";
    const NOTHING: &[u8] = b"DO 0 /* ------------------------------------------*/";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let relay = move |mut from: OwnedReadHalf, mut to: OwnedWriteHalf, request: bool| {
        let sets = Arc::clone(&sets);
        async move {
            let mut bytes = vec![0; 1 << 20];
            while let Ok(n) = from.read(&mut bytes).await
                && n > 0
            {
                let mut part = bytes[..n].to_vec();
                if request {
                    let set = replace(&mut part, SET, NOTHING);
                    sets.fetch_add(set, Ordering::SeqCst);
                    replace(&mut part, NAME, OTHER);
                } else {
                    replace(&mut part, OTHER, NAME);
                }
                to.write_all(&part).await.unwrap();
            }
        }
    };
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from, to) = client.into_split();
            let (answers, requests) = TcpStream::connect(server).await.unwrap().into_split();
            tokio::spawn(relay(from, requests, true));
            tokio::spawn(relay(answers, to, false));
        }
    });
    address
}

/// Replaces a text by another of the same length, and says how often.
fn replace(bytes: &mut [u8], text: &[u8], by: &[u8]) -> usize {
    assert_eq!(text.len(), by.len());
    let found = |bytes: &[u8]| bytes.windows(text.len()).position(|part| part == text);
    let mut times = 0;
    while let Some(at) = found(bytes) {
        bytes[at..at + by.len()].copy_from_slice(by);
        times += 1;
    }
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_wait_for_the_commits_of_a_replication_group() {
    let server = MariaDb::start("ssl-mode=disabled").await;
    let sets = Arc::new(AtomicUsize::new(0));
    let here = server.server.address();
    let member = as_a_member(here, Arc::clone(&sets)).await;
    let url = server.url().replace(&here.to_string(), &member.to_string());
    let config = || MysqlConfig::from_url(&url).unwrap();
    let (table, _) = made(config(), "group").await;
    let opened = sets.load(Ordering::SeqCst);
    assert!(opened > 0, "reads of other members may be old");
    table.read(&ReadRequest::all()).await.unwrap();
    assert_eq!(sets.load(Ordering::SeqCst), opened, "once per connection");
    // Where connections keep nothing, each read sets it.
    let pooled = open(config().pooler(true), "group").await.unwrap();
    let before = sets.load(Ordering::SeqCst);
    pooled.read(&ReadRequest::all()).await.unwrap();
    assert!(sets.load(Ordering::SeqCst) > before);
}
