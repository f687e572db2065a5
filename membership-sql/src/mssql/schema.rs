//! The tables, and the statements that create them.

use crate::shared::layout::{LAYOUT, marks};

/// The length of the column `cluster`, in characters. With `silo` the key has 896 bytes; the server
/// allows 900.
pub(super) const CLUSTER_CHARS: usize = 320;

/// The columns of each table, in the order of their creation. The mark is written after the last
/// one.
pub(super) const TABLES: [(&str, &str); 5] = [
    (
        "membership_meta",
        "name nvarchar(64) {key} NOT NULL PRIMARY KEY, value nvarchar(200) NOT NULL",
    ),
    (
        "membership_version",
        "cluster nvarchar(320) {key} NOT NULL PRIMARY KEY, name nvarchar(1000) NOT NULL, table_id nvarchar(40) {key} NOT NULL, \
         version bigint NOT NULL, commit_id nvarchar(40) {key} NOT NULL, deleting bit NOT NULL DEFAULT 0, row_count bigint NOT NULL, \
         layout int NULL, min_layout int NULL, settings nvarchar(max) NOT NULL, core nvarchar(max) NOT NULL, extra nvarchar(max) NOT NULL, {recent}",
    ),
    (
        "membership_silo",
        "cluster nvarchar(320) {key} NOT NULL, silo nvarchar(128) {key} NOT NULL, status nvarchar(32) NOT NULL, \
         written_at bigint NOT NULL, body nvarchar(max) NOT NULL, PRIMARY KEY (cluster, silo)",
    ),
    (
        "membership_heartbeat",
        "cluster nvarchar(320) {key} NOT NULL, silo nvarchar(128) {key} NOT NULL, counter bigint NULL, at nvarchar(64) NULL, \
         PRIMARY KEY (cluster, silo)",
    ),
    (
        "membership_cell",
        "cluster nvarchar(320) {key} NOT NULL PRIMARY KEY, text nvarchar(max) NOT NULL",
    ),
];

/// The collation of keys: code point by code point, so that different keys are never equal, whatever
/// the database's collation is (clause T9).
pub(super) const COLLATION: &str = "Latin1_General_100_BIN2";

/// A table's columns as its creation has them. The records of the last 16 commits are columns of
/// their own, used in turn.
fn columns(of: &str) -> String {
    let recent: Vec<_> = (0..16)
        .map(|n| format!("recent_{n} nvarchar(max) NULL"))
        .collect();
    of.replace("{key}", &format!("COLLATE {COLLATION}"))
        .replace("{recent}", &recent.join(", "))
}

/// The names of a table's columns.
pub(super) fn column_names(of: &str) -> Vec<String> {
    columns(of)
        .split(", ")
        .filter_map(|column| column.split(' ').next())
        .filter(|name| *name != "PRIMARY" && !name.ends_with(')'))
        .map(str::to_owned)
        .collect()
}

/// The statements that create what is missing, as one batch.
pub(super) fn script() -> String {
    let table = |(name, of): (&str, &str)| {
        let columns = columns(of).replace(", ", ",\n    ");
        let columns = columns.replace("(cluster,\n    silo)", "(cluster, silo)");
        format!("IF OBJECT_ID(N'{name}') IS NULL\nCREATE TABLE {name} (\n    {columns}\n);\n")
    };
    let marks = marks().replace("('", "(N'").replace(", '", ", N'");
    format!(
        "-- The tables of silo-membership, layout {LAYOUT}. Running it again changes nothing.\n{}\
         INSERT INTO membership_meta (name, value) SELECT m.name, m.value FROM (VALUES {marks}) AS m (name, value)\n\
         WHERE NOT EXISTS (SELECT 1 FROM membership_meta AS o WHERE o.name = m.name COLLATE {COLLATION});\n",
        TABLES.map(table).concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_whole() {
        let script = script();
        for (name, of) in TABLES {
            assert!(
                script.contains(&format!("CREATE TABLE {name} (\n")),
                "{script}"
            );
            let names = column_names(of);
            assert!(
                names.len() > 1
                    && names
                        .iter()
                        .all(|n| script.contains(&format!("    {n} nvarchar"))
                            || script.contains(&format!("    {n} bigint"))
                            || script.contains(&format!("    {n} bit"))
                            || script.contains(&format!("    {n} int"))),
                "{names:?}\n{script}"
            );
        }
        assert_eq!(column_names(TABLES[1].1).len(), 12 + 16);
        assert!(!script.contains('{'), "{script}");
        assert_eq!(script.matches("PRIMARY KEY").count(), TABLES.len());
    }
}
