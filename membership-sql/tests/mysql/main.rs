//! Failures of a MySQL or MariaDB server, staged on MariaDB. The shared suite tests the rest.
#![cfg(feature = "mysql")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "../support/mysql.rs"]
mod support;
#[path = "../support/warnings.rs"]
mod warnings;

mod commits;
mod connections;
mod costs;
mod failover;
mod schema;
mod worst_day;

use conformance_tests::helpers::{commit as committed, unique};
use membership_core::{
    ClusterKey, ClusterName, CommitRequest, InitializeRequest, MembershipTable, ReadAnswer,
    ReadRequest, SharedSettings, Snapshot, TableError, TableId, VersionToken,
};
use membership_sql::{MysqlConfig, MysqlProcedure, MysqlTable};
use support::MariaDb;

fn cluster(name: &str) -> ClusterName {
    name.parse().unwrap()
}

fn insert(on: &VersionToken, n: u64) -> CommitRequest {
    conformance_tests::helpers::insert(on, [n])
}

fn request() -> InitializeRequest {
    InitializeRequest::new(
        TableId::new(unique()),
        SharedSettings::default(),
        ClusterKey::new([7; 32]),
    )
}

async fn open(config: MysqlConfig, name: &str) -> Result<MysqlTable, TableError> {
    MysqlTable::connect(config, cluster(name)).await
}

async fn made(config: MysqlConfig, name: &str) -> (MysqlTable, VersionToken) {
    let table = open(config, name).await.unwrap();
    table.initialize(&request()).await.unwrap();
    let token = read(&table).await.token;
    let token = committed(&table, &insert(&token, 1)).await;
    (table, token)
}

async fn read(table: &MysqlTable) -> Snapshot {
    match table.read(&ReadRequest::all()).await.unwrap() {
        ReadAnswer::Snapshot { snapshot, .. } => snapshot,
        other => panic!("{other:?}"),
    }
}

/// All tests that need no server with special options.
#[tokio::test(flavor = "multi_thread")]
async fn one_server() {
    let server = MariaDb::start("procedure=never").await;
    costs::round_trips(&server, 2).await;
    schema::fifty_silos_create_the_tables_at_once(&server).await;
    schema::names_differ_by_case_and_accent(&server).await;
    commits::a_deadlock_is_busy_and_changes_nothing(&server).await;
    commits::a_held_lock_is_busy_and_changes_nothing(&server).await;
    commits::a_dead_client_holds_no_lock(&server).await;
    commits::a_row_inserted_by_hand_is_a_conflict(&server).await;
    commits::a_conflict_that_a_crash_may_undo_is_not_reported(&server).await;
    schema::a_foreign_table_is_refused_before_anything_is_written(&server).await;
    schema::without_permissions_the_error_says_what_to_do(&server).await;
    schema::a_user_that_may_only_read_is_enough_for_clients(&server).await;
    connections::poolers_may_reset_sessions(&server).await;
    commits::the_procedure_and_the_client_commit_the_same(&server).await;
    costs::the_baseline_leaves_nothing(&server).await;
    costs::round_trips(&server, 1).await;
    for procedure in [MysqlProcedure::Never, MysqlProcedure::Require] {
        connections::a_server_that_becomes_read_only_is_refused(&server, procedure).await;
        schema::a_missing_table_is_damage(&server, procedure).await;
    }
}
