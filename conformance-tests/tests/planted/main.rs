//! Shows that the suite can fail: each of these tables breaks one clause, and the clause's cases
//! must catch every one.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test prints what it checks, and what is wrong"
)]

mod broken;
mod deposed;
mod documents;
mod network;

use broken::{Bug, Least, Planted};
use conformance_tests::{Capability, Clause, Outcome, Reason, Report, Suite};
use deposed::{Replicated, Slip};
use network::{Flaw, Networked};

/// Runs the cases of these clauses, with pauses that are shorter than those of a server.
async fn run(
    bug: Bug,
    clauses: impl IntoIterator<Item = Clause>,
    least: Least,
    seed: u64,
) -> Report {
    let suite = Suite::new(Planted::new(bug))
        .clauses(clauses)
        .on_result(|_| {});
    let suite = suite.seed(seed).effort(|effort| {
        *effort = least.effort();
        effort.contention = std::time::Duration::from_millis(300);
        effort.busy = std::time::Duration::from_millis(300);
        effort.operation_timeout = std::time::Duration::from_millis(500);
        effort.case_timeout = std::time::Duration::from_secs(8);
    });
    suite.run().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_a_bug_passes() {
    let report = run(Bug::None, Clause::ALL, Least::Soak, 4711).await;
    assert!(report.passed(), "{report}");
    let networked = [
        "cut_at_every_stage",
        "dropped_",
        "hint",
        "round_trips",
        "server_is_an_error",
        "a_lost_answer_is",
        "between_two_requests",
        "during_a_delete",
        "over_a_new_connection",
    ];
    let skipped = report
        .not_applicable()
        .map(|r| r.name)
        .filter(|name| !networked.iter().any(|part| name.contains(part)));
    assert_eq!(
        skipped.collect::<Vec<_>>(),
        [
            "frozen_leaders_lose_nothing",
            "a_killed_client_leaves_a_whole_table",
            "a_deposed_leader_is_not_believed",
            "a_store_made_anew_is_reported",
        ]
    );
}

/// The commit that a single crash loses may be one whose answer that crash cut off, which nobody can
/// miss: then another run has to lose one that was acknowledged.
fn more_seeds(bug: Bug) -> std::ops::Range<u64> {
    match bug {
        Bug::LosesACommitInACrash | Bug::LosesACommitInTheThirdCrash => 1..5,
        _ => 0..0,
    }
}

/// And not with less: the table of the bugs says what daily runs would miss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_planted_bug_is_caught_by_its_clause() {
    let mut missed = Vec::new();
    for (bug, clause, least) in Bug::ALL {
        let mut report = run(*bug, [*clause], *least, 4711).await;
        for seed in more_seeds(*bug) {
            if report.failures().count() == 0 {
                report = run(*bug, [*clause], *least, seed).await;
            }
        }
        let caught: Vec<_> = report.failures().map(|r| r.name).collect();
        println!(
            "{clause:<4} {bug:?}, {least:?}: caught by {}",
            caught.join(", ")
        );
        if caught.is_empty() {
            missed.push((bug, clause));
        }
        if let Some(less) = least.less() {
            let report = run(*bug, [*clause], less, 4711).await;
            assert!(
                report.passed(),
                "{bug:?} needs no more than {less:?}: {report}"
            );
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
    for clause in Clause::ALL {
        assert!(
            Bug::ALL.iter().any(|(_, c, _)| *c == clause),
            "no bug is planted for {clause}"
        );
    }
}

/// Some bugs show only with many clients, so only the checker can catch them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_checker_catches_bugs_that_need_many_clients() {
    for bug in [
        Bug::LosesAnAcknowledgedCommit,
        Bug::IgnoresTheToken,
        Bug::ConflictsWithoutReason,
        Bug::ForgetsItsOwnSuccess,
        Bug::TearsReads,
        Bug::ReadsOldVersions,
        Bug::DropsAChange,
        Bug::MovesHeartbeatsBack,
    ] {
        let suite = Suite::new(Planted::new(bug))
            .named("a_concurrent_history_is_explained")
            .on_result(|_| {});
        let report = suite
            .seed(4711)
            .effort(|effort| effort.commits = 600)
            .run()
            .await;
        assert_eq!(report.results.len(), 1);
        assert_eq!(report.results[0].name, "a_concurrent_history_is_explained");
        assert_eq!(report.failures().count(), 1, "{bug:?} was not caught");
    }
}

/// A client may remember what it read. Over a table that was made anew, or rolled back, that is no
/// longer so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_remembers_is_not_the_new_table() {
    for bug in [Bug::CommitsOnTheNumber, Bug::RemembersByTheNumber] {
        for case in [
            "a_table_made_anew_is_reported",
            "a_table_rolled_back_and_forward_is_reported",
        ] {
            let suite = Suite::new(Planted::new(bug)).named(case).on_result(|_| {});
            let report = suite.seed(4711).run().await;
            assert_eq!(
                (report.results.len(), report.failures().count()),
                (1, 1),
                "{bug:?} was not caught by {case}"
            );
        }
    }
}

