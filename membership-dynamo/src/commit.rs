//! `commit`: one `TransactWriteItems`, made of the request alone, so that sending it again sends the same. Clauses T1 to T5.
//!
//! The first item is the version row: its conditions decide. If they fail, the answer brings the version row as it is, and the contract's
//! own judgement says what that means. An inserted row comes with the item of its heartbeat, a removed one goes with it.
//!
//! The transaction carries a token made of the cluster's name and of what tells the commit from all others: an id is its own within a table
//! only, and DynamoDB keeps tokens for the whole account. Within ten minutes DynamoDB answers the same token with "done" without looking
//! at the table, which may have been wiped since; so whoever sends again is believed only after a look at the version row.

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::error::TransactionCanceledException;
use aws_sdk_dynamodb::types::{
    Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use membership_core::{
    Attempt, CommitOutcome, CommitRequest, Conflict, Judgement, NextStep, Row, RowChange,
    TableError, TableErrorKind, TableLimits, encoding::LAYOUT,
};

use crate::codec::{self, Stored};
use crate::error::{Cancelled, cancelled, error};
use crate::fence::Version;
use crate::link::Link;
use crate::read::{heartbeat_name, malformed, row_name};
use crate::table::Inner;

/// A transaction takes 100 items and 4 MB: the version row, and two for each row that is inserted or removed. An item takes 400 KB, names
/// of attributes and the cluster's name (1.2 KB at most) included. So many rows are some ten pages.
pub(crate) const LIMITS: TableLimits = TableLimits {
    rows_per_commit: 49,
    bytes_per_row: 400_000,
    bytes_per_commit: 3_500_000,
    rows: 10_000,
};

/// The longest name of an item, in bytes.
const LONGEST_NAME: usize = 1024;

impl Link {
    /// The transaction of a commit.
    fn transaction(&self, request: &CommitRequest) -> Result<Vec<TransactWriteItem>, TableError> {
        let mut items = vec![
            TransactWriteItem::builder()
                .update(self.version_row_of(request)?)
                .build(),
        ];
        for change in &request.changes {
            let key = change.key();
            if row_name(key).len() > LONGEST_NAME || heartbeat_name(key).len() > LONGEST_NAME {
                return Err(error(
                    TableErrorKind::LimitExceeded,
                    "a row's key has at most 1000 bytes",
                ));
            }
            match change {
                RowChange::Insert(row) => {
                    items.push(
                        TransactWriteItem::builder()
                            .put(self.row_put(row, "attribute_not_exists(#item)")?)
                            .build(),
                    );
                    let beat = Update::builder()
                        .table_name(&self.table)
                        .set_key(Some(self.key(heartbeat_name(key))));
                    // An item that is there already keeps its heartbeat (clause T8).
                    let beat = beat
                        .update_expression("SET #since = :since")
                        .expression_attribute_names("#since", codec::SINCE);
                    let beat = beat
                        .expression_attribute_values(":since", codec::number(request.makes()))
                        .build()
                        .map_err(malformed)?;
                    items.push(TransactWriteItem::builder().update(beat).build());
                }
                RowChange::Update(row) => {
                    items.push(
                        TransactWriteItem::builder()
                            .put(self.row_put(row, "attribute_exists(#item)")?)
                            .build(),
                    );
                }
                RowChange::Remove(_) => {
                    let row = Delete::builder()
                        .table_name(&self.table)
                        .set_key(Some(self.key(row_name(key))));
                    let row = row
                        .condition_expression("attribute_exists(#item)")
                        .expression_attribute_names("#item", codec::ITEM);
                    items.push(
                        TransactWriteItem::builder()
                            .delete(row.build().map_err(malformed)?)
                            .build(),
                    );
                    let beat = Delete::builder()
                        .table_name(&self.table)
                        .set_key(Some(self.key(heartbeat_name(key))));
                    items.push(
                        TransactWriteItem::builder()
                            .delete(beat.build().map_err(malformed)?)
                            .build(),
                    );
                }
            }
        }
        Ok(items)
    }

    fn row_put(&self, row: &Row, condition: &str) -> Result<Put, TableError> {
        let mut item = self.key(row_name(row.key()));
        item.insert(codec::BODY.to_owned(), codec::text(row.body()));
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression(condition);
        put.expression_attribute_names("#item", codec::ITEM)
            .build()
            .map_err(malformed)
    }

    /// What a commit does to the version row, and on what conditions: that it is the one the token names, that it is not being deleted,
    /// that this build may write it, and that the rows fit.
    fn version_row_of(&self, request: &CommitRequest) -> Result<Update, TableError> {
        let expected = &request.expected;
        let mut set = vec![
            "#version = :makes",
            "#commit = :id",
            "#record = :record",
            "#row_count = #row_count + :adds",
        ];
        let mut conditions = vec![
            "#table_id = :table_id",
            "#version = :version",
            "#commit = :commit",
            "#min_layout <= :layout",
            "attribute_not_exists(#deleting)",
        ];
        let mut update = Update::builder()
            .table_name(&self.table)
            .set_key(Some(self.key(codec::VERSION_ROW)))
            .expression_attribute_names("#record", codec::record_attribute(request.makes()))
            .expression_attribute_values(":makes", codec::number(request.makes()))
            .expression_attribute_values(":id", codec::text(request.id.to_string()))
            .expression_attribute_values(":record", codec::text(codec::record(request)?))
            .expression_attribute_values(":adds", codec::number(adds(request)))
            .expression_attribute_values(":table_id", codec::text(expected.table_id().to_string()))
            .expression_attribute_values(":version", codec::number(expected.version()))
            .expression_attribute_values(":commit", codec::text(expected.commit().to_string()))
            .expression_attribute_values(":layout", codec::number(LAYOUT))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        for name in [
            "table_id",
            "version",
            "commit",
            "min_layout",
            "deleting",
            "row_count",
        ] {
            update = update.expression_attribute_names(format!("#{name}"), name);
        }
        if adds(request) > 0 {
            conditions.push("#row_count <= :room");
            let room = i64::try_from(LIMITS.rows).unwrap_or(i64::MAX) - adds(request);
            update = update.expression_attribute_values(":room", codec::number(room));
        }
        if let Some(settings) = &request.settings {
            set.push("#settings = :settings");
            update = update.expression_attribute_names("#settings", "settings");
            update = update
                .expression_attribute_values(":settings", codec::text(codec::json(settings)?));
        }
        if let Some(core) = &request.core {
            set.push("#core = :core");
            update = update
                .expression_attribute_names("#core", "core")
                .expression_attribute_values(":core", codec::text(core));
        }
        let update = update.update_expression(format!("SET {}", set.join(", ")));
        update
            .condition_expression(conditions.join(" AND "))
            .build()
            .map_err(malformed)
    }
}

/// The token of a commit's transaction, of at most 36 characters: FNV-1a of what makes it. That two have the same does no harm: DynamoDB holds
/// their transactions against each other, and says that the second is another one.
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
    format!(
        "{:032x}",
        whole
            .bytes()
            .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step)
    )
}

