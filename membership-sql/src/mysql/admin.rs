//! The beginning and the end of a cluster: `initialize` and `delete`.

use std::time::Duration;

use membership_core::{
    InitializeRequest, TableError, TableErrorKind, VersionRow, encoding::encode_version_row,
};

use super::error::{DUPLICATE_KEY, code, error, from_commit, from_mysql};
use super::lane::Doubt;
use super::read::{Found, ask, being_deleted, rows_without_version};
use super::schema;
use super::session::{Session, Trouble, number};
use super::sql::{self, READ_COMMITTED, text};
use super::table::Place;

/// How many rows `delete` removes in one transaction.
const BATCH: u64 = 1000;
/// How often `initialize` starts over when others make the same table at the same time, before it says so.
const ROUNDS: u32 = 16;

/// `initialize`. Looks first: whoever finds the table there has written nothing and waited for nobody.
pub(super) async fn initialize(
    session: &mut Session,
    place: &Place,
    request: &InitializeRequest,
    doubt: &Doubt,
) -> Result<(), TableError> {
    let mut last = error(
        TableErrorKind::Busy,
        "others kept changing the table in between",
    );
    for round in 0..ROUNDS {
        match attempt(session, place, request, doubt).await {
            Ok(true) => return Ok(()),
            // Somebody else was first: look again.
            Ok(false) => {}
            Err(e)
                if matches!(
                    e.kind(),
                    TableErrorKind::Busy | TableErrorKind::NotInitialized
                ) && session.is_usable() =>
            {
                last = e
            }
            Err(e) => return Err(e),
        }
        tokio::time::sleep(Duration::from_millis(u64::from(5 * round))).await;
    }
    Err(last)
}

/// Whether the table is there now.
async fn attempt(
    session: &mut Session,
    place: &Place,
    request: &InitializeRequest,
    doubt: &Doubt,
) -> Result<bool, TableError> {
    let cluster = &place.key;
    if session.look_at_schema().await? {
        let mut found = ask(session, place, &sql::look(cluster), None).await?;
        if let Some(version) = found.stored()? {
            return if version.deleting {
                Err(being_deleted())
            } else {
                Ok(true)
            };
        }
        if let Some(key) = found.some_row() {
            return Err(rows_without_version(key));
        }
    } else if place.config.creates() {
        schema::create(session, !place.config.is_pooled()).await?;
        session.look_at_schema().await?;
    } else {
        return Err(schema::not_made());
    }

    let row = VersionRow::initial(request.table_id, request.settings.clone());
    // Whoever is second waits for the first, and is told that the key is taken.
    let first = format!(
        "{READ_COMMITTED}; {}START TRANSACTION; INSERT INTO membership_version (cluster, name, version, token, deleting, body) \
         SELECT {cluster}, {}, 0, '{}', 0, {} FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM membership_silo WHERE cluster = {cluster})",
        session.watch.0,
        text(&place.cluster.to_string()),
        sql::token(&row.token(&[])),
        text(&encode_version_row(&row)),
    );
    let inserted = match session.begin(&first).await {
        Ok(sets) => sets.last().is_some_and(|set| set.affected == 1),
        Err(trouble) => {
            session.roll_back().await;
            return if code(&trouble.error) == Some(DUPLICATE_KEY) {
                Ok(false)
            } else {
                Err(from_mysql(trouble.error))
            };
        }
    };
    if !inserted {
        session.roll_back().await;
        return Ok(false);
    }
    // Orphans of a former life, left by hand, go.
    finish(
        session,
        &[
            &format!("DELETE FROM membership_heartbeat WHERE cluster = {cluster}"),
            &format!("DELETE FROM membership_cell WHERE cluster = {cluster}"),
        ],
        doubt,
    )
    .await?;
    tracing::info!(cluster = %place.cluster, table_id = %request.table_id, "membership table created");
    Ok(true)
}

