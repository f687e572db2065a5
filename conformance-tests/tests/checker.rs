//! Small handwritten histories: every reader can see whether one table can have given their
//! answers.
#![allow(clippy::unwrap_used, reason = "a test")]

use conformance_tests::Clause;
use conformance_tests::history::{Answer, Asked, Event, History, check};
use membership_core::{
    CommitId, CommitOutcome, CommitRequest, Conflict, InstanceId, MembershipEntry, Operation,
    ReadAnswer, ReadRequest, SharedSettings, SiloAddress, Snapshot, TableError, TableErrorKind,
    TableId, VersionRow,
};

fn start() -> Snapshot {
    let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
    Snapshot::new(row.token(&[]), row, Default::default())
}

/// A commit of one new row.
fn request(base: &Snapshot, id: u16) -> CommitRequest {
    let silo = SiloAddress::new([10, 0, 0, 1].into(), id, 1);
    let entry = MembershipEntry::new(silo, InstanceId::new(1), Default::default());
    CommitRequest::new(
        base.token.clone(),
        CommitId::new(u128::from(id)),
        None,
        [entry],
        [],
        [],
    )
}

fn after(base: &Snapshot, request: &CommitRequest) -> Snapshot {
    request.apply_to(base, request.next_token(&[]))
}

fn committed(request: &CommitRequest) -> Result<CommitOutcome, TableError> {
    Ok(CommitOutcome::Committed(request.next_token(&[])))
}

fn conflict() -> Result<CommitOutcome, TableError> {
    Ok(CommitOutcome::Conflict(Conflict::default()))
}

fn error(kind: TableErrorKind) -> Result<CommitOutcome, TableError> {
    Err(TableError::new(
        kind,
        Operation::Commit,
        "test",
        "no answer",
    ))
}

/// Client, begin, end, operation.
type Line = (usize, u64, u64, (Asked, Answer));

fn commit(request: &CommitRequest, answer: Result<CommitOutcome, TableError>) -> (Asked, Answer) {
    (
        Asked::Commit(Box::new(request.clone())),
        Answer::Commit(answer),
    )
}

fn read(shown: &Snapshot) -> (Asked, Answer) {
    let answer = ReadAnswer::Snapshot {
        snapshot: shown.clone(),
        heartbeats: None,
    };
    (
        Asked::Read(ReadRequest::default()),
        Answer::Read(Ok(answer)),
    )
}

fn violations(lines: impl IntoIterator<Item = Line>) -> Vec<Clause> {
    let event = |(client, began, ended, (asked, answer)): Line| Event {
        client,
        began,
        ended,
        asked,
        answer,
    };
    let history = History {
        start: start(),
        events: lines.into_iter().map(event).collect(),
        linearizable: true,
    };
    let mut clauses = match check(&history) {
        Ok(_) => Vec::new(),
        Err(violations) => violations.into_iter().map(|v| v.clause).collect(),
    };
    clauses.dedup();
    clauses
}

const FINE: [Clause; 0] = [];

#[test]
fn commits_one_after_the_other() {
    let (zero, a) = (start(), request(&start(), 1));
    let one = after(&zero, &a);
    let b = request(&one, 2);
    let two = after(&one, &b);
    let begin = [
        (0, 1, 2, read(&zero)),
        (0, 3, 4, commit(&a, committed(&a))),
        (1, 5, 6, commit(&b, committed(&b))),
    ];
    assert_eq!(
        violations(begin.clone().into_iter().chain([(2, 7, 8, read(&two))])),
        FINE
    );
    // A read during the second commit may show either version. Afterwards only the new one is
    // right.
    assert_eq!(
        violations(
            begin
                .clone()
                .into_iter()
                .chain([(2, 5, 9, read(&one)), (2, 10, 11, read(&two))])
        ),
        FINE
    );
    assert_eq!(
        violations(
            begin
                .clone()
                .into_iter()
                .chain([(2, 7, 8, read(&one)), (2, 9, 10, read(&two))])
        ),
        [Clause::T6]
    );
    // Shown before the commit was requested.
    assert_eq!(
        violations(
            begin
                .clone()
                .into_iter()
                .chain([(2, 1, 4, read(&two)), (2, 9, 10, read(&two))])
        ),
        [Clause::T6, Clause::T1]
    );
    // The rows of one version with the number of another.
    let mut torn = two.clone();
    torn.rows = one.rows.clone();
    assert_eq!(
        violations(
            begin
                .clone()
                .into_iter()
                .chain([(2, 7, 8, read(&torn)), (2, 9, 10, read(&two))])
        ),
        [Clause::T6]
    );
    // An acknowledged commit is missing at the end.
    assert!(violations(begin.into_iter().chain([(2, 7, 8, read(&one))])).contains(&Clause::T2));
}

