//! The beginning and the end of a cluster. Clauses T1, T12.

use membership_core::{InitializeRequest, Operation, TableError, TableErrorKind, VersionRow};

use crate::codec;
use crate::error::error;
use crate::table::Inner;
use crate::txn::{Done, Txn};

/// How often something is tried that others do at the same time; each failure is somebody's progress.
const COLLISIONS: usize = 20;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let by = self.link.deadline();
        for _ in 0..COLLISIONS {
            match self
                .everything(by)
                .await?
                .usable(None, Operation::Initialize)
            {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {}
                Err(e) => return Err(e),
            }
            let row = VersionRow::initial(request.table_id, request.settings.clone());
            // Only one of many makes the table's own key, and with it the rest.
            let mut txn = Txn::default();
            for (key, text) in codec::parts(&self.keys, &row)? {
                let text = text.as_str().unwrap_or_default();
                txn = if key == self.keys.table() {
                    txn.make(key, text)
                } else {
                    txn.put(key, text)
                };
            }
            if let Done::All(_) = self.link.write(&txn, by).await? {
                tracing::info!(cluster = %self.cluster, at = self.link.at(), "table made");
                return Ok(());
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "the table is made and removed, again and again",
        )
        .at(self.link.at()))
    }

    /// All of it goes at once, so that nothing can be left over; the contract's mark of a deletion that was begun is never needed.
    ///
    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        use TableErrorKind::{BeingDeleted, Damaged, NotInitialized};
        let by = self.link.deadline();
        for _ in 0..COLLISIONS {
            let found = self.everything(by).await?;
            match found.usable(None, Operation::Delete) {
                Err(e) if !matches!(e.kind(), BeingDeleted | Damaged | NotInitialized) => {
                    return Err(e);
                }
                _ => {}
            }
            if found.is_nothing() {
                return Ok(());
            }
            // A request that arrives late must not remove the table that somebody has made meanwhile.
            let table = self.keys.table();
            let txn = match found.since() {
                Some(index) => Txn::default().unchanged(table, index),
                None => Txn::default().make(table, "{}"),
            };
            if let Done::All(_) = self
                .link
                .write(&txn.remove_tree(self.keys.root().to_owned()), by)
                .await?
            {
                tracing::info!(cluster = %self.cluster, at = self.link.at(), "table removed");
                return Ok(());
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "the table is made and removed, again and again",
        )
        .at(self.link.at()))
    }
}
