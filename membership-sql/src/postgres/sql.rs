//! The statements of a running cluster: one for each operation.
//!
//! # Why one statement is enough for a commit
//!
//! A commit is one statement at READ COMMITTED. Its version row is changed only if it is exactly the one that the token names: table id,
//! version and commit id. Let S be the snapshot that the statement sees.
//!
//! * The row as S shows it must match, or the statement changes nothing, without waiting. If it matches, everything up to that version is
//!   in S, rows included: a commit's rows and its version row become visible together.
//! * If somebody else holds the row, the statement waits and then looks at the row again, as it has become. Another commit has changed the
//!   version and the commit id, a deletion has set its mark: it no longer matches. So if the row is changed at all, nobody has committed
//!   since S, and nobody can until this statement is through. What S shows of the silo rows is therefore what they are.
//! * Hence whether inserted rows are missing and changed rows are there is decided from S, as conditions of that one change of the version
//!   row; all other changes take place only if it did. Somebody who changes silo rows by hand at the same moment makes a key appear twice
//!   or a row vanish: then the statement fails as a whole.
//! * If it changed nothing, the answer is the table as S shows it: one snapshot, version row and rows together. Only when S still shows
//!   the version that the token names, and the rows fit, was it somebody who committed while the statement waited; then the table is read
//!   again.
//!
//! At REPEATABLE READ and SERIALIZABLE, which a pooled session may have, the same holds, except that the wait ends with an error of the
//! class 40: certainly not applied.

use tokio_postgres::types::Type;

use super::config::PostgresConfig;
use super::schema::Names;

/// Each statement of a running cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// cluster, table id, version, commit id (null: nothing is known), heartbeats?
    Read,
    /// cluster, silo
    ReadRow,
    /// See [`COMMIT`].
    Commit,
    /// cluster, silo, counter, time: a heartbeat whose cell is there.
    Beat,
    /// The same: a heartbeat whose cell is not.
    FirstBeat,
    /// cluster, text
    Cell,
    /// cluster, name, table id, layout, settings: makes a cluster where there is none.
    Initialize,
    /// key, text
    YardstickWrite,
    /// key, text
    YardstickMake,
    /// key
    YardstickRead,
}

const ALL: [Statement; 10] = [
    Statement::Read,
    Statement::ReadRow,
    Statement::Commit,
    Statement::Beat,
    Statement::FirstBeat,
    Statement::Cell,
    Statement::Initialize,
    Statement::YardstickWrite,
    Statement::YardstickMake,
    Statement::YardstickRead,
];
/// How many statements there are.
pub(super) const COUNT: usize = ALL.len();

impl Statement {
    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// Those that a connection prepares as soon as there are tables.
    pub(super) const USUAL: [Self; 4] = [Self::Read, Self::ReadRow, Self::Commit, Self::Beat];

    pub(super) fn types(self) -> Vec<Type> {
        let texts = |n: usize| vec![Type::TEXT; n];
        match self {
            Self::Read => vec![Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT, Type::BOOL],
            Self::ReadRow | Self::Cell | Self::YardstickWrite | Self::YardstickMake => texts(2),
            Self::YardstickRead => texts(1),
            Self::Beat | Self::FirstBeat => vec![Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT],
            Self::Initialize => vec![Type::TEXT, Type::TEXT, Type::TEXT, Type::INT4, Type::TEXT],
            Self::Commit => {
                let mut types = vec![
                    Type::TEXT,
                    Type::TEXT,
                    Type::INT8,
                    Type::TEXT,
                    Type::TEXT,
                    Type::TEXT,
                    Type::INT8,
                ];
                types.extend(texts(2));
                types.extend(vec![Type::TEXT_ARRAY; 7]);
                types.push(Type::TEXT);
                types
            }
        }
    }
}

/// What the answer's rows are, in their first column.
pub(super) mod kind {
    /// The version row: its parts are in `parts`.
    pub(in super::super) const VERSION: i16 = 0;
    /// A silo row.
    pub(in super::super) const ROW: i16 = 1;
    /// A heartbeat.
    pub(in super::super) const BEAT: i16 = 2;
    /// The commit is done.
    pub(in super::super) const DONE: i16 = 3;
    /// The cluster's cell.
    pub(in super::super) const CELL: i16 = 4;
    /// Some row of a cluster that has no version row.
    pub(in super::super) const ORPHAN: i16 = 5;
}

const VERSION_ROW: &str = "SELECT 0::int2 AS kind, NULL::text AS key, NULL::text AS body, NULL::int8 AS counter, NULL::text AS at,
       ARRAY[table_id, version::text, commit_id, deleting::text, row_count::text, layout::text, min_layout::text, settings, core, extra] || recent
           AS parts
