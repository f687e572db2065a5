//! Reads of a set of one member, with the server's own settings: they do not wait for the journal,
//! and are linearizable, also when the set grows. Clause T6.

use std::time::Instant;

use conformance_tests::contention;
use conformance_tests::helpers::until;
use conformance_tests::servers::ServerBackend;
use membership_testbed::suite;
use mongodb::bson::doc;

use super::*;
use crate::support::{MongoDb, SECRET};

/// The longest time between two writes of the journal that a server takes, in milliseconds: what
/// waits for it takes about half of that each time, and nothing else here takes as long.
const RARE_JOURNAL: &str = "--journalCommitInterval=500";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quiet_reads_do_not_wait_for_the_journal() {
    let server = server(&[RARE_JOURNAL]).await;
    let table = connect(server.url()).await.unwrap();
    made(&table).await;
    table.commit(&insert(&table, 1).await).await.unwrap();
    let known = ReadRequest::all().with_known(read(&table).await.token);
    let baseline = table.baseline().unwrap();
    baseline.write().await.unwrap();
    let began = Instant::now();
    for _ in 0..25 {
        read(&table).await;
        table.read(&known).await.unwrap();
        table.read_row(&entry(1).address, None).await.unwrap();
        baseline.read().await.unwrap();
    }
    let took = began.elapsed();
    println!("100 reads take {took:?}");
    assert!(took < Duration::from_secs(10), "100 reads take {took:?}");
    baseline.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_do_not_wait_for_the_journal() {
    let server = suite::own_server(Kind::MongoDb, &[RARE_JOURNAL], suite::durable(SECRET)).await;
    let backend = ServerBackend::new("a rare journal", MongoDb, server).secret(SECRET);
    let figures = contention::run(&backend, &blue(), 8, Duration::from_secs(5)).await;
    let figures = figures.unwrap();
    println!("{figures}");
    // Writers that waited for the journal before each commit would make two per second.
    assert!(figures.commits_per_second() > 20.0, "{figures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_set_that_has_grown_is_asked_as_a_whole() {
    let one = server(&[]).await;
    let config = MongoConfig::from_url(one.url()).unwrap();
    let table = MongoTable::connect(config.operation_timeout(Duration::from_secs(3)), blue());
    let table = table.await.unwrap();
    made(&table).await;
    assert_eq!(read(&table).await.version(), 0);
    let others = [
        server(&["--replSet=rs0"]).await,
        server(&["--replSet=rs0"]).await,
    ];
    let admin = shell(&one, "admin").await;
    for (id, other) in (1..).zip(&others) {
        let config = admin.run_command(doc! { "replSetGetConfig": 1 }).await;
        let mut config = config.unwrap().get_document("config").unwrap().clone();
        config.insert("version", config.get_i32("version").unwrap() + 1);
        let members = config.get_array_mut("members").unwrap();
        members.push(doc! { "_id": id, "host": other.address().to_string() }.into());
        let grow = || admin.run_command(doc! { "replSetReconfig": config.clone() });
        until("the set grows", async || grow().await.is_ok()).await;
    }
    // New members have no vote until they have the data.
    until("three members vote", async || {
        let status = admin.run_command(doc! { "replSetGetStatus": 1 }).await;
        status.is_ok_and(|status| {
            status
                .get_i32("writableVotingMembersCount")
                .is_ok_and(|n| n == 3)
        })
    })
    .await;
    table.commit(&insert(&table, 1).await).await.unwrap();
    // Without the others it cannot know whether they have another primary now.
    for other in &others {
        other.pause().await.unwrap();
    }
    let known = ReadRequest::all().with_heartbeats(false);
    let answer = table.read(&known).await;
    for other in &others {
        other.resume().await.unwrap();
    }
    assert!(answer.is_err(), "it answers alone: {answer:?}");
    until("the set serves", async || {
        matches!(table.read(&ReadRequest::all()).await, Ok(ReadAnswer::Snapshot { snapshot, .. }) if snapshot.version() == 1)
    })
    .await;
}
