//! The tables, and the statements that create and find them.

use super::keys::{Names, literal, quoted};
use crate::shared::layout::{LAYOUT, TABLES, marks};

/// Locked while tables are created, by every client of a database. The bytes of `silo-mem`.
const LOCK: i64 = 0x7369_6c6f_2d6d_656d;

pub(super) fn create_schema(names: &Names) -> String {
    format!("CREATE SCHEMA IF NOT EXISTS {};\n", quoted(&names.schema))
}

/// Creates the missing tables in one transaction. Concurrent clients wait for each other.
pub(super) fn create_tables(names: &Names) -> String {
    let tables = names.put_into(&CREATE.replace("{marks}", &marks()));
    format!("SELECT pg_advisory_xact_lock({LOCK});\n{tables}")
}

/// The same as a script.
pub(super) fn script(names: &Names) -> String {
    let schema = match names.schema.as_str() {
        "public" => String::new(),
        _ => create_schema(names),
    };
    let grants = names.put_into(
        "--   GRANT SELECT ON {meta} TO silos;\n\
         --   GRANT SELECT, INSERT, UPDATE, DELETE ON {version}, {silo}, {heartbeat}, {cell} TO silos;\n",
    );
    format!(
        "-- The tables of silo-membership, layout {LAYOUT}. Run it once, as a user who may create tables, for example with psql.\n\
         -- Running it again changes nothing. Then, for each user that silos connect as:\n\
         --   GRANT USAGE ON SCHEMA {} TO silos;\n{grants}BEGIN;\n{schema}{}COMMIT;\n",
        quoted(&names.schema),
        create_tables(names),
    )
}

/// Expressions that say which tables exist, one column per table.
pub(super) fn presence(names: &Names) -> String {
    let column = |name| format!("to_regclass({}) IS NOT NULL", literal(&names.table(name)));
    TABLES.map(column).join(", ")
}

/// Keys are compared byte by byte, whatever the database's collation. Pages of rows that are often
/// updated keep free space, so that the index need not change. `recent` holds one JSON object per
/// commit, `settings` and `extra` a JSON object each, `core` a JSON text.
const CREATE: &str = r#"CREATE TABLE IF NOT EXISTS {meta} (
    name  text COLLATE "C" NOT NULL PRIMARY KEY,
    value text NOT NULL
);
CREATE TABLE IF NOT EXISTS {version} (
    cluster    text COLLATE "C" NOT NULL PRIMARY KEY,
    name       text NOT NULL,
    table_id   text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    commit_id  text COLLATE "C" NOT NULL,
    deleting   boolean NOT NULL DEFAULT false,
    row_count  bigint NOT NULL,
    layout     integer,
    min_layout integer,
    recent     text[] NOT NULL,
    settings   text NOT NULL,
    core       text NOT NULL,
    extra      text NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {silo} (
    cluster    text COLLATE "C" NOT NULL,
    silo       text COLLATE "C" NOT NULL,
    status     text NOT NULL,
    written_at bigint NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (cluster, silo)
) WITH (fillfactor = 80);
CREATE TABLE IF NOT EXISTS {heartbeat} (
    cluster text COLLATE "C" NOT NULL,
    silo    text COLLATE "C" NOT NULL,
    counter bigint,
    at      text,
    PRIMARY KEY (cluster, silo)
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {cell} (
    cluster text COLLATE "C" NOT NULL PRIMARY KEY,
    text    text NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {meta} (name, value) VALUES {marks} ON CONFLICT DO NOTHING;
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_quoted_tables() {
        let names = Names::new("a\"b'c", "x_");
        assert!(presence(&names).contains("'\"a\"\"b''c\".\"x_silo\"'"));
        let sql = script(&names);
        assert!(
            sql.contains("CREATE SCHEMA IF NOT EXISTS \"a\"\"b'c\""),
            "{sql}"
        );
        assert!(!sql.contains("{meta}") && !sql.contains("{marks}"), "{sql}");
        assert!(sql.contains("'silo-membership'") && sql.contains("GRANT"));
    }
}
