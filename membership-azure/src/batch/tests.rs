//! The reader on answers that Azurite has given, whole, cut and changed; the writer on its own
//! text.

use super::*;
use serde_json::json;

/// Answers of Azurite 3.35.0 as it sent them, headers included. `tests/answers/README.md` lists the
/// requests.
fn recorded(name: &str) -> (String, Vec<u8>) {
    let path = format!("{}/tests/answers/{name}", env!("CARGO_MANIFEST_DIR"));
    let all = std::fs::read(path).unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let headers = String::from_utf8(all[..end].to_vec()).unwrap();
    let content_type = headers.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-type")
            .then(|| value.to_owned())
    });
    (content_type.unwrap_or_default(), all[end + 4..].to_vec())
}

fn outcome(name: &str, steps: usize) -> Outcome {
    let (content_type, body) = recorded(name);
    read(&content_type, &body, steps)
}

#[test]
fn a_successful_transaction_gives_the_etag_of_each_entity() {
    let Outcome::Done(etags) = outcome("batch_done.txt", 3) else {
        panic!("not done")
    };
    assert_eq!(etags.len(), 3);
    assert!(
        etags.iter().all(|etag| etag
            .as_deref()
            .is_some_and(|etag| etag.starts_with("W/\"datetime'2026-"))),
        "{etags:?}"
    );
    let Outcome::Done(etags) = outcome("batch_update.txt", 3) else {
        panic!("not done")
    };
    assert_eq!(
        etags.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, false, true],
        "what was removed has no ETag"
    );
}

#[test]
fn a_refused_transaction_names_the_operation_and_the_reason() {
    for (name, steps, status, code, step) in [
        ("batch_exists.txt", 2, 409, "EntityAlreadyExists", 0),
        ("batch_stale.txt", 2, 412, "UpdateConditionNotSatisfied", 1),
        ("batch_missing_row.txt", 2, 404, "ResourceNotFound", 0),
        ("batch_missing_update.txt", 2, 404, "ResourceNotFound", 0),
        ("batch_no_table.txt", 2, 404, "TableNotFound", 0),
        ("batch_twice.txt", 2, 400, "InvalidDuplicateRow", 1),
    ] {
        let Outcome::Refused(refusal) = outcome(name, steps) else {
            panic!("{name} is not refused")
        };
        assert_eq!(
            (refusal.status, refusal.code.as_str(), refusal.step),
            (status, code, Some(step)),
            "{name}"
        );
        assert!(
            !refusal.message.is_empty() && !refusal.message.contains('\n'),
            "{refusal:?}"
        );
    }
}

#[test]
fn refusals_outside_of_transactions_are_read_as_json_and_as_xml() {
    for (name, code) in [
        ("merge_missing.txt", "ResourceNotFound"),
        ("merge_no_table.txt", "TableNotFound"),
        ("merge_stale.txt", "UpdateConditionNotSatisfied"),
        ("delete_missing.txt", "ResourceNotFound"),
        ("query_no_table.txt", "TableNotFound"),
        ("table_exists.txt", "TableAlreadyExists"),
        ("batch_refused.txt", "AuthorizationFailure"),
    ] {
        assert_eq!(explained(400, &recorded(name).1).code, code, "{name}");
    }
    assert_eq!(
        explained(502, b"<html><body>Bad Gateway</body></html>"),
        Refusal {
            status: 502,
            ..Refusal::default()
        }
    );
    assert_eq!(
        explained(403, b"<Error><Code>two words</Code></Error>").code,
        "",
        "a code is one word"
    );
}

#[test]
fn an_answer_to_another_number_of_operations_is_unclear() {
    for steps in [0, 1, 2, 4, 100] {
        assert!(
            matches!(outcome("batch_done.txt", steps), Outcome::Unclear(_)),
            "{steps}"
        );
    }
    let (_, body) = recorded("batch_done.txt");
    for content_type in [
        "",
        "application/json",
        "multipart/mixed",
        "multipart/mixed; boundary=",
        "multipart/mixed; boundary=other",
    ] {
        assert!(
            matches!(read(content_type, &body, 3), Outcome::Unclear(_)),
            "{content_type}"
        );
    }
}