/// The same for the check of the large table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_table_that_is_torn_is_caught() {
    for bug in [
        Bug::TearsReads,
        Bug::LosesAnAcknowledgedCommit,
        Bug::IgnoresTheToken,
        Bug::ReadsOldVersions,
    ] {
        let suite = Suite::new(Planted::new(bug))
            .named("a_large_table_is_read_whole")
            .on_result(|_| {});
        let report = suite
            .seed(4711)
            .effort(|effort| effort.busy = std::time::Duration::from_secs(1))
            .run()
            .await;
        assert_eq!(
            report.results[0].name,
            "a_large_table_is_read_whole_while_it_changes"
        );
        assert_eq!(
            (report.results.len(), report.failures().count()),
            (1, 1),
            "{bug:?} was not caught"
        );
    }
}

/// A store that loses or repeats acknowledged commits when it is killed during the clients'
/// commits, even if only at the last kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_kills_reveal_what_a_crash_does() {
    let killed = async |bug: Bug, kills: usize, seed: u64| {
        let suite = Suite::new(Planted::new(bug))
            .named("killed_servers_lose_nothing")
            .on_result(|_| {});
        suite
            .seed(seed)
            .effort(|effort| (effort.commits, effort.server_kills) = (600, kills))
            .run()
            .await
    };
    for (bug, kills, caught) in [
        (Bug::None, 20, false),
        (Bug::LosesACommitInACrash, 1, true),
        (Bug::RepeatsACommitAfterACrash, 1, true),
        (Bug::LosesACommitInTheThirdCrash, 2, false),
        (Bug::LosesACommitInTheThirdCrash, 20, true),
    ] {
        let mut report = killed(bug, kills, 4711).await;
        for seed in more_seeds(bug) {
            if caught && report.failures().count() == 0 {
                report = killed(bug, kills, seed).await;
            }
        }
        println!("{bug:?}, {kills} kills: {report}");
        assert_eq!(
            (report.results.len(), report.failures().count()),
            (1, usize::from(caught)),
            "{bug:?}, {kills} kills: {report}"
        );
    }
}

/// A writer that always loses is reported with how long the others waited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_starves_is_caught() {
    for (bug, seconds, caught) in [
        (Bug::None, 1, false),
        (Bug::StarvesAWriter, 1, false),
        (Bug::StarvesAWriter, 11, true),
    ] {
        let suite = Suite::new(Planted::new(bug))
            .named("many_writers_get_their_turns")
            .on_result(|_| {});
        let contention = std::time::Duration::from_secs(seconds);
        let report = suite.effort(|e| e.contention = contention).run().await;
        let text = report.to_string();
        println!("{bug:?}: {text}");
        assert_eq!(report.failures().count(), usize::from(caught), "{text}");
        assert!(text.contains("waits: median"), "{text}");
        assert_eq!(text.contains("(6s on a quiet machine)"), caught, "{text}");
    }
}

/// Each kill is reported while the case runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kill_is_reported() {
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let received = lines.clone();
    let suite = Suite::new(Planted::new(Bug::None))
        .named("killed_servers_lose_nothing")
        .on_result(|_| {});
    let suite = suite.on_progress(move |line| received.lock().unwrap().push(line.to_owned()));
    let report = suite
        .effort(|effort| (effort.commits, effort.server_kills) = (200, 3))
        .run()
        .await;
    let lines = lines.lock().unwrap().clone();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[2].starts_with("None: killed_servers_lose_nothing: kill 3 of 3 after "),
        "{lines:?}"
    );
    assert!(report.to_string().contains("3 kills, at most"), "{report}");
}

