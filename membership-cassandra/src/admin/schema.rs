//! Keyspace and tables: their statements, inspecting them, creating them.
//!
//! Statements about keyspaces and tables always go to the allowed node with the smallest host id,
//! connected or not. A node knows what it created, and trusts that for `IF NOT EXISTS`; two nodes
//! would create the same table twice, and one of the two would be lost.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use membership_core::{Operation, TableError, TableErrorKind};
use membership_provider::one_line;
use scylla::response::query_result::QueryResult;
use scylla::statement::Statement;
use scylla::value::CqlValue;
use tokio::time::{Instant, sleep, timeout_at};

use crate::client::{Client, Connection, Inner};
use crate::codec;
use crate::config::{CassandraConfig, wrong};
use crate::error::{Doubt, Failed, error};
use crate::keys::{COLUMNS, HEARTBEATS, SILOS};

/// How long it may take until keyspace and tables exist, and every node knows them.
const CREATE_TIMEOUT: Duration = Duration::from_secs(60);

/// The state of the tables.
#[derive(Debug)]
pub(crate) enum TableState {
    Missing,
    Ready,
}

fn keyspace(name: &str, replication: &str) -> String {
    format!(
        "CREATE KEYSPACE IF NOT EXISTS \"{name}\" WITH replication = {{'class': 'NetworkTopologyStrategy', {replication}}} AND \
         durable_writes = true"
    )
}

fn tables(keyspace: &str) -> [String; 2] {
    [SILOS, HEARTBEATS].map(|table| {
        let columns = COLUMNS.iter().filter(|(of, ..)| *of == table);
        let columns: Vec<String> = columns
            .map(|(_, name, kind)| format!("  {name} {kind}"))
            .collect();
        format!(
            "CREATE TABLE IF NOT EXISTS \"{keyspace}\".{table} (\n{},\n  PRIMARY KEY (cluster, silo)\n)",
            columns.join(",\n")
        )
    })
}

impl CassandraConfig {
    /// The statements that create keyspace and tables, for people who create them themselves with
    /// `cqlsh`.
    #[must_use]
    pub fn schema(&self) -> String {
        let chosen = self.chosen_replication().ok().flatten();
        let replication = chosen.unwrap_or_else(|| "'replication_factor': 3".to_owned());
        let mut all = vec![keyspace(&self.keyspace, &replication)];
        all.extend(tables(&self.keyspace));
        all.join(";\n") + ";\n"
    }
}

impl Inner {
    /// Refuses tables that cannot be used. Missing ones can be created later.
    pub(crate) async fn inspect(&self) -> Result<(), TableError> {
        use TableErrorKind::{Busy, NotInitialized, PermissionDenied, Unavailable};
        match self.version(self.client.deadline()).await {
            // The operations judge the version row.
            Ok(_) => Ok(()),
            // Later requests may succeed. And a user that may create the tables may not be allowed
            // to read them before they exist.
            Err(e)
                if matches!(
                    e.kind(),
                    NotInitialized | Busy | Unavailable | PermissionDenied
                ) =>
            {
                tracing::debug!(error = %e, "the table could not be inspected");
                Ok(())
            }
            Err(e) => Err(self.client.explained(e).await.during(Operation::Connect)),
        }
    }
}

impl Client {
    /// Inspects the tables without changing them.
    ///
    /// # Errors
    /// `ForeignTable` where they have other columns.
    pub(crate) async fn inspect(&self, deadline: Instant) -> Result<TableState, TableError> {
        // Without bound values, so that nothing is prepared that creating tables could invalidate.
        let keyspace = &self.config.keyspace;
        let columns = format!(
            "SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = '{keyspace}' AND table_name IN ('silos', \
             'heartbeats')"
        );
        let answer = self.query_schema(deadline, false, &columns).await?;
        let mut found = BTreeMap::new();
        for row in codec::named(answer)? {
            let word = |name: &str| {
                let text = row.get(name).and_then(CqlValue::as_text);
                text.cloned().unwrap_or_default()
            };
            found.insert((word("table_name"), word("column_name")), word("type"));
        }
        for table in [SILOS, HEARTBEATS] {
            if !found.keys().any(|(of, _)| of == table) {
                return Ok(TableState::Missing);
            }
            let mut ours = COLUMNS.iter().filter(|(of, ..)| *of == table);
            let fits = ours.all(|(of, name, kind)| {
                let found = found.get(&((*of).to_owned(), (*name).to_owned()));
                found.is_some_and(|found| found == kind)
            });
            if !fits {
                let why = format!(
                    "the table {keyspace}.{table} has other columns than ours: name another keyspace"
                );
                return Err(error(TableErrorKind::ForeignTable, why).at(&self.endpoint));
            }
        }
        Ok(TableState::Ready)
    }

