//! The tables, and the mark that tells ours from somebody else's.
//!
//! A database may hold other tables too: they are never read or changed. Only a table of one of our names without our mark is refused.

use std::collections::{BTreeMap, BTreeSet};

use membership_core::{TableError, TableErrorKind};

use super::error::{NO_SUCH_TABLE, PRINT, code, error, from_mysql};
use super::session::{Session, text};
use super::sql::{CLUSTER_CHARS, SILO_CHARS};

/// The layout of the tables that this build makes.
const LAYOUT: u32 = 1;
const PRODUCT: &str = "silo-membership";

/// Its name, its columns with their types, and its key.
type Table = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

/// The tables and their columns. `body` is what counts; the columns before it repeat parts of it for people with a SQL shell. `token` too:
/// the server compares it with what a reader knows.
const TABLES: [Table; 5] = [
    (
        "membership_meta",
        &[
            ("name", "VARCHAR(64) NOT NULL"),
            ("value", "VARCHAR(200) NOT NULL"),
        ],
        "name",
    ),
    (
        "membership_version",
        &[
            ("cluster", "VARCHAR({cluster}) NOT NULL"),
            ("name", "VARCHAR(1000) NOT NULL"),
            ("version", "BIGINT UNSIGNED NOT NULL"),
            ("token", "VARCHAR(128) NOT NULL"),
            ("deleting", "TINYINT UNSIGNED NOT NULL DEFAULT 0"),
            ("body", "MEDIUMTEXT NOT NULL"),
        ],
        "cluster",
    ),
    (
        "membership_silo",
        &[
            ("cluster", "VARCHAR({cluster}) NOT NULL"),
            ("silo", "VARCHAR({silo}) NOT NULL"),
            ("status", "VARCHAR(32) NOT NULL"),
            ("written_at", "BIGINT UNSIGNED NOT NULL"),
            ("body", "MEDIUMTEXT NOT NULL"),
        ],
        "cluster, silo",
    ),
    (
        "membership_heartbeat",
        &[
            ("cluster", "VARCHAR({cluster}) NOT NULL"),
            ("silo", "VARCHAR({silo}) NOT NULL"),
            ("counter", "BIGINT UNSIGNED NOT NULL"),
            ("at", "VARCHAR(64) NOT NULL"),
        ],
        "cluster, silo",
    ),
    (
        "membership_cell",
        &[
            ("cluster", "VARCHAR({cluster}) NOT NULL"),
            ("text", "MEDIUMTEXT NOT NULL"),
        ],
        "cluster",
    ),
];

/// The statements that make the tables. Each does nothing where its table is there, so that 50 silos may run them at once.
fn creation() -> Vec<String> {
    let table = |(name, columns, key): Table| {
        let columns: Vec<_> = columns
            .iter()
            .map(|(column, kind)| {
                let kind = kind
                    .replace("{cluster}", &CLUSTER_CHARS.to_string())
                    .replace("{silo}", &SILO_CHARS.to_string());
                format!("    {column} {kind},\n")
            })
            .collect();
        format!(
            "CREATE TABLE IF NOT EXISTS {name} (\n{}    PRIMARY KEY ({key})\n) \
             ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin",
            columns.concat()
        )
    };
    let mut all: Vec<_> = TABLES.into_iter().map(table).collect();
    all.push(format!(
        "INSERT IGNORE INTO membership_meta (name, value) VALUES ('product', '{PRODUCT}'), ('layout', '{LAYOUT}'), ('min_layout', '{LAYOUT}')"
    ));
    all
}

/// The same as a script.
pub(super) fn printable() -> String {
    creation()
        .into_iter()
        .map(|statement| statement + ";\n")
        .collect()
}

/// One maker at a time, so that the others find what it has made. A courtesy only: the lock ends with the connection, and where
/// connections are shared it is not taken.
const LOCK: &str = "CONCAT('silo-membership ', MD5(DATABASE()))";

/// Makes the tables. The caller has found none of them, or only some that are ours.
///
/// # Errors
/// `PermissionDenied` with the way out, or what the server says. Half of them may be there then; the next call makes the rest.
pub(super) async fn create(session: &mut Session, alone: bool) -> Result<(), TableError> {
    if !alone {
        return create_now(session).await;
    }
    session
        .begin(&format!("SELECT GET_LOCK({LOCK}, 5)"))
        .await
        .map_err(|t| from_mysql(t.error))?;
    let made = match present(session).await {
        Ok(true) => Ok(()),
        Ok(false) => create_now(session).await,
        Err(e) => Err(e),
    };
    if session.is_usable()
        && session
            .flight(&format!("DO RELEASE_LOCK({LOCK})"))
            .await
            .is_err()
    {
        session.discard();
    }
    made
}

async fn create_now(session: &mut Session) -> Result<(), TableError> {
    refuse_foreign(session).await?;
    for statement in creation() {
        session.begin(&statement).await.map_err(|t| {
            let e = from_mysql(t.error);
            match e.kind() {
                TableErrorKind::PermissionDenied => error(
                    TableErrorKind::PermissionDenied,
                    format!("the tables are missing, and this user may not make them: {PRINT}"),
                )
                .with_source(e),
                _ => e,
            }
        })?;
    }
    refuse_foreign(session).await?;
    if present(session).await? {
        Ok(())
    } else {
        Err(error(
            TableErrorKind::Unavailable,
            "the tables were dropped while they were made",
        ))
    }
}

