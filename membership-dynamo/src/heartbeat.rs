//! Heartbeats and the cluster's cell: one attribute of an item that exists. Clauses T7, T8.

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use membership_core::{HeartbeatWrite, Operation, TableError, TableErrorKind};

use crate::client::{Client, Inner};
use crate::codec;
use crate::error::error;
use crate::keys;

impl Inner {
    /// # Errors
    /// As
    /// [`MembershipTable::update_i_am_alive`](membership_core::MembershipTable::update_i_am_alive).
    pub(crate) async fn heartbeat(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let operation = self.begin();
        let (name, attribute, text) = match write {
            HeartbeatWrite::Silo { silo, heartbeat } => (
                keys::heartbeat(&silo.row_key()),
                keys::HEARTBEAT_TEXT,
                heartbeat.to_string(),
            ),
            HeartbeatWrite::Cluster { text } => (keys::CELL.to_owned(), keys::TEXT, text.clone()),
        };
        if operation
            .client
            .overwrite(&name, attribute, &text, true)
            .await?
        {
            return Ok(());
        }
        // The item is created and removed with its row or cluster; only a removal by hand leaves
        // them without it.
        match write {
            HeartbeatWrite::Silo { silo, .. } => {
                let read = operation.read_row(silo, None).await;
                if read.map_err(TableError::of_a_read)?.row.is_none() {
                    let no_row = error(TableErrorKind::NoSuchRow, "the silo has no row");
                    return Err(no_row.with_key(silo.row_key()));
                }
            }
            HeartbeatWrite::Cluster { .. } => {
                let stored = operation.client.version().await;
                let stored = stored.map_err(TableError::of_a_read)?;
                codec::usable(stored.as_ref(), None, None, Operation::UpdateIAmAlive)?;
            }
        }
        let created = operation
            .client
            .overwrite(&name, attribute, &text, false)
            .await;
        created.map(drop)
    }
}

impl Client {
    /// Overwrites one attribute of an item; false where there is no such item.
    async fn overwrite(
        &self,
        name: &str,
        attribute: &str,
        text: &str,
        must_exist: bool,
    ) -> Result<bool, TableError> {
        let request = || {
            let update = self
                .sdk()
                .update_item()
                .table_name(&self.table)
                .set_key(Some(self.key(name)))
                .update_expression("SET #it = :it")
                .expression_attribute_names("#it", attribute)
                .expression_attribute_values(":it", codec::text(text));
            match must_exist {
                true => update
                    .condition_expression("attribute_exists(#item)")
                    .expression_attribute_names("#item", keys::ITEM)
                    .send(),
                false => update.send(),
            }
        };
        match self.send(true, request).await {
            Ok(_) => Ok(true),
            Err(failed) => match failed.answer {
                Some(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(false),
                _ => Err(failed.error),
            },
        }
    }
}