FROM {version} WHERE cluster = $1";
const ROWS: &str = "SELECT 1::int2, silo, body, NULL, NULL, NULL FROM {silo} WHERE cluster = $1";
const BEATS: &str = "SELECT 2::int2, h.silo, NULL, h.counter, h.at, NULL FROM {heartbeat} h
WHERE h.cluster = $1 AND h.counter IS NOT NULL AND EXISTS (SELECT FROM {silo} s WHERE s.cluster = h.cluster AND s.silo = h.silo)";

/// A version row that this build may work with.
const USABLE: &str = "NOT deleting AND min_layout <= 1";

/// Whether a row of that key is there, looked up by both parts of the primary key whatever the planner thinks of the table's size: a
/// plan that was made when the table was empty is used until somebody analyses it. For the same reason rows are updated by way of their
/// conflict with an insert; `xmax` tells that it was one.
const THERE: &str = "(SELECT true FROM {silo} t WHERE t.cluster = $1 AND t.silo = r.silo OFFSET 0)";

/// $1 cluster; the token: $2 table id, $3 version, $4 commit id; $5 the new commit's id, $6 its record; $7 by how many rows the table
/// grows; $8 settings and $9 core, null where they stay; rows to insert: $10 keys, $11 statuses, $12 bodies; rows to update: $13, $14, $15;
/// $16 keys to remove; $17 the channel to announce it in.
const COMMIT: &str = "WITH v AS (
    UPDATE {version} SET version = version + 1, commit_id = $5, recent = (recent || $6)[greatest(cardinality(recent) - 14, 1):],
        row_count = greatest(row_count + $7, 0), settings = coalesce($8, settings), core = coalesce($9, core), layout = greatest(layout, 1)
    WHERE cluster = $1 AND table_id = $2 AND version = $3 AND commit_id = $4 AND {usable}
      AND (row_count + $7 <= {rows} OR $7 <= 0)
      AND (SELECT count(*) FROM unnest($10) AS r (silo) WHERE {there}) = 0
      AND (SELECT count(*) FROM unnest($13 || $16) AS r (silo) WHERE {there}) = cardinality($13 || $16){settings}
    RETURNING version
), inserted AS (
    INSERT INTO {silo} (cluster, silo, status, written_at, body)
    SELECT $1, r.silo, r.status, v.version, r.body FROM v, unnest($10, $11, $12) AS r (silo, status, body)
    RETURNING 1
), updated AS (
    INSERT INTO {silo} AS s (cluster, silo, status, written_at, body)
    SELECT $1, r.silo, r.status, v.version, r.body FROM v, unnest($13, $14, $15) AS r (silo, status, body)
    ON CONFLICT (cluster, silo) DO UPDATE SET status = excluded.status, written_at = excluded.written_at, body = excluded.body
    RETURNING s.xmax::text <> '0' AS was_there
), removed AS (
    DELETE FROM {silo} s USING unnest($16) AS r (silo)
    WHERE s.cluster = $1 AND s.silo = r.silo AND cardinality($16) > 0 AND EXISTS (SELECT FROM v)
    RETURNING 1
), begun AS (
    INSERT INTO {heartbeat} (cluster, silo) SELECT $1, r.silo FROM v, unnest($10) AS r (silo)
    ON CONFLICT (cluster, silo) DO UPDATE SET counter = NULL, at = NULL
), ended AS (
    DELETE FROM {heartbeat} h USING unnest($16) AS r (silo)
    WHERE h.cluster = $1 AND h.silo = r.silo AND cardinality($16) > 0 AND EXISTS (SELECT FROM v)
)
SELECT 3::int2 AS kind, NULL::text AS key, NULL::text AS body,
       (1 / (CASE WHEN (SELECT count(*) FROM inserted) = cardinality($10) AND (SELECT count(*) FROM updated WHERE was_there) = cardinality($13)
                   AND (SELECT count(*) FROM removed) = cardinality($16) THEN 1 ELSE 0 END))::int8 AS counter,
       {announce} AS at, NULL::text[] AS parts
FROM v
UNION ALL
SELECT * FROM ({version_row}) AS t WHERE NOT EXISTS (SELECT FROM v)
UNION ALL
{rows_of_table} AND NOT EXISTS (SELECT FROM v)";

/// One change of one row where it is there; the counter never falls.
const BEAT: &str = "UPDATE {heartbeat} SET counter = greatest(counter, $3), at = CASE WHEN counter > $3 THEN at ELSE $4 END
WHERE cluster = $1 AND silo = $2 AND EXISTS (SELECT FROM {version} v WHERE v.cluster = $1 AND {usable}){settings}
RETURNING true";

