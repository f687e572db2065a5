//! Failures of a PostgreSQL server, and features that only this store has. The shared suite tests
//! everything else.
#![cfg(feature = "postgres")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "../support/postgres/mod.rs"]
mod postgres;
#[path = "../support/warnings.rs"]
mod warnings;

mod connections;
mod failover;
mod hosts;
mod replicas;
mod schema;
mod standby;
mod transactions;
mod worst_day;

use std::time::{Duration, Instant};

use membership_core::{
    ClusterKey, ClusterName, CommitId, CommitOutcome, CommitRequest, Heartbeat, HeartbeatWrite,
    InitializeRequest, InstanceId, MembershipEntry, MembershipTable, SharedSettings, SiloAddress,
    Snapshot, TableError, TableExt, TableId, VersionToken, WallTime,
};
use membership_sql::{PostgresConfig, PostgresTable};
use membership_testbed::{Kind, Server};
use postgres::{Options, ours};

/// The longest time that a condition may take: far more than it needs.
const PATIENCE: Duration = Duration::from_secs(60);

fn blue() -> ClusterName {
    "billing/blue".parse().unwrap()
}

async fn server(options: Options) -> Server {
    Server::start(Kind::Postgres, ours(options)).await.unwrap()
}

fn config(server: &Server) -> PostgresConfig {
    PostgresConfig::from_url(server.url()).unwrap()
}

/// The same server with options in the URL.
fn config_with(server: &Server, options: &str) -> PostgresConfig {
    PostgresConfig::from_url(&format!("{}?{options}", server.url())).unwrap()
}

async fn connect(config: PostgresConfig) -> Result<PostgresTable, TableError> {
    PostgresTable::connect(config, blue()).await
}

async fn initialize(table: &PostgresTable) -> Result<(), TableError> {
    table
        .initialize(&InitializeRequest::new(
            TableId::new(7),
            SharedSettings::default(),
            ClusterKey::new([7; 32]),
        ))
        .await
}

async fn ready(server: &Server) -> PostgresTable {
    let table = connect(config(server)).await.unwrap();
    initialize(&table).await.unwrap();
    table
}

async fn read(table: &PostgresTable) -> Snapshot {
    table.read_all().await.unwrap().0
}

fn silo(n: u64) -> SiloAddress {
    format!("10.0.0.1:7000@{n}").parse().unwrap()
}

fn insert(token: &VersionToken, n: u64) -> CommitRequest {
    let entry = MembershipEntry::new(
        silo(n),
        InstanceId::new(u128::from(n)),
        WallTime::from_millis(1),
    );
    let id = CommitId::new((u128::from(token.version()) << 64) | u128::from(n));
    CommitRequest::new(token.clone(), id, None, [entry], [], [])
}

async fn commit(table: &PostgresTable, request: &CommitRequest) -> VersionToken {
    match table.commit(request).await.unwrap() {
        CommitOutcome::Committed(token) => token,
        other => panic!("{other:?}"),
    }
}

fn heartbeat(n: u64, counter: u64) -> HeartbeatWrite {
    HeartbeatWrite::Silo {
        silo: silo(n),
        heartbeat: Heartbeat {
            counter,
            at: WallTime::from_millis(counter),
        },
    }
}

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
