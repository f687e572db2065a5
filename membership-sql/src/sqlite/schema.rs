//! The tables, and the mark that tells ours from somebody else's.
//!
//! A file may hold other tables too: they are never read or changed. Only a table of one of our names without our mark is refused.

use membership_core::{TableError, TableErrorKind};
use rusqlite::{Connection, OptionalExtension, Row, types::ValueRef};

use super::error::{error, from_sqlite};

/// The layout of the tables that this build makes.
const LAYOUT: u32 = 1;
const PRODUCT: &str = "silo-membership";

const NAMES: [&str; 5] = [
    "membership_meta",
    "membership_version",
    "membership_silo",
    "membership_heartbeat",
    "membership_cell",
];

/// What makes them. `body` is what counts; the columns before it repeat parts of it for people with a SQLite shell.
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
INSERT INTO membership_meta (name, value) VALUES ('product', 'silo-membership'), ('layout', '1'), ('min_layout', '1');
";

/// Makes the tables, all of them or none: runs within a transaction that has found none.
pub(super) fn create(conn: &Connection) -> Result<(), TableError> {
    conn.execute_batch(CREATE).map_err(from_sqlite)
}

/// Whether the tables are there. `checked` remembers the number that SQLite gives to each state of a file's layout, so that the look is
/// taken again only after somebody created, changed or dropped a table.
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `Damaged`, or what SQLite says.
pub(super) fn present(conn: &Connection, checked: &mut Option<i64>) -> Result<bool, TableError> {
    let now: i64 = conn
        .prepare_cached("PRAGMA schema_version")
        .and_then(|mut s| s.query_row([], |r| r.get(0)))
        .map_err(from_sqlite)?;
    if *checked == Some(now) {
        return Ok(true);
    }
    *checked = None;
    let present = examine(conn)?;
    if present {
        *checked = Some(now);
    }
    Ok(present)
}

fn examine(conn: &Connection) -> Result<bool, TableError> {
    let mut found = Vec::new();
    {
        let mut all = conn
            .prepare("SELECT lower(name), type FROM sqlite_schema")
            .map_err(from_sqlite)?;
        let mut rows = all.query([]).map_err(from_sqlite)?;
        while let Some(row) = rows.next().map_err(from_sqlite)? {
            let (name, kind) = (text(row, 0)?, text(row, 1)?);
            if NAMES.contains(&name.as_str()) {
                found.push((name, kind));
            }
        }
    }
    if found.is_empty() {
        return Ok(false);
    }
    let foreign = |what: &str| {
        Err(error(
            TableErrorKind::ForeignTable,
            format!("the file has a table of our name that is not ours: {what}"),
        ))
    };
    if !found
        .iter()
        .any(|(name, kind)| name == NAMES[0] && kind == "table")
    {
        return foreign(&format!(
            "{} stands without a table membership_meta",
            found[0].0
        ));
    }
    // Preparing fails when the columns are others, and only then: the file could be read a moment ago.
    let Ok(mut meta) = conn.prepare("SELECT value FROM membership_meta WHERE name = ?1") else {
        return foreign("membership_meta has other columns");
    };
    let mut value = |name: &str| {
        meta.query_row([name], |r| Ok(text(r, 0)))
            .optional()
            .map_err(from_sqlite)?
            .transpose()
    };
    if value("product")?.as_deref() != Some(PRODUCT) {
        return foreign("membership_meta names another product");
    }
    let mut number =
        |name: &str| Ok::<_, TableError>(value(name)?.and_then(|v| v.parse::<u32>().ok()));
    match (number("layout")?, number("min_layout")?) {
        (Some(layout), Some(least)) if least > LAYOUT => Err(error(
            TableErrorKind::NewerLayout,
            format!(
                "the tables have layout {layout} and need at least layout {least}; this build knows {LAYOUT}"
            ),
        )),
        (Some(_), Some(_)) => match NAMES
            .iter()
            .find(|name| !found.iter().any(|(n, kind)| n == *name && kind == "table"))
        {
            Some(missing) => Err(error(
                TableErrorKind::Damaged,
                format!("the table {missing} is missing"),
            )),
            None => Ok(true),
        },
        _ => foreign("membership_meta has no layout mark"),
    }
}

/// Column `i` as text, whatever was put there by hand; bytes that are no UTF-8 are replaced.
pub(super) fn text(row: &Row<'_>, i: usize) -> Result<String, TableError> {
    Ok(match row.get_ref(i).map_err(from_sqlite)? {
        ValueRef::Null => String::new(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => n.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    })
}

/// An unsigned number as a column; ours end at 2^53.
pub(super) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(sql: &str) -> Result<bool, TableErrorKind> {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(sql).unwrap();
        present(&conn, &mut None).map_err(|e| e.kind())
    }

    #[test]
    fn tells_ours_from_others() {
        let and = |more: &str| format!("{CREATE}{more}");
        assert_eq!(kind(""), Ok(false));
        assert_eq!(
            kind("CREATE TABLE customers (a); CREATE TABLE membership (b)"),
            Ok(false)
        );
        assert_eq!(kind(CREATE), Ok(true));
        assert_eq!(
            kind("CREATE TABLE Membership_Version (a)"),
            Err(TableErrorKind::ForeignTable)
        );
        assert_eq!(
            kind("CREATE TABLE membership_meta (a)"),
            Err(TableErrorKind::ForeignTable)
        );
        assert_eq!(
            kind("CREATE VIEW membership_meta AS SELECT 'product' name, 'silo-membership' value"),
            Err(TableErrorKind::ForeignTable)
        );
        assert_eq!(
            kind(&and(
                "UPDATE membership_meta SET value = 'x' WHERE name = 'product'"
            )),
            Err(TableErrorKind::ForeignTable)
        );
        assert_eq!(
            kind(&and("DELETE FROM membership_meta WHERE name = 'layout'")),
            Err(TableErrorKind::ForeignTable)
        );
        assert_eq!(
            kind(&and(
                "UPDATE membership_meta SET value = '2' WHERE name = 'layout'"
            )),
            Ok(true)
        );
        assert_eq!(
            kind(&and(
                "UPDATE membership_meta SET value = '2' WHERE name = 'min_layout'"
            )),
            Err(TableErrorKind::NewerLayout)
        );
        assert_eq!(
            kind(&and("DROP TABLE membership_cell")),
            Err(TableErrorKind::Damaged)
        );
    }

    #[test]
    fn looks_again_after_a_change_of_layout() {
        let conn = Connection::open_in_memory().unwrap();
        let mut checked = None;
        assert!(!present(&conn, &mut checked).unwrap());
        create(&conn).unwrap();
        assert!(present(&conn, &mut checked).unwrap());
        conn.execute_batch("DROP TABLE membership_silo").unwrap();
        assert!(present(&conn, &mut checked).is_err());
    }
}
