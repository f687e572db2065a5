//! Errors of nodes that are overloaded or too few, through the whole provider: one node is neither.
//! Clauses T4 and T5.
//!
//! The frames are those of the native protocol, version 4, section 9 ("Error codes").

use conformance_tests::helpers::fill;
use conformance_tests::stand_in::{Answer, StandIn, cql, is_no_conflict};
use membership_core::TableErrorKind::{self, Busy, OutcomeUnknown, Unavailable};
use membership_testbed::Server;

use crate::support::*;

const SERIAL: u16 = 8;
/// Opcodes of requests: a statement, and a commit.
const EXECUTE: u8 = 10;
const BATCH: u8 = 13;

struct Refusal {
    name: &'static str,
    code: u32,
    more: Vec<u8>,
    commit: &'static [TableErrorKind],
}

/// The error as an answer to this request; None if it is none of a client of the table.
fn frame(request: &[u8], name: &str, code: u32, more: &[u8]) -> Option<Vec<u8>> {
    let opcode = *request.get(4)?;
    if ![EXECUTE, BATCH].contains(&opcode) {
        return None;
    }
    let mut body = code.to_be_bytes().to_vec();
    body.extend(u16::try_from(name.len()).ok()?.to_be_bytes());
    body.extend(name.as_bytes());
    body.extend(more);
    let mut frame = vec![0x84, 0, *request.get(2)?, *request.get(3)?, 0];
    frame.extend(u32::try_from(body.len()).ok()?.to_be_bytes());
    frame.extend(body);
    Some(frame)
}

fn refusals() -> Vec<Refusal> {
    let counts = |numbers: &[u32]| {
        let mut more = SERIAL.to_be_bytes().to_vec();
        more.extend(numbers.iter().flat_map(|n| n.to_be_bytes()));
        more
    };
    let mut timeout = counts(&[0, 1]);
    timeout.extend(3u16.to_be_bytes());
    timeout.extend(b"CAS");
    vec![
        Refusal {
            name: "Server is in overloaded state",
            code: 0x1001,
            more: Vec::new(),
            commit: &[Busy, OutcomeUnknown],
        },
        Refusal {
            name: "Cannot achieve consistency level SERIAL",
            code: 0x1000,
            more: counts(&[2, 1]),
            commit: &[Unavailable],
        },
        Refusal {
            name: "CAS operation timed out",
            code: 0x1100,
            more: timeout,
            commit: &[OutcomeUnknown],
        },
        Refusal {
            name: "the node is bootstrapping",
            code: 0x1002,
            more: Vec::new(),
            commit: &[Unavailable],
        },
    ]
}

pub async fn no_played_answer_is_a_conflict(server: &Server) {
    let stand_in = StandIn::before(server.address(), cql).await.unwrap();
    // A commit whose answer leaves doubt is followed by a read that settles it.
    let stand_in = stand_in.commits(|request| request.get(4) == Some(&BATCH));
    let url = at(server, "played", "operation_timeout=3s").replace(
        &server.address().to_string(),
        &stand_in.address().to_string(),
    );
    let table = connect(&url).await.unwrap();
    let mut token = fill(&table, 3).await;
    for (number, refusal) in (10..).zip(refusals()) {
        let Refusal {
            name,
            code,
            more,
            commit,
        } = refusal;
        let answer = Answer {
            name,
            play: Box::new(move |request| frame(request, name, code, &more)),
            commit,
            read: &[Unavailable, Busy],
        };
        token = is_no_conflict(&stand_in, &table, &token, answer, number)
            .await
            .unwrap();
    }
}
