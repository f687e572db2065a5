//! `commit`: one transaction, made of the request alone, so that sending it again sends the same.
//! Clauses T1 to T5.
//!
//! It compares the text of `table/version` with the text that follows from the token: layout,
//! table, version, commit and number of rows. The text contains the commit's id, so it is never
//! used twice; unlike a revision it is the same in a backup that was restored into another etcd. If
//! the comparison fails, the other branch returns the whole table in the same answer, and the
//! contract's judgement says what that means. If only the text differs for the same commit, because
//! a newer build or an operator wrote it, the commit is sent again with the text that was found.

use membership_core::{
    Attempt, CommitOutcome, CommitRequest, Conflict, RowChange, Settled, TableError,
    TableErrorKind, VersionRow,
};
use membership_provider::{counted_next_token, counted_token, json, row_count_of};
use tokio::time::Instant;

use crate::STORE;
use crate::client::{Cached, Inner, LIMITS, Purpose};
use crate::codec::{self, Found};
use crate::error::{error, is_full};
use crate::keys::CELL;
use crate::wire::{Compare, Op, Txn};

/// What etcd accepts in one transaction (`--max-txn-ops`), in each of its three lists.
const OPERATIONS: usize = 128;
/// What etcd accepts in one request (`--max-request-bytes`), in its own encoding.
const REQUEST: usize = 3 << 19;
/// How often one commit is sent because the text of the version row was another one.
const ATTEMPTS: usize = 4;

/// The version row that a commit is based on, as far as it matters, and its text.
struct Base {
    row: VersionRow,
    raw: String,
}

/// What the table says of a commit.
enum Judged {
    Is(CommitOutcome),
    /// It is next, but the version row has another text.
    BasedOn(Base),
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit), of this sending
    /// alone.
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        let by = self.client.deadline();
        let mut base = self.base(request);
        for _ in 0..ATTEMPTS {
            let found = match &base {
                Some(base) => {
                    let next = request.next_version_row(&base.row);
                    let raw = codec::version_text(&next);
                    let txn = self.transaction(request, base, &next, &raw)?;
                    match self.transact(&txn, Purpose::Write, by).await {
                        Ok((true, _)) => return Ok(self.committed(request, base, raw)),
                        Ok((false, found)) => found,
                        Err(e) if is_full(&e) => {
                            return self.after_no_space(request, e, by).await;
                        }
                        Err(e) => return Err(e),
                    }
                }
                // The token does not say enough: read first.
                None => self.read_all(by).await?,
            };
            match self.judged(request, base.as_ref(), &found)? {
                Judged::Is(outcome) => return Ok(outcome),
                Judged::BasedOn(found) => base = Some(found),
            }
        }
        let message = "another program writes the version row without committing";
        Err(error(TableErrorKind::Busy, message))
    }

    /// The table as of now.
    async fn read_all(&self, by: Instant) -> Result<Found, TableError> {
        let txn = Txn {
            success: vec![Op::range(self.keys.table()), Op::range(self.keys.rows())],
            ..Txn::default()
        };
        Ok(self.transact(&txn, Purpose::Read, by).await?.1)
    }

    /// The outcome of a commit to which etcd answered that it has no space. The commit was applied,
    /// or never will be: a read now is final.
    async fn after_no_space(
        &self,
        request: &CommitRequest,
        full: TableError,
        by: Instant,
    ) -> Result<CommitOutcome, TableError> {
        // It was sent, and is looked for: as one that is sent again.
        let judged = match self.read_all(by).await {
            Ok(found) => self.judged(&request.again(), None, &found),
            Err(e) => Err(e),
        };
        match judged {
            Ok(Judged::Is(outcome)) => Ok(outcome),
            Ok(Judged::BasedOn(_)) => Err(full),
            Err(e) => {
                let message = format!("{}; then: {}", full.message(), e.message());
                let at = e.place().map_or_else(|| self.client.at(), str::to_owned);
                Err(error(e.kind(), message).at(at).of_commit(Attempt::Again))
            }
        }
    }

    /// The version row that the commit is based on: the cached one, or what the token says.
    fn base(&self, request: &CommitRequest) -> Option<Base> {
        if let Some(cached) = self.cache.of(&request.expected) {
            return Some(Base {
                row: VersionRow::clone(&cached.snapshot.version_row),
                raw: cached.raw,
            });
        }
        // Whether a table is full is not guessed.
        codec::guess(&request.expected)
            .filter(|row| request.check_room(row.row_count, &LIMITS, STORE).is_ok())
            .map(|row| Base {
                raw: codec::version_text(&row),
                row,
            })
    }

    fn transaction(
        &self,
        request: &CommitRequest,
        base: &Base,
        next: &VersionRow,
        raw: &str,
    ) -> Result<Txn, TableError> {
        request.check_room(base.row.row_count, &LIMITS, STORE)?;
        let keys = &self.keys;
        let mut txn = Txn {
            compare: vec![Compare::is(keys.version(), base.raw.as_str().into())],
            success: vec![
                Op::put(keys.version(), raw),
                Op::put(keys.recent(next.version), json(&request.record())),
            ],
            failure: vec![Op::range(keys.table()), Op::range(keys.rows())],
        };
        if let Some(settings) = &request.settings {
            txn.success.push(Op::put(keys.settings(), json(settings)));
        }
        if let Some(core) = &request.core {
            txn.success.push(Op::put(keys.core(), core.stored()));
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
                    // The heartbeat of that name is the cluster's own cell; no silo has it.
                    if of != CELL {
                        txn.success.push(Op::delete(keys.heartbeat(of)));
                    }
                }
            }
        }
        let (operations, bytes) = (txn.operations(), txn.bytes());
        let message = if operations > OPERATIONS {
            format!("the commit has {operations} operations, the store takes {OPERATIONS}")
        } else if bytes > REQUEST {
            // Only the keys of clusters with the longest names exceed the limits of the contract.
            format!("the commit has {bytes} bytes with its keys, the store takes {REQUEST} at once")
        } else {
            return Ok(txn);
        };
        Err(error(TableErrorKind::LimitExceeded, message))
    }

    /// The answer to a commit that succeeded; remembers the table that it made.
    fn committed(&self, request: &CommitRequest, base: &Base, raw: String) -> CommitOutcome {
        let token = counted_next_token(request, Some(base.row.row_count));
        if let Some(cached) = self.cache.of(&request.expected) {
            let snapshot = request.apply_to(&cached.snapshot, token.clone());
            self.cache.store(Cached { snapshot, raw });
        }
        CommitOutcome::Committed(token)
    }

    /// What the table, as it was found, says of a commit that was not applied.
    fn judged(
        &self,
        request: &CommitRequest,
        base: Option<&Base>,
        found: &Found,
    ) -> Result<Judged, TableError> {
        let stored = found.version.as_ref().ok_or_else(|| {
            error(
                TableErrorKind::TableReplaced,
                "the version row that was known is gone",
            )
        })?;
        let row = stored.any()?;
        match request.settle(&row, STORE)? {
            Settled::Committed => {
                let token = if row.version == request.next_version() {
                    counted_token(&row)
                } else {
                    counted_next_token(request, row_count_of(&request.expected))
                };
                Ok(Judged::Is(CommitOutcome::Committed(token)))
            }
            Settled::Apply if !rows_collide(request, found) => {
                if base.is_some_and(|base| base.raw == stored.raw) {
                    let message = "etcd refuses the commit, but all its conditions hold";
                    return Err(error(TableErrorKind::Busy, message));
                }
                Ok(Judged::BasedOn(Base {
                    row,
                    raw: stored.raw.clone(),
                }))
            }
            Settled::Apply | Settled::Conflict => {
                let newest = row.recent.last().cloned();
                // The next read reports an incomplete table; this answer is a conflict
                // nevertheless.
                let snapshot = self.snapshot(found, row).ok();
                let conflict = Conflict::new(newest, snapshot);
                Ok(Judged::Is(CommitOutcome::Conflict(conflict)))
            }
        }
    }
}