/// The last statements of a transaction, and its COMMIT.
async fn finish(
    session: &mut Session,
    statements: &[&str],
    doubt: &Doubt,
) -> Result<(), TableError> {
    let sql: String = statements.iter().map(|s| format!("{s}; ")).collect();
    doubt.begins();
    let answer = session
        .flight(&format!("{sql}COMMIT{}", session.watch.1.clone()))
        .await;
    match answer {
        Ok(sets) if sets.len() > statements.len() => {}
        Ok(_) => {
            session.discard();
            return Err(error(
                TableErrorKind::OutcomeUnknown,
                "the server did not answer COMMIT",
            ));
        }
        Err(Trouble { at, .. }) if at > statements.len() => session.discard(),
        Err(Trouble { at, error: cause }) => {
            let e = if at < statements.len() && code(&cause).is_some() {
                from_mysql(cause)
            } else {
                from_commit(cause)
            };
            if e.kind() != TableErrorKind::OutcomeUnknown {
                doubt.ends();
            }
            session.roll_back().await;
            return Err(e);
        }
    }
    doubt.ends();
    Ok(())
}

/// `delete`. Each step is a transaction of its own; whatever step it dies in, the next `delete` goes on from there, and everybody else is
/// told that the cluster is being deleted.
///
/// These transactions also lock the place where a version row would stand: nobody makes the cluster anew in the middle of a step.
pub(super) async fn delete(
    session: &mut Session,
    place: &Place,
    doubt: &Doubt,
) -> Result<(), TableError> {
    let cluster = &place.key;
    if !session.look_at_schema().await? {
        return Ok(());
    }
    let begin = format!(
        "{}START TRANSACTION; SELECT 0, NULL, body, deleting, NULL, @@global.read_only FROM membership_version WHERE cluster = {cluster} FOR UPDATE",
        session.watch.0
    );
    let sets = begun(session, &begin).await?;
    let mut found = sets
        .last()
        .map(|set| Found::take(set, &place.cache))
        .unwrap_or_default();
    let there = found.version.is_some();
    let mark = match found.stored() {
        Ok(Some(version)) if !version.deleting => {
            let marked = VersionRow {
                deleting: true,
                ..(*version.row).clone()
            };
            Some(format!(
                "UPDATE membership_version SET deleting = 1, body = {} WHERE cluster = {cluster}",
                text(&encode_version_row(&marked))
            ))
        }
        // Marked already, perhaps within the body only. And what cannot be read cannot be kept either: the mark beside it is enough.
        Err(e) if e.kind() != TableErrorKind::Damaged => {
            session.roll_back().await;
            return Err(e);
        }
        _ => there.then(|| {
            format!("UPDATE membership_version SET deleting = 1 WHERE cluster = {cluster}")
        }),
    };
    finish(
        session,
        &mark.as_deref().into_iter().collect::<Vec<_>>(),
        doubt,
    )
    .await?;

    loop {
        let step = format!(
            "{}START TRANSACTION; SELECT deleting FROM membership_version WHERE cluster = {cluster} FOR UPDATE; \
             DELETE FROM membership_silo WHERE cluster = {cluster} \
             AND NOT EXISTS (SELECT 1 FROM membership_version v WHERE v.cluster = {cluster} AND v.deleting = 0) LIMIT {BATCH}",
            session.watch.0
        );
        let sets = begun(session, &step).await?;
        let [.., mark, removed] = sets.as_slice() else {
            return Err(error(
                TableErrorKind::Unavailable,
                "the server gave no answer",
            ));
        };
        if mark
            .rows
            .first()
            .is_some_and(|row| number(row, 0) == Some(0))
        {
            // Another delete has finished the work, and somebody has made the cluster anew: that one is not ours to delete.
            session.roll_back().await;
            return Ok(());
        }
        if removed.affected == BATCH {
            finish(session, &[], doubt).await?;
            continue;
        }
        let rest = [
            "membership_heartbeat",
            "membership_cell",
            "membership_version",
        ]
        .map(|table| format!("DELETE FROM {table} WHERE cluster = {cluster}"));
        finish(session, &rest.each_ref().map(String::as_str), doubt).await?;
        tracing::info!(cluster = %place.cluster, "membership table deleted");
        return Ok(());
    }
}

async fn begun(session: &mut Session, sql: &str) -> Result<Vec<super::session::Set>, TableError> {
    match session.begin(sql).await {
        Ok(sets) => Ok(sets),
        Err(trouble) => {
            session.roll_back().await;
            Err(from_mysql(trouble.error))
        }
    }
}
