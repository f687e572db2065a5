//! The table itself, and the beginning and the end of a cluster in it. Clauses T1, T8, T12.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, DeleteRequest, KeySchemaElement, KeyType,
    MultiRegionConsistency, ProvisionedThroughput, Put, ReturnValuesOnConditionCheckFailure,
    ScalarAttributeType, TableDescription, TableStatus, TransactWriteItem, WriteRequest,
};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use membership_core::{
    InitializeRequest, Operation, TableError, TableErrorKind, VersionRow, encoding::LAYOUT,
};
use tokio::time::{Instant, sleep};

use crate::codec;
use crate::config::{DynamoConfig, wrong};
use crate::error::error;
use crate::link::{Item, Link};
use crate::read::malformed;
use crate::table::Inner;

/// How often a new table is looked at while it is being made.
const LOOK: Duration = Duration::from_millis(250);
/// How often something is tried that others do at the same time; each failure is somebody's progress.
const COLLISIONS: u64 = 20;
/// What DynamoDB removes in one batch.
const BATCH: usize = 25;
/// Batches at once.
const BATCHES: usize = 8;

/// What there is under the table's name.
pub(crate) enum Found {
    /// Nothing.
    None,
    /// A table of our kind that is still being made, or changed in a way in which it serves nobody.
    Unready,
    /// A table of our kind.
    Ready,
}

impl Link {
    /// Looks at the table without touching it.
    ///
    /// # Errors
    /// `ForeignTable` where it has other keys, `Configuration` where it is replicated, or what the store says.
    pub(crate) async fn look(&self) -> Result<Found, TableError> {
        match self
            .ask(false, || {
                self.client.describe_table().table_name(&self.table).send()
            })
            .await
        {
            Ok(answer) => answer
                .table
                .map_or(Ok(Found::None), |table| self.fits(&table)),
            Err(failed) => match failed.answer {
                Some(DescribeTableError::ResourceNotFoundException(_)) => Ok(Found::None),
                _ => Err(failed.error),
            },
        }
    }

    fn fits(&self, table: &TableDescription) -> Result<Found, TableError> {
        let keys = table
            .key_schema()
            .iter()
            .map(|key| (key.attribute_name(), key.key_type()));
        let types = table.attribute_definitions();
        let is_text = |name: &str| {
            types.iter().any(|a| {
                a.attribute_name() == name && *a.attribute_type() == ScalarAttributeType::S
            })
        };
        let due = [
            (codec::CLUSTER, &KeyType::Hash),
            (codec::ITEM, &KeyType::Range),
        ];
        if !keys.eq(due) || !is_text(codec::CLUSTER) || !is_text(codec::ITEM) {
            let message = format!(
                "the table `{}` has other keys than ours (`cluster` and `item`, both texts): name another table",
                self.table
            );
            return Err(error(TableErrorKind::ForeignTable, message));
        }
        if !table.replicas().is_empty()
            && table.multi_region_consistency() != Some(&MultiRegionConsistency::Strong)
        {
            let message = format!(
                "the table `{}` is a global table: its regions accept conflicting commits; use one of its own",
                self.table
            );
            return Err(wrong(message));
        }
        Ok(match table.table_status() {
            Some(TableStatus::Creating | TableStatus::Deleting) => Found::Unready,
            _ => Found::Ready,
        })
    }

    /// Makes the table if there is none, and returns when it can be used. Anybody may do so at the same time.
    async fn prepare(&self, config: &DynamoConfig) -> Result<(), TableError> {
        let deadline = Instant::now() + config.creating();
        loop {
            let busy = match self.look().await? {
                Found::Ready => return Ok(()),
                Found::Unready => None,
                Found::None if !config.may_create() => {
                    let table = &self.table;
                    let message = format!(
                        "there is no table `{table}` at {}, and create=false: make it with `aws dynamodb create-table --cli-input-json` and {}",
                        self.at,
                        config
                            .definition()
                            .split_whitespace()
                            .collect::<Vec<_>>()
                            .join(" ")
                    );
                    return Err(wrong(message));
                }
                Found::None => self.create(config.capacity()).await?,
            };
            if Instant::now() > deadline {
                let message = format!(
                    "the table `{}` is not ready within {:?}",
                    self.table,
                    config.creating()
                );
                return Err(busy.unwrap_or_else(|| error(TableErrorKind::Unavailable, message)));
            }
            sleep(LOOK).await;
        }
    }

