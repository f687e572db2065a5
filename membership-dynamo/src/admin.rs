//! Creating and deleting a cluster. Clauses T1, T8, T12.

pub(crate) mod schema;

use std::time::Duration;

use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, DeleteRequest, Put, ReturnValue, ReturnValuesOnConditionCheckFailure,
    TransactWriteItem, WriteRequest,
};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use membership_core::{
    InitializeRequest, Operation, TableError, TableErrorKind, VersionRow, encoding::LAYOUT,
};
use tokio::time::sleep;

use crate::client::{Client, Inner, Item};
use crate::codec::{self, Stored};
use crate::error::{error, malformed};
use crate::keys;

/// How often a request is tried that others may be making at the same time. Each failure means that
/// another caller succeeded.
const COLLISIONS: u64 = 20;
/// How many items DynamoDB removes in one batch.
const BATCH: usize = 25;
/// How many batches are sent at once.
const BATCHES: usize = 8;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let (mut client, during) = (self.client.begin(), Operation::Initialize);
        let row = request.version_row();
        for turn in 0..COLLISIONS {
            match client.version().await {
                Ok(Some(stored)) => {
                    return codec::usable(Some(&stored), None, None, during).map(drop);
                }
                Ok(None) => {}
                // No table yet.
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                    self.client.create_table(&self.config).await?;
                    client = self.client.begin();
                    continue;
                }
                Err(e) => return Err(e),
            }
            if let Some(stray) = client.any_row().await? {
                if client.is_created_since().await? {
                    continue;
                }
                codec::usable(None, Some(&stray), None, during)?;
            }
            if client.create_cluster(&row).await? {
                tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
                return Ok(());
            }
            sleep(Duration::from_millis(5 * (turn + 1))).await;
        }
        let why = "other callers create the same table at the same time";
        Err(error(TableErrorKind::Busy, why))
    }

    /// Each request has a timeout of its own, because thousands of rows are hundreds of requests.
    ///
    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        let client = &self.client;
        let marked = match client.mark_deleting().await {
            // No table: nothing to delete.
            Err(e) if e.kind() == TableErrorKind::NotInitialized => return Ok(()),
            other => other?,
        };
        for _ in 0..COLLISIONS {
            let names = client.names().await?;
            if names.is_empty() {
                if marked {
                    client.remove_version_row().await?;
                    tracing::info!(cluster = %self.cluster, "membership table deleted");
                }
                return Ok(());
            }
            // No cluster can be created while the mark exists, so what was listed before belongs to
            // the deleted one. Without the mark another caller has finished the deletion, and the
            // items belong to a new cluster.
            let version = client.version().await?;
            if version.is_some_and(|version| !version.deleting) {
                return Ok(());
            }
            let batches: Vec<Vec<Item>> = names.chunks(BATCH).map(<[Item]>::to_vec).collect();
            stream::iter(batches)
                .map(|keys| client.remove(keys))
                .buffer_unordered(BATCHES)
                .try_collect::<()>()
                .await?;
        }
        let why = "somebody writes to the cluster that is being deleted";
        Err(error(TableErrorKind::Busy, why))
    }
}

impl Client {
    /// Writes the version row of a new cluster, and empties its cell; false where another caller
    /// was faster.
    async fn create_cluster(&self, row: &VersionRow) -> Result<bool, TableError> {
        let mut version = codec::initial(row);
        version.extend(self.key(keys::VERSION_ROW));
        let version = Put::builder()
            .table_name(&self.table)
            .set_item(Some(version))
            .condition_expression("attribute_not_exists(#item)")
            .expression_attribute_names("#item", keys::ITEM);
        let mut cell = self.key(keys::CELL);
        cell.insert(keys::SINCE.to_owned(), codec::number(row.version));
        let cell = Put::builder().table_name(&self.table).set_item(Some(cell));
        let mut items = Vec::new();
        for put in [version, cell] {
            let put = put.build().map_err(malformed)?;
            items.push(TransactWriteItem::builder().put(put).build());
        }
        let request = || {
            let request = self.sdk().transact_write_items();
            request.set_transact_items(Some(items.clone())).send()
        };
        match self.send(true, request).await {
            Ok(_) => Ok(true),
            Err(failed) => match (failed.answer, failed.error.kind()) {
                (Some(TransactWriteItemsError::TransactionCanceledException(_)), _)
                | (_, TableErrorKind::Busy) => Ok(false),
                _ => Err(failed.error),
            },
        }
    }

