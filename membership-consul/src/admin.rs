//! `initialize` and `delete`. Clauses T1, T12.

use membership_core::{InitializeRequest, TableError, TableErrorKind};

use crate::client::Inner;
use crate::codec;
use crate::error::error;
use crate::txn::{Outcome, Txn};

/// How often an operation is tried while others do the same. Each collision is another's success.
const COLLISIONS: usize = 20;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let by = self.client.deadline();
        for _ in 0..COLLISIONS {
            match self.read_all(by).await?.usable(None) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {}
                Err(e) => return Err(e),
            }
            let row = request.version_row();
            // Only one of many creates the table's own key, and with it the rest.
            let mut txn = Txn::default();
            for (key, text) in codec::initial(&self.keys, &row) {
                txn = if key == self.keys.table() {
                    txn.create(key, &text)
                } else {
                    txn.put(key, &text)
                };
            }
            if let Outcome::Done(_) = self.client.write(&txn, by).await? {
                tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
                return Ok(());
            }
        }
        Err(collisions())
    }

    /// Everything is removed at once, so nothing can be left over. The contract's mark of a
    /// deletion is never needed.
    ///
    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        use TableErrorKind::{BeingDeleted, Damaged, NotInitialized};
        let by = self.client.deadline();
        for _ in 0..COLLISIONS {
            let found = self.read_all(by).await?;
            match found.usable(None) {
                Err(e) if !matches!(e.kind(), BeingDeleted | Damaged | NotInitialized) => {
                    return Err(e);
                }
                _ => {}
            }
            if found.is_nothing() {
                return Ok(());
            }
            // A request that arrives late must not remove a table that was created since.
            let table = self.keys.table();
            let txn = match found.created() {
                Some(index) => Txn::default().unchanged(table, index),
                None => Txn::default().create(table, "{}"),
            };
            let txn = txn.remove_tree(self.keys.root().to_owned());
            if let Outcome::Done(_) = self.client.write(&txn, by).await? {
                tracing::info!(cluster = %self.cluster, "membership table deleted");
                return Ok(());
            }
        }
        Err(collisions())
    }
}

fn collisions() -> TableError {
    error(
        TableErrorKind::Busy,
        "others create and delete the table at the same time",
    )
}