    /// The reason why a request was refused: foreign tables, if that is it.
    pub(crate) async fn explained(&self, e: TableError) -> TableError {
        if e.kind() != TableErrorKind::Configuration {
            return e;
        }
        match self.inspect(self.deadline()).await {
            Err(foreign) if foreign.kind() == TableErrorKind::ForeignTable => foreign,
            _ => e,
        }
    }

    /// Creates missing keyspace and tables, and returns when every node knows them. Many may call
    /// it at the same time: all use the same node, which creates one after another.
    pub(crate) async fn create_tables(&self) -> Result<(), TableError> {
        let until = Instant::now() + CREATE_TIMEOUT.max(self.config.timeouts.operation());
        self.nodes_known(until).await?;
        let mut agreed = false;
        loop {
            let state = self.inspect(until.min(self.deadline())).await?;
            if matches!(state, TableState::Ready) {
                return self.agreed(until).await;
            }
            if !self.config.create {
                let schema = self.config.schema();
                let schema: Vec<&str> = schema.split_whitespace().collect();
                let why = format!(
                    "keyspace or tables are missing, and create=false: create them with {}",
                    schema.join(" ")
                );
                return Err(wrong(why).at(&self.endpoint));
            }
            // After the agreement this node knows what another one created a moment ago. And the
            // random pause lets one of many callers be first, so that the others need not create.
            if !agreed {
                let pause = RandomState::new().hash_one(&self.cluster) % 300;
                sleep(Duration::from_millis(pause)).await;
                self.agreed(until).await?;
                agreed = true;
                continue;
            }
            if Instant::now() >= until {
                let why = "keyspace and tables were created and do not exist: do the nodes agree on the schema?";
                return Err(error(TableErrorKind::Unavailable, why).at(&self.endpoint));
            }
            match self.create(until).await {
                Ok(()) => {}
                // Another caller creates them as well.
                Err(e)
                    if Instant::now() < until
                        && matches!(
                            e.kind(),
                            TableErrorKind::Busy | TableErrorKind::Unavailable
                        ) =>
                {
                    tracing::debug!(error = %e, "keyspace and tables are not created yet");
                    sleep(Duration::from_millis(200)).await;
                }
                Err(e) => return Err(e),
            }
        }
    }

    async fn create(&self, until: Instant) -> Result<(), TableError> {
        let replication = match self.config.chosen_replication()? {
            Some(chosen) => chosen,
            None => self.default_replication().await?,
        };
        let name = &self.config.keyspace;
        let mut statements = vec![keyspace(name, &replication)];
        statements.extend(tables(name));
        for text in statements {
            // Creating a table takes longer than any other request.
            let timeout = self
                .config
                .timeouts
                .operation()
                .max(Duration::from_secs(20));
            let deadline = until.min(Instant::now() + timeout);
            match self.query_schema(deadline, true, &text).await {
                Ok(_) => self.agreed(until).await?,
                Err(failed)
                    if failed.doubt == Doubt::None
                        && failed.error.kind() != TableErrorKind::Configuration =>
                {
                    return Err(failed.error);
                }
                // Created or not, by this request or another: the tables are inspected again.
                Err(failed) => {
                    let why = failed.error.message().to_owned();
                    return Err(error(TableErrorKind::Busy, why).at(&self.endpoint));
                }
            }
        }
        tracing::info!(keyspace = name, endpoint = self.endpoint, %replication, "Cassandra tables created");
        Ok(())
    }