    /// Asks for the table; an error is given where it may be asked for again.
    async fn create(&self, capacity: Option<(u32, u32)>) -> Result<Option<TableError>, TableError> {
        let mut attributes = Vec::new();
        let mut keys = Vec::new();
        for (name, kind) in [
            (codec::CLUSTER, KeyType::Hash),
            (codec::ITEM, KeyType::Range),
        ] {
            let attribute = AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::S);
            attributes.push(attribute.build().map_err(malformed)?);
            keys.push(
                KeySchemaElement::builder()
                    .attribute_name(name)
                    .key_type(kind)
                    .build()
                    .map_err(malformed)?,
            );
        }
        let billing = match capacity {
            None => (BillingMode::PayPerRequest, None),
            Some((read, write)) => {
                let units = ProvisionedThroughput::builder()
                    .read_capacity_units(read.into())
                    .write_capacity_units(write.into());
                (
                    BillingMode::Provisioned,
                    Some(units.build().map_err(malformed)?),
                )
            }
        };
        let request = || {
            let create = self
                .client
                .create_table()
                .table_name(&self.table)
                .billing_mode(billing.0.clone());
            let create = create
                .set_attribute_definitions(Some(attributes.clone()))
                .set_key_schema(Some(keys.clone()));
            create.set_provisioned_throughput(billing.1.clone()).send()
        };
        match self.ask(true, request).await {
            Ok(_) => {
                tracing::info!(table = self.table, at = self.at, "DynamoDB table created");
                Ok(None)
            }
            Err(failed) => match (failed.answer, failed.error.kind()) {
                // Somebody else was faster.
                (Some(CreateTableError::ResourceInUseException(_)), _) => Ok(None),
                (_, TableErrorKind::Busy) => Ok(Some(failed.error)),
                _ => Err(failed.error),
            },
        }
    }

    /// The names of all items of the cluster but the version row.
    async fn names(&self) -> Result<Vec<Item>, TableError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let request = || {
                let query = self
                    .client
                    .query()
                    .table_name(&self.table)
                    .consistent_read(true)
                    .projection_expression("#cluster, #item");
                query
                    .key_condition_expression("#cluster = :cluster")
                    .expression_attribute_names("#cluster", codec::CLUSTER)
                    .expression_attribute_names("#item", codec::ITEM)
                    .expression_attribute_values(":cluster", codec::text(&self.cluster))
                    .set_exclusive_start_key(after.clone())
                    .send()
            };
            let page = self
                .ask(false, request)
                .await
                .map_err(|failed| failed.error)?;
            let version_row = codec::text(codec::VERSION_ROW);
            all.extend(
                page.items
                    .unwrap_or_default()
                    .into_iter()
                    .filter(|item| item.get(codec::ITEM) != Some(&version_row)),
            );
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
            let delete = DeleteRequest::builder()
                .set_key(Some(key))
                .build()
                .map_err(malformed)?;
            left.push(WriteRequest::builder().delete_request(delete).build());
        }
        for turn in 0..COLLISIONS {
            let request = || {
                self.client
                    .batch_write_item()
                    .request_items(&self.table, left.clone())
                    .send()
            };
            let answer = self
                .ask(true, request)
                .await
                .map_err(|failed| failed.error)?;
            left = answer
                .unprocessed_items
                .unwrap_or_default()
                .into_values()
                .flatten()
                .collect();
            if left.is_empty() {
                return Ok(());
            }
            sleep(Duration::from_millis(10 * (turn + 1))).await;
        }
        Err(error(
            TableErrorKind::Busy,
            format!(
                "{} removes less than it is asked to, again and again",
                self.at
            ),
        ))
    }

    /// Marks the version row; gives what it is then, none where there is none.
    async fn mark(&self) -> Result<Option<codec::Stored>, TableError> {
        let key = self.key(codec::VERSION_ROW);
        let request = || {
            let mark = self
                .client
                .update_item()
                .table_name(&self.table)
                .set_key(Some(key.clone()))
                .update_expression("SET #deleting = :yes");
            // What is not ours, or newer than this build, has other attributes.
            let mark = mark.condition_expression("#min_layout <= :layout");
            mark.expression_attribute_names("#deleting", "deleting")
                .expression_attribute_names("#min_layout", "min_layout")
                .expression_attribute_values(":yes", AttributeValue::Bool(true))
                .expression_attribute_values(":layout", codec::number(LAYOUT))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .return_values(aws_sdk_dynamodb::types::ReturnValue::AllNew)
                .send()
        };
        match self.ask(true, request).await {
            Ok(answer) => Ok(answer.attributes.as_ref().map(codec::Stored::new)),
            Err(failed) => match failed.answer {
                Some(UpdateItemError::ConditionalCheckFailedException(why)) => {
                    let Some(item) = why.item.filter(|item| !item.is_empty()) else {
                        return Ok(None);
                    };
                    match codec::any_version(&codec::Stored::new(&item)) {
                        Err(e) => Err(e),
                        Ok(_) => Err(error(
                            TableErrorKind::Busy,
                            "the version row changed meanwhile",
                        )),
                    }
                }
                _ => Err(failed.error),
            },
        }
    }

    /// Removes the marked version row, unless somebody else has, and perhaps made another one since.
    async fn unmark(&self) -> Result<(), TableError> {
        let key = self.key(codec::VERSION_ROW);
        let request = || {
            let delete = self
                .client
                .delete_item()
                .table_name(&self.table)
                .set_key(Some(key.clone()));
            delete
                .condition_expression("attribute_exists(#deleting)")
                .expression_attribute_names("#deleting", "deleting")
                .send()
        };
        match self.ask(true, request).await {
            Ok(_) => Ok(()),
            Err(failed) => match failed.answer {
                Some(DeleteItemError::ConditionalCheckFailedException(_)) => Ok(()),
                _ => Err(failed.error),
            },
        }
    }

    /// Writes the version row of a new cluster, and empties its cell; false where something was in the way.
    async fn begin(&self, row: &VersionRow) -> Result<bool, TableError> {
        let mut version = codec::initial(row)?;
        version.extend(self.key(codec::VERSION_ROW));
        let version = Put::builder()
            .table_name(&self.table)
            .set_item(Some(version))
            .condition_expression("attribute_not_exists(#item)");
        let version = version
            .expression_attribute_names("#item", codec::ITEM)
            .build()
            .map_err(malformed)?;
        let mut cell = self.key(codec::CELL);
        cell.insert(codec::SINCE.to_owned(), codec::number(row.version));
        let cell = Put::builder()
            .table_name(&self.table)
            .set_item(Some(cell))
            .build()
            .map_err(malformed)?;
        let items = [version, cell].map(|put| TransactWriteItem::builder().put(put).build());
        let request = || {
            self.client
                .transact_write_items()
                .set_transact_items(Some(items.to_vec()))
                .send()
        };
        match self.ask(true, request).await {
            Ok(_) => Ok(true),
            Err(failed) => match (failed.answer, failed.error.kind()) {
                (Some(TransactWriteItemsError::TransactionCanceledException(_)), _)
                | (_, TableErrorKind::Busy) => Ok(false),
                _ => Err(failed.error),
            },
        }
    }
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let row = VersionRow::initial(request.table_id, request.settings.clone());
        for turn in 0..COLLISIONS {
            match self.link.version().await {
                Ok(Some(stored)) => {
                    return codec::usable(Some(&stored), None, None, Operation::Initialize)
                        .map(drop);
                }
                Ok(None) => {}
                // No table yet.
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                    self.link.prepare(&self.config).await?;
                    continue;
                }
                Err(e) => return Err(e),
            }
            if let Some(stray) = self.link.any_row().await? {
                if self.link.is_founded_since().await? {
                    continue;
                }
                codec::usable(None, Some(&stray), None, Operation::Initialize)?;
            }
            if self.link.begin(&row).await? {
                tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
                return Ok(());
            }
            sleep(Duration::from_millis(5 * (turn + 1))).await;
        }
        Err(error(
            TableErrorKind::Busy,
            "others make the same table at the same time",
        ))
    }

    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        let marked = match self.link.mark().await {
            // No table: nothing to delete.
            Err(e) if e.kind() == TableErrorKind::NotInitialized => return Ok(()),
            other => other?.is_some(),
        };
        for _ in 0..COLLISIONS {
            let names = self.link.names().await?;
            if names.is_empty() {
                if marked {
                    self.link.unmark().await?;
                    tracing::info!(cluster = %self.cluster, "membership table deleted");
                }
                return Ok(());
            }
            // Nobody begins a cluster while the mark stands: as long as it does, what was listed before is what is to go. Otherwise somebody else
            // has finished, and what stands there now is another cluster.
            if self
                .link
                .version()
                .await?
                .is_some_and(|version| !version.deleting)
            {
                return Ok(());
            }
            let batches: Vec<Vec<Item>> = names.chunks(BATCH).map(<[Item]>::to_vec).collect();
            stream::iter(batches)
                .map(|keys| self.link.remove(keys))
                .buffer_unordered(BATCHES)
                .try_collect::<()>()
                .await?;
        }
        Err(error(
            TableErrorKind::Busy,
            "somebody writes what is being deleted",
        ))
    }
}

/// One heartbeat, or the cluster's cell: an item that exists already.
impl Link {
    /// Overwrites one attribute of an item; false where there is no such item.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn overwrite(
        &self,
        name: &str,
        attribute: &str,
        text: &str,
        must_exist: bool,
    ) -> Result<bool, TableError> {
        let key = self.key(name);
        let names = HashMap::from([("#it".to_owned(), attribute.to_owned())]);
        let request = || {
            let update = self
                .client
                .update_item()
                .table_name(&self.table)
                .set_key(Some(key.clone()))
                .update_expression("SET #it = :it");
            let update = update
                .set_expression_attribute_names(Some(names.clone()))
                .expression_attribute_values(":it", codec::text(text));
            match must_exist {
                true => update
                    .condition_expression("attribute_exists(#item)")
                    .expression_attribute_names("#item", codec::ITEM)
                    .send(),
                false => update.send(),
            }
        };
        match self.ask(true, request).await {
            Ok(_) => Ok(true),
            Err(failed) => match failed.answer {
                Some(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(false),
                _ => Err(failed.error),
            },
        }
    }
}
