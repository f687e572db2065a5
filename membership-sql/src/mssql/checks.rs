//! What a server and a database must be like, and checks and creation of the tables.

use std::collections::{BTreeMap, BTreeSet};

use membership_core::{TableError, TableErrorKind as Kind};

use super::STORE;
use super::config::MssqlConfig;
use super::connection::Connection;
use super::error::{NO_SUCH_COLUMN, PRINT, collides, error, from_mssql};
use super::schema::{COLLATION, TABLES, column_names, script};
use super::sql::kind;
use crate::shared::layout::check_marks;

/// The first version with `OPENJSON`: SQL Server 2016, and the compatibility level of its databases.
const LEAST: (i64, i64) = (13, 130);
/// How often the creation of tables begins again while other clients create them.
const ATTEMPTS: u32 = 16;

/// What is known of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Whether a crash can lose acknowledged commits.
    pub(super) lossy: bool,
    /// Whether the database is in an availability group that the operator runs.
    pub(super) group: bool,
}

const FACTS: &str = "SELECT 7, f.name, CAST(NULL AS nvarchar(max)), f.value, CAST(NULL AS nvarchar(64)) FROM sys.databases AS d CROSS APPLY (VALUES \
     (N'edition', CAST(CAST(SERVERPROPERTY('EngineEdition') AS nvarchar(64)) AS bigint)), \
     (N'version', CAST(CAST(SERVERPROPERTY('ProductMajorVersion') AS nvarchar(64)) AS bigint)), \
     (N'babelfish', CAST(SERVERPROPERTY('Babelfish') AS bigint)), \
     (N'level', CAST(d.compatibility_level AS bigint)), \
     (N'delayed', CAST(d.delayed_durability AS bigint)), \
     (N'group', CAST(CASE WHEN d.replica_id IS NULL THEN 0 ELSE 1 END AS bigint)), \
     (N'read only', CAST(CASE WHEN DATABASEPROPERTYEX(d.name, 'Updateability') = N'READ_WRITE' THEN 0 ELSE 1 END AS bigint)) \
     ) AS f (name, value) WHERE d.database_id = DB_ID();";

/// The columns of each table, with what it is (0 missing, 1 a table, 2 something else), and the
/// marks.
fn tables() -> String {
    let names = TABLES.map(|(name, _)| format!("(N'{name}')")).join(", ");
    format!(
        "SELECT 7, n.name, CAST(c.name AS nvarchar(max)), CAST(CASE WHEN OBJECT_ID(n.name) IS NULL THEN 0 \
         WHEN OBJECT_ID(n.name, N'U') IS NULL THEN 2 ELSE 1 END AS bigint), CAST(c.collation_name AS nvarchar(64)) \
         FROM (VALUES {names}) AS n (name) LEFT JOIN sys.columns AS c ON c.object_id = OBJECT_ID(n.name);\n\
         IF OBJECT_ID(N'membership_meta', N'U') IS NOT NULL \
         SELECT 7, N'mark', CAST(m.value AS nvarchar(max)), CAST(NULL AS bigint), m.name FROM membership_meta AS m;\n"
    )
}

impl Connection {
    /// Checks version, role and settings.
    ///
    /// # Errors
    /// `Unavailable` for a database that accepts no writes, `Configuration` for what cannot be used.
    pub(super) async fn check_server(&mut self, config: &MssqlConfig) -> Result<(), TableError> {
        let lines = self.read(FACTS, &[]).await?;
        let facts: BTreeMap<_, _> = lines
            .iter()
            .filter_map(|line| Some((line.silo.as_deref()?, line.number?)))
            .collect();
        let fact = |name: &str| facts.get(name).copied();
        if fact("babelfish") == Some(1) {
            let message = "this is Babelfish, which ignores lock hints: use postgres:// with its PostgreSQL port";
            return Err(error(Kind::Configuration, message));
        }
        // Azure SQL: Microsoft runs the replicas, and gives every database the latest engine.
        let azure = matches!(fact("edition"), Some(5 | 8 | 12));
        let (version, level) = (fact("version").unwrap_or(0), fact("level").unwrap_or(0));
        let old = !azure && version < LEAST.0;
        if old || level < LEAST.1 {
            let message = format!(
                "the server has version {version} and the database compatibility level {level}; SQL Server 2016 (13) and level 130 are needed"
            );
            return Err(error(Kind::Configuration, message));
        }
        if fact("read only") != Some(0) {
            return Err(secondary());
        }
        self.facts = Facts {
            lossy: fact("delayed") == Some(2),
            group: !azure && fact("group") != Some(0),
        };
        if self.facts.lossy && config.must_be_durable() {
            let message = "the database has DELAYED_DURABILITY = FORCED and may lose acknowledged commits in a crash; \
                           ALLOWED or DISABLED is needed, or require_durable=false";
            return Err(error(Kind::Configuration, message));
        }
        Ok(())
    }