    /// Three replicas in each data centre, or as many as it has nodes.
    async fn default_replication(&self) -> Result<String, TableError> {
        let connection = self.connection(self.deadline()).await?;
        let mut nodes: BTreeMap<String, u8> = BTreeMap::new();
        for node in connection.session.get_cluster_state().get_nodes_info() {
            if let Some(datacenter) = &node.datacenter {
                let count = nodes.entry(datacenter.replace('\'', "''")).or_default();
                *count = count.saturating_add(1);
            }
        }
        if nodes.is_empty() {
            let why = "no node says in which data centre it is";
            return Err(error(TableErrorKind::Unavailable, why).at(&self.endpoint));
        }
        if nodes.values().any(|count| *count < 3) {
            tracing::warn!(
                ?nodes,
                "the keyspace gets fewer than three replicas, because there are fewer nodes: if one fails, the table is unavailable"
            );
        }
        let replicas = nodes
            .iter()
            .map(|(name, count)| format!("'{name}': {}", count.min(&3)));
        Ok(replicas.collect::<Vec<_>>().join(", "))
    }

    /// Waits until the driver knows the nodes. If it could not read them, it uses the configured
    /// addresses and tries again much later. That suffices for rows, but neither for the number of
    /// replicas nor for the node that creates the tables.
    async fn nodes_known(&self, until: Instant) -> Result<(), TableError> {
        loop {
            let connection = self.connection(until.min(self.deadline())).await?;
            let state = connection.session.get_cluster_state();
            let mut nodes = state.get_nodes_info().iter();
            if nodes.any(|node| node.datacenter.is_some()) {
                return Ok(());
            }
            if Instant::now() >= until {
                let why = "the list of nodes could not be read";
                return Err(error(TableErrorKind::Unavailable, why).at(&self.endpoint));
            }
            // The next turn sees the result.
            let refresh = connection.session.refresh_metadata();
            let _ = timeout_at(until.min(self.deadline()), refresh).await;
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn agreed(&self, until: Instant) -> Result<(), TableError> {
        loop {
            let connection = self.connection(until.min(self.deadline())).await?;
            let agreed = self.agree(&connection, until.min(self.deadline())).await;
            if agreed.is_ok() || Instant::now() >= until {
                return agreed;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Checks that all connected nodes have the same schema now.
    ///
    /// # Errors
    /// `Unavailable` if they have not, or do not say.
    pub(crate) async fn agree(
        &self,
        connection: &Connection,
        deadline: Instant,
    ) -> Result<(), TableError> {
        // The driver asks every connected node, and waits for each.
        let check = connection.session.check_schema_agreement();
        let why = match timeout_at(deadline, check).await {
            Ok(Ok(Some(_))) => return Ok(()),
            Ok(Ok(None)) => "the nodes do not agree on the schema".to_owned(),
            Ok(Err(e)) => format!(
                "the nodes do not say their schema ({})",
                one_line(&e.to_string())
            ),
            Err(_) => "not all nodes say their schema in time".to_owned(),
        };
        Err(error(TableErrorKind::Unavailable, why).at(&self.endpoint))
    }

    /// Sends a statement about keyspaces and tables.
    async fn query_schema(
        &self,
        deadline: Instant,
        writes: bool,
        text: &str,
    ) -> Result<QueryResult, Failed> {
        let mut asked = None;
        let answer = self.send(deadline, writes, |connection| {
            let mut statement = Statement::new(text);
            let nodes = self.nodes(&connection).into_iter();
            let node = nodes.min_by_key(|node| node.host_id);
            asked = node.as_ref().map(|node| node.address.to_string());
            let profile = node.map(|node| self.profile_of(node).into_handle());
            let profile = profile.unwrap_or_else(|| self.profile.clone());
            statement.set_execution_profile_handle(Some(profile));
            async move { connection.session.query_unpaged(statement, ()).await }
        });
        answer.await.map_err(|failed| match asked {
            Some(node) if failed.ends_session => {
                let message = failed.error.message();
                let message = format!(
                    "{message}; only the node {node} creates keyspaces and tables, and it must be up for that"
                );
                let error = error(failed.error.kind(), message).at(&self.endpoint);
                Failed { error, ..failed }
            }
            _ => failed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_for_the_configured_keyspace() {
        let text = CassandraConfig::new(["h"], "ours")
            .replication("2")
            .schema();
        assert!(
            text.contains("KEYSPACE IF NOT EXISTS \"ours\"")
                && text.contains("'replication_factor': 2"),
            "{text}"
        );
        assert_eq!(
            text.matches("CREATE TABLE IF NOT EXISTS \"ours\".").count(),
            2,
            "{text}"
        );
    }
}
