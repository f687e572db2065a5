//! Whether what the servers have acknowledged outlives a failure of their machines: what they say of themselves. Clause T2.
//!
//! A node that does not flush before it answers may forget a commit and what it has promised, and a majority of such nodes lose it. Looked at once,
//! when the table is opened. What nobody tells us, ScyllaDB or a node that may not be asked, is answered as the worse.

use std::sync::Arc;

use futures_util::future::join_all;
use membership_core::Durability;
use scylla::cluster::Node;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::{Consistency, Statement};
use scylla::value::CqlValue;
use tokio::time::{Instant, timeout_at};

use crate::codec;
use crate::dial::profile;
use crate::error::shorten;
use crate::link::{Link, Open};

/// A node's own settings, since Cassandra 4.0.
const SETTING: &str = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";
/// Whether writes to a keyspace go into that log at all.
const DURABLE_WRITES: &str =
    "SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = ?";

impl Link {
    /// Never an error: who may use the table need not be allowed to know this. Nor is it waited for longer than for a connection.
    pub(crate) async fn durability(&self) -> Durability {
        let deadline = Instant::now() + self.config.connecting();
        match self.what_is_flushed(deadline).await {
            Ok(()) => Durability::Kept,
            Err(why) => {
                tracing::info!(at = self.at, %why, "acknowledged commits may be lost when the machines of most replicas fail");
                Durability::MayBeLost
            }
        }
    }

    /// # Errors
    /// Why it is not certain that every node flushes what it acknowledges.
    async fn what_is_flushed(&self, deadline: Instant) -> Result<(), String> {
        let answer = self
            .query(deadline, false, DURABLE_WRITES, (self.config.keyspace(),))
            .await
            .map_err(|e| e.error.to_string())?;
        // One that is not there yet gets them.
        let keyspaces = codec::named(answer).map_err(|e| e.to_string())?;
        if keyspaces
            .iter()
            .any(|row| row.get("durable_writes").and_then(CqlValue::as_boolean) != Some(true))
        {
            return Err("the keyspace has durable_writes = false".to_owned());
        }
        let open = self.open(deadline).await.map_err(|e| e.to_string())?;
        let state = open.session.get_cluster_state();
        let ours = |node: &&Arc<Node>| {
            self.config
                .named_datacenter()
                .is_none_or(|name| node.datacenter.as_deref() == Some(name))
        };
        let nodes: Vec<_> = state
            .get_nodes_info()
            .iter()
            .filter(ours)
            .map(|node| self.setting_of(&open, node, deadline))
            .collect();
        if nodes.is_empty() {
            return Err("no node is known".to_owned());
        }
        join_all(nodes)
            .await
            .into_iter()
            .try_for_each(|setting| flushes(setting?.as_deref()))
    }

    /// What one node has in its file of settings; none where it does not say.
    async fn setting_of(
        &self,
        open: &Open,
        node: &Arc<Node>,
        deadline: Instant,
    ) -> Result<Option<String>, String> {
        let only =
            SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(Arc::clone(node)), None);
        let profile = profile(&self.config)
            .to_builder()
            .load_balancing_policy(only)
            .consistency(Consistency::One)
            .build();
        let mut statement = Statement::new(SETTING);
        statement.set_execution_profile_handle(Some(profile.into_handle()));
        let answer = timeout_at(deadline, open.session.query_unpaged(statement, ())).await;
        let answer = answer.map_err(|_| "a node does not answer".to_owned())?;
        let answer = answer.map_err(|e| {
            format!(
                "a node does not say its settings: {}",
                shorten(&e.to_string())
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

/// `group` waits a little longer than `batch`, so that it flushes for several at once; both answer afterwards.
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
    fn who_answers_before_it_flushes_may_lose() {
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
