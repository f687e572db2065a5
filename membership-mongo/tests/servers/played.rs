//! Errors of a member that stops being the primary, through the whole provider. Clauses T4 and T5.
//!
//! Codes and names are those of MongoDB's `src/mongo/base/error_codes.yml`; the driver's
//! specification of server discovery calls them state-change errors.

use conformance_tests::helpers::fill;
use conformance_tests::stand_in::{Answer, StandIn, is_no_conflict, mongo, says};
use membership_core::TableErrorKind::{self, Busy, OutcomeUnknown, Unavailable};

use crate::{connect, server};

const ANSWERS: &[(&str, i32, &[TableErrorKind])] = &[
    ("NotWritablePrimary", 10_107, &[Unavailable]),
    ("NotPrimaryNoSecondaryOk", 13_435, &[Unavailable]),
    ("NotPrimaryOrSecondary", 13_436, &[Unavailable]),
    ("PrimarySteppedDown", 189, &[Unavailable, OutcomeUnknown]),
    (
        "InterruptedDueToReplStateChange",
        11_602,
        &[Unavailable, OutcomeUnknown],
    ),
    (
        "InterruptedAtShutdown",
        11_600,
        &[Unavailable, OutcomeUnknown],
    ),
    ("ShutdownInProgress", 91, &[Unavailable, OutcomeUnknown]),
    ("WriteConflict", 112, &[Busy]),
    ("MaxTimeMSExpired", 50, &[OutcomeUnknown]),
];

/// One document with these fields, as BSON.
fn document(text: &[(&str, &str)], code: i32) -> Vec<u8> {
    let mut body = vec![1];
    body.extend(b"ok\0");
    body.extend(0f64.to_le_bytes());
    for (name, value) in text {
        body.push(2);
        body.extend(name.as_bytes());
        body.push(0);
        body.extend(i32::try_from(value.len() + 1).unwrap().to_le_bytes());
        body.extend(value.as_bytes());
        body.push(0);
    }
    body.push(16);
    body.extend(b"code\0");
    body.extend(code.to_le_bytes());
    body.push(0);
    let mut all = i32::try_from(body.len() + 4)
        .unwrap()
        .to_le_bytes()
        .to_vec();
    all.extend(body);
    all
}

/// The refusal of a command, as an answer to this message.
fn refusal(request: &[u8], name: &str, code: i32) -> Option<Vec<u8>> {
    let commands: [&[u8]; 4] = [b"findAndModify\0", b"find\0", b"update\0", b"aggregate\0"];
    // The first field of the document, after the header, the flags, the section and its length.
    let first = request.get(26..)?;
    if !commands.iter().any(|command| first.starts_with(command)) {
        return None;
    }
    let document = document(&[("errmsg", name), ("codeName", name)], code);
    let length = i32::try_from(16 + 4 + 1 + document.len()).ok()?;
    let mut answer = length.to_le_bytes().to_vec();
    answer.extend(7i32.to_le_bytes());
    answer.extend(request.get(4..8)?);
    answer.extend(2013i32.to_le_bytes());
    answer.extend([0; 5]);
    answer.extend(document);
    Some(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_played_answer_is_a_conflict() {
    let server = server(&[]).await;
    let stand_in = StandIn::before(server.address(), mongo).await.unwrap();
    let url = server.url().replace(
        &server.address().to_string(),
        &stand_in.address().to_string(),
    );
    assert!(says(url.as_bytes(), b"directConnection=true"), "{url}");
    // The driver looks for the primary again with its next check: a real member tells it at once.
    let table = connect(&url).await.unwrap();
    let mut token = fill(&table, 3).await;
    for (number, (name, code, commit)) in (10..).zip(ANSWERS) {
        let answer = Answer {
            name,
            play: Box::new(move |request| refusal(request, name, *code)),
            commit,
            read: &[Unavailable, Busy],
        };
        token = is_no_conflict(&stand_in, &table, &token, answer, number)
            .await
            .unwrap();
    }
}
