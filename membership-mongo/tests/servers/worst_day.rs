//! A server whose data goes back under living clients, and a thousand calls at the same time.

use membership_testbed::Kind;
use membership_testbed::suite::crowd::{FEW, a_thousand_calls_leave_nothing};
use membership_testbed::suite::durable_server;
use membership_testbed::suite::restored::older_data_is_told;
use membership_testbed::suite::trickle::slow_answers_end_in_time;
use membership_testbed::suite::truth::answers_are_true;

use crate::support::MongoDb;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_data_is_told() {
    older_data_is_told(&MongoDb, &durable_server(Kind::MongoDb).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_are_dropped_late_or_refused() {
    a_thousand_calls_leave_nothing(&MongoDb, &durable_server(Kind::MongoDb).await, FEW).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_of_commits_is_true() {
    answers_are_true(&MongoDb, &durable_server(Kind::MongoDb).await, 3, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_trickle_end_in_time() {
    let encrypted = |at| format!("mongodb://{at}/?tls=true&directConnection=true");
    slow_answers_end_in_time(&MongoDb, &durable_server(Kind::MongoDb).await, encrypted).await;
}
