//! The suite that every provider runs, over one server and over three; and the process that it
//! kills.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use conformance_tests::Suite;
use conformance_tests::helpers::passes;
use conformance_tests::servers::crash_child as run_crash_child;
use membership_testbed::Kind;
use membership_testbed::suite::crowd::{FEW, a_thousand_calls_leave_nothing};
use membership_testbed::suite::durable_server;
use membership_testbed::suite::restored::older_data_is_told;
use membership_testbed::suite::trickle::slow_answers_end_in_time;
use membership_testbed::suite::truth::answers_are_true;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_server() {
    passes(Suite::new(support::one().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_servers() {
    passes(Suite::new(support::three().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn encrypted() {
    passes(Suite::new(support::encrypted().await)).await;
}

/// The bucket's sequences come a second time, in documents of the same identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_data_is_told() {
    older_data_is_told(&support::UnderTest, &durable_server(Kind::Nats).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_are_dropped_late_or_refused() {
    a_thousand_calls_leave_nothing(&support::UnderTest, &durable_server(Kind::Nats).await, FEW)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_of_commits_is_true() {
    answers_are_true(&support::UnderTest, &durable_server(Kind::Nats).await, 3, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_trickle_end_in_time() {
    let encrypted = |at| format!("nats://{at}?tls=true");
    slow_answers_end_in_time(
        &support::UnderTest,
        &durable_server(Kind::Nats).await,
        encrypted,
    )
    .await;
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    run_crash_child(&support::UnderTest).await;
}
