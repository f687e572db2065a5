//! Checks of the tables and the procedure over a connection, and the creation of the tables.

use std::collections::{BTreeMap, BTreeSet};

use membership_core::{TableError, TableErrorKind as Kind};

use super::columns::{number, text};
use super::connection::Connection;
use super::error::{NO_SUCH_TABLE, PRINT, code, error, from_mysql};
use super::schema::{TABLES, creation, names};
use super::{STORE, procedure};
use crate::shared::layout::check_marks;
use crate::shared::pool::Link as _;

/// Held while tables are created, so that concurrent clients find them. It is optional: it ends
/// with the connection, and is not taken where connections are shared.
const LOCK: &str = "CONCAT('silo-membership ', MD5(DATABASE()))";

impl Connection {
    /// Whether the tables exist and are ours; asks the server unless they were found before.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Configuration` (another engine or collation), `Damaged` (one
    /// of them is missing), or the error that the server returns.
    pub(super) async fn has_tables(&mut self) -> Result<bool, TableError> {
        if !self.known_tables {
            self.known_tables = find_tables(self).await?;
        }
        Ok(self.known_tables)
    }

    /// Creates the tables that are missing.
    ///
    /// # Errors
    /// `PermissionDenied` with what to do, or the error that the server returns. Some of the tables
    /// may exist then; the next call creates the others.
    pub(super) async fn create_tables(&mut self, take_lock: bool) -> Result<(), TableError> {
        if !take_lock {
            return create(self).await;
        }
        self.begin(&format!("SELECT GET_LOCK({LOCK}, 5)")).await?;
        let created = match find_tables(self).await {
            Ok(true) => Ok(()),
            Ok(false) => create(self).await,
            Err(e) => Err(e),
        };
        let release = format!("DO RELEASE_LOCK({LOCK})");
        if self.is_usable() && self.send(&release).await.is_err() {
            self.discard();
        }
        created
    }

    /// Whether the procedure exists.
    ///
    /// # Errors
    /// The error that the server returns.
    pub(super) async fn finds_procedure(&mut self) -> Result<bool, TableError> {
        let sets = self.begin(&procedure::presence()).await?;
        let row = sets.last().and_then(|set| set.rows.first());
        Ok(row.and_then(|row| number(row, 0)).is_some_and(|n| n > 0))
    }
}

async fn create(connection: &mut Connection) -> Result<(), TableError> {
    refuse_foreign(connection).await?;
    for statement in creation() {
        connection.begin(&statement).await.map_err(|failure| {
            let e = from_mysql(failure.error);
            if e.kind() != Kind::PermissionDenied {
                return e;
            }
            let message =
                format!("the tables are missing, and this user may not create them: {PRINT}");
            error(Kind::PermissionDenied, message).with_source(e)
        })?;
    }
    refuse_foreign(connection).await?;
    if find_tables(connection).await? {
        return Ok(());
    }
    let message = "the tables were dropped while they were created";
    Err(error(Kind::Unavailable, message))
}

async fn find_tables(connection: &mut Connection) -> Result<bool, TableError> {
    let select = "SELECT name, value FROM membership_meta";
    let sets = match connection.begin(select).await {
        Err(failure) if code(&failure.error) == Some(NO_SUCH_TABLE) => {
            refuse_foreign(connection).await?;
            return Ok(false);
        }
        // A column is missing.
        Err(failure) if code(&failure.error) == Some(1054) => {
            return Err(foreign("membership_meta has other columns"));
        }
        sets => sets?,
    };
    let rows = sets.iter().flat_map(|set| &set.rows);
    let marks: BTreeMap<_, _> = rows
        .filter_map(|r| Some((text(r, 0)?, text(r, 1)?)))
        .collect();
    if marks.is_empty() {
        // Another client is creating them, or died while it did.
        return Ok(false);
    }
    check_marks(STORE, "membership_meta", Kind::Damaged, |name| {
        marks.get(name).cloned()
    })?;
    check_tables(connection).await
}

/// Transactions need InnoDB, and different keys must not be equal, which needs a binary collation
/// (clause T9).
async fn check_tables(connection: &mut Connection) -> Result<bool, TableError> {
    let names = names();
    // Two statements without a join: the server then reads our tables only, not those of every
    // database.
    let sql = format!(
        "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ({names}); \
         SELECT table_name, column_name, collation_name FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name IN ({names}) AND column_name IN ('name', 'cluster', 'silo')"
    );
    let sets = connection.begin(&sql).await?;
    let mut found = BTreeSet::new();
    for row in sets.first().into_iter().flat_map(|s| &s.rows) {
        let [table, engine] = [0, 1].map(|i| text(row, i).unwrap_or_default());
        if !engine.eq_ignore_ascii_case("InnoDB") {
            let message =
                format!("{table} has the engine {engine}: ALTER TABLE {table} ENGINE = InnoDB");
            return Err(error(Kind::Configuration, message));
        }
        found.insert(table);
    }
    for row in sets.get(1).into_iter().flat_map(|s| &s.rows) {
        let [table, column, collation] = [0, 1, 2].map(|i| text(row, i).unwrap_or_default());
        if collation != "utf8mb4_bin" {
            let message = format!(
                "{table}.{column} has the collation {collation}, in which different names are equal: \
                 ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            );
            return Err(error(Kind::Configuration, message));
        }
    }
    match TABLES.iter().find(|(name, ..)| !found.contains(*name)) {
        None => Ok(true),
        // The mark is written after all tables are created.
        Some((name, ..)) => {
            let message = format!(
                "the other tables exist, but {name} does not, or this user may not see it: check the grants, or restore it"
            );
            Err(error(Kind::Damaged, message))
        }
    }
}

/// Refuses tables with our names that are not ours, before anything is written.
async fn refuse_foreign(connection: &mut Connection) -> Result<(), TableError> {
    let names = names();
    let sql = format!(
        "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ({names}); \
         SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name IN ({names})"
    );
    let sets = connection.begin(&sql).await?;
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

fn foreign(what: &str) -> TableError {
    let message =
        format!("the database has a table with one of our names that is not ours: {what}");
    error(Kind::ForeignTable, message)
}
