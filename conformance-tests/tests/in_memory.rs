//! The suite on the two stores in memory.
#![allow(
    clippy::print_stdout,
    clippy::panic,
    reason = "a test prints what it checks, and what is wrong"
)]

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
    report
        .not_applicable()
        .map(|r| (r.name, reason(&r.outcome)))
        .collect()
}

const IN_MEMORY: [(&str, Reason); 31] = [
    ("dropped_before_the_request_arrives", Reason::InMemory),
    ("dropped_before_the_answer_arrives", Reason::InMemory),
    ("many_dropped_at_once", Reason::InMemory),
    ("a_table_is_created_between_two_requests", Reason::InMemory),
    ("a_table_is_made_anew_during_a_delete", Reason::InMemory),
    ("initialize_cut_at_every_stage", Reason::InMemory),
    ("read_cut_at_every_stage", Reason::InMemory),
    ("read_row_cut_at_every_stage", Reason::InMemory),
    ("commit_cut_at_every_stage", Reason::InMemory),
    ("commit_sent_again_cut_at_every_stage", Reason::InMemory),
    ("heartbeat_cut_at_every_stage", Reason::InMemory),
    ("delete_cut_at_every_stage", Reason::InMemory),
    ("secrets_do_not_show", Reason::NoSecret),
    (
        "a_client_that_may_only_read_is_denied_writes",
        Reason::InMemory,
    ),
    (
        "a_read_over_a_new_connection_needs_no_old_one",
        Reason::InMemory,
    ),
    (
        "a_foreign_commit_is_hinted_within_a_second",
        Reason::NoHints,
    ),
    ("hints_end_with_their_table", Reason::NoHints),
    ("hints_survive_a_restart", Reason::NoHints),
    ("losing_hints_costs_only_time", Reason::NoHints),
    ("round_trips", Reason::InMemory),
    ("killed_servers_lose_nothing", Reason::InMemory),
    ("frozen_leaders_lose_nothing", Reason::InMemory),
    ("a_killed_client_leaves_a_whole_table", Reason::InMemory),
    (
        "an_unreachable_server_is_an_error_and_comes_back",
        Reason::InMemory,
    ),
    (
        "a_frozen_server_is_an_error_and_comes_back",
        Reason::InMemory,
    ),
    ("a_lost_answer_is_an_unknown_outcome", Reason::InMemory),
    (
        "an_unavailable_store_is_an_error_and_comes_back",
        Reason::InMemory,
    ),
    (
        "a_commit_sent_again_to_a_store_that_is_away_stays_unknown",
        Reason::InMemory,
    ),
    ("a_restart_loses_nothing", Reason::InMemory),
    ("a_deposed_leader_is_not_believed", Reason::InMemory),
    ("a_store_made_anew_is_reported", Reason::InMemory),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    assert_eq!(not_applicable(&run(Memory::default()).await), IN_MEMORY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn document() {
    let mut due = IN_MEMORY.to_vec();
    due.insert(
        0,
        (
            "a_heartbeat_without_a_row_is_refused",
            Reason::SecondRoundTrip,
        ),
    );
    assert_eq!(not_applicable(&run(Document::default()).await), due);
}
