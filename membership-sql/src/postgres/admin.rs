//! The beginning and the end of a cluster: `initialize` and `delete`.

use std::sync::Arc;

use membership_core::encoding::LAYOUT;
use membership_core::{ClusterName, InitializeRequest, TableError, TableErrorKind};
use tokio::time::Instant;

use super::codec::{Answer, Cache, being_deleted, rows_without_version, sort};
use super::error::{Phase, error};
use super::link::{Line, Link};
use super::schema::literal;
use super::sql::Statement;

/// How many rows `delete` removes in one transaction.
const BATCH: usize = 1000;
/// How often the beginning is looked at again while others begin and delete the same cluster.
const TURNS: usize = 8;

/// `initialize`. Looks first: whoever finds the table there has written nothing and waited for nobody.
pub(super) async fn initialize(
    line: &Line,
    cache: &Cache,
    cluster: &ClusterName,
    request: &InitializeRequest,
    deadline: Instant,
) -> Result<(), TableError> {
    make_tables(line, deadline).await?;
    let (key, name) = (cluster.store_key(), cluster.to_string());
    let settings = serde_json::to_string(&request.settings).map_err(|e| {
        error(
            TableErrorKind::InvalidRequest,
            format!("the settings cannot be written as JSON ({e})"),
        )
    })?;
    let (table, layout) = (
        request.table_id.to_string(),
        i32::try_from(LAYOUT).unwrap_or(i32::MAX),
    );
    for _ in 0..TURNS {
        let rows = look(line, &key, deadline).await?;
        let answer = sort(&rows)?;
        if is_there(&answer, cache)? {
            return Ok(());
        }
        let made = line
            .ask(
                Statement::Initialize,
                &[&key, &name, &table, &layout, &settings],
                Phase::Writing,
                deadline,
            )
            .await?;
        if !made.is_empty() {
            tracing::info!(cluster = name, table_id = %request.table_id, "membership table created");
            return Ok(());
        }
    }
    Err(error(
        TableErrorKind::Busy,
        "others made and deleted the cluster all the time",
    ))
}

async fn look(
    line: &Line,
    key: &str,
    deadline: Instant,
) -> Result<Vec<tokio_postgres::Row>, TableError> {
    line.ask(Statement::ReadRow, &[&key, &""], Phase::Reading, deadline)
        .await
}

fn is_there(answer: &Answer<'_>, cache: &Cache) -> Result<bool, TableError> {
    match (answer.version(cache)?, answer.orphan()) {
        (Some(version), _) if version.deleting => Err(being_deleted()),
        (Some(_), _) => Ok(true),
        (None, Some(key)) => Err(rows_without_version(key)),
        (None, None) => Ok(false),
    }
}

/// The tables, made where they are missing.
async fn make_tables(line: &Line, deadline: Instant) -> Result<(), TableError> {
    let link = line.link(deadline).await?;
    if link.is_present() {
        return Ok(());
    }
    // Somebody may have made them since this connection looked.
    look_again(line, &link, deadline).await?;
    if link.is_present() {
        return Ok(());
    }
    let names = &line.names;
    let advice = format!(
        "have somebody who may create tables run what `membership schema --table postgres://…` prints (`PostgresConfig::schema_sql`), or \
         allow this user to create tables in the schema `{}`",
        names.schema
    );
    if !line.config.create {
        return Err(error(
            TableErrorKind::Configuration,
            format!("there are no tables, and `create` is off: {advice}"),
        ));
    }
    let explained = |e: TableError| match e.kind() {
        TableErrorKind::PermissionDenied => error(
            TableErrorKind::PermissionDenied,
            format!("this user may not create the tables: {advice}"),
        )
        .with_source(e),
        // Whatever became of it, doing it again is harmless.
        TableErrorKind::OutcomeUnknown => {
            error(TableErrorKind::Unavailable, e.message()).with_source(e)
        }
        _ => e,
    };
    let schema = format!(
        "SELECT 1 FROM pg_namespace WHERE nspname = {}",
        literal(&names.schema)
    );
    if line
        .run(&link, &schema, Phase::Reading, deadline)
        .await?
        .is_empty()
    {
        let made = line
            .run(&link, &names.make_schema(), Phase::Writing, deadline)
            .await;
        // Several at once may collide: one of them has made it.
        if let Err(e) = made
            && e.kind() != TableErrorKind::Busy
        {
            return Err(explained(e));
        }
    }
    line.run(&link, &names.make_tables(), Phase::Writing, deadline)
        .await
        .map_err(explained)?;
    tracing::info!(schema = names.schema, "tables created");
    look_again(line, &link, deadline).await
}