    /// Whether the tables exist and are ours; asks the server unless they were found before.
    ///
    /// # Errors
    /// `ForeignTable`, `NewerLayout`, `Configuration` (another collation), `Damaged` (one of them is
    /// missing), or the error that the server returns.
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
    pub(super) async fn create_tables(&mut self) -> Result<(), TableError> {
        let script = script();
        let mut last = error(Kind::Busy, "other clients create the tables");
        for round in 0..ATTEMPTS {
            match self.batch(&script).await {
                Ok(()) if self.has_tables().await? => return Ok(()),
                Ok(()) => {}
                Err(e) if collides(&e) => last = from_mssql(e),
                Err(e) => {
                    let e = from_mssql(e);
                    if e.kind() != Kind::PermissionDenied {
                        return Err(e);
                    }
                    let message = format!(
                        "the tables are missing, and this user may not create them: {PRINT}"
                    );
                    return Err(error(Kind::PermissionDenied, message).with_source(e));
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(u64::from(5 * round))).await;
        }
        Err(last)
    }
}

async fn find_tables(connection: &mut Connection) -> Result<bool, TableError> {
    let no_column = format!("({NO_SUCH_COLUMN}:");
    let lines = match connection.read(&tables(), &[]).await {
        Err(e) if e.message().contains(&no_column) => {
            return Err(foreign("membership_meta has other columns"));
        }
        lines => lines?,
    };
    let (mut marks, mut found) = (BTreeMap::new(), BTreeMap::<_, BTreeSet<_>>::new());
    for line in lines.into_iter().filter(|line| line.kind == kind::FACT) {
        let name = line.silo.unwrap_or_default();
        match (line.number, line.body) {
            (None, Some(value)) => {
                marks.insert(line.at.unwrap_or_default(), value);
            }
            (Some(1), Some(column)) => {
                let key = matches!(column.as_str(), "cluster" | "silo")
                    || name == "membership_meta" && column == "name";
                let collation = line.at.unwrap_or_default();
                if key && !collation.contains("_BIN") {
                    let message = format!(
                        "{name}.{column} has the collation {collation}, in which different names may be equal: {COLLATION} is needed"
                    );
                    return Err(error(Kind::Configuration, message));
                }
                found.entry(name).or_default().insert(column);
            }
            (Some(2), _) => return Err(foreign(&format!("{name} is no table"))),
            _ => {}
        }
    }
    let mut missing = None;
    for (name, columns) in TABLES {
        match found.get(name) {
            None => missing = Some(name),
            Some(there) if column_names(columns).iter().all(|c| there.contains(c)) => {}
            Some(_) => return Err(foreign(&format!("{name} has other columns"))),
        }
    }
    if marks.is_empty() {
        // Another client is creating them, or died while it did.
        return Ok(false);
    }
    check_marks(STORE, "membership_meta", Kind::Damaged, |name| {
        marks.get(name).cloned()
    })?;
    // The mark is written after all tables are created.
    missing.map_or(Ok(true), |name| {
        let message = format!(
            "the other tables exist, but {name} does not, or this user may not see it: check the grants, or restore it"
        );
        Err(error(Kind::Damaged, message))
    })
}

/// The error of a database that accepts no writes.
pub(super) fn secondary() -> TableError {
    let message =
        "the database accepts no writes, like a secondary: the address must lead to the primary";
    error(Kind::Unavailable, message)
}

fn foreign(what: &str) -> TableError {
    let message =
        format!("the database has a table with one of our names that is not ours: {what}");
    error(Kind::ForeignTable, message)
}