/// Whether the tables are there and are ours.
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `Configuration` (another engine or collation), `Damaged` (one of them is missing), or what the server says.
pub(super) async fn present(session: &mut Session) -> Result<bool, TableError> {
    let marks = match session
        .begin("SELECT name, value FROM membership_meta")
        .await
    {
        Ok(sets) => sets,
        Err(t) if code(&t.error) == Some(NO_SUCH_TABLE) => {
            refuse_foreign(session).await?;
            return Ok(false);
        }
        // A column that is not there.
        Err(t) if code(&t.error) == Some(1054) => {
            return Err(foreign("membership_meta has other columns"));
        }
        Err(t) => return Err(from_mysql(t.error)),
    };
    let marks: BTreeMap<_, _> = marks
        .iter()
        .flat_map(|s| &s.rows)
        .filter_map(|r| Some((text(r, 0)?, text(r, 1)?)))
        .collect();
    if marks.is_empty() {
        // Somebody is just making them, or died while doing so.
        return Ok(false);
    }
    if marks.get("product").is_none_or(|p| p != PRODUCT) {
        return Err(foreign("membership_meta does not say that it is ours"));
    }
    let number = |name: &str| marks.get(name).and_then(|v| v.parse::<u32>().ok());
    let (Some(layout), Some(min_layout)) = (number("layout"), number("min_layout")) else {
        return Err(error(
            TableErrorKind::Damaged,
            "membership_meta does not say which layout the tables have",
        ));
    };
    if min_layout > LAYOUT {
        let message = format!(
            "the tables have layout {layout}, which needs a build that knows layout {min_layout}; this one knows {LAYOUT}"
        );
        return Err(error(TableErrorKind::NewerLayout, message));
    }
    check_tables(session).await
}

/// Transactions need InnoDB, and keys that are equal only when they are the same need a binary collation (clause T9).
async fn check_tables(session: &mut Session) -> Result<bool, TableError> {
    let names = names();
    // Two statements without a join: the server looks at our tables only, and not at those of every database.
    let sql = format!(
        "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ({names}); \
         SELECT table_name, column_name, collation_name FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name IN ({names}) AND column_name IN ('name', 'cluster', 'silo')"
    );
    let sets = session.begin(&sql).await.map_err(|t| from_mysql(t.error))?;
    let mut found = BTreeSet::new();
    for row in sets.first().into_iter().flat_map(|s| &s.rows) {
        let [table, engine] = [0, 1].map(|i| text(row, i).unwrap_or_default());
        if !engine.eq_ignore_ascii_case("InnoDB") {
            let message =
                format!("{table} has the engine {engine}: ALTER TABLE {table} ENGINE = InnoDB");
            return Err(error(TableErrorKind::Configuration, message));
        }
        found.insert(table);
    }
    for row in sets.get(1).into_iter().flat_map(|s| &s.rows) {
        let [table, column, collation] = [0, 1, 2].map(|i| text(row, i).unwrap_or_default());
        if collation != "utf8mb4_bin" {
            let message = format!(
                "{table}.{column} compares as {collation}, which takes different names for the same: \
                 ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            );
            return Err(error(TableErrorKind::Configuration, message));
        }
    }
    match TABLES.iter().find(|(name, ..)| !found.contains(*name)) {
        None => Ok(true),
        // The mark is written when all tables are made.
        Some((name, ..)) => {
            let message = format!(
                "the other tables are there, and {name} is not, or this user may not see it: look at its grants, or restore it"
            );
            Err(error(TableErrorKind::Damaged, message))
        }
    }
}

/// Tables of our names that we did not make, before anything is written.
async fn refuse_foreign(session: &mut Session) -> Result<(), TableError> {
    let names = names();
    let sql = format!(
        "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ({names}); \
         SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name IN ({names})"
    );
    let sets = session.begin(&sql).await.map_err(|t| from_mysql(t.error))?;
    let mut columns: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let pairs = |at: usize| {
        sets.get(at)
            .into_iter()
            .flat_map(|s| &s.rows)
            .map(|row| [0, 1].map(|i| text(row, i).unwrap_or_default()))
    };
    for [table, kind] in pairs(0) {
        if kind != "BASE TABLE" {
            return Err(foreign(&format!("{table} is a {kind}")));
        }
    }
    for [table, column] in pairs(1) {
        columns.entry(table).or_default().insert(column);
    }
    for (table, columns) in columns {
        let ours: BTreeSet<_> = TABLES
            .iter()
            .filter(|(name, ..)| *name == table)
            .flat_map(|(_, columns, _)| *columns)
            .map(|(c, _)| (*c).to_owned())
            .collect();
        if !ours.is_subset(&columns) {
            return Err(foreign(&format!("{table} has other columns")));
        }
    }
    Ok(())
}

fn names() -> String {
    TABLES.map(|(name, ..)| format!("'{name}'")).join(", ")
}

fn foreign(what: &str) -> TableError {
    error(
        TableErrorKind::ForeignTable,
        format!("the database has a table of our name that is not ours: {what}"),
    )
}

/// The error for tables that are missing and that this client is told not to make.
pub(super) fn not_made() -> TableError {
    error(
        TableErrorKind::Configuration,
        format!("the tables are missing, and create=false forbids to make them: {PRINT}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_whole() {
        let script = printable();
        for (name, columns, _) in TABLES {
            assert!(
                script.contains(&format!("CREATE TABLE IF NOT EXISTS {name} (\n")),
                "{script}"
            );
            assert!(
                columns
                    .iter()
                    .all(|(c, _)| script.contains(&format!("\n    {c} ")))
            );
        }
        assert!(!script.contains('{'), "{script}");
        assert_eq!(script.matches(";\n").count(), TABLES.len() + 1);
    }
}
