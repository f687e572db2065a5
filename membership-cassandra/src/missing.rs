//! A node says that there is no such keyspace or table: whether that is so. Clause T16.
//!
//! A node may not know what the others know: it was away when the tables were made, or its schema was reset. Silos that believed it would
//! take a table that is there for one that is gone, and would not look again. So a node is believed only when most nodes can be asked, all of
//! those have the same schema, and the one where tables are made knows nothing either. Looked at in this order: what they agree on is then
//! what that one knows.

use membership_core::{TableError, TableErrorKind};
use tokio::time::Instant;

use crate::admin::Found;
use crate::error::{Failed, error};
use crate::link::{Link, Open};

/// What helps where the nodes do not know the same.
const ASK_THEM: &str = "do the nodes agree on the schema? (nodetool describecluster)";

impl Link {
    /// What was said of a request, once it is known whether the keyspace or table that a node does not know is missing indeed.
    pub(crate) async fn confirmed(&self, deadline: Instant, said: Failed) -> Failed {
        if said.error.kind() != TableErrorKind::NotInitialized {
            return said;
        }
        let found = async {
            let open = self.open(deadline).await?;
            most_are_connected(&open)?;
            // Asked once: who is answered `Unavailable` asks again, perhaps another node.
            self.agree(&open, deadline).await?;
            self.look(deadline).await
        };
        Failed {
            error: meant(said.error, found.await).at(&self.at),
            ..said
        }
    }
}

/// An agreement of few says little: they may be those that know nothing.
fn most_are_connected(open: &Open) -> Result<(), TableError> {
    let state = open.session.get_cluster_state();
    // Until the driver was told which nodes there are, it takes the addresses that it was given for them.
    let nodes: Vec<_> = state
        .get_nodes_info()
        .iter()
        .filter(|node| node.datacenter.is_some() && node.is_enabled())
        .collect();
    let (connected, known) = (
        nodes.iter().filter(|node| node.is_connected()).count(),
        nodes.len(),
    );
    if are_most(connected, known) {
        return Ok(());
    }
    Err(error(
        TableErrorKind::Unavailable,
        format!("{connected} of {known} nodes can be asked"),
    ))
}

fn are_most(connected: usize, known: usize) -> bool {
    connected > known / 2
}

/// What it means that a node knows no keyspace or no tables. `found` is what all agree on, or why that is not known.
fn meant(said: TableError, found: Result<Found, TableError>) -> TableError {
    match found {
        Ok(Found::Nothing) => said,
        Ok(Found::Ours) => error(
            TableErrorKind::Unavailable,
            format!("a node does not know keyspace or tables: {ASK_THEM}"),
        )
        .with_source(said),
        Err(e) if e.kind() == TableErrorKind::ForeignTable => e,
        Err(e) => {
            let message = format!(
                "a node does not know keyspace or tables, and whether others do is not known ({}): {ASK_THEM}",
                e.message()
            );
            error(TableErrorKind::Unavailable, message).with_source(e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_that_knows_nothing_is_not_believed() {
        use TableErrorKind::{ForeignTable, NotInitialized, PermissionDenied, Unavailable};
        let of = |found| {
            let said = error(
                NotInitialized,
                "keyspace or tables do not exist (unconfigured table silos)",
            )
            .at("h:9042");
            meant(said, found)
        };
        // All agree, and the tables are not there: they are gone, or were never made.
        assert_eq!(of(Ok(Found::Nothing)).kind(), NotInitialized);
        // The tables are there.
        assert_eq!(of(Ok(Found::Ours)).kind(), Unavailable);
        assert_eq!(
            of(Err(error(
                ForeignTable,
                "the table k.silos has other columns than ours"
            )))
            .kind(),
            ForeignTable
        );
        // They do not agree, or nobody says.
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
    fn few_nodes_are_not_believed() {
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
