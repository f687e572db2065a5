use super::*;
use crate::{InstanceId, TableId, WallTime};

fn entry(port: u16) -> MembershipEntry {
    MembershipEntry::new(
        SiloAddress::new([127, 0, 0, 1].into(), port, 1),
        InstanceId::new(1),
        WallTime::default(),
    )
}

fn commit(row: &VersionRow, id: u128, port: u16) -> CommitRequest {
    CommitRequest::new(
        row.token(&[]),
        CommitId::new(id),
        None,
        [entry(port)],
        [],
        [],
    )
}

const LIMITS: TableLimits = TableLimits {
    rows_per_commit: 2,
    bytes_per_row: 1000,
    bytes_per_commit: 1500,
    rows: 10,
};

#[test]
fn judgement_distinguishes_attempts_and_finds_an_own_success() {
    let start = VersionRow::initial(TableId::new(1), SharedSettings::default());
    let mine = commit(&start, 1000, 1);
    assert_eq!(mine.judge(&start), Judgement::Apply);
    let mut row = mine.next_version_row(&start);
    assert_eq!(mine.judge(&row), Judgement::AlreadyCommitted);
    let lost = commit(&start, 2000, 2);
    for id in 2..=17 {
        assert_eq!(
            mine.again().judge(&row),
            Judgement::AlreadyCommitted,
            "version {}",
            row.version
        );
        assert_eq!(
            lost.again().judge(&row),
            Judgement::Conflict,
            "version {}",
            row.version
        );
        row = commit(&row, id, 1).next_version_row(&row);
    }
    assert_eq!((row.version, row.recent.len()), (17, 16));
    assert_eq!(mine.again().judge(&row), Judgement::OutcomeUnknown);
    assert_eq!(lost.again().judge(&row), Judgement::OutcomeUnknown);
    assert_eq!(lost.judge(&row), Judgement::Conflict);
}

#[test]
fn judgement_detects_another_table_and_a_rollback() {
    let start = VersionRow::initial(TableId::new(1), SharedSettings::default());
    let one = commit(&start, 1, 1).next_version_row(&start);
    let two = commit(&one, 2, 2);
    let other_one = commit(&start, 9, 1).next_version_row(&start);
    let other_two = commit(&other_one, 10, 1).next_version_row(&other_one);
    assert_eq!(
        two.judge(&start),
        Judgement::Refused(TableErrorKind::TableRolledBack)
    );
    assert_eq!(
        two.judge(&other_one),
        Judgement::Refused(TableErrorKind::TableRolledBack)
    );
    assert_eq!(
        two.judge(&other_two),
        Judgement::Refused(TableErrorKind::TableRolledBack)
    );
    assert_eq!(
        two.judge(&VersionRow::initial(
            TableId::new(2),
            SharedSettings::default()
        )),
        Judgement::Refused(TableErrorKind::TableReplaced)
    );
}

#[test]
fn invalid_commits_are_rejected() {
    let start = VersionRow::initial(TableId::new(1), SharedSettings::default());
    let token = start.token(&[]);
    let id = CommitId::new(1);
    let make = |ins: Vec<MembershipEntry>, rem: Vec<String>| {
        CommitRequest::new(token.clone(), id, None, ins, [], rem)
            .validate(&LIMITS, "test")
            .map_err(|e| e.kind())
    };
    assert_eq!(make(vec![], vec![]), Err(TableErrorKind::InvalidRequest));
    assert_eq!(
        make(vec![entry(1), entry(1)], vec![]),
        Err(TableErrorKind::InvalidRequest)
    );
    assert_eq!(
        make(vec![entry(1)], vec![entry(1).address.row_key()]),
        Err(TableErrorKind::InvalidRequest)
    );
    assert_eq!(
        make(vec![entry(1), entry(2), entry(3)], vec![]),
        Err(TableErrorKind::LimitExceeded)
    );
    let mut big = entry(1);
    big.info.silo_name = "x".repeat(1000);
    assert_eq!(make(vec![big], vec![]), Err(TableErrorKind::LimitExceeded));
    assert_eq!(make(vec![entry(1), entry(2)], vec![]), Ok(()));
}
