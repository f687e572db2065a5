//! `commit`: one transaction, made of the request alone, so that sending it again sends the same. Clauses T1 to T5.
//!
//! It compares the text of `table/version` with what the token says it is: layout, table, version, commit and number of rows. That text has
//! the commit's id in it and so was never there before, nor will be again; other than a revision it is the same in a backup that was brought
//! back into another etcd. If the comparison fails, the other branch brings the whole table in the same answer, and the contract's own
//! judgement says what that means. Only where the text is another one for the same commit, because a newer build or a person wrote it, the
//! commit is sent a second time, with the text that was found.

use membership_core::{
    Attempt, CommitOutcome, CommitRequest, Conflict, Judgement, Operation, RowChange, TableError,
    TableErrorKind, TableLimits, VersionRow,
};
use tokio::time::Instant;

use crate::codec::{self, Gathered};
use crate::error::{error, is_full};
use crate::keys::CELL;
use crate::link::Purpose;
use crate::table::Inner;
use crate::wire::{Compare, Op, Txn};

/// What etcd takes in one transaction (`--max-txn-ops`): each of its three lists counts by itself.
const OPERATIONS: usize = 128;
/// What etcd takes in one request (`--max-request-bytes`), in its own encoding.
const REQUEST: usize = 3 << 19;

/// A commit has four operations of its own at most, and two for each row that is removed. So many rows are some megabytes, which etcd gives
/// in one answer.
pub(crate) const LIMITS: TableLimits = TableLimits {
    rows_per_commit: 62,
    bytes_per_row: 1 << 20,
    bytes_per_commit: 1_400_000,
    rows: 10_000,
};

/// How often one commit is sent because the text of the version row was another one.
const TURNS: usize = 4;

