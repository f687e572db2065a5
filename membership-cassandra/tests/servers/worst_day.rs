//! A thousand calls at the same time, to a server that is frozen, slow, and killed.

use membership_testbed::Kind;
use membership_testbed::suite::crowd::{FEW, a_thousand_calls_leave_nothing};
use membership_testbed::suite::durable_server;

use crate::support::Cassandra;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_are_dropped_late_or_refused() {
    a_thousand_calls_leave_nothing(&Cassandra, &durable_server(Kind::Cassandra).await, FEW).await;
}
