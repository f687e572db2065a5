//! Answers that a test's server cannot be made to give in time: limits, a leader that is lost.
//! Clauses T4 and T5.
//!
//! The texts are those of Consul's source: the library `go-connlimit` (limits of connections),
//! `agent/consul/rate/handler.go` (limits of rates, with their statuses), `agent/structs/errors.go` (no
//! leader), and raft's `api.go` (a lost leader).

use conformance_tests::helpers::fill;
use conformance_tests::stand_in::{Answer, StandIn, http, http_answer, is_no_conflict, says};
use membership_core::TableErrorKind::{self, Busy, OutcomeUnknown, Unavailable};

use crate::support::*;

const ANSWERS: &[(&str, u16, &[TableErrorKind])] = &[
    (
        "Your IP is issuing too many concurrent connections, please rate limit your calls",
        429,
        &[Busy],
    ),
    (
        "rpc error making call: rate limit exceeded, try again later or against a different server",
        429,
        &[Busy],
    ),
    (
        "rate limit exceeded for operation that can only be performed by the leader, try again later",
        503,
        &[Busy],
    ),
    ("No cluster leader", 500, &[Unavailable]),
    (
        "rpc error making call: leadership lost while committing log",
        500,
        &[OutcomeUnknown],
    ),
    ("rpc error making call: EOF", 500, &[OutcomeUnknown]),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_played_answer_is_a_conflict() {
    let server = server().await;
    let stand_in = StandIn::before(server.address(), http).await.unwrap();
    let url = server.url().replace(
        &server.address().to_string(),
        &stand_in.address().to_string(),
    );
    let table = connect(&format!("{url}?operation_timeout=3s"))
        .await
        .unwrap();
    let mut token = fill(&table, 3).await;
    for (number, (text, status, commit)) in (10..).zip(ANSWERS) {
        let answer = Answer {
            name: text,
            play: Box::new(move |request| {
                let is_asked = says(request, b"/v1/kv/") || says(request, b"/v1/txn");
                is_asked.then(|| http_answer(*status, &[], text))
            }),
            commit,
            read: &[Unavailable, Busy],
        };
        token = is_no_conflict(&stand_in, &table, &token, answer, number)
            .await
            .unwrap();
    }
}