/// The version row that a commit is based on, as far as it matters, and its text.
struct Base {
    row: VersionRow,
    raw: String,
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        match self.sent(request).await {
            Err(e) if request.attempt == Attempt::Again => Err(not_known(
                "it was sent before, and what became of it is not known",
                e,
            )),
            other => other,
        }
    }

    async fn sent(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let by = self.link.deadline();
        let mut base = self.base(request)?;
        for _ in 0..TURNS {
            let found = match &base {
                Some(base) => {
                    let next = request.next_version_row(&base.row);
                    let raw = codec::version_text(&next)?;
                    let txn = self.transaction(request, base, &next, &raw)?;
                    match self.ask(&txn, Purpose::Write, by).await {
                        Ok((true, _)) => return Ok(self.committed(request, base, &raw)),
                        Ok((false, found)) => found,
                        Err(e) if is_full(&e) => return self.in_spite_of(request, e, by).await,
                        Err(e) => return Err(e),
                    }
                }
                // A token that does not tell enough: what is there decides.
                None => self.everything(by).await?,
            };
            match self.judged(request, base.as_ref(), &found)? {
                Judged::Is(outcome) => return Ok(outcome),
                Judged::BasedOn(found) => base = Some(found),
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "the version row is written by somebody who commits nothing",
        ))
    }

    /// All of the table, as of now.
    async fn everything(&self, by: Instant) -> Result<Gathered, TableError> {
        let everything = vec![Op::range(self.keys.table()), Op::range(self.keys.rows())];
        Ok(self
            .ask(
                &Txn {
                    success: everything,
                    ..Txn::default()
                },
                Purpose::Read,
                by,
            )
            .await?
            .1)
    }

    /// What became of a commit that etcd says it had no room for. It has had its turn, or never gets one: what is there now is final.
    async fn in_spite_of(
        &self,
        request: &CommitRequest,
        full: TableError,
        by: Instant,
    ) -> Result<CommitOutcome, TableError> {
        // It was sent once, and is looked for now: as one that is sent again.
        let judged = match self.everything(by).await {
            Ok(found) => self.judged(&request.again(), None, &found),
            Err(e) => Err(e),
        };
        match judged {
            Ok(Judged::Is(outcome)) => Ok(outcome),
            Ok(Judged::BasedOn(_)) => Err(full),
            Err(e) => Err(not_known(
                &format!(
                    "{}; whether it wrote the commit nevertheless is not known",
                    full.message()
                ),
                e,
            )),
        }
    }

    /// What the commit is based on: what this handle has seen, or what the token tells.
    fn base(&self, request: &CommitRequest) -> Result<Option<Base>, TableError> {
        let expected = &request.expected;
        if let Some(seen) = self
            .seen()
            .filter(|seen| seen.snapshot.token.same_commit(expected))
        {
            return Ok(Some(Base {
                row: VersionRow::clone(&seen.snapshot.version_row),
                raw: seen.raw,
            }));
        }
        // Whether a table is full is not guessed.
        let guessed = codec::guess(expected).filter(|row| {
            row.row_count.saturating_add_signed(codec::adds(request)) <= LIMITS.rows as u64
        });
        guessed
            .map(|row| codec::version_text(&row).map(|raw| Base { row, raw }))
            .transpose()
    }

    fn transaction(
        &self,
        request: &CommitRequest,
        base: &Base,
        next: &VersionRow,
        raw: &str,
    ) -> Result<Txn, TableError> {
        let too_much = |message: String| {
            Err(error(TableErrorKind::LimitExceeded, message).during(Operation::Commit))
        };
        if next.row_count > LIMITS.rows as u64 && next.row_count > base.row.row_count {
            return too_much(format!(
                "the table would have {} rows, the store takes {}",
                next.row_count, LIMITS.rows
            ));
        }
        let keys = &self.keys;
        let mut txn = Txn {
            compare: vec![Compare::is(keys.version(), base.raw.as_str().into())],
            success: vec![
                Op::put(keys.version(), raw),
                Op::put(keys.recent(next.version), codec::json(&next.recent.last())?),
            ],
            failure: vec![Op::range(keys.table()), Op::range(keys.rows())],
        };
        if let Some(settings) = &request.settings {
            txn.success
                .push(Op::put(keys.settings(), codec::json(settings)?));
        }
        if let Some(core) = &request.core {
            txn.success.push(Op::put(keys.core(), core.as_str()));
        }
        for change in &request.changes {
            let key = keys.row(change.key());
            match change {
                RowChange::Insert(row) => {
                    txn.compare.push(Compare::is_absent(key.clone()));
                    txn.success.push(Op::put(key, row.body()));
                }
                RowChange::Update(row) => {
                    txn.compare.push(Compare::exists(key.clone()));
                    txn.success.push(Op::put(key, row.body()));
                }
                RowChange::Remove(of) => {
                    txn.compare.push(Compare::exists(key.clone()));
                    txn.success.push(Op::delete(key));
                    // A row of that name is none of ours; what has its name among the heartbeats is the cluster's.
                    if of != CELL {
                        txn.success.push(Op::delete(keys.heartbeat(of)));
                    }
                }
            }
        }
        if txn.operations() > OPERATIONS {
            return too_much(format!(
                "the commit has {} operations, the store takes {OPERATIONS}",
                txn.operations()
            ));
        }
        // The limits leave room for keys; names of clusters as long as they may be do not leave it.
        if txn.bytes() > REQUEST {
            return too_much(format!(
                "the commit has {} bytes with its keys, the store takes {REQUEST} at once",
                txn.bytes()
            ));
        }
        Ok(txn)
    }

    /// What the caller is told of its success; and what this handle knows of the table now.
    fn committed(&self, request: &CommitRequest, base: &Base, raw: &str) -> CommitOutcome {
        let token = codec::next_token(request, Some(base.row.row_count));
        if let Some(seen) = self
            .seen()
            .filter(|seen| seen.snapshot.token.same_commit(&request.expected))
        {
            self.remember(&request.apply_to(&seen.snapshot, token.clone()), raw);
        }
        CommitOutcome::Committed(token)
    }

    /// It was not carried out; this is what is there instead of what it was for.
    fn judged(
        &self,
        request: &CommitRequest,
        base: Option<&Base>,
        found: &Gathered,
    ) -> Result<Judged, TableError> {
        let Some(stored) = &found.version else {
            return Err(error(
                TableErrorKind::TableReplaced,
                "the version row that was known is gone",
            ));
        };
        let row = stored.any()?;
        match request.judge(&row) {
            Judgement::Refused(TableErrorKind::BeingDeleted) => Err(error(
                TableErrorKind::BeingDeleted,
                "the cluster is being deleted",
            )),
            Judgement::Refused(kind) => {
                let message = format!(
                    "the table, at version {}, is not the one the commit is for",
                    row.version
                );
                Err(error(kind, message))
            }
            Judgement::OutcomeUnknown => {
                let message = format!(
                    "the table has moved from version {} to {} since",
                    request.expected.version(),
                    row.version
                );
                Err(error(TableErrorKind::OutcomeUnknown, message))
            }
            Judgement::AlreadyCommitted => {
                let before = codec::rows_of(&request.expected);
                let token = if row.version == request.makes() {
                    codec::token(&row)
                } else {
                    codec::next_token(request, before)
                };
                Ok(Judged::Is(CommitOutcome::Committed(token)))
            }
            Judgement::Conflict => Ok(Judged::Is(self.conflict(row, found))),
            // Next in line: a row is there, or is not; or the text is another one.
            Judgement::Apply if rows_are_in_the_way(request, found) => {
                Ok(Judged::Is(self.conflict(row, found)))
            }
            Judgement::Apply if base.is_some_and(|base| base.raw == stored.raw) => Err(error(
                TableErrorKind::Busy,
                "etcd refuses the commit, and nothing is in its way",
            )),
            Judgement::Apply => Ok(Judged::BasedOn(Base {
                row,
                raw: stored.raw.clone(),
            })),
        }
    }

    fn conflict(&self, row: VersionRow, found: &Gathered) -> CommitOutcome {
        let newest = row.recent.last().cloned();
        // Of a table that is not whole the next read tells; a conflict it is all the same.
        CommitOutcome::Conflict(Conflict {
            newest,
            snapshot: self.snapshot(found, row).ok(),
        })
    }
}

