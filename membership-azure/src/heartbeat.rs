//! Heartbeats and the cluster's cell: entities of their own, with any ETag. Clauses T7, T8.

use membership_core::{HeartbeatWrite, TableError, TableErrorKind};

use crate::client::Inner;
use crate::codec;
use crate::error::error;
use crate::keys;
use crate::requests::Single;

impl Inner {
    /// # Errors
    /// As
    /// [`MembershipTable::update_i_am_alive`](membership_core::MembershipTable::update_i_am_alive).
    pub(crate) async fn heartbeat(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let (client, partition) = (&self.client, &self.partition);
        let deadline = client.deadline();
        let (row_key, properties) = match write {
            HeartbeatWrite::Cluster { text } => {
                (keys::CELL.to_owned(), codec::cell_properties(text))
            }
            HeartbeatWrite::Silo { silo, heartbeat } => (
                keys::heartbeat(&keys::row_key(&silo.row_key())),
                codec::heartbeat_properties(heartbeat),
            ),
        };
        let not_initialized = |why| Err(error(TableErrorKind::NotInitialized, why));
        let written = client.merge(deadline, partition, &row_key, &properties, Some("*"));
        match written.await? {
            Single::Done(_) => return Ok(()),
            Single::NoTable => return not_initialized("there is no such table"),
            Single::Missing | Single::Stale => {}
        }
        // The entity is created and removed with the row; only a removal by hand leaves the row
        // without it.
        let HeartbeatWrite::Silo { silo, .. } = write else {
            return not_initialized("there is no such cluster");
        };
        let no_row = || {
            let e = error(TableErrorKind::NoSuchRow, "the silo has no row");
            Err(e.with_key(silo.row_key()))
        };
        if self.read_row(silo, None).await?.row.is_none() {
            return no_row();
        }
        let created = client.merge(deadline, partition, &row_key, &properties, None);
        match created.await? {
            Single::Done(_) => Ok(()),
            Single::NoTable => not_initialized("there is no such table"),
            Single::Missing | Single::Stale => no_row(),
        }
    }
}