/// An answer of the real service, as its documentation shows it: another order of headers, and no
/// empty line before the last boundary.
#[test]
fn answers_in_the_services_own_form_are_read() {
    let body = "--batchresponse_e69b1c6c\r\nContent-Type: multipart/mixed; boundary=changesetresponse_a6253244\r\n\r\n\
        --changesetresponse_a6253244\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
        HTTP/1.1 204 No Content\r\nContent-ID: 1\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n\
        Preference-Applied: return-no-content\r\nDataServiceVersion: 3.0;\r\n\
        ETag: W/\"datetime'2013-10-02T18%3A28%3A21.4980000Z'\"\r\n\r\n\r\n\
        --changesetresponse_a6253244--\r\n--batchresponse_e69b1c6c--\r\n";
    let Outcome::Done(etags) = read(
        "multipart/mixed; boundary=batchresponse_e69b1c6c",
        body.as_bytes(),
        1,
    ) else {
        panic!("not done")
    };
    assert_eq!(
        etags,
        [Some(
            "W/\"datetime'2013-10-02T18%3A28%3A21.4980000Z'\"".to_owned()
        )]
    );
    let quoted = read(
        "Multipart/Mixed; charset=utf-8; boundary=\"batchresponse_e69b1c6c\"",
        body.replace("\r\n", "\n").as_bytes(),
        1,
    );
    assert_eq!(quoted, Outcome::Done(etags));
}

/// No prefix of an answer is a success; a prefix of a refusal is a refusal only if all of it is
/// there.
#[test]
fn truncated_answers_are_unclear() {
    for (name, steps) in [
        ("batch_done.txt", 3),
        ("batch_update.txt", 3),
        ("batch_stale.txt", 2),
        ("batch_no_table.txt", 2),
    ] {
        let (content_type, body) = recorded(name);
        // The last line's end may be missing.
        let needed = body.trim_ascii_end().len();
        for cut in 0..needed {
            assert!(
                matches!(
                    read(&content_type, &body[..cut], steps),
                    Outcome::Unclear(_)
                ),
                "{name} cut at {cut} of {needed}"
            );
        }
        assert!(
            !matches!(
                read(&content_type, &body[..needed], steps),
                Outcome::Unclear(_)
            ),
            "{name}"
        );
    }
}

/// A source of numbers: the same for each seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n.max(1)).unwrap()).unwrap()
    }
}

/// One change of an answer, as a faulty network makes it: bytes changed, doubled or lost, or two
/// answers mixed.
fn mutated(random: &mut Random, body: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = body.to_vec();
    for _ in 0..=random.below(4) {
        let (a, b) = (random.below(out.len() + 1), random.below(out.len() + 1));
        let (from, to) = (a.min(b), a.max(b));
        match random.below(6) {
            0 if !out.is_empty() => {
                let at = a.min(out.len() - 1);
                out[at] = u8::try_from(random.below(256)).unwrap();
            }
            1 => drop(out.drain(from..to.min(from + 200))),
            2 => {
                let piece = out[from..to].to_vec();
                out.splice(from..from, piece);
            }
            3 => out.truncate(a),
            4 => {
                let begin = random.below(other.len());
                out.splice(from..to, other[begin..].iter().copied());
            }
            _ => out.extend_from_slice(&other[..random.below(other.len())]),
        }
    }
    out
}

