//! What only real servers show: refusals, and failovers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod failover;
mod heartbeats;
mod played;
mod recency;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
mod worst_day;

use std::time::Duration;

use membership_core::{
    ClusterKey, ClusterName, CommitId, CommitOutcome, CommitRequest, InitializeRequest, InstanceId,
    MembershipEntry, MembershipTable, ReadAnswer, ReadRequest, SharedSettings, SiloAddress,
    Snapshot, TableError, TableId, WallTime,
};
use membership_mongo::{MongoConfig, MongoTable};
use membership_testbed::{Kind, Options, Server};
use mongodb::Database;

fn blue() -> ClusterName {
    "blue".parse().unwrap()
}

/// A server for one test alone, whatever the environment names.
async fn server(args: &[&str]) -> Server {
    let args = [&["--setParameter", "enableTestCommands=1"], args]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
    Server::start(
        Kind::MongoDb,
        Options {
            args,
            ..Options::default()
        },
    )
    .await
    .unwrap()
}

async fn connect(url: &str) -> Result<MongoTable, TableError> {
    MongoTable::connect(
        MongoConfig::from_url(url)?.operation_timeout(Duration::from_secs(10)),
        blue(),
    )
    .await
}

async fn made(table: &MongoTable) {
    table
        .initialize(&InitializeRequest::new(
            TableId::new(7),
            SharedSettings::default(),
            ClusterKey::new([7; 32]),
        ))
        .await
        .unwrap();
}

/// A database with the permissions of its administrator.
async fn shell(server: &Server, database: &str) -> Database {
    mongodb::Client::with_uri_str(server.url())
        .await
        .unwrap()
        .database(database)
}

fn entry(port: u16) -> MembershipEntry {
    MembershipEntry::new(
        SiloAddress::new([10, 0, 0, 1].into(), port, 1),
        InstanceId::new(1),
        WallTime::default(),
    )
}

async fn read(table: &MongoTable) -> Snapshot {
    match table.read(&ReadRequest::all()).await.unwrap() {
        ReadAnswer::Snapshot { snapshot, .. } => snapshot,
        ReadAnswer::Unchanged { .. } => panic!("`Unchanged` to a client without a known version"),
        other => panic!("{other:?}"),
    }
}

/// The insert of one row.
async fn insert(table: &MongoTable, port: u16) -> CommitRequest {
    let token = read(table).await.token;
    CommitRequest::new(
        token,
        CommitId::new(u128::from(port) << 64 | 1),
        None,
        [entry(port)],
        [],
        [],
    )
}

fn is_committed(answer: &Result<CommitOutcome, TableError>) -> bool {
    matches!(answer, Ok(CommitOutcome::Committed(_)))
}
