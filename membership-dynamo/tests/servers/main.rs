//! Behaviour of DynamoDB alone: missing tables, tokens of transactions, collisions, refused keys.
//! One server for all tests but the last.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod played;
mod tables;
mod trouble;
mod worst_day;

/// One test for everything, because starting a Java program for each would take longer than the
/// tests themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn behaviour_of_dynamodb_alone() {
    let server = support::server().await;
    tables::many_clients_create_one_table(&server).await;
    tables::a_table_that_may_not_be_created_is_described(&server).await;
    tables::a_table_with_other_keys_is_refused(&server).await;
    tables::provisioned_capacity_is_asked_for(&server).await;
    tables::an_existing_client_is_used(&server).await;
    answers::a_table_with_replicas_is_refused(&server).await;
    answers::a_read_of_many_pages_ends_in_time(&server).await;
    answers::a_commit_that_still_runs_is_looked_up(&server).await;
    played::no_played_answer_is_a_conflict(&server).await;
    answers::a_refused_commit_is_not_called_unknown(&server).await;
    answers::a_write_without_credentials_is_not_sent(&server).await;
    trouble::connections_that_cannot_work_say_why(&server).await;
    trouble::a_user_that_may_only_read_is_enough_for_clients(&server).await;
    trouble::a_commit_is_the_same_transaction_when_it_is_sent_again(&server).await;
    trouble::a_token_of_another_transaction_does_not_block_a_commit(&server).await;
    trouble::a_success_after_a_wipe_is_checked(&server).await;
    trouble::colliding_transactions_are_busy_and_not_applied(&server).await;
    trouble::missing_rows_are_reported(&server).await;
    trouble::a_heartbeat_removed_by_hand_is_written_again(&server).await;
    trouble::a_full_read_shows_a_row_changed_by_hand(&server).await;
    trouble::the_largest_commit_fits(&server).await;
    trouble::calls_to_a_frozen_server_time_out(&server).await;
}
