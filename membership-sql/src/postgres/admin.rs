//! `initialize` and `delete`.

use membership_core::encoding::LAYOUT;
use membership_core::{InitializeRequest, TableError, TableErrorKind as Kind};
use membership_provider::json;

use super::client::Call;
use super::codec::sort;
use super::error::{Phase, error};
use super::keys::literal;
use super::schema;
use super::sql::Statement;
use super::unlogged::Unlogged;

/// How many rows `delete` removes in one transaction.
const BATCH: usize = 1000;
/// How often `initialize` starts again while other clients create and delete the same cluster.
const ATTEMPTS: usize = 8;

/// Another `delete` may finish, and another client create the cluster again, at any moment: that
/// one must stay. Each statement sees either the marked cluster with its rows, or the new one.
const IS_OURS: &str = "NOT EXISTS (SELECT FROM {version} WHERE {is_cluster} AND NOT deleting)";

impl Call {
    /// Looks first: if the cluster exists, nothing is written and nothing waits.
    ///
    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(super) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        self.create_tables().await?;
        let name = self.cluster.to_string();
        let table = request.table_id.to_string();
        let layout = i32::try_from(LAYOUT).unwrap_or(i32::MAX);
        let settings = json(&request.settings);
        let core = Unlogged(json(request.version_row().core.stored()));
        for _ in 0..ATTEMPTS {
            let rows = self.ask(Statement::ReadRow, &[&self.key, &""]).await?;
            let answer = sort(&rows)?;
            match answer.usable(&self.cache, None) {
                Err(e) if e.kind() == Kind::NotInitialized => {}
                answer => return answer.map(drop),
            }
            let created = self
                .ask(
                    Statement::Initialize,
                    &[&self.key, &name, &table, &layout, &settings, &core],
                )
                .await?;
            if !created.is_empty() {
                tracing::info!(cluster = name, table_id = table, "membership table created");
                return Ok(());
            }
        }
        let message = "other clients created and deleted the cluster all the time";
        Err(error(Kind::Busy, message))
    }

    /// Creates the missing tables.
    async fn create_tables(&self) -> Result<(), TableError> {
        if self.has_tables().await? {
            return Ok(());
        }
        let names = &self.client.names;
        let advice = format!(
            "a user who may create tables must run what `membership schema --table postgres://…` prints (`PostgresConfig::schema_sql`), \
             or this user must be allowed to create tables in the schema `{}`",
            names.schema
        );
        if !self.client.config.create {
            let message = format!("there are no tables, and `create` is off: {advice}");
            return Err(error(Kind::Configuration, message));
        }
        let explain = |e: TableError| match e.kind() {
            Kind::PermissionDenied => {
                let message = format!("this user may not create the tables: {advice}");
                error(Kind::PermissionDenied, message).with_source(e)
            }
            // Whatever the outcome is, it can be done again.
            Kind::OutcomeUnknown => error(Kind::Unavailable, e.message()).with_source(e),
            _ => e,
        };
        let select = format!(
            "SELECT 1 FROM pg_namespace WHERE nspname = {}",
            literal(&names.schema)
        );
        if self.execute(&select, Phase::Reading).await?.is_empty() {
            let create = schema::create_schema(names);
            match self.execute(&create, Phase::Writing).await {
                // Concurrent clients may collide: one of them has created it.
                Err(e) if e.kind() != Kind::Busy => return Err(explain(e)),
                _ => {}
            }
        }
        let create = schema::create_tables(names);
        self.execute(&create, Phase::Writing)
            .await
            .map_err(explain)?;
        tracing::info!(schema = names.schema, "tables created");
        self.has_tables().await.map(drop)
    }

    /// Each step is a transaction of its own. If `delete` dies between two steps, the next `delete`
    /// continues, and other clients see that the cluster is being deleted.
    ///
    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(super) async fn delete(&self) -> Result<(), TableError> {
        if !self.has_tables().await? {
            return Ok(());
        }
        let rows = self.ask(Statement::ReadRow, &[&self.key, &""]).await?;
        match sort(&rows)?.version(&self.cache) {
            // A row that cannot be read must not stay; a foreign one must.
            Err(e) if e.kind() != Kind::Damaged => return Err(e),
            _ => {}
        }
        self.write("UPDATE {version} SET deleting = true WHERE {is_cluster} AND NOT deleting")
            .await?;
        loop {
            let removed = self
                .write(
                    "WITH gone AS (DELETE FROM {silo} WHERE {is_cluster} AND {is_ours}
                         AND silo IN (SELECT silo FROM {silo} WHERE {is_cluster} ORDER BY silo LIMIT {batch}) RETURNING 1)
                     SELECT count(*) FROM gone",
                )
                .await?;
            let removed = removed.first().and_then(|row| row.first());
            if removed.is_none_or(|n| n.parse::<usize>().unwrap_or(0) < BATCH) {
                break;
            }
        }
        self.write(
            "WITH heartbeats AS (DELETE FROM {heartbeat} WHERE {is_cluster} AND {is_ours}),
                  cells AS (DELETE FROM {cell} WHERE {is_cluster} AND {is_ours})
             DELETE FROM {version} WHERE {is_cluster} AND deleting AND NOT EXISTS (SELECT FROM {silo} WHERE {is_cluster})",
        )
        .await?;
        tracing::info!(cluster = %self.cluster, "membership table deleted");
        Ok(())
    }

    /// Executes a statement about this cluster.
    async fn write(&self, template: &str) -> Result<Vec<Vec<String>>, TableError> {
        let sql = template
            .replace("{is_ours}", IS_OURS)
            .replace("{is_cluster}", &format!("cluster = {}", literal(&self.key)))
            .replace("{batch}", &BATCH.to_string());
        let sql = self.client.names.put_into(&sql);
        self.execute(&sql, Phase::Writing).await
    }
}
