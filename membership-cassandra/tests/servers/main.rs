//! Behaviour of Cassandra alone: concurrent schema changes, serial consistency, permissions, TLS,
//! unknown outcomes. One server for most tests.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod nodes;
mod played;
mod schema;
mod trouble;
mod worst_day;

/// One test for everything, because starting a Java program for each would take longer than the
/// tests themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn behaviour_of_cassandra_alone() {
    let server = support::server().await;
    schema::many_clients_create_one_keyspace(&server).await;
    schema::a_keyspace_that_may_not_be_created_is_described(&server).await;
    schema::tables_with_other_columns_are_refused(&server).await;
    schema::serial_consistency_is_stored_with_the_table(&server).await;
    schema::an_existing_session_is_used(&server).await;
    schema::dropped_tables_are_reported(&server).await;
    trouble::connections_that_cannot_work_say_why(&server).await;
    trouble::clients_may_use_tls(&server).await;
    trouble::missing_permissions_are_refused(&server).await;
    trouble::a_user_that_may_only_read_is_enough_for_clients(&server).await;
    trouble::durability_follows_the_settings_of_the_nodes(&server).await;
    trouble::a_token_without_the_row_count_is_sufficient(&server).await;
    trouble::many_writers_on_one_version_have_one_winner(&server).await;
    trouble::a_late_heartbeat_does_not_replace_a_newer_one(&server).await;
    trouble::a_cell_of_a_fast_clock_is_replaced(&server).await;
    trouble::a_cluster_whose_version_row_is_damaged_can_be_deleted(&server).await;
    trouble::missing_rows_are_reported(&server).await;
    trouble::orphans_are_removed_with_the_next_cleanup(&server).await;
    trouble::removing_a_row_with_the_cells_name_keeps_the_cell(&server).await;
    trouble::the_largest_commit_fits(&server).await;
    played::no_played_answer_is_a_conflict(&server).await;
    nodes::a_dead_contact_point_is_not_needed_again(&server).await;
    drop(server);
    trouble::unknown_outcomes_are_looked_up().await;
}