async fn look_again(line: &Line, link: &Arc<Link>, deadline: Instant) -> Result<(), TableError> {
    match tokio::time::timeout_at(deadline, async {
        line.look(link).await?;
        if link.is_present() {
            link.warm(line).await;
        }
        Ok(())
    })
    .await
    {
        Ok(done) => done,
        Err(_) => Err(error(
            TableErrorKind::Unavailable,
            "the server did not answer in time",
        )),
    }
}

/// `delete`. Each step is a transaction of its own; whatever step it dies in, the next `delete` goes on from there, and everybody else is
/// told that the cluster is being deleted.
pub(super) async fn delete(
    line: &Line,
    cache: &Cache,
    cluster: &ClusterName,
    deadline: Instant,
) -> Result<(), TableError> {
    let link = line.link(deadline).await?;
    if !link.is_present() {
        look_again(line, &link, deadline).await?;
        if !link.is_present() {
            return Ok(());
        }
    }
    let key = cluster.store_key();
    let rows = look(line, &key, deadline).await?;
    match sort(&rows)?.version(cache) {
        Ok(_) => {}
        // What cannot be read cannot be kept either; what is not ours is left alone.
        Err(e) if e.kind() == TableErrorKind::Damaged => {}
        Err(e) => return Err(e),
    }
    let cluster_is = format!("cluster = {}", literal(&key));
    let sql = |template: &str| {
        line.names.put_into(
            &template
                .replace("{cluster_is}", &cluster_is)
                .replace("{batch}", &BATCH.to_string()),
        )
    };
    let run = async |template: &str| {
        line.run(
            &line.link(deadline).await?,
            &sql(template),
            Phase::Writing,
            deadline,
        )
        .await
    };
    run("UPDATE {version} SET deleting = true WHERE {cluster_is} AND NOT deleting").await?;
    // Another delete may finish the work, and somebody make the cluster anew, at any moment: that one is not ours to delete. Each
    // statement sees either the marked cluster and its rows, or the new one.
    let ours = "NOT EXISTS (SELECT FROM {version} WHERE {cluster_is} AND NOT deleting)";
    let rows = format!(
        "WITH gone AS (DELETE FROM {{silo}} WHERE {{cluster_is}} AND {ours}
             AND silo IN (SELECT silo FROM {{silo}} WHERE {{cluster_is}} ORDER BY silo LIMIT {{batch}}) RETURNING 1)
         SELECT count(*) FROM gone"
    );
    loop {
        let removed = run(&rows).await?;
        let removed = removed
            .first()
            .and_then(|row| row.first())
            .and_then(|n| n.parse::<usize>().ok())
            .unwrap_or(0);
        if removed < BATCH {
            break;
        }
    }
    let rest = format!(
        "WITH beats AS (DELETE FROM {{heartbeat}} WHERE {{cluster_is}} AND {ours}),
              cells AS (DELETE FROM {{cell}} WHERE {{cluster_is}} AND {ours})
         DELETE FROM {{version}} WHERE {{cluster_is}} AND deleting AND NOT EXISTS (SELECT FROM {{silo}} WHERE {{cluster_is}})"
    );
    run(&rest).await?;
    tracing::info!(cluster = %cluster, "membership table deleted");
    Ok(())
}