/// How many rows there are more afterwards.
fn adds(request: &CommitRequest) -> i64 {
    let of = |change: &RowChange| match change {
        RowChange::Insert(_) => 1,
        RowChange::Update(_) => 0,
        RowChange::Remove(_) => -1,
    };
    request.changes.iter().map(of).sum()
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::commit`](membership_core::MembershipTable::commit).
    pub(crate) async fn commit(
        &self,
        request: &CommitRequest,
    ) -> Result<CommitOutcome, TableError> {
        let items = self.link.transaction(request)?;
        let mut token = Some(token(&self.link.cluster, request));
        for _ in 0..2 {
            let send = || {
                let transaction = self
                    .link
                    .client
                    .transact_write_items()
                    .set_transact_items(Some(items.clone()));
                transaction.set_client_request_token(token.clone()).send()
            };
            let failed = match self.link.ask(true, send).await {
                Ok(_) if request.attempt == Attempt::First => return Ok(self.committed(request)),
                Ok(_) => return self.looked_at(request).await,
                Err(failed) => failed,
            };
            match failed.answer {
                Some(TransactWriteItemsError::TransactionCanceledException(why)) => {
                    return self.cancelled(request, &why).await;
                }
                // Somebody used this id for something else. Whether this commit happened, the version row knows; if it did not, it goes
                // without a token of its own.
                Some(TransactWriteItemsError::IdempotentParameterMismatchException(_)) => {
                    match self.judged(request).await? {
                        Some(outcome) => return Ok(outcome),
                        None => token = None,
                    }
                }
                Some(TransactWriteItemsError::ResourceNotFoundException(_)) => return Err(gone()),
                _ => return Err(failed.error),
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "the commit's id was used for another commit at the same time",
        ))
    }

    /// What the caller is told of its success; and what this handle knows of the table now.
    fn committed(&self, request: &CommitRequest) -> CommitOutcome {
        let token = request.next_token(&[]);
        if let Some(seen) = self
            .seen()
            .filter(|seen| seen.token.same_commit(&request.expected))
        {
            self.remember_changed(&request.apply_to(&seen, token.clone()));
        }
        CommitOutcome::Committed(token)
    }

    /// The transaction was carried out, now or the first time.
    async fn looked_at(&self, request: &CommitRequest) -> Result<CommitOutcome, TableError> {
        match self.judged(request).await? {
            Some(outcome) => Ok(outcome),
            None => Err(error(
                TableErrorKind::TableRolledBack,
                "the commit had happened, and the table is what it was before",
            )),
        }
    }

    /// What the version row says of a commit; none if it is still to come.
    async fn judged(&self, request: &CommitRequest) -> Result<Option<CommitOutcome>, TableError> {
        // Whoever asks has sent it, and cannot say any more that it certainly did not happen.
        let unknown = |e: TableError| match e.next_step() {
            NextStep::GiveUp => e,
            _ => error(
                TableErrorKind::OutcomeUnknown,
                format!("the commit was sent, and what became of it could not be looked up: {e}"),
            ),
        };
        let stored = self.link.version().await.map_err(unknown)?;
        let version = codec::any_version(&stored.ok_or_else(gone)?)?;
        self.judge(request, &version)
    }

    fn judge(
        &self,
        request: &CommitRequest,
        version: &Version,
    ) -> Result<Option<CommitOutcome>, TableError> {
        let row = &version.row;
        match request.judge(row) {
            Judgement::Apply => Ok(None),
            Judgement::AlreadyCommitted => Ok(Some(self.committed(request))),
            Judgement::Conflict => Ok(Some(CommitOutcome::Conflict(Conflict {
                newest: row.recent.last().cloned(),
                snapshot: None,
            }))),
            Judgement::OutcomeUnknown => {
                let message = format!(
                    "the table has moved from version {} to {} since",
                    request.expected.version(),
                    row.version
                );
                Err(error(TableErrorKind::OutcomeUnknown, message))
            }
            Judgement::Refused(TableErrorKind::BeingDeleted) => Err(error(
                TableErrorKind::BeingDeleted,
                "the cluster is being deleted",
            )),
            Judgement::Refused(kind) => Err(error(
                kind,
                format!(
                    "the table, at version {}, is not the one the commit is for",
                    row.version
                ),
            )),
        }
    }

    /// It certainly did not happen; this is why.
    async fn cancelled(
        &self,
        request: &CommitRequest,
        why: &TransactionCanceledException,
    ) -> Result<CommitOutcome, TableError> {
        let reasons = why.cancellation_reasons();
        if let Some(reason) = reasons
            .first()
            .filter(|reason| reason.code() == Some("ConditionalCheckFailed"))
        {
            let Some(item) = reason.item.as_ref().filter(|item| !item.is_empty()) else {
                return Err(gone());
            };
            let version = codec::any_version(&Stored::new(item))?;
            return match self.judge(request, &version)? {
                Some(outcome) => Ok(outcome),
                None if adds(request) > 0 => {
                    let rows = request.next_version_row(&version.row).row_count;
                    let message = format!(
                        "the table would have {rows} rows, the store takes {}",
                        LIMITS.rows
                    );
                    Err(error(TableErrorKind::LimitExceeded, message))
                }
                None => Err(error(
                    TableErrorKind::Busy,
                    "the version row changed meanwhile",
                )),
            };
        }
        match cancelled(reasons) {
            Cancelled::Otherwise(kind, message) => Err(error(kind, message)),
            // The version is the expected one, and a row is there, or is not.
            Cancelled::Row => {
                let known = self
                    .seen()
                    .filter(|seen| seen.token.same_commit(&request.expected));
                let newest = match known {
                    Some(seen) => seen.version_row.recent.last().cloned(),
                    None => match self.link.version().await {
                        Ok(Some(stored)) => codec::any_version(&stored)?.row.recent.last().cloned(),
                        _ => None,
                    },
                };
                Ok(CommitOutcome::Conflict(Conflict {
                    newest,
                    snapshot: None,
                }))
            }
        }
    }
}

fn gone() -> TableError {
    error(
        TableErrorKind::TableReplaced,
        "the version row that was known is gone",
    )
}
