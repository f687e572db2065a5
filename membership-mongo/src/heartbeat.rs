//! `update_i_am_alive`: one update of the document of heartbeats.

use membership_core::{HeartbeatWrite, TableError};
use mongodb::bson::Document;

use crate::client::{ATTEMPTS, Inner};
use crate::codec;
use crate::commands::Want;
use crate::error::changed_each_time;

impl Inner {
    /// # Errors
    /// As
    /// [`MembershipTable::update_i_am_alive`](membership_core::MembershipTable::update_i_am_alive).
    pub(crate) async fn heartbeat(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        for _ in 0..ATTEMPTS {
            if self.write(self.command(write, None)).await?.checked()? > 0 {
                return Ok(());
            }
            // There is no document to write to: the table is missing, or the document was removed.
            let table = self
                .find(Want::All { heartbeats: false }, true)
                .await?
                .table;
            let row = self.usable(table.as_ref(), None)?;
            let created = codec::marks(Some(&row.table_id.to_string()));
            let written = self.write(self.command(write, Some(created))).await?;
            // Another client may create it at the same moment.
            if written.duplicate().is_none() {
                return written.checked().map(drop);
            }
        }
        Err(changed_each_time())
    }

    /// The update; `created` are the fields that a missing document is created with.
    fn command(&self, write: &HeartbeatWrite, created: Option<Document>) -> Document {
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let value = codec::heartbeat_value(heartbeat);
                self.commands.heartbeat(&silo.row_key(), value, created)
            }
            HeartbeatWrite::Cluster { text } => self.commands.cell(text, created),
        }
    }
}
