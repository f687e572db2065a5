//! The suite on the two stores that live in memory.
#![allow(clippy::print_stdout, clippy::panic, reason = "a test says what it looks at, and what is wrong")]

use conformance_tests::backends::{Document, Memory};
use conformance_tests::{Backend, Reason, Report, Suite};

async fn run(backend: impl Backend) -> Report {
    let report = Suite::new(backend).run().await;
    println!("{}", report.summary());
    assert!(report.passed(), "{report}");
    report
}

fn not_applicable(report: &Report) -> Vec<(&'static str, Reason)> {
    let reason = |outcome: &conformance_tests::Outcome| match outcome {
        conformance_tests::Outcome::NotApplicable(reason) => *reason,
        other => panic!("{other:?}"),
    };
    report.not_applicable().map(|r| (r.name, reason(&r.outcome))).collect()
}

const IN_MEMORY: [(&str, Reason); 5] = [
    ("secrets_do_not_show", Reason::NoSecret),
    ("a_concurrent_history_with_a_restart_is_explained", Reason::InMemory),
    ("a_killed_client_leaves_a_whole_table", Reason::InMemory),
    ("an_unavailable_store_is_an_error_and_comes_back", Reason::InMemory),
    ("a_restart_loses_nothing", Reason::InMemory),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    assert_eq!(not_applicable(&run(Memory::default()).await), IN_MEMORY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn document() {
    let mut due = IN_MEMORY.to_vec();
    due.insert(0, ("a_heartbeat_without_a_row_is_refused", Reason::SecondRoundTrip));
    assert_eq!(not_applicable(&run(Document::default()).await), due);
}
