//! What is DynamoDB's own: tables that are made or not, tokens of transactions, collisions, keys that are refused. One server for all.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod tables;
mod trouble;

/// Everything in one test, because a Java program for each would take longer than what it is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everything_that_is_dynamodbs_own() {
    let server = support::server().await;
    tables::a_table_is_made_once_by_many(&server).await;
    tables::a_table_that_may_not_be_made_is_described(&server).await;
    tables::a_table_with_other_keys_is_refused(&server).await;
    tables::provisioned_capacity_is_asked_for(&server).await;
    tables::an_existing_client_is_taken(&server).await;
    trouble::connections_that_cannot_work_say_why(&server).await;
    trouble::a_commit_is_the_same_transaction_when_it_is_sent_again(&server).await;
    trouble::a_token_that_was_used_for_something_else_is_no_obstacle(&server).await;
    trouble::a_success_is_not_believed_once_the_table_was_wiped(&server).await;
    trouble::colliding_transactions_are_busy_and_not_applied(&server).await;
    trouble::rows_that_are_gone_are_missed(&server).await;
    trouble::a_heartbeat_that_was_removed_by_hand_comes_again(&server).await;
    trouble::a_row_changed_by_hand_shows_to_who_reads_everything(&server).await;
    trouble::the_largest_commit_fits(&server).await;
    trouble::a_server_that_hangs_is_waited_for_only_so_long(&server).await;
}
