//! The DynamoDB table that holds the clusters: its definition, inspecting it, creating it.

use std::time::Duration;

use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ProvisionedThroughput,
    ScalarAttributeType, TableDescription, TableStatus,
};
use membership_core::{TableError, TableErrorKind};
use tokio::time::{Instant, sleep};

use crate::client::{Client, Inner};
use crate::config::{DynamoConfig, wrong};
use crate::error::{error, malformed};
use crate::keys;

/// How often a new table is inspected while DynamoDB creates it.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The state of the table.
enum TableState {
    Missing,
    /// It is still being created, or deleted.
    NotReady,
    Ready,
}

impl DynamoConfig {
    /// The definition of the table, for people who create it themselves: the input of
    /// `aws dynamodb create-table --cli-input-json`.
    #[must_use]
    pub fn schema(&self) -> String {
        let billing = match self.capacity {
            None => "\"BillingMode\": \"PAY_PER_REQUEST\"".to_owned(),
            Some((read, write)) => format!(
                "\"BillingMode\": \"PROVISIONED\",\n  \"ProvisionedThroughput\": {{ \"ReadCapacityUnits\": {read}, \"WriteCapacityUnits\": {write} }}"
            ),
        };
        format!(
            "{{\n  \"TableName\": \"{}\",\n  {billing},\n  \"AttributeDefinitions\": [\n    \
             {{ \"AttributeName\": \"cluster\", \"AttributeType\": \"S\" }},\n    \
             {{ \"AttributeName\": \"item\", \"AttributeType\": \"S\" }}\n  ],\n  \"KeySchema\": [\n    \
             {{ \"AttributeName\": \"cluster\", \"KeyType\": \"HASH\" }},\n    \
             {{ \"AttributeName\": \"item\", \"KeyType\": \"RANGE\" }}\n  ]\n}}\n",
            self.table
        )
    }
}

impl Inner {
    /// Refuses a table that cannot be used. A missing one can be created later.
    pub(crate) async fn inspect(&self) -> Result<(), TableError> {
        match self.client.inspect().await {
            Ok(_) => Ok(()),
            // Those who may use a table need not be allowed to describe it, and DynamoDB limits how
            // many do so at once.
            Err(e)
                if e.kind() == TableErrorKind::Busy
                    || e.kind() == TableErrorKind::PermissionDenied
                        && e.to_string().contains("AccessDenied") =>
            {
                tracing::debug!(error = %e, "the table could not be inspected");
                Ok(())
            }
            Err(e) => Err(e),
        }
    }
}

impl Client {
    /// Inspects the table without changing it.
    ///
    /// # Errors
    /// `ForeignTable` where it has other keys, `Configuration` where it is replicated, or the error
    /// of the store.
    async fn inspect(&self) -> Result<TableState, TableError> {
        let request = || self.sdk().describe_table().table_name(&self.table).send();
        match self.send(false, request).await {
            Ok(answer) => match answer.table {
                Some(table) => self.state_of(&table),
                None => Ok(TableState::Missing),
            },
            Err(failed) => match failed.answer {
                Some(DescribeTableError::ResourceNotFoundException(_)) => Ok(TableState::Missing),
                _ => Err(failed.error),
            },
        }
    }

    fn state_of(&self, table: &TableDescription) -> Result<TableState, TableError> {
        let key_of = |key: &KeySchemaElement| (key.attribute_name.clone(), key.key_type.clone());
        let found = table.key_schema().iter().map(key_of);
        let due = [
            (keys::CLUSTER.to_owned(), KeyType::Hash),
            (keys::ITEM.to_owned(), KeyType::Range),
        ];
        let is_text = |name: &str| {
            let mut types = table.attribute_definitions().iter();
            types.any(|a| a.attribute_name == name && a.attribute_type == ScalarAttributeType::S)
        };
        if !found.eq(due) || !is_text(keys::CLUSTER) || !is_text(keys::ITEM) {
            let why = format!(
                "the table `{}` has other keys than ours (`cluster` and `item`, both texts): name another table",
                self.table
            );
            return Err(error(TableErrorKind::ForeignTable, why));
        }
        if !table.replicas().is_empty() {
            return Err(wrong(format!(
                "the table `{}` is a global table, whose regions accept conflicting commits or refuse transactions: use a table of one region",
                self.table
            )));
        }
        Ok(match table.table_status() {
            Some(TableStatus::Creating | TableStatus::Deleting) => TableState::NotReady,
            _ => TableState::Ready,
        })
    }

