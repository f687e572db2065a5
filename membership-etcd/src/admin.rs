//! `initialize` and `delete`. Clauses T1, T12.

use membership_core::{InitializeRequest, TableError, TableErrorKind};
use membership_provider::json;

use crate::client::{Inner, Purpose};
use crate::codec;
use crate::error::error;
use crate::wire::{Compare, Op, Txn};

/// How often a deletion starts again because of a commit at the same time.
const DELETIONS: usize = 16;

impl Inner {
    /// One transaction.
    ///
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let keys = &self.keys;
        let row = request.version_row();
        let txn = Txn {
            compare: vec![
                Compare::is_absent(keys.version()),
                Compare::are_absent(keys.rows()),
            ],
            // What an earlier table of this cluster left behind is removed.
            success: vec![
                Op::delete_all(keys.recent_commits()),
                Op::delete_all(keys.heartbeats()),
                Op::put(keys.version(), codec::version_text(&row)),
                Op::put(keys.settings(), json(&row.settings)),
                Op::put(keys.core(), row.core.stored()),
            ],
            failure: vec![Op::range(keys.table()), Op::first(keys.rows())],
        };
        let by = self.client.deadline();
        let (created, found) = self.transact(&txn, Purpose::Write, by).await?;
        if created {
            tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
            return Ok(());
        }
        found.usable(None).map(drop)
    }

    /// A read and a transaction that removes everything at once: no client sees a half-deleted
    /// cluster, and no mark is needed.
    ///
    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        let keys = &self.keys;
        let read = Txn {
            success: vec![Op::range(keys.table())],
            ..Txn::default()
        };
        let by = self.client.deadline();
        for _ in 0..DELETIONS {
            let (_, found) = self.transact(&read, Purpose::Read, by).await?;
            let revision = match &found.version {
                // A damaged version row may be deleted; another program's table may not.
                Some(stored) => match stored.any() {
                    Err(e) if e.kind() != TableErrorKind::Damaged => return Err(e),
                    _ => stored.revision,
                },
                None => 0,
            };
            let txn = Txn {
                compare: vec![Compare::is_of(keys.version(), revision)],
                success: [keys.table(), keys.rows(), keys.heartbeats()]
                    .map(Op::delete_all)
                    .into(),
                failure: vec![],
            };
            if self.transact(&txn, Purpose::Write, by).await?.0 {
                if revision > 0 {
                    tracing::info!(cluster = %self.cluster, "membership table deleted");
                }
                return Ok(());
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "silos commit while the table is being deleted",
        ))
    }
}
