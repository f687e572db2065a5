//! `update_i_am_alive`: one statement.

use membership_core::{HeartbeatWrite, TableError, TableErrorKind as Kind};

use super::STORE;
use super::client::Call;
use super::codec::sort;
use super::error::error;
use super::sql::Statement;
use crate::shared::int;

impl Call {
    /// # Errors
    /// As
    /// [`MembershipTable::update_i_am_alive`](membership_core::MembershipTable::update_i_am_alive).
    pub(super) async fn update_i_am_alive(&self, write: &HeartbeatWrite) -> Result<(), TableError> {
        write.validate(STORE)?;
        let key = match write {
            HeartbeatWrite::Cluster { text } => {
                let written = self.ask(Statement::Cell, &[&self.key, text]).await?;
                if !written.is_empty() {
                    return Ok(());
                }
                String::new()
            }
            HeartbeatWrite::Silo { silo, heartbeat } => {
                let (key, at) = (silo.row_key(), heartbeat.at.to_string());
                let counter = int(heartbeat.counter);
                // The commit that inserted the row made the heartbeat's row too. Only a row that
                // was inserted by hand has none.
                for statement in [Statement::Heartbeat, Statement::FirstHeartbeat] {
                    let values: [&_; 4] = [&self.key as _, &key as _, &counter as _, &at as _];
                    if !self.ask(statement, &values).await?.is_empty() {
                        return Ok(());
                    }
                }
                key
            }
        };
        // Why it was not written.
        let rows = self.ask(Statement::ReadRow, &[&self.key, &key]).await?;
        let answer = sort(&rows)?;
        answer.usable(&self.cache, None)?;
        if !key.is_empty() && answer.rows.is_empty() {
            return Err(error(Kind::NoSuchRow, "the silo has no row").with_key(key));
        }
        let message = "the row was inserted at the same moment";
        Err(error(Kind::Busy, message))
    }
}
