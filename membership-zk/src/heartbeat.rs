//! `update_i_am_alive`: one `setData`. Clauses T7, T8.

use membership_core::{HeartbeatWrite, SiloAddress, TableError, TableErrorKind as Kind};
use zookeeper_client::Error;

use crate::client::{Inner, Session};
use crate::error::{error, failed};

impl Inner {
    /// # Errors
    /// As
    /// [`MembershipTable::update_i_am_alive`](membership_core::MembershipTable::update_i_am_alive).
    pub(crate) async fn heartbeat(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        let session = self.client.session().await?;
        match write {
            HeartbeatWrite::Silo { silo, heartbeat } => {
                self.set_heartbeat(&session, silo, &heartbeat.to_string())
                    .await
            }
            HeartbeatWrite::Cluster { text } => self.set_cell(&session, text).await,
        }
    }

    async fn set_heartbeat(
        &self,
        session: &Session<'_>,
        silo: &SiloAddress,
        text: &str,
    ) -> Result<(), TableError> {
        let key = silo.row_key();
        let path = self.paths.heartbeat(&key);
        match session.set(&path, text.as_bytes(), None).await? {
            Err(Error::NoNode) => {}
            answer => return answer.map_err(|e| failed(e).with_key(key)),
        }
        // The row is missing, or was created by hand without a child.
        let created = session.create(&path, text.as_bytes()).await?;
        created.map_err(|e| {
            let e = match e {
                Error::NoNode => error(Kind::NoSuchRow, "the silo has no row"),
                Error::NodeExists => error(Kind::Busy, "the row was created meanwhile"),
                e => failed(e),
            };
            e.with_key(key)
        })
    }

    async fn set_cell(&self, session: &Session<'_>, text: &str) -> Result<(), TableError> {
        let path = self.paths.cell();
        match session.set(&path, text.as_bytes(), None).await? {
            Err(Error::NoNode) => {}
            answer => return answer.map_err(failed),
        }
        // The first write, if there is a table.
        session.barrier(self.paths.cluster()).await?;
        let found = self.observe(session).await?;
        self.usable(found.text(), found.any_key(), None)?;
        let created = session.create(&path, text.as_bytes()).await?;
        created.map_err(|e| match e {
            Error::NodeExists => error(Kind::Busy, "another client created the cell meanwhile"),
            e => failed(e),
        })
    }
}
