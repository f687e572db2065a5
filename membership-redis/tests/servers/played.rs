//! Errors of a server that starts, is a replica, or belongs to a cluster without a master, through
//! the whole provider. Clauses T4 and T5.
//!
//! The texts are those of Redis' `src/server.c` (the shared replies) and `src/cluster.c`.

use conformance_tests::helpers::fill;
use conformance_tests::stand_in::{Answer, StandIn, at_once, is_no_conflict, is_no_refusal, says};
use membership_core::TableErrorKind::{self, Busy, Unavailable};
use membership_testbed::Kind;

use crate::support::*;

const ANSWERS: &[(&str, &[TableErrorKind])] = &[
    (
        "LOADING Redis is loading the dataset in memory",
        &[Unavailable],
    ),
    (
        "READONLY You can't write against a read only replica.",
        &[Unavailable],
    ),
    ("CLUSTERDOWN Hash slot not served", &[Unavailable]),
    ("CLUSTERDOWN The cluster is down", &[Unavailable]),
    (
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        &[Unavailable],
    ),
    (
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        &[Busy],
    ),
    (
        "TRYAGAIN Multiple keys request during rehashing of slot",
        &[Unavailable, Busy],
    ),
    (
        "OOM command not allowed when used memory > 'maxmemory'.",
        &[Unavailable],
    ),
    (
        "NOREPLICAS Not enough good replicas to write.",
        &[Unavailable],
    ),
    (
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        &[Unavailable],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_played_answer_is_a_conflict() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = server(kind, &[]).await;
        let stand_in = StandIn::before(server.address(), at_once).await.unwrap();
        let url = format!("redis://{}/?operation_timeout=3s", stand_in.address());
        let table = connect(&url).await.unwrap();
        let mut token = fill(&table, 3).await;
        for (number, (text, commit)) in (10..).zip(ANSWERS) {
            let answer = Answer {
                name: text,
                play: Box::new(move |request| {
                    says(request, b"EVALSHA").then(|| format!("-{text}\r\n").into_bytes())
                }),
                commit,
                read: &[Unavailable, Busy],
            };
            token = is_no_conflict(&stand_in, &table, &token, answer, number)
                .await
                .unwrap();
        }
    }
}

/// What no script says, and what a proxy says that has lost its server: Envoy's `source/extensions/
/// filters/network/redis_proxy`.
const NOT_OF_THE_SCRIPT: &[&str] = &[
    ":7\r\n",
    "_\r\n",
    "+OK\r\n",
    "*0\r\n",
    "*2\r\n:1\r\n_\r\n",
    "-upstream failure\r\n",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_another_request_refuses_no_commit() {
    let server = server(Kind::Redis, &[]).await;
    let stand_in = StandIn::before(server.address(), at_once).await.unwrap();
    let url = format!("redis://{}/?operation_timeout=3s", stand_in.address());
    let table = connect(&url).await.unwrap();
    let mut token = fill(&table, 3).await;
    for (number, answer) in (10..).zip(NOT_OF_THE_SCRIPT) {
        let replace =
            |request: &[u8]| says(request, b"EVALSHA").then(|| answer.as_bytes().to_vec());
        token = is_no_refusal(
            &stand_in,
            &table,
            &token,
            (answer, Box::new(replace)),
            number,
        )
        .await
        .unwrap();
    }
}
