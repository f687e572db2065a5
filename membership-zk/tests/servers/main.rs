//! What only real servers show: refusals, failovers, lag, and expired sessions.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ensemble;
mod refusals;
mod session;
#[path = "../support/mod.rs"]
mod support;
mod worst_day;

use std::time::Duration;

use membership_core::{
    ClusterKey, ClusterName, CommitId, CommitOutcome, CommitRequest, InitializeRequest, InstanceId,
    MembershipEntry, MembershipTable, ReadAnswer, ReadRequest, SharedSettings, SiloAddress,
    Snapshot, TableError, TableId, WallTime,
};
use membership_testbed::{Kind, Options, Server};
use membership_zk::{ZkConfig, ZkTable};

fn blue() -> ClusterName {
    "blue".parse().unwrap()
}

/// A server for one test alone, whatever the environment names.
async fn server(args: &[&str]) -> Server {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Server::start(
        Kind::ZooKeeper,
        Options {
            local: true,
            args,
            ..Options::default()
        },
    )
    .await
    .unwrap()
}

async fn connect(url: &str) -> Result<ZkTable, TableError> {
    ZkTable::connect(
        ZkConfig::from_url(url)?.operation_timeout(Duration::from_secs(10)),
        blue(),
    )
    .await
}

async fn made(table: &ZkTable) {
    table
        .initialize(&InitializeRequest::new(
            TableId::new(7),
            SharedSettings::default(),
            ClusterKey::new([7; 32]),
        ))
        .await
        .unwrap();
}

fn entry(port: u16) -> MembershipEntry {
    MembershipEntry::new(
        SiloAddress::new([10, 0, 0, 1].into(), port, 1),
        InstanceId::new(1),
        WallTime::default(),
    )
}

async fn read(table: &ZkTable) -> Snapshot {
    match table
        .read(&ReadRequest::all().with_barrier(true))
        .await
        .unwrap()
    {
        ReadAnswer::Snapshot { snapshot, .. } => snapshot,
        ReadAnswer::Unchanged { .. } => panic!("`Unchanged` to a client without a known version"),
        other => panic!("{other:?}"),
    }
}

/// The insert of one row.
async fn insert(table: &ZkTable, port: u16) -> CommitRequest {
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