/// Thousands of changed answers. None panics, and no changed refusal becomes a success. If a
/// changed success is still a success, it holds a complete success for each operation and its end.
#[test]
fn no_changed_answer_is_a_false_success() {
    let names = [
        "batch_done.txt",
        "batch_update.txt",
        "batch_exists.txt",
        "batch_stale.txt",
        "batch_missing_row.txt",
        "batch_no_table.txt",
    ];
    let all: Vec<(String, Vec<u8>)> = names.iter().map(|name| recorded(name)).collect();
    let refusals = &all[2..];
    let mut random = Random(7);
    let (mut done, mut refused, mut unclear) = (0, 0, 0);
    for round in 0..20_000 {
        // A refusal mixed with refusals contains no success.
        let (content_type, body) = &refusals[random.below(refusals.len())];
        let other = &refusals[random.below(refusals.len())].1;
        let text = mutated(&mut random, body, other);
        for steps in 1..4 {
            match read(content_type, &text, steps) {
                Outcome::Done(_) => {
                    // Here only a changed digit could make a success status, but 409 with one digit
                    // changed is never a 2xx.
                    let statuses = text
                        .windows(13)
                        .filter(|w| w.starts_with(b"HTTP/1.1 2"))
                        .count();
                    assert!(
                        statuses >= steps,
                        "round {round}: {}",
                        String::from_utf8_lossy(&text)
                    );
                }
                Outcome::Refused(_) => refused += 1,
                Outcome::Unclear(_) => unclear += 1,
            }
        }
        // Anything mixed with anything.
        let (content_type, body) = &all[random.below(all.len())];
        let other = &all[random.below(all.len())].1;
        let text = mutated(&mut random, body, other);
        if let Outcome::Done(etags) = read(content_type, &text, 3) {
            done += 1;
            assert_eq!(etags.len(), 3);
            let shown = String::from_utf8_lossy(&text);
            assert!(
                shown.matches("HTTP/1.").count() >= 3
                    && shown.contains("--changesetresponse_2c3d--"),
                "round {round}: {shown}"
            );
        }
        // Queries and explanations never panic, either.
        let _ = crate::requests::entities(&mutated(&mut random, &recorded_query(), other));
        let _ = explained(400, &text);
    }
    assert!(
        done > 0 && refused > 0 && unclear > 0,
        "{done} {refused} {unclear}"
    );
}

fn recorded_query() -> Vec<u8> {
    static QUERY: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    QUERY.get_or_init(|| recorded("query.txt").1).clone()
}

#[test]
fn transactions_are_written_on_plain_lines() {
    let properties = |value: serde_json::Value| value.as_object().unwrap().clone();
    let steps = [
        Step {
            row_key: "10.0.0.1:7100@17".to_owned(),
            action: Action::Insert(properties(json!({ "Body": "a\u{2028}ü☃😀\r\n\"" }))),
        },
        Step {
            row_key: "it's".to_owned(),
            action: Action::Replace(properties(json!({}))),
        },
        Step {
            row_key: "b".to_owned(),
            action: Action::InsertOrMerge(properties(json!({}))),
        },
        Step {
            row_key: "c".to_owned(),
            action: Action::Delete("*".to_owned()),
        },
        Step {
            row_key: "!version".to_owned(),
            action: Action::Merge(properties(json!({ "Version": "1" })), "W/\"x\"".to_owned()),
        },
    ];
    let (content_type, body) = write(
        Target {
            table: "http://h:1/dev/t",
            partition: "a~-b",
        },
        &steps,
        0xab,
    );
    assert_eq!(
        content_type,
        "multipart/mixed; boundary=batch_00000000000000ab"
    );
    assert!(
        body.is_ascii()
            && body.ends_with("--changeset_00000000000000ab--\r\n--batch_00000000000000ab--\r\n"),
        "{body}"
    );
    let requests: Vec<&str> = body
        .lines()
        .filter(|line| line.ends_with(" HTTP/1.1"))
        .collect();
    let at = |key: &str| format!("http://h:1/dev/t(PartitionKey='a~-b',RowKey='{key}')");
    assert_eq!(
        requests,
        [
            "POST http://h:1/dev/t HTTP/1.1".to_owned(),
            format!("PUT {} HTTP/1.1", at("it%27%27s")),
            format!("PATCH {} HTTP/1.1", at("b")),
            format!("DELETE {} HTTP/1.1", at("c")),
            format!("PATCH {} HTTP/1.1", at("%21version")),
        ]
    );
    let conditions: Vec<&str> = body
        .lines()
        .filter(|line| line.starts_with("If-Match"))
        .collect();
    assert_eq!(
        conditions,
        ["If-Match: *", "If-Match: *", "If-Match: W/\"x\""]
    );
    assert!(
        body.contains("\"Body\":\"a\\u2028\\u00fc\\u2603\\ud83d\\ude00\\r\\n\\\"\""),
        "{body}"
    );
    let json = body.lines().find(|line| line.starts_with('{')).unwrap();
    let back: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(back["Body"], "a\u{2028}ü☃😀\r\n\"");
}