/// A capability that is neither staged nor listed is a failure. A listed one is not applicable,
/// with its reason.
#[tokio::test]
async fn unlisted_capabilities_are_failures() {
    let report = run(Bug::None, [Clause::T2], Least::Setup, 4711).await;
    let child = report
        .results
        .iter()
        .find(|r| r.name == "a_killed_client_leaves_a_whole_table")
        .unwrap();
    assert_eq!(child.outcome, Outcome::NotApplicable(Reason::InMemory));
    let report = Suite::new(Planted::new(Bug::ListsNothing))
        .named("a_killed_client")
        .on_result(|_| {})
        .run()
        .await;
    let failure = report.failures().next().unwrap();
    assert!(
        failure
            .to_string()
            .contains(&format!("{:?}", Capability::Child)),
        "{failure}"
    );
    assert!(failure.to_string().contains(Clause::T2.text()), "{failure}");
    assert!(
        failure.to_string().contains("Reason::InMemory"),
        "{failure}"
    );
}

fn quick(suite: Suite) -> Suite {
    suite.seed(4711).on_result(|_| {}).effort(|effort| {
        (effort.commits, effort.model_operations, effort.rows) = (600, 1_500, 1_500);
        effort.contention = std::time::Duration::from_millis(500);
        effort.operation_timeout = std::time::Duration::from_secs(5);
        effort.case_timeout = std::time::Duration::from_secs(60);
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_networked_table_without_a_flaw_passes() {
    let report = quick(Suite::new(Networked::new(Flaw::None)))
        .on_result(|result| println!("{result}"))
        .run()
        .await;
    assert!(report.passed(), "{report}");
    let skipped: Vec<_> = report.not_applicable().map(|r| r.name).collect();
    assert_eq!(
        skipped,
        [
            "secrets_do_not_show",
            "a_client_that_may_only_read_is_denied_writes",
            "frozen_leaders_lose_nothing",
            "a_killed_client_leaves_a_whole_table",
            "a_deposed_leader_is_not_believed",
            "a_store_made_anew_is_reported",
        ]
    );
    assert_eq!(report.round_trips().unwrap().commit, Some(1));
}

/// Each flaw, and one of the cases that must catch it.
const FLAWS: &[(Flaw, &str)] = &[
    (Flaw::RetriesUnderAnotherName, "commit_cut_at_every_stage"),
    (
        Flaw::RetriesUnderAnotherName,
        "a_lost_answer_is_an_unknown_outcome",
    ),
    (Flaw::CertainlyNot, "commit_cut_at_every_stage"),
    (Flaw::CertainlyNot, "heartbeat_cut_at_every_stage"),
    (Flaw::CertainlyNot, "a_lost_answer_is_an_unknown_outcome"),
    (
        Flaw::CertainlyNot,
        "a_frozen_server_is_an_error_and_comes_back",
    ),
    (Flaw::MixesAnswers, "dropped_before_the_answer_arrives"),
    (Flaw::MixesAnswers, "dropped_before_the_request_arrives"),
    (Flaw::NeverReconnects, "read_cut_at_every_stage"),
    (
        Flaw::NeverReconnects,
        "an_unreachable_server_is_an_error_and_comes_back",
    ),
    (Flaw::NeverReconnects, "killed_servers_lose_nothing"),
    (
        Flaw::WaitsForever,
        "a_frozen_server_is_an_error_and_comes_back",
    ),
    (Flaw::WaitsForever, "a_lost_answer_is_an_unknown_outcome"),
    (Flaw::TakesPartsOfAnswers, "read_cut_at_every_stage"),
    (Flaw::TakesPartsOfAnswers, "commit_cut_at_every_stage"),
    (Flaw::EmptyWhenCut, "read_cut_at_every_stage"),
    (
        Flaw::EmptyWhenCut,
        "an_unreachable_server_is_an_error_and_comes_back",
    ),
    (Flaw::CommitsInTwoRequests, "commit_cut_at_every_stage"),
    (
        Flaw::CommitsInTwoRequests,
        "dropped_before_the_answer_arrives",
    ),
    (
        Flaw::ReadsRowsLater,
        "a_table_is_created_between_two_requests",
    ),
    (
        Flaw::InitializesOver,
        "a_table_is_created_between_two_requests",
    ),
    (
        Flaw::DeletesWhatItListed,
        "a_table_is_made_anew_during_a_delete",
    ),
    (Flaw::LosesPermits, "many_dropped_at_once"),
    (Flaw::MakesMoreRoundTrips, "round_trips"),
    (Flaw::MakesMoreRoundTrips, "a_large_table_is_read_whole"),
    (Flaw::BypassesTheProxy, "round_trips"),
    (Flaw::BypassesTheProxy, "initialize_cut_at_every_stage"),
    (
        Flaw::ReadsOverTheOldConnection,
        "a_read_over_a_new_connection_needs_no_old_one",
    ),
    (
        Flaw::LeavesConnectionsOpen,
        "a_read_over_a_new_connection_needs_no_old_one",
    ),
    (
        Flaw::HintsLate,
        "a_foreign_commit_is_hinted_within_a_second",
    ),
    (Flaw::HintsEnd, "losing_hints_costs_only_time"),
    (Flaw::HintsStop, "losing_hints_costs_only_time"),
    (Flaw::HintsStop, "hints_survive_a_restart"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_flaw_of_a_networked_table_is_caught() {
    let mut missed = Vec::new();
    // Most of the time passes with waiting for what does not come.
    let one = |(flaw, case): &'static (Flaw, &str)| async move {
        let report = quick(Suite::new(Networked::new(*flaw)))
            .named(*case)
            .run()
            .await;
        println!("{flaw:?}: {report}");
        // A suite without such a case fails as well.
        let caught = report.failures().any(|failed| failed.name.contains(case));
        (!caught, flaw, case)
    };
    let mut flaws = FLAWS.iter();
    let mut running = tokio::task::JoinSet::new();
    for flaw in flaws.by_ref().take(8) {
        running.spawn(one(flaw));
    }
    while let Some(ended) = running.join_next().await {
        let (is_missed, flaw, case) = ended.unwrap();
        if is_missed {
            missed.push((flaw, case));
        }
        if let Some(flaw) = flaws.next() {
            running.spawn(one(flaw));
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

/// The failure names what stays open, and says that the set-up is wrong where nothing is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_counted_is_named() {
    for (flaw, named) in [
        (
            Flaw::LeavesARequestOpen,
            "a request stays open for 1s after the answer, so round trips cannot be counted: `listen to nobody`",
        ),
        (
            Flaw::BypassesTheProxy,
            "the set-up is wrong: nothing of any operation passes through the proxy",
        ),
    ] {
        let suite = quick(Suite::new(Networked::new(flaw)));
        let report = suite.named("round_trips").run().await;
        let text = report.to_string();
        assert!(
            report.failures().count() == 1 && text.contains(named),
            "{flaw:?}: {text}"
        );
    }
}

/// Each slip with a former leader, the case that must catch it, and what that case must name. The
/// first two are none.
const SLIPS: &[(Slip, &str, &str)] = &[
    (Slip::None, "a_deposed_leader_is_not_believed", ""),
    (Slip::None, "frozen_leaders_lose_nothing", ""),
    (Slip::LosesAndTells, "frozen_leaders_lose_nothing", ""),
    (
        Slip::StaleReads,
        "a_deposed_leader_is_not_believed",
        "version 1 is shown, and 4 is due",
    ),
    (
        Slip::StaleReads,
        "frozen_leaders_lose_nothing",
        "a read shows version",
    ),
    (
        Slip::StaleBarriers,
        "a_deposed_leader_is_not_believed",
        "Barrier: version 1 is shown",
    ),
    (
        Slip::AcknowledgesCommits,
        "a_deposed_leader_is_not_believed",
        "a commit on version 1 is acknowledged",
    ),
    (
        Slip::AcknowledgesCommits,
        "frozen_leaders_lose_nothing",
        "violations",
    ),
    (
        Slip::Conflicts,
        "a_deposed_leader_is_not_believed",
        "a commit on the newest version conflicts",
    ),
    (
        Slip::LatchesARollback,
        "a_deposed_leader_is_not_believed",
        "states the newest version: TableRolledBack",
    ),
    (
        Slip::LosesWhatItMustKeep,
        "frozen_leaders_lose_nothing",
        "violations",
    ),
    (
        Slip::LosesSilently,
        "frozen_leaders_lose_nothing",
        "and nobody told",
    ),
    (
        Slip::TellsOfNothing,
        "frozen_leaders_lose_nothing",
        "it was told that the table was rolled back",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_slip_with_a_former_leader_is_caught() {
    for (slip, case, named) in SLIPS {
        let suite = Suite::new(Replicated::new(*slip))
            .named(*case)
            .on_result(|_| {});
        let report = suite
            .seed(4711)
            .effort(|effort| {
                (effort.commits, effort.freezes) = (300, 3);
                effort.operation_timeout = std::time::Duration::from_secs(3);
            })
            .run()
            .await;
        let text = report.to_string();
        println!("{slip:?}: {text}");
        assert_eq!(
            (report.results.len(), report.failures().count()),
            (1, usize::from(!named.is_empty())),
            "{slip:?}: {text}"
        );
        assert!(
            report.not_applicable().count() == 0 && text.contains(named),
            "{slip:?}: {text}"
        );
    }
}