const FIRST_BEAT: &str = "INSERT INTO {heartbeat} AS h (cluster, silo, counter, at)
SELECT s.cluster, s.silo, $3, $4 FROM {silo} s
WHERE s.cluster = $1 AND s.silo = $2 AND EXISTS (SELECT FROM {version} v WHERE v.cluster = $1 AND {usable}){settings}
ON CONFLICT (cluster, silo) DO UPDATE
    SET counter = greatest(h.counter, excluded.counter), at = CASE WHEN h.counter > excluded.counter THEN h.at ELSE excluded.at END
RETURNING true";

const CELL: &str =
    "INSERT INTO {cell} AS c (cluster, text) SELECT v.cluster, $2 FROM {version} v WHERE v.cluster = $1 AND {usable}{settings}
ON CONFLICT (cluster) DO UPDATE SET text = excluded.text
RETURNING true";

/// Orphans of a former life go with it.
const INITIALIZE: &str = "WITH made AS (
    INSERT INTO {version} (cluster, name, table_id, version, commit_id, row_count, layout, min_layout, recent, settings, core, extra)
    SELECT $1, $2, $3, 0, {zero}, 0, $4, 1, '{}', $5, '\"\"', '{}'
    WHERE NOT EXISTS (SELECT FROM {silo} WHERE cluster = $1){settings}
    ON CONFLICT DO NOTHING
    RETURNING 1
), beats AS (
    DELETE FROM {heartbeat} WHERE cluster = $1 AND EXISTS (SELECT FROM made)
), cells AS (
    DELETE FROM {cell} WHERE cluster = $1 AND EXISTS (SELECT FROM made)
)
SELECT true FROM made";

/// The statements with the names and settings of one table.
pub(super) struct Statements {
    texts: [String; COUNT],
}

impl Statements {
    pub(super) fn new(config: &PostgresConfig, names: &Names, max_rows: usize) -> Self {
        let read = format!(
            "{VERSION_ROW}
UNION ALL
{ROWS} AND NOT EXISTS (SELECT FROM {{version}} WHERE cluster = $1 AND table_id = $2 AND version = $3 AND commit_id = $4)
UNION ALL
{BEATS} AND $5
UNION ALL
SELECT 4::int2, NULL, text, NULL, NULL, NULL FROM {{cell}} WHERE cluster = $1 AND $5"
        );
        let read_row = format!(
            "{VERSION_ROW}
UNION ALL
{ROWS} AND silo = $2
UNION ALL
{BEATS} AND h.silo = $2
UNION ALL
(SELECT 5::int2, silo, NULL, NULL, NULL, NULL FROM {{silo}} WHERE cluster = $1
 AND NOT EXISTS (SELECT FROM {{version}} WHERE cluster = $1) LIMIT 1)"
        );
        let announce = if config.announces() {
            "(SELECT count(pg_notify($17, '')) FROM v)::text"
        } else {
            "NULL::text"
        };
        let commit = COMMIT
            .replace("{version_row}", VERSION_ROW)
            .replace("{rows_of_table}", ROWS)
            .replace("{there}", THERE)
            .replace("{announce}", announce)
            .replace("{rows}", &max_rows.to_string());
        // In a session that is not ours, what every write needs is set by the write itself, until its end.
        let settings = if config.pooler {
            let set = |name: &str, value: &str| format!("set_config('{name}', '{value}', true)");
            format!(
                " AND (SELECT {} || {}) IS NOT NULL",
                set("synchronous_commit", config.synchronous_commit.as_str()),
                set(
                    "lock_timeout",
                    &format!("{}ms", config.lock_timeout().as_millis())
                )
            )
        } else {
            String::new()
        };
        let text = |statement: Statement| {
            let template = match statement {
                Statement::Read => &read,
                Statement::ReadRow => &read_row,
                Statement::Commit => &commit,
                Statement::Beat => BEAT,
                Statement::FirstBeat => FIRST_BEAT,
                Statement::Cell => CELL,
                Statement::Initialize => INITIALIZE,
                Statement::YardstickWrite => {
                    "UPDATE {cell} SET text = $2 WHERE cluster = $1{settings} RETURNING true"
                }
                Statement::YardstickMake => {
                    "INSERT INTO {cell} (cluster, text) VALUES ($1, $2) ON CONFLICT DO NOTHING"
                }
                Statement::YardstickRead => "SELECT text FROM {cell} WHERE cluster = $1",
            };
            let template = template
                .replace("{settings}", &settings)
                .replace("{usable}", USABLE)
                .replace("{zero}", &format!("'{:032x}'", 0));
            names.put_into(&template)
        };
        Self {
            texts: ALL.map(text),
        }
    }

    pub(super) fn text(&self, statement: Statement) -> &str {
        &self.texts[statement.index()]
    }
}
