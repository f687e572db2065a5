//! The tables, and the statements that create them.

use super::keys::{CLUSTER_CHARS, SILO_CHARS};
use crate::shared::layout::marks;

/// Its name, its columns with their types, and its key.
pub(super) type Table = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

/// The tables and their columns. `body` is the content; the columns before it repeat parts of it
/// for people with a SQL shell. The server compares `token` with what a reader knows.
pub(super) const TABLES: [Table; 5] = [
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

/// The statements that create the tables. Each does nothing if its table exists, so that 50 silos
/// may run them at once.
pub(super) fn creation() -> Vec<String> {
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
        "INSERT IGNORE INTO membership_meta (name, value) VALUES {}",
        marks()
    ));
    all
}

/// The same as a script.
pub(super) fn script() -> String {
    creation()
        .into_iter()
        .map(|statement| statement + ";\n")
        .collect()
}

/// Their names, as a list of a statement.
pub(super) fn names() -> String {
    TABLES.map(|(name, ..)| format!("'{name}'")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_whole() {
        let script = super::script();
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
