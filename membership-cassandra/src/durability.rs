//! Whether acknowledged commits survive a failure of the servers' machines, by their settings.
//! Clause T2.
//!
//! A node that answers before it flushes may forget a commit and its promises, and a majority of
//! such nodes loses the commit. The settings are read once, when the table connects. Where they
//! cannot be read (ScyllaDB, or no permission), commits may be lost.

use std::sync::Arc;

use futures_util::future::join_all;
use membership_core::Durability;
use membership_provider::one_line;
use scylla::cluster::Node;
use scylla::statement::{Consistency, Statement};
use scylla::value::CqlValue;
use tokio::time::{Instant, timeout_at};

use crate::client::{Client, Connection};
use crate::codec;

/// A node's own settings, since Cassandra 4.0.
const SETTING: &str = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";
/// Whether writes to a keyspace are logged at all.
const DURABLE_WRITES: &str =
    "SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = ?";

impl Client {
    /// Never an error: a user of the table need not have the permission to read the settings. Takes
    /// no longer than connecting.
    pub(crate) async fn durability(&self) -> Durability {
        let timeout = self
            .config
            .timeouts
            .connect()
            .min(self.config.timeouts.operation());
        let deadline = Instant::now() + timeout;
        match self.check_flushed(deadline).await {
            Ok(()) => Durability::Kept,
            Err(why) => {
                tracing::info!(endpoint = self.endpoint, %why, "acknowledged commits may be lost when the machines of most replicas fail");
                Durability::MayBeLost
            }
        }
    }

    /// # Errors
    /// Why it is not certain that every node flushes before it acknowledges.
    async fn check_flushed(&self, deadline: Instant) -> Result<(), String> {
        let answer = self
            .query(deadline, false, DURABLE_WRITES, (&self.config.keyspace,))
            .await
            .map_err(|e| e.error.to_string())?;
        // A missing keyspace will be created with durable writes.
        let keyspaces = codec::named(answer).map_err(|e| e.to_string())?;
        if keyspaces
            .iter()
            .any(|row| row.get("durable_writes").and_then(CqlValue::as_boolean) != Some(true))
        {
            return Err("the keyspace has durable_writes = false".to_owned());
        }
        let connection = self.connection(deadline).await;
        let connection = connection.map_err(|e| e.to_string())?;
        let nodes = self.nodes(&connection);
        if nodes.is_empty() {
            return Err("no node is known".to_owned());
        }
        let settings = nodes
            .into_iter()
            .map(|node| self.setting_of(&connection, node, deadline));
        join_all(settings)
            .await
            .into_iter()
            .try_for_each(|setting| flushes(setting?.as_deref()))
    }

    /// The setting of one node; none if it has no such setting.
    async fn setting_of(
        &self,
        connection: &Connection,
        node: Arc<Node>,
        deadline: Instant,
    ) -> Result<Option<String>, String> {
        let profile = self.profile_of(node).to_builder();
        let profile = profile.consistency(Consistency::One).build();
        let mut statement = Statement::new(SETTING);
        statement.set_execution_profile_handle(Some(profile.into_handle()));
        let answer = timeout_at(deadline, connection.session.query_unpaged(statement, ())).await;
        let answer = answer.map_err(|_| "a node does not answer".to_owned())?;
        let answer = answer.map_err(|e| {
            format!(
                "a node does not say its settings: {}",
                one_line(&e.to_string())
            )
        })?;
        let rows = codec::named(answer).map_err(|e| e.to_string())?;
        Ok(rows
            .first()
            .and_then(|row| row.get("value"))
            .and_then(CqlValue::as_text)
            .cloned())
    }
}

/// `batch` and `group` both answer after flushing; `group` flushes for several writes at once.
fn flushes(setting: Option<&str>) -> Result<(), String> {
    match setting {
        Some("batch" | "group") => Ok(()),
        Some(other) => Err(format!("a node has commitlog_sync: {other}")),
        None => Err("a node does not know commitlog_sync".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_answer_before_flushing_may_lose_commits() {
        for (setting, kept) in [
            (Some("batch"), true),
            (Some("group"), true),
            (Some("periodic"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(flushes(setting).is_ok(), kept, "{setting:?}");
        }
    }
}
