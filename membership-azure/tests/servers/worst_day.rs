//! A thousand calls at the same time, to a server that is frozen, slow, and killed.

use membership_testbed::Kind;
use membership_testbed::suite::crowd::{ONE_EACH, a_thousand_calls_leave_nothing};
use membership_testbed::suite::durable_server;

use crate::support::AzureStore;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_are_dropped_late_or_refused() {
    a_thousand_calls_leave_nothing(&AzureStore, &durable_server(Kind::Azurite).await, ONE_EACH)
        .await;
}
