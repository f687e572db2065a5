//! `initialize` and `delete`.

use membership_core::{InitializeRequest, TableError, TableErrorKind as Kind};
use mongodb::bson::Bson;

use crate::client::{ATTEMPTS, Inner};
use crate::codec;
use crate::commands::Want;
use crate::error::{changed_each_time, error};
use crate::read::Found;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let commands = &self.commands;
        for _ in 0..ATTEMPTS {
            let found = self.find(Want::All { heartbeats: false }, true).await?;
            if let Some(table) = &found.table {
                return self.usable(Some(table), None).map(drop);
            }
            let foreign = self
                .find_with(true, |concern| commands.foreign_document(concern))
                .await?;
            let foreign = foreign
                .get_document("cursor")
                .and_then(|c| c.get_array("firstBatch"));
            if !foreign.is_ok_and(Vec::is_empty) {
                let message = format!(
                    "the collection `{}` holds documents that are not ours: use another one",
                    commands.collection
                );
                return Err(error(Kind::ForeignTable, message));
            }
            let row = request.version_row();
            let table = codec::new_table(&commands.keys.table, &row)?;
            let id = request.table_id.to_string();
            let heartbeats = codec::new_heartbeats(&commands.keys.heartbeats, &id);
            let insert = commands.insert(vec![table, heartbeats.clone()]);
            let created = self.write(insert).await?;
            match created.duplicate() {
                // Another client was first: check its table like any other.
                Some(0) => continue,
                // Heartbeats of a table that is gone.
                Some(1) => drop(self.write(commands.replace_heartbeats(heartbeats)).await?),
                _ => drop(created.checked()?),
            }
            tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
            return Ok(());
        }
        Err(changed_each_time())
    }

    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        let commands = &self.commands;
        for _ in 0..ATTEMPTS {
            let Found { table, heartbeats } =
                self.find(Want::All { heartbeats: true }, true).await?;
            let heartbeats_of = heartbeats
                .as_ref()
                .and_then(|document| document.get("table_id"));
            let Some(table) = table else {
                if heartbeats.is_some() {
                    self.write(commands.remove_heartbeats(heartbeats_of))
                        .await?
                        .checked()?;
                }
                return Ok(());
            };
            let mut version_row = table.version_row.clone();
            match self.usable(Some(&table), None) {
                Err(e) if matches!(e.kind(), Kind::ForeignTable | Kind::NewerLayout) => {
                    return Err(e);
                }
                // No version row, or one that cannot be read: no client can use the table, and
                // nothing needs the mark.
                Err(_) => {}
                Ok(row) => {
                    if self.write(commands.mark_deleting(&row)).await?.checked()? == 0 {
                        continue;
                    }
                    // As the server has it now: a new field comes last.
                    if let Some(Bson::Document(row)) = &mut version_row {
                        row.insert("deleting", true);
                    }
                }
            }
            let remove = commands.remove(version_row.as_ref(), heartbeats_of);
            if self.write(remove).await?.checked()? == 1 + i64::from(heartbeats.is_some()) {
                tracing::info!(cluster = %self.cluster, "membership table deleted");
                return Ok(());
            }
        }
        Err(changed_each_time())
    }
}
