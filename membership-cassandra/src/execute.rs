//! Executes prepared statements, and confirms that keyspace or tables are missing before it says
//! so. Clause T16.
//!
//! A node may not know tables that the others have: it was down when they were created, or its
//! schema was reset. A silo that believed such a node would take an existing table for a deleted
//! one, and deletion is final. So the answer counts only if most nodes are connected, all of those
//! have the same schema, and the node that creates tables does not know them either. They are
//! checked in this order: the schema that all agree on is then the one that this node knows.

use membership_core::{TableError, TableErrorKind};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::Batch;
use scylla::statement::prepared::PreparedStatement;
use tokio::time::Instant;

use crate::admin::schema::TableState;
use crate::client::{Client, Connection};
use crate::error::{Failed, error};
use crate::statements::Statements;

/// What to do where the nodes have different schemas.
const ADVICE: &str = "do the nodes agree on the schema? (nodetool describecluster)";

impl Client {
    /// Executes a statement.
    pub(crate) async fn execute(
        &self,
        deadline: Instant,
        writes: bool,
        which: impl Fn(&Statements) -> &PreparedStatement,
        values: impl SerializeRow + Clone,
    ) -> Result<QueryResult, Failed> {
        let answer = self.execute_unconfirmed(deadline, writes, which, values);
        match answer.await {
            Err(failed) => Err(self.confirmed(deadline, failed).await),
            answer => answer,
        }
    }

    /// Executes a batch of conditional statements.
    pub(crate) async fn batch<V: SerializeRow + Clone>(
        &self,
        deadline: Instant,
        which: impl Fn(&Statements) -> Vec<PreparedStatement>,
        values: &[V],
    ) -> Result<QueryResult, Failed> {
        let (serial, quorum) = self.config.consistency();
        let answer = self.send(deadline, true, |connection| {
            let which = &which;
            async move {
                let mut batch = Batch::default();
                for statement in which(connection.statements(&self.config).await?) {
                    batch.append_statement(statement);
                }
                batch.set_consistency(quorum);
                batch.set_serial_consistency(Some(serial));
                batch.set_execution_profile_handle(Some(self.profile.clone()));
                connection.session.batch(&batch, values.to_vec()).await
            }
        });
        match answer.await {
            Err(failed) => Err(self.confirmed(deadline, failed).await),
            answer => answer,
        }
    }

    /// The failure of a request. If the node says that keyspace or tables are missing, checks that.
    async fn confirmed(&self, deadline: Instant, failed: Failed) -> Failed {
        if failed.error.kind() != TableErrorKind::NotInitialized {
            return failed;
        }
        let state = async {
            let connection = self.connection(deadline).await?;
            most_are_connected(&connection)?;
            // Checked once: after `Unavailable` the caller tries again, perhaps with another node.
            self.agree(&connection, deadline).await?;
            self.inspect(deadline).await
        };
        Failed {
            error: meaning(failed.error, state.await).at(&self.endpoint),
            ..failed
        }
    }
}

/// The agreement of a few nodes proves little: they may be those that do not know the tables.
fn most_are_connected(connection: &Connection) -> Result<(), TableError> {
    let state = connection.session.get_cluster_state();
    // Until the driver has read the list of nodes, it has placeholders for the configured
    // addresses.
    let nodes: Vec<_> = state
        .get_nodes_info()
        .iter()
        .filter(|node| node.datacenter.is_some() && node.is_enabled())
        .collect();
    let connected = nodes.iter().filter(|node| node.is_connected()).count();
    if are_most(connected, nodes.len()) {
        return Ok(());
    }
    let why = format!("{connected} of {} nodes are connected", nodes.len());
    Err(error(TableErrorKind::Unavailable, why))
}

fn are_most(connected: usize, known: usize) -> bool {
    connected > known / 2
}

/// What it means that a node knows no keyspace or no tables. `state` is what all nodes agree on, or
/// why that is not known.
fn meaning(failed: TableError, state: Result<TableState, TableError>) -> TableError {
    match state {
        Ok(TableState::Missing) => failed,
        Ok(TableState::Ready) => {
            let why = format!("a node does not know keyspace or tables: {ADVICE}");
            error(TableErrorKind::Unavailable, why).with_source(failed)
        }
        Err(e) if e.kind() == TableErrorKind::ForeignTable => e,
        Err(e) => {
            let why = format!(
                "a node does not know keyspace or tables, and the other nodes could not be checked ({}): {ADVICE}",
                e.message()
            );
            error(TableErrorKind::Unavailable, why).with_source(e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_without_tables_proves_nothing() {
        use TableErrorKind::{ForeignTable, NotInitialized, PermissionDenied, Unavailable};
        let of = |found| {
            let said = error(
                NotInitialized,
                "keyspace or tables do not exist (unconfigured table silos)",
            )
            .at("h:9042");
            meaning(said, found)
        };
        // All nodes agree that the tables are missing.
        assert_eq!(of(Ok(TableState::Missing)).kind(), NotInitialized);
        // The tables exist.
        assert_eq!(of(Ok(TableState::Ready)).kind(), Unavailable);
        assert_eq!(
            of(Err(error(
                ForeignTable,
                "the table k.silos has other columns than ours"
            )))
            .kind(),
            ForeignTable
        );
        // The nodes do not agree, or could not be checked.
        for kind in [Unavailable, PermissionDenied] {
            let told = of(Err(error(kind, "the nodes do not agree")));
            assert_eq!(told.kind(), Unavailable);
            assert!(
                told.message().contains("(the nodes do not agree)")
                    && told.message().contains("nodetool describecluster"),
                "{told}"
            );
            assert_eq!(told.to_string().lines().count(), 1, "{told}");
        }
    }

    #[test]
    fn few_nodes_prove_nothing() {
        for (connected, known, enough) in [
            (1, 1, true),
            (0, 0, false),
            (1, 2, false),
            (2, 2, true),
            (1, 3, false),
            (2, 3, true),
            (2, 4, false),
        ] {
            assert_eq!(are_most(connected, known), enough, "{connected} of {known}");
        }
    }
}