    /// Creates the table if there is none, and returns when it can be used. Many may call it at the
    /// same time.
    pub(crate) async fn create_table(&self, config: &DynamoConfig) -> Result<(), TableError> {
        let deadline = Instant::now() + config.create_timeout;
        loop {
            let busy = match self.inspect().await? {
                TableState::Ready => return Ok(()),
                TableState::NotReady => None,
                TableState::Missing if !config.create => {
                    let schema = config.schema();
                    let schema: Vec<&str> = schema.split_whitespace().collect();
                    return Err(wrong(format!(
                        "there is no table `{}` at {}, and create=false: create it with `aws dynamodb create-table --cli-input-json` and {}",
                        self.table,
                        self.endpoint,
                        schema.join(" ")
                    )));
                }
                TableState::Missing => self.request_table(config.capacity).await?,
            };
            if Instant::now() > deadline {
                let (table, timeout) = (&self.table, config.create_timeout);
                let why = format!("the table `{table}` is not ready within {timeout:?}");
                return Err(busy.unwrap_or_else(|| error(TableErrorKind::Unavailable, why)));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Requests the table. An error in the answer means that the request may be sent again.
    async fn request_table(
        &self,
        capacity: Option<(u32, u32)>,
    ) -> Result<Option<TableError>, TableError> {
        let mut create = self.sdk().create_table().table_name(&self.table);
        for (name, kind) in [(keys::CLUSTER, KeyType::Hash), (keys::ITEM, KeyType::Range)] {
            let attribute = AttributeDefinition::builder().attribute_name(name);
            let attribute = attribute.attribute_type(ScalarAttributeType::S).build();
            let key = KeySchemaElement::builder().attribute_name(name);
            let key = key.key_type(kind).build();
            create = create
                .attribute_definitions(attribute.map_err(malformed)?)
                .key_schema(key.map_err(malformed)?);
        }
        create = match capacity {
            None => create.billing_mode(BillingMode::PayPerRequest),
            Some((read, write)) => {
                let units = ProvisionedThroughput::builder()
                    .read_capacity_units(read.into())
                    .write_capacity_units(write.into())
                    .build();
                create
                    .billing_mode(BillingMode::Provisioned)
                    .provisioned_throughput(units.map_err(malformed)?)
            }
        };
        match self.send(true, || create.clone().send()).await {
            Ok(_) => {
                let (table, endpoint) = (&self.table, &self.endpoint);
                tracing::info!(table, endpoint, "DynamoDB table created");
                Ok(None)
            }
            Err(failed) => match (failed.answer, failed.error.kind()) {
                // Another caller was faster.
                (Some(CreateTableError::ResourceInUseException(_)), _) => Ok(None),
                (_, TableErrorKind::Busy) => Ok(Some(failed.error)),
                _ => Err(failed.error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_json() {
        for config in [
            DynamoConfig::new("silos"),
            DynamoConfig::new("silos").provisioned(3, 4),
        ] {
            let text = config.schema();
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["TableName"], "silos", "{text}");
            assert_eq!(value["KeySchema"][1]["AttributeName"], "item", "{text}");
            assert_eq!(
                value["ProvisionedThroughput"]["WriteCapacityUnits"].as_u64(),
                config.capacity.map(|(_, write)| write.into())
            );
        }
    }
}
