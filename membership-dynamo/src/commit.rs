//! `commit`: one `TransactWriteItems`, made of the request alone, so that sending it again sends
//! the same. Clauses T1 to T5.
//!
//! The first item is the version row, whose conditions decide. If they fail, the answer contains
//! the current version row, and the contract's rules judge it. An inserted row comes with the item
//! of its heartbeat; a removed one goes with it.
//!
//! The transaction carries a token made of the cluster's name and of what identifies the commit: a
//! commit id is unique within a table only, and DynamoDB keeps tokens for the whole account. For
//! ten minutes DynamoDB answers the same token with "done" without looking at the table, which may
//! have been wiped since. So the success of a repeated commit counts only after the version row was
//! read.

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::error::TransactionCanceledException;
use aws_sdk_dynamodb::types::{
    Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use membership_core::{
    Attempt, CommitOutcome, CommitRecord, CommitRequest, Conflict, Row, RowChange, Settled,
    TableError, TableErrorKind, encoding::LAYOUT,
};
use membership_provider::json;

use crate::STORE;
use crate::client::{Client, Inner, LIMITS};
use crate::codec::{self, Stored};
use crate::error::{Cancelled, cancelled, error, gone, malformed};
use crate::fence::Version;
use crate::keys;

/// The longest name of an item, in bytes.
const LONGEST_NAME: usize = 1024;

impl Client {
    /// The transaction of a commit.
    fn transaction(&self, request: &CommitRequest) -> Result<Vec<TransactWriteItem>, TableError> {
        let item = TransactWriteItem::builder;
        let mut items = vec![item().update(self.version_update(request)?).build()];
        for change in &request.changes {
            let (row, heartbeat) = (keys::row(change.key()), keys::heartbeat(change.key()));
            if row.len() > LONGEST_NAME || heartbeat.len() > LONGEST_NAME {
                let why = "a row's key has at most 1000 bytes";
                return Err(error(TableErrorKind::LimitExceeded, why));
            }
            match change {
                RowChange::Insert(row) => {
                    let put = self.row_put(row, "attribute_not_exists(#item)")?;
                    items.push(item().put(put).build());
                    // An item that exists already keeps its heartbeat (clause T8).
                    let update = Update::builder()
                        .table_name(&self.table)
                        .set_key(Some(self.key(heartbeat)))
                        .update_expression("SET #since = :since")
                        .expression_attribute_names("#since", keys::SINCE)
                        .expression_attribute_values(
                            ":since",
                            codec::number(request.next_version()),
                        );
                    let update = update.build().map_err(malformed)?;
                    items.push(item().update(update).build());
                }
                RowChange::Update(row) => {
                    let put = self.row_put(row, "attribute_exists(#item)")?;
                    items.push(item().put(put).build());
                }
                RowChange::Remove(_) => {
                    let delete = |name: String| {
                        let delete = Delete::builder().table_name(&self.table);
                        delete.set_key(Some(self.key(name)))
                    };
                    let row = delete(row)
                        .condition_expression("attribute_exists(#item)")
                        .expression_attribute_names("#item", keys::ITEM);
                    for delete in [row, delete(heartbeat)] {
                        let delete = delete.build().map_err(malformed)?;
                        items.push(item().delete(delete).build());
                    }
                }
            }
        }
        Ok(items)
    }

    fn row_put(&self, row: &Row, condition: &str) -> Result<Put, TableError> {
        let mut item = self.key(keys::row(row.key()));
        item.insert(keys::BODY.to_owned(), codec::text(row.body()));
        Put::builder()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression(condition)
            .expression_attribute_names("#item", keys::ITEM)
            .build()
            .map_err(malformed)
    }

    /// What a commit does to the version row, and its conditions: the version row is the one that
    /// the token names, is not being deleted, may be written by this build, and the rows fit.
    fn version_update(&self, request: &CommitRequest) -> Result<Update, TableError> {
        let expected = &request.expected;
        let mut set = vec![
            "#version = :next",
            "#commit = :id",
            "#record = :record",
            "#row_count = #row_count + :added",
        ];
        let mut conditions = vec![
            "#table_id = :table_id",
            "#version = :version",
            "#commit = :commit",
            "#min_layout <= :layout",
            "attribute_not_exists(#deleting)",
        ];
        let mut names = vec![
            "table_id",
            "version",
            "commit",
            "min_layout",
            "deleting",
            "row_count",
        ];
        let added = request.added_rows();
        let mut values = vec![
            (":next", codec::number(request.next_version())),
            (":id", codec::text(request.id.to_string())),
            (":record", codec::text(codec::record(request))),
            (":added", codec::number(added)),
            (":table_id", codec::text(expected.table_id().to_string())),
            (":version", codec::number(expected.version())),
            (":commit", codec::text(expected.commit().to_string())),
            (":layout", codec::number(LAYOUT)),
        ];
        if added > 0 {
            conditions.push("#row_count <= :room");
            let room = i64::try_from(LIMITS.rows).unwrap_or(i64::MAX) - added;
            values.push((":room", codec::number(room)));
        }
        if let Some(settings) = &request.settings {
            set.push("#settings = :settings");
            names.push("settings");
            values.push((":settings", codec::text(json(settings))));
        }
        if let Some(core) = &request.core {
            set.push("#core = :core");
            names.push("core");
            values.push((":core", codec::text(core.stored())));
        }
        let mut update = Update::builder()
            .table_name(&self.table)
            .set_key(Some(self.key(keys::VERSION_ROW)))
            .update_expression(format!("SET {}", set.join(", ")))
            .condition_expression(conditions.join(" AND "))
            .expression_attribute_names("#record", keys::record_attribute(request.next_version()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        for name in names {
            update = update.expression_attribute_names(format!("#{name}"), name);
        }
        for (name, value) in values {
            update = update.expression_attribute_values(name, value);
        }
        update.build().map_err(malformed)
    }
}

/// The token of a commit's transaction, of at most 36 characters: FNV-1a of what identifies the
/// commit. Two commits with the same token do no harm: DynamoDB compares their transactions, and
/// answers that the second is another one.
fn token(cluster: &str, request: &CommitRequest) -> String {
    let whole = format!(
        "{cluster}\n{}\n{}\n{}",
        request.expected.table_id(),
        request.expected.version(),
        request.id
    );
    let step = |hash: u128, byte: u8| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    };
    let hash = whole
        .bytes()
        .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step);
    format!("{hash:032x}")
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        let operation = self.begin();
        let items = operation.client.transaction(request)?;
        let mut token = Some(token(&operation.client.cluster, request));
        for _ in 0..2 {
            let send = || {
                let transaction = operation.client.sdk().transact_write_items();
                transaction
                    .set_transact_items(Some(items.clone()))
                    .set_client_request_token(token.clone())
                    .send()
            };
            let failed = match operation.client.send(true, send).await {
                Ok(_) if request.attempt == Attempt::First => return Ok(operation.done(request)),
                Ok(_) => return operation.confirmed(request).await,
                Err(failed) => failed,
            };
            match failed.answer {
                Some(TransactWriteItemsError::TransactionCanceledException(why)) => {
                    return operation.cancelled(request, &why).await;
                }
                // Another transaction used this token. The version row shows whether this commit
                // happened; if it did not, it is sent without a token.
                Some(TransactWriteItemsError::IdempotentParameterMismatchException(_)) => {
                    match operation.judge_stored(request).await? {
                        Some(outcome) => return Ok(outcome),
                        None => token = None,
                    }
                }
                // The transaction that was sent first may have ended meanwhile; else it still may
                // succeed.
                Some(TransactWriteItemsError::TransactionInProgressException(_)) => {
                    let stored = operation.judge_stored(request).await;
                    return stored.ok().flatten().ok_or(failed.error);
                }
                Some(TransactWriteItemsError::ResourceNotFoundException(_)) => return Err(gone()),
                _ => return Err(failed.error),
            }
        }
        let why = "the commit's id was used for another commit at the same time";
        Err(error(TableErrorKind::Busy, why))
    }

    /// The answer to a repeated commit that DynamoDB carried out, now or the first time.
    async fn confirmed(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        let outcome = self.judge_stored(request).await?;
        outcome.ok_or_else(|| {
            let why = "the commit had happened, and the table is what it was before";
            error(TableErrorKind::TableRolledBack, why)
        })
    }

    /// The outcome of a commit by the version row that is stored now; none if it did not happen and
    /// still can.
    async fn judge_stored(
        &self,
        request: &CommitRequest,
    ) -> Result<Option<CommitOutcome>, TableError> {
        let stored = self.client.version().await?;
        self.judge(request, &codec::any_version(&stored.ok_or_else(gone)?)?)
    }

    fn judge(
        &self,
        request: &CommitRequest,
        version: &Version,
    ) -> Result<Option<CommitOutcome>, TableError> {
        let row = &version.row;
        Ok(match request.settle(row, STORE)? {
            Settled::Apply => None,
            Settled::Committed => Some(self.done(request)),
            Settled::Conflict => Some(conflict(row.recent.last())),
        })
    }

    fn done(&self, request: &CommitRequest) -> CommitOutcome {
        let token = request.next_token(&[]);
        self.committed(request, &token);
        CommitOutcome::Committed(token)
    }

    /// The answer to a cancelled transaction, which certainly did not happen.
    async fn cancelled(
        &self,
        request: &CommitRequest,
        why: &TransactionCanceledException,
    ) -> Result<CommitOutcome, TableError> {
        let reasons = why.cancellation_reasons();
        let refused = reasons
            .first()
            .filter(|reason| reason.code() == Some("ConditionalCheckFailed"));
        if let Some(reason) = refused {
            let item = reason.item.as_ref().filter(|item| !item.is_empty());
            let version = codec::any_version(&Stored::new(item.ok_or_else(gone)?))?;
            return match self.judge(request, &version)? {
                Some(outcome) => Ok(outcome),
                None => {
                    request.check_room(version.row.row_count, &LIMITS, STORE)?;
                    let why = "the version row changed meanwhile";
                    Err(error(TableErrorKind::Busy, why))
                }
            };
        }
        match cancelled(reasons) {
            Cancelled::Otherwise(kind, message) => Err(error(kind, message)),
            // The version is the expected one: an inserted row exists, or another row does not.
            Cancelled::Row => {
                let newest = match self.cache.of(&request.expected) {
                    Some(cached) => Some(cached.read.version_row),
                    None => match self.client.version().await {
                        Ok(Some(stored)) => Some(codec::any_version(&stored)?.row),
                        _ => None,
                    },
                };
                let newest = newest.as_ref().and_then(|row| row.recent.last());
                Ok(conflict(newest))
            }
        }
    }
}

fn conflict(newest: Option<&CommitRecord>) -> CommitOutcome {
    CommitOutcome::Conflict(Conflict::new(newest.cloned(), None))
}
