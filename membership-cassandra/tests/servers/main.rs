//! What is Cassandra's own: a schema that many make at once, who decides, permissions, TLS, doubtful transactions. One server for all but the last.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod schema;
mod trouble;

/// Everything in one test, because a Java program for each would take longer than what it is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everything_that_is_cassandras_own() {
    let server = support::server().await;
    schema::a_keyspace_is_made_once_by_many(&server).await;
    schema::a_keyspace_that_may_not_be_made_is_described(&server).await;
    schema::tables_with_other_columns_are_refused(&server).await;
    schema::who_decides_is_kept_with_the_table(&server).await;
    schema::an_existing_session_is_taken(&server).await;
    schema::tables_that_are_dropped_are_missed(&server).await;
    trouble::connections_that_cannot_work_say_why(&server).await;
    trouble::tls_is_spoken_to_who_asks(&server).await;
    trouble::what_is_not_granted_is_refused(&server).await;
    trouble::what_the_nodes_flush_is_answered_honestly(&server).await;
    trouble::a_token_without_its_number_is_enough(&server).await;
    trouble::many_writers_on_one_version_have_one_winner(&server).await;
    trouble::a_late_heartbeat_moves_no_newer_one_back(&server).await;
    trouble::a_cluster_whose_version_row_is_damaged_can_be_deleted(&server).await;
    trouble::rows_that_are_gone_are_missed(&server).await;
    trouble::orphans_go_with_the_next_cleanup(&server).await;
    trouble::a_row_of_the_cells_name_goes_without_the_cell(&server).await;
    trouble::the_largest_commit_fits(&server).await;
    drop(server);
    trouble::what_a_server_gave_up_is_found_out().await;
}
