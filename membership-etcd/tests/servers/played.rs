//! Answers that a test's server cannot be made to give in time: it is overloaded, or a leader
//! changes. Clauses T4 and T5.
//!
//! The texts and codes are those of etcd's `api/v3rpc/rpctypes/error.go`; its gateway turns a code
//! of gRPC into a status of HTTP as google.api's `code.proto` says.

use conformance_tests::helpers::fill;
use conformance_tests::stand_in::{Answer, StandIn, http, http_answer, is_no_conflict, says};
use membership_core::TableErrorKind::{self, Busy, OutcomeUnknown, Unavailable};

use crate::support::*;

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Status, gRPC's code, text, and what a commit ends with.
const ANSWERS: &[(&str, u16, u32, &[TableErrorKind])] = &[
    ("etcdserver: too many requests", 429, 8, &[Busy]),
    ("etcdserver: no leader", 503, 14, &[Unavailable]),
    ("etcdserver: leader changed", 503, 14, &[OutcomeUnknown]),
    ("etcdserver: request timed out", 503, 14, &[OutcomeUnknown]),
    (
        "etcdserver: request timed out, possibly due to previous leader failure",
        503,
        14,
        &[OutcomeUnknown],
    ),
    (
        "etcdserver: server stopped",
        503,
        14,
        &[Unavailable, OutcomeUnknown],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_played_answer_is_a_conflict() {
    let server = server(&[]).await;
    let stand_in = StandIn::before(server.address(), http).await.unwrap();
    let url = server.url().replace(
        &server.address().to_string(),
        &stand_in.address().to_string(),
    );
    let table = connect(&format!("{url}?operation_timeout=3s"))
        .await
        .unwrap();
    let mut token = fill(&table, 3).await;
    for (number, (text, status, code, commit)) in (10..).zip(ANSWERS) {
        let answer = Answer {
            name: text,
            play: Box::new(move |request| {
                let body = format!(r#"{{"error":"{text}","code":{code},"message":"{text}"}}"#);
                says(request, b"/v3/kv/").then(|| http_answer(*status, JSON, &body))
            }),
            commit,
            read: &[Unavailable, Busy],
        };
        token = is_no_conflict(&stand_in, &table, &token, answer, number)
            .await
            .unwrap();
    }
}