    /// Marks the version row as being deleted; false where there is none.
    async fn mark_deleting(&self) -> Result<bool, TableError> {
        let request = || {
            self.sdk()
                .update_item()
                .table_name(&self.table)
                .set_key(Some(self.key(keys::VERSION_ROW)))
                .update_expression("SET #deleting = :yes")
                // Foreign items and newer layouts have other attributes.
                .condition_expression("#min_layout <= :layout")
                .expression_attribute_names("#deleting", "deleting")
                .expression_attribute_names("#min_layout", "min_layout")
                .expression_attribute_values(":yes", AttributeValue::Bool(true))
                .expression_attribute_values(":layout", codec::number(LAYOUT))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .return_values(ReturnValue::AllNew)
                .send()
        };
        match self.send(true, request).await {
            Ok(answer) => Ok(answer.attributes.is_some()),
            Err(failed) => match failed.answer {
                Some(UpdateItemError::ConditionalCheckFailedException(why)) => {
                    let Some(item) = why.item.filter(|item| !item.is_empty()) else {
                        return Ok(false);
                    };
                    codec::any_version(&Stored::new(&item))?;
                    let why = "the version row changed meanwhile";
                    Err(error(TableErrorKind::Busy, why))
                }
                _ => Err(failed.error),
            },
        }
    }

    /// The keys of all items of the cluster but the version row.
    async fn names(&self) -> Result<Vec<Item>, TableError> {
        let query = self
            .select("#cluster = :cluster", &[])
            .projection_expression("#cluster, #item")
            .expression_attribute_names("#item", keys::ITEM);
        let version_row = codec::text(keys::VERSION_ROW);
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let request = || query.clone().set_exclusive_start_key(after.clone()).send();
            let page = self.send(false, request).await?;
            let mut items = page.items.unwrap_or_default();
            items.retain(|item| item.get(keys::ITEM) != Some(&version_row));
            all.append(&mut items);
            after = page.last_evaluated_key.filter(|key| !key.is_empty());
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Removes one batch of items.
    async fn remove(&self, keys: Vec<Item>) -> Result<(), TableError> {
        let mut left = Vec::with_capacity(keys.len());
        for key in keys {
            let delete = DeleteRequest::builder().set_key(Some(key)).build();
            let delete = delete.map_err(malformed)?;
            left.push(WriteRequest::builder().delete_request(delete).build());
        }
        for turn in 0..COLLISIONS {
            let request = || {
                let write = self.sdk().batch_write_item();
                write.request_items(&self.table, left.clone()).send()
            };
            let answer = self.send(true, request).await?;
            let unprocessed = answer.unprocessed_items.unwrap_or_default();
            left = unprocessed.into_values().flatten().collect();
            if left.is_empty() {
                return Ok(());
            }
            sleep(Duration::from_millis(10 * (turn + 1))).await;
        }
        let why = format!("{} keeps leaving out items of a batch", self.endpoint);
        Err(error(TableErrorKind::Busy, why))
    }

    /// Removes the marked version row, unless another caller has, and perhaps created a new one.
    async fn remove_version_row(&self) -> Result<(), TableError> {
        let request = || {
            self.sdk()
                .delete_item()
                .table_name(&self.table)
                .set_key(Some(self.key(keys::VERSION_ROW)))
                .condition_expression("attribute_exists(#deleting)")
                .expression_attribute_names("#deleting", "deleting")
                .send()
        };
        match self.send(true, request).await {
            Ok(_) => Ok(()),
            Err(failed) => match failed.answer {
                Some(DeleteItemError::ConditionalCheckFailedException(_)) => Ok(()),
                _ => Err(failed.error),
            },
        }
    }
}
