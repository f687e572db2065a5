//! A suite that cannot fail proves nothing: tables that break one clause each, and the clause's cases must catch every one.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test says what it looks at, and what is wrong")]

mod broken;

use broken::{Bug, Planted};
use conformance_tests::{Capability, Clause, Outcome, Reason, Report, Suite};

async fn run(bug: Bug, clauses: impl IntoIterator<Item = Clause>) -> Report {
    let suite = Suite::new(Planted::new(bug)).clauses(clauses).on_result(|_| {});
    let quick = suite.seed(4711).effort(|effort| {
        (effort.commits, effort.model_operations, effort.rows) = (600, 1_500, 1_500);
        effort.operation_timeout = std::time::Duration::from_millis(500);
        effort.case_timeout = std::time::Duration::from_secs(8);
    });
    quick.run().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_a_bug_passes() {
    let report = run(Bug::None, Clause::ALL).await;
    assert!(report.passed(), "{report}");
    let skipped: Vec<_> = report.not_applicable().map(|r| r.name).collect();
    assert_eq!(skipped, ["a_killed_client_leaves_a_whole_table"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_planted_bug_is_caught_by_its_clause() {
    let mut missed = Vec::new();
    for (bug, clause) in Bug::ALL {
        let report = run(*bug, [*clause]).await;
        let caught: Vec<_> = report.failures().map(|r| r.name).collect();
        println!("{clause:<4} {bug:?}: caught by {}", caught.join(", "));
        if caught.is_empty() {
            missed.push((bug, clause));
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
    for clause in Clause::ALL {
        assert!(Bug::ALL.iter().any(|(_, c)| *c == clause), "no bug is planted for {clause}");
    }
}

/// The checker alone has to see what a single client cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_checker_catches_what_only_many_clients_see() {
    for bug in [
        Bug::LosesAnAcknowledgedCommit,
        Bug::IgnoresTheToken,
        Bug::ConflictsWithoutReason,
        Bug::ForgetsItsOwnSuccess,
        Bug::TearsReads,
        Bug::ReadsThePast,
        Bug::DropsAChange,
        Bug::MovesHeartbeatsBack,
    ] {
        let suite = Suite::new(Planted::new(bug)).named("a_concurrent_history_is_explained").on_result(|_| {});
        let report = suite.seed(4711).effort(|effort| effort.commits = 600).run().await;
        assert_eq!(report.results.len(), 1);
        assert_eq!(report.failures().count(), 1, "{bug:?} was not caught");
    }
}

/// What a backend neither stages nor lists is a failure; what it lists is not applicable, with its reason.
#[tokio::test]
async fn nothing_is_skipped_quietly() {
    let report = run(Bug::None, [Clause::T2]).await;
    let child = report.results.iter().find(|r| r.name == "a_killed_client_leaves_a_whole_table").unwrap();
    assert_eq!(child.outcome, Outcome::NotApplicable(Reason::InMemory));
    let report = Suite::new(Planted::new(Bug::ListsNothing)).named("a_killed_client").on_result(|_| {}).run().await;
    let failure = report.failures().next().unwrap();
    assert!(failure.to_string().contains(&format!("{:?}", Capability::Child)), "{failure}");
    assert!(failure.to_string().contains(Clause::T2.text()), "{failure}");
}