enum Judged {
    Is(CommitOutcome),
    /// It is next, but not on what it was thought to be.
    BasedOn(Base),
}

/// Of a commit that may have happened, whatever this error is about. Only a table that is another one now, or goes, says that there is nothing
/// to find out.
fn not_known(why: &str, e: TableError) -> TableError {
    use TableErrorKind::{BeingDeleted, OutcomeUnknown, TableReplaced, TableRolledBack};
    match e.kind() {
        OutcomeUnknown | TableReplaced | TableRolledBack | BeingDeleted => e,
        kind => {
            let place = e.place().map(str::to_owned);
            let unknown = error(
                OutcomeUnknown,
                format!("{why}: {} [{}]", e.message(), kind.as_str()),
            )
            .with_source(e);
            place.into_iter().fold(unknown, TableError::at)
        }
    }
}

/// Whether an inserted row is there already, or a changed or removed one is not.
fn rows_are_in_the_way(request: &CommitRequest, found: &Gathered) -> bool {
    request.changes.iter().any(|change| {
        let there = found.row(change.key()).is_some();
        there == matches!(change, RowChange::Insert(_))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use membership_core::{
        CommitId, InstanceId, MembershipEntry, SharedSettings, SiloAddress, TableId, WallTime,
    };

    use super::*;
    use crate::STORE;
    use crate::config::EtcdConfig;

    fn entry(port: u16) -> MembershipEntry {
        MembershipEntry::new(
            SiloAddress::new([127, 0, 0, 1].into(), port, 1),
            InstanceId::new(1),
            WallTime::default(),
        )
    }

    fn base(rows: u64) -> Base {
        let mut row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        row.row_count = rows;
        Base {
            raw: codec::version_text(&row).unwrap(),
            row,
        }
    }

    fn transaction(
        cluster: &str,
        base: &Base,
        request: &CommitRequest,
    ) -> Result<Txn, TableErrorKind> {
        let inner =
            Inner::unconnected(EtcdConfig::new([("h", 1)]), cluster.parse().unwrap()).unwrap();
        let next = request.next_version_row(&base.row);
        Arc::new(inner)
            .transaction(request, base, &next, &codec::version_text(&next).unwrap())
            .map_err(|e| e.kind())
    }

    #[test]
    fn the_largest_commits_are_within_what_etcd_takes() {
        let base = base(5000);
        let n = u16::try_from(LIMITS.rows_per_commit).unwrap();
        let token = codec::token(&base.row);
        let mut removal = CommitRequest::new(
            token.clone(),
            CommitId::new(1),
            None,
            [],
            [],
            (0..n).map(|port| entry(port).address.row_key()),
        );
        removal.settings = Some(SharedSettings::default());
        removal.core = Some("x".to_owned());
        assert!(removal.validate(&LIMITS, STORE).is_ok());
        assert_eq!(
            transaction("blue", &base, &removal).unwrap().operations(),
            OPERATIONS
        );
        let mut wide = entry(1);
        wide.silo_name = "x".repeat(LIMITS.bytes_per_row - 1000);
        let mut other = entry(2);
        other.silo_name = "x".repeat(LIMITS.bytes_per_commit - LIMITS.bytes_per_row - 1000);
        let heavy =
            CommitRequest::new(token.clone(), CommitId::new(1), None, [wide, other], [], []);
        assert!(heavy.validate(&LIMITS, STORE).is_ok());
        assert!(transaction("blue", &base, &heavy).is_ok());
        // With names of clusters that take twelve bytes for each of their characters the keys count.
        let long = "\u{1f600}".repeat(150);
        let long = format!("{long}/{long}");
        let many = CommitRequest::new(token, CommitId::new(1), None, (0..n).map(entry), [], []);
        assert!(transaction(&long, &base, &many).is_ok());
        assert!(many.validate(&LIMITS, STORE).is_ok());
        let mut both = heavy.clone();
        both.changes.extend(many.changes.iter().skip(3).cloned());
        assert_eq!(
            transaction(&long, &base, &both).unwrap_err(),
            TableErrorKind::LimitExceeded
        );
    }

    #[test]
    fn a_commit_that_was_sent_before_is_never_called_certain_to_have_failed() {
        use TableErrorKind::{BeingDeleted, OutcomeUnknown, TableReplaced, TableRolledBack};
        let kept = [OutcomeUnknown, TableReplaced, TableRolledBack, BeingDeleted];
        for kind in TableErrorKind::ALL {
            let told = not_known("it was sent before", error(kind, "the answer").at("h:1"));
            assert_eq!(
                told.kind(),
                if kept.contains(&kind) {
                    kind
                } else {
                    OutcomeUnknown
                }
            );
            assert!(
                told.message().contains("the answer") && told.place() == Some("h:1"),
                "{told}"
            );
        }
    }

    #[test]
    fn a_row_that_has_the_name_of_the_clusters_cell_goes_without_it() {
        let (base, id) = (base(2), CommitId::new(1));
        let removed = |key: &str| {
            let request =
                CommitRequest::new(codec::token(&base.row), id, None, [], [], [key.to_owned()]);
            format!(
                "{:?}",
                serde_json::to_value(transaction("blue", &base, &request).unwrap()).unwrap()
            )
            .matches("request_delete_range")
            .count()
        };
        assert_eq!(
            (removed(&entry(1).address.row_key()), removed(CELL)),
            (2, 1)
        );
    }

    #[test]
    fn a_full_table_takes_no_more_rows_and_lets_them_go() {
        let full = base(LIMITS.rows as u64);
        let token = codec::token(&full.row);
        let commit = |insert: Vec<MembershipEntry>, remove: Vec<String>| {
            let request =
                CommitRequest::new(token.clone(), CommitId::new(1), None, insert, [], remove);
            transaction("blue", &full, &request).map(drop)
        };
        let gone = entry(1).address.row_key();
        assert_eq!(
            commit(vec![entry(2)], vec![]),
            Err(TableErrorKind::LimitExceeded)
        );
        assert_eq!(commit(vec![], vec![gone.clone()]), Ok(()));
        assert_eq!(commit(vec![entry(2)], vec![gone]), Ok(()));
    }
}
