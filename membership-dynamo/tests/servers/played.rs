//! Refusals of the real service, through the whole provider: DynamoDB Local has no limits and one
//! request at a time. Clauses T4 and T5.
//!
//! Codes and texts are those of "Error handling with DynamoDB" and of the reference of
//! `TransactWriteItems`.

use conformance_tests::helpers::fill;
use conformance_tests::stand_in::{Answer, StandIn, http, http_answer, is_no_conflict, says};
use membership_core::TableErrorKind::{self, Busy, OutcomeUnknown, Unavailable};
use membership_testbed::Server;

use crate::support::*;

const JSON: &[(&str, &str)] = &[("content-type", "application/x-amz-json-1.0")];
const V: &str = "com.amazonaws.dynamodb.v20120810";

/// What only a write is answered with.
const WRITES: &[&str] = &[
    "TransactionCanceledException",
    "TransactionInProgressException",
];

const ANSWERS: &[(&str, u16, &str, &[TableErrorKind])] = &[
    (
        "ThrottlingException",
        400,
        r#""message":"Rate of requests exceeds the allowed throughput.""#,
        &[Busy],
    ),
    (
        "ProvisionedThroughputExceededException",
        400,
        r#""message":"The level of configured provisioned throughput for the table was exceeded.""#,
        &[Busy],
    ),
    (
        "RequestLimitExceeded",
        400,
        r#""message":"Throughput exceeds the current throughput limit for your account.""#,
        &[Busy],
    ),
    (
        "TransactionCanceledException",
        400,
        r#""Message":"Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict, None]","CancellationReasons":[{"Code":"TransactionConflict","Message":"Transaction is ongoing for the item"},{"Code":"None"}]"#,
        &[Busy],
    ),
    (
        "TransactionCanceledException",
        400,
        r#""Message":"Transaction cancelled, please refer cancellation reasons for specific reasons [None, ThrottlingError]","CancellationReasons":[{"Code":"None"},{"Code":"ThrottlingError","Message":"Throughput exceeds the current throughput limit for your account."}]"#,
        &[Busy],
    ),
    (
        "TransactionInProgressException",
        400,
        r#""Message":"Transaction is in progress.""#,
        &[OutcomeUnknown],
    ),
    (
        "InternalServerError",
        500,
        r#""message":"The request processing has failed because of an unknown error.""#,
        &[OutcomeUnknown],
    ),
    (
        "ServiceUnavailable",
        503,
        r#""message":"The service is temporarily unavailable.""#,
        &[OutcomeUnknown],
    ),
];

pub async fn no_played_answer_is_a_conflict(server: &Server) {
    let stand_in = StandIn::before(server.address(), http).await.unwrap();
    let url = at(server, "played", "operation_timeout=3s").replace(
        &server.address().to_string(),
        &stand_in.address().to_string(),
    );
    let table = connect(&url).await.unwrap();
    let mut token = fill(&table, 3).await;
    for (number, (code, status, more, commit)) in (10..).zip(ANSWERS) {
        let of_a_write = WRITES.contains(code);
        let answer = Answer {
            name: more,
            play: Box::new(move |request| {
                let body = format!(r#"{{"__type":"{V}#{code}",{more}}}"#);
                (!of_a_write || says(request, b"TransactWriteItems"))
                    .then(|| http_answer(*status, JSON, &body))
            }),
            commit,
            read: match of_a_write {
                true => &[],
                false => &[Unavailable, Busy],
            },
        };
        token = is_no_conflict(&stand_in, &table, &token, answer, number)
            .await
            .unwrap();
    }
}