/// Whether a row to insert exists, or a row to update or remove is missing.
fn rows_collide(request: &CommitRequest, found: &Found) -> bool {
    request.changes.iter().any(|change| {
        let exists = found.row(change.key()).is_some();
        exists == matches!(change, RowChange::Insert(_))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use membership_core::{
        CommitId, InstanceId, MembershipEntry, SharedSettings, SiloAddress, TableId, WallTime,
    };

    use super::*;
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
            raw: codec::version_text(&row),
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
            .transaction(request, base, &next, &codec::version_text(&next))
            .map_err(|e| e.kind())
    }

    #[test]
    fn etcd_accepts_the_largest_commits() {
        let base = base(5000);
        let n = u16::try_from(LIMITS.rows_per_commit).unwrap();
        let token = counted_token(&base.row);
        let mut removal = CommitRequest::new(
            token.clone(),
            CommitId::new(1),
            None,
            [],
            [],
            (0..n).map(|port| entry(port).address.row_key()),
        );
        removal.settings = Some(SharedSettings::default());
        removal.core = Some("x".to_owned().into());
        assert!(removal.validate(&LIMITS, STORE).is_ok());
        assert_eq!(
            transaction("blue", &base, &removal).unwrap().operations(),
            OPERATIONS
        );
        let mut wide = entry(1);
        wide.info.silo_name = "x".repeat(LIMITS.bytes_per_row - 1000);
        let mut other = entry(2);
        other.info.silo_name = "x".repeat(LIMITS.bytes_per_commit - LIMITS.bytes_per_row - 1000);
        let heavy =
            CommitRequest::new(token.clone(), CommitId::new(1), None, [wide, other], [], []);
        assert!(heavy.validate(&LIMITS, STORE).is_ok());
        assert!(transaction("blue", &base, &heavy).is_ok());
        // Keys count when each character of the cluster's name takes twelve bytes.
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
    fn removing_a_row_with_the_name_of_the_clusters_cell_keeps_the_cell() {
        let (base, id) = (base(2), CommitId::new(1));
        let removed = |key: &str| {
            let request =
                CommitRequest::new(counted_token(&base.row), id, None, [], [], [key.to_owned()]);
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
    fn a_full_table_accepts_only_commits_that_add_no_rows() {
        let full = base(LIMITS.rows as u64);
        let token = counted_token(&full.row);
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
