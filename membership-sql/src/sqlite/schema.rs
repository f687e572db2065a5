//! The tables of the file.

use std::cell::Cell;

use membership_core::{TableError, TableErrorKind};
use rusqlite::Connection;

use super::STORE;
use super::codec::{first, text};
use super::error::{error, from_sqlite};
use crate::shared::layout::{TABLES, check_marks, marks};

/// The names of the tables start with it.
const PREFIX: &str = "membership_";

/// `body` is the content; the columns before it repeat parts of it for people with a SQLite shell.
const CREATE: &str = "
CREATE TABLE membership_meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE membership_version (
    cluster  TEXT NOT NULL PRIMARY KEY,
    name     TEXT NOT NULL,
    version  INTEGER NOT NULL,
    deleting INTEGER NOT NULL DEFAULT 0,
    body     TEXT NOT NULL
) STRICT;
CREATE TABLE membership_silo (
    cluster    TEXT NOT NULL,
    silo       TEXT NOT NULL,
    status     TEXT NOT NULL,
    written_at INTEGER NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (cluster, silo)
) STRICT, WITHOUT ROWID;
CREATE TABLE membership_heartbeat (
    cluster TEXT NOT NULL,
    silo    TEXT NOT NULL,
    counter INTEGER NOT NULL,
    at      TEXT NOT NULL,
    PRIMARY KEY (cluster, silo)
) STRICT, WITHOUT ROWID;
CREATE TABLE membership_cell (
    cluster TEXT NOT NULL PRIMARY KEY,
    text    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Creates the tables, in a transaction that has found none.
///
/// # Errors
/// The error of SQLite.
pub(super) fn create(conn: &Connection) -> Result<(), TableError> {
    conn.execute_batch(&creation()).map_err(from_sqlite)
}

fn creation() -> String {
    let marks = marks();
    format!("{CREATE}INSERT INTO membership_meta (name, value) VALUES {marks};\n")
}

/// Whether the tables exist, as it was last checked.
#[derive(Default)]
pub(super) struct Tables {
    /// SQLite's number for the state of the file's layout when they existed. They are checked again
    /// only after a table was created, changed or dropped.
    checked: Cell<Option<i64>>,
}

impl Tables {
    /// Whether the tables exist and are ours.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Damaged`, or the error of SQLite.
    pub(super) fn exist(&self, conn: &Connection) -> Result<bool, TableError> {
        let now = first(conn, "PRAGMA schema_version", [], |row| row.get(0))?;
        if now.is_some() && self.checked.get() == now {
            return Ok(true);
        }
        self.checked.set(None);
        let exist = examine(conn)?;
        if exist {
            self.checked.set(now);
        }
        Ok(exist)
    }
}

fn examine(conn: &Connection) -> Result<bool, TableError> {
    let names = TABLES.map(|name| format!("{PREFIX}{name}"));
    let select = "SELECT lower(name), type FROM sqlite_schema";
    let mut all = conn.prepare(select).map_err(from_sqlite)?;
    let all = all.query_map([], |row| Ok((text(row, 0)?, text(row, 1)?)));
    let all = all.and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut found = all.map_err(from_sqlite)?;
    found.retain(|(name, _)| names.contains(name));
    let foreign = |what: &str| {
        let message =
            format!("the file has a table with one of our names that is not ours: {what}");
        Err(error(TableErrorKind::ForeignTable, message))
    };
    let is_table = |name: &String| found.contains(&(name.clone(), "table".to_owned()));
    let Some((any, _)) = found.first() else {
        return Ok(false);
    };
    let [meta, ..] = &names;
    if !is_table(meta) {
        return foreign(&format!("{any} exists without a table {meta}"));
    }
    let select = format!("SELECT value FROM {meta} WHERE name = ?1");
    // Preparing fails if the columns are others, and only then: the file could just be read.
    if conn.prepare(&select).is_err() {
        return foreign(&format!("{meta} has other columns"));
    }
    let mut marks = Vec::new();
    for name in ["product", "layout", "min_layout"] {
        let value = first(conn, &select, [name], |row| text(row, 0))?;
        marks.extend(value.map(|value| (name, value)));
    }
    check_marks(STORE, meta, TableErrorKind::ForeignTable, |name| {
        let mark = marks.iter().find(|(found, _)| *found == name);
        mark.map(|(_, value)| value.clone())
    })?;
    match names.iter().find(|name| !is_table(name)) {
        None => Ok(true),
        Some(missing) => {
            let message = format!("the table {missing} is missing");
            Err(error(TableErrorKind::Damaged, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(sql: &str) -> Result<bool, TableErrorKind> {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(sql).unwrap();
        Tables::default().exist(&conn).map_err(|e| e.kind())
    }

    #[test]
    fn own_and_foreign_tables_are_distinguished() {
        use TableErrorKind::{Damaged, ForeignTable, NewerLayout};
        let own = |more: &str| kind(&format!("{}{more}", creation()));
        assert_eq!(kind(""), Ok(false));
        let others = "CREATE TABLE customers (a); CREATE TABLE membership (b)";
        assert_eq!(kind(others), Ok(false));
        assert_eq!(own(""), Ok(true));
        for foreign in [
            "CREATE TABLE Membership_Version (a)",
            "CREATE TABLE membership_meta (a)",
            "CREATE VIEW membership_meta AS SELECT 'product' name, 'silo-membership' value",
        ] {
            assert_eq!(kind(foreign), Err(ForeignTable), "{foreign}");
        }
        for (change, expected) in [
            (
                "UPDATE membership_meta SET value = 'x' WHERE name = 'product'",
                Err(ForeignTable),
            ),
            (
                "DELETE FROM membership_meta WHERE name = 'layout'",
                Err(ForeignTable),
            ),
            (
                "UPDATE membership_meta SET value = '2' WHERE name = 'layout'",
                Ok(true),
            ),
            (
                "UPDATE membership_meta SET value = '2' WHERE name = 'min_layout'",
                Err(NewerLayout),
            ),
            ("DROP TABLE membership_cell", Err(Damaged)),
        ] {
            assert_eq!(own(change), expected, "{change}");
        }
    }

    #[test]
    fn tables_are_checked_again_after_a_change_of_layout() {
        let conn = Connection::open_in_memory().unwrap();
        let tables = Tables::default();
        assert!(!tables.exist(&conn).unwrap());
        create(&conn).unwrap();
        assert!(tables.exist(&conn).unwrap());
        conn.execute_batch("DROP TABLE membership_silo").unwrap();
        assert!(tables.exist(&conn).is_err());
    }
}
