//! The tables, and the mark that tells ours from somebody else's.
//!
//! A database may hold other tables too: they are never read or changed. Only a table of one of our names without our mark is refused.
//!
//! A later layout that this build must not touch raises `min_layout` in the meta table, which is looked at whenever a connection is made,
//! and in every version row, which every write looks at.

use super::config::PostgresConfig;

/// The layout of the tables that this build makes.
pub(super) const LAYOUT: u32 = 1;
pub(super) const PRODUCT: &str = "silo-membership";
/// What each name is after the prefix.
pub(super) const TABLES: [&str; 5] = ["meta", "version", "silo", "heartbeat", "cell"];

/// Taken while tables are made: the same for everybody in a database. The bytes of `silo-mem`.
const LOCK: i64 = 0x7369_6c6f_2d6d_656d;

/// The names of the tables, ready for a statement.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) schema: String,
    prefix: String,
}

/// A name in quotes.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in quotes, for the few statements that take no parameters. A backslash means itself only in an `E''` text written twice.
pub(super) fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if text.contains('\\') {
        format!(" E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

impl Names {
    pub(super) fn new(config: &PostgresConfig) -> Self {
        Self {
            schema: config.schema.clone(),
            prefix: config.prefix.clone(),
        }
    }

    /// `"schema"."prefix_name"`
    pub(super) fn table(&self, name: &str) -> String {
        format!(
            "{}.{}",
            quoted(&self.schema),
            quoted(&format!("{}{name}", self.prefix))
        )
    }

    /// Puts names in the place of `{meta}`, `{version}`, `{silo}`, `{heartbeat}` and `{cell}`.
    pub(super) fn put_into(&self, template: &str) -> String {
        TABLES.iter().fold(template.to_owned(), |sql, name| {
            sql.replace(&format!("{{{name}}}"), &self.table(name))
        })
    }

    pub(super) fn make_schema(&self) -> String {
        format!("CREATE SCHEMA IF NOT EXISTS {};\n", quoted(&self.schema))
    }

    /// Makes the tables where they are missing: several at once wait for each other, and the second finds them there. One transaction.
    pub(super) fn make_tables(&self) -> String {
        format!(
            "SELECT pg_advisory_xact_lock({LOCK});\n{}",
            self.put_into(CREATE)
        )
    }

    /// The same for people.
    pub(super) fn printable(&self) -> String {
        let schema = if self.schema == "public" {
            String::new()
        } else {
            self.make_schema()
        };
        format!(
            "-- The tables of silo-membership, layout {LAYOUT}. Run it once, as a user who may create tables, for example with psql.\n\
             -- Running it again changes nothing. Then, for each user that silos connect as:\n\
             --   GRANT USAGE ON SCHEMA {schema_name} TO silos;\n\
             --   GRANT SELECT ON {meta} TO silos;\n\
             --   GRANT SELECT, INSERT, UPDATE, DELETE ON {version}, {silo}, {heartbeat}, {cell} TO silos;\n\
             BEGIN;\n{schema}{tables}COMMIT;\n",
            schema_name = quoted(&self.schema),
            meta = self.table("meta"),
            version = self.table("version"),
            silo = self.table("silo"),
            heartbeat = self.table("heartbeat"),
            cell = self.table("cell"),
            tables = self.make_tables(),
        )
    }

    /// A condition of the catalogue: which of our names are taken. Gives one column per table.
    pub(super) fn presence(&self) -> String {
        let column =
            |name: &&str| format!("to_regclass({}) IS NOT NULL", literal(&self.table(name)));
        TABLES.iter().map(column).collect::<Vec<_>>().join(", ")
    }
}

/// Keys are compared byte by byte, whatever the database's collation. Rows that are rewritten often leave room in their pages, so that
/// the index need not be touched. `recent` holds one JSON object per commit, `settings` and `extra` a JSON object each, `core` a JSON text.
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
INSERT INTO {meta} (name, value) VALUES ('product', 'silo-membership'), ('layout', '1'), ('min_layout', '1') ON CONFLICT DO NOTHING;
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_quoted() {
        let config = PostgresConfig::from_url("postgres://h/d?schema=a%22b'c&prefix=x_").unwrap();
        let names = Names::new(&config);
        assert_eq!(names.table("silo"), "\"a\"\"b'c\".\"x_silo\"");
        assert!(names.presence().contains("'\"a\"\"b''c\".\"x_silo\"'"));
        assert_eq!(literal(r"a\b'"), r" E'a\\b'''");
        let sql = config.schema_sql();
        assert!(
            sql.contains("CREATE SCHEMA IF NOT EXISTS \"a\"\"b'c\"") && !sql.contains("{meta}"),
            "{sql}"
        );
        assert!(sql.contains(&format!("'{PRODUCT}'")) && sql.contains("GRANT"));
    }
}
