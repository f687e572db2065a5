//! Answers of the real service that its emulator never gives: throttling, and a server that gives
//! up. Clauses T4 and T5.
//!
//! Codes and statuses are those of "Table storage error codes" and "Common REST API error codes"
//! in the service's reference; the form of the body is that of "Status and error codes".

use conformance_tests::helpers::{blue, fill};
use conformance_tests::stand_in::{Answer, StandIn, http, http_answer, is_no_conflict, says};
use membership_azure::{AzureTable, AzureTableConfig};
use membership_core::TableErrorKind::{self, Busy, OutcomeUnknown, Unavailable};
use membership_testbed::{Kind, Options, suite};

const JSON: &str = "application/json;odata=minimalmetadata;streaming=true;charset=utf-8";

const ANSWERS: &[(&str, u16, &str, &[TableErrorKind])] = &[
    ("ServerBusy", 503, "The server is busy.", &[Busy]),
    (
        "ServerBusy",
        503,
        "Operations per second is over the account limit.",
        &[Busy],
    ),
    ("TooManyRequests", 429, "Too many requests.", &[Busy]),
    (
        "OperationTimedOut",
        500,
        "Operation could not be completed within the specified time.",
        &[OutcomeUnknown],
    ),
    (
        "InternalError",
        500,
        "Server encountered an internal error. Please try again after some time.",
        &[OutcomeUnknown],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_played_answer_is_a_conflict() {
    let server = suite::own_server(Kind::Azurite, &[], Options::default()).await;
    let stand_in = StandIn::before(server.address(), http).await.unwrap();
    let url = server.url().replace(
        &server.address().to_string(),
        &stand_in.address().to_string(),
    );
    let config = AzureTableConfig::from_url(&format!("{url}&operation_timeout=3s")).unwrap();
    let table = AzureTable::connect(config, blue()).await.unwrap();
    let mut token = fill(&table, 3).await;
    for (number, (code, status, text, commit)) in (10..).zip(ANSWERS) {
        let answer = Answer {
            name: text,
            play: Box::new(move |request| {
                let body = format!(
                    r#"{{"odata.error":{{"code":"{code}","message":{{"lang":"en-US","value":"{text}"}}}}}}"#
                );
                let headers = [("content-type", JSON), ("x-ms-error-code", *code)];
                // Everything but what the test's own clean-up asks.
                (!says(request, b"DELETE ")).then(|| http_answer(*status, &headers, &body))
            }),
            commit,
            read: &[Unavailable, Busy],
        };
        token = is_no_conflict(&stand_in, &table, &token, answer, number)
            .await
            .unwrap();
    }
}