#[test]
fn two_commits_of_one_version() {
    let (a, b) = (request(&start(), 1), request(&start(), 2));
    let one = after(&start(), &a);
    let both = |answer| {
        [
            (0, 1, 4, commit(&a, committed(&a))),
            (1, 2, 3, commit(&b, answer)),
            (2, 5, 6, read(&one)),
        ]
    };
    assert_eq!(violations(both(conflict())), FINE);
    assert!(violations(both(committed(&b))).contains(&Clause::T1));
    assert_eq!(violations(both(error(TableErrorKind::Busy))), FINE);
    assert_eq!(
        violations(both(error(TableErrorKind::OutcomeUnknown))),
        FINE
    );
}

#[test]
fn a_conflict_needs_a_reason_in_time() {
    let (a, b) = (request(&start(), 1), request(&start(), 2));
    let one = after(&start(), &a);
    let late = [
        (1, 1, 2, commit(&b, conflict())),
        (0, 3, 4, commit(&a, committed(&a))),
        (2, 5, 6, read(&one)),
    ];
    assert_eq!(violations(late), [Clause::T4]);
    // A winner whose answer was lost is a cause too, once its commit shows.
    let lost = [
        (0, 1, 2, commit(&a, error(TableErrorKind::OutcomeUnknown))),
        (1, 3, 4, commit(&b, conflict())),
        (2, 5, 6, read(&one)),
    ];
    assert_eq!(violations(lost), FINE);
    // An existing row is a cause of its own.
    let mut c = request(&one, 1);
    c.expected = one.token.clone();
    let rows = [
        (0, 1, 2, commit(&a, committed(&a))),
        (1, 3, 4, commit(&c, conflict())),
        (2, 5, 6, read(&one)),
    ];
    assert!(
        violations(rows).contains(&Clause::T5),
        "both commits have the same id"
    );
    c.id = CommitId::new(77);
    let rows = [
        (0, 1, 2, commit(&a, committed(&a))),
        (1, 3, 4, commit(&c, conflict())),
        (2, 5, 6, read(&one)),
    ];
    assert_eq!(violations(rows), FINE);
}

#[test]
fn a_commit_that_certainly_did_not_happen_never_shows() {
    let a = request(&start(), 1);
    let one = after(&start(), &a);
    for (answer, due) in [
        (error(TableErrorKind::Unavailable), vec![Clause::T5]),
        (error(TableErrorKind::Busy), vec![Clause::T5]),
        (conflict(), vec![Clause::T5, Clause::T4]),
        (error(TableErrorKind::OutcomeUnknown), vec![]),
    ] {
        assert_eq!(
            violations([(0, 1, 2, commit(&a, answer)), (1, 3, 4, read(&one))]),
            due
        );
    }
}

#[test]
fn an_unknown_outcome_stays_open_to_the_end() {
    let a = request(&start(), 1);
    let (zero, one) = (start(), after(&start(), &a));
    let lost = (0, 1, 2, commit(&a, error(TableErrorKind::OutcomeUnknown)));
    // It arrives long after all clients stopped waiting, or never.
    assert_eq!(
        violations([lost.clone(), (1, 3, 4, read(&zero)), (1, 5, 6, read(&one))]),
        FINE
    );
    assert_eq!(violations([lost.clone(), (1, 3, 4, read(&zero))]), FINE);
    assert_eq!(
        violations([lost.clone(), (1, 3, 4, read(&one)), (1, 5, 6, read(&zero))]),
        [Clause::T6]
    );
    // Sent again, it has one answer.
    let again = a.again();
    assert_eq!(
        violations([
            lost.clone(),
            (0, 3, 4, commit(&again, committed(&again))),
            (1, 5, 6, read(&one))
        ]),
        FINE
    );
    assert!(
        violations([
            lost,
            (0, 3, 4, commit(&again, conflict())),
            (1, 5, 6, read(&one))
        ])
        .contains(&Clause::T5)
    );
}

#[test]
fn a_version_without_a_commit() {
    let a = request(&start(), 1);
    let one = after(&start(), &a);
    assert_eq!(violations([(1, 3, 4, read(&one))]), [Clause::T1]);
}
