//! The statements of a running cluster: one per operation.
//!
//! # Why one statement is enough for a commit
//!
//! A commit is one statement at READ COMMITTED. It changes the version row only if that is exactly
//! the expected one: table id, version and commit id. Let S be the snapshot of the statement.
//!
//! * The version row in S must match, else the statement changes nothing and does not wait. If it
//!   matches, S holds everything up to that version, including the rows: a commit's rows and its
//!   version row become visible together.
//! * If another transaction holds the version row, the statement waits and then checks the row as
//!   it is now. Another commit has changed version and commit id, a deletion has set its mark: the
//!   row no longer matches. So if the row is changed, nothing was committed since S, and nothing
//!   can be until this statement is done. The rows in S are the current ones.
//! * So S decides whether inserted rows are absent and changed rows are present, as conditions of
//!   that one update of the version row; all other changes happen only with it. If rows are changed
//!   by hand at the same moment, a key appears twice or a row vanishes, and the statement fails as
//!   a whole.
//! * If it changed nothing, the answer is the table in S: one snapshot of version row and rows. If
//!   S still shows the expected version and the rows fit, another commit was done while the
//!   statement waited; then the table is read again.
//!
//! At REPEATABLE READ and SERIALIZABLE, which a pooled session may have, the same is true, except
//! that the wait ends with an error of class 40: certainly not applied.

use tokio_postgres::types::Type;

use super::config::{PostgresConfig, PostgresSynchronousCommit};
use super::error::Phase;
use super::keys::Names;

/// Each statement of a running cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// cluster, table id, version, commit id (null: nothing is known), heartbeats?
    Read,
    /// The same, and what shows that no other server can have taken over.
    Barrier,
    /// cluster, silo
    ReadRow,
    /// See [`COMMIT`].
    Commit,
    /// cluster, silo, counter, time: a heartbeat that has its row.
    Heartbeat,
    /// The same for a heartbeat without a row.
    FirstHeartbeat,
    /// cluster, text
    Cell,
    /// cluster, name, table id, layout, settings: creates the cluster if there is none.
    Initialize,
    /// key, text
    BaselineWrite,
    /// key, text
    BaselineInsert,
    /// key
    BaselineRead,
}

const ALL: [Statement; 11] = [
    Statement::Read,
    Statement::Barrier,
    Statement::ReadRow,
    Statement::Commit,
    Statement::Heartbeat,
    Statement::FirstHeartbeat,
    Statement::Cell,
    Statement::Initialize,
    Statement::BaselineWrite,
    Statement::BaselineInsert,
    Statement::BaselineRead,
];
/// How many statements there are.
pub(super) const COUNT: usize = ALL.len();

impl Statement {
    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// The statements that a connection prepares as soon as there are tables.
    pub(super) const USUAL: [Self; 5] = [
        Self::Read,
        Self::Barrier,
        Self::ReadRow,
        Self::Commit,
        Self::Heartbeat,
    ];

    /// Whether it may wait for long: for other transactions, or for standbys to confirm it.
    pub(super) const fn may_wait(self) -> bool {
        matches!(self, Self::Barrier) || matches!(self.phase(), Phase::Writing)
    }

    /// Whether it writes.
    pub(super) const fn phase(self) -> Phase {
        match self {
            Self::Read | Self::Barrier | Self::ReadRow | Self::BaselineRead => Phase::Reading,
            _ => Phase::Writing,
        }
    }

    pub(super) fn types(self) -> Vec<Type> {
        let texts = |n: usize| vec![Type::TEXT; n];
        match self {
            Self::Read | Self::Barrier => {
                vec![Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT, Type::BOOL]
            }
            Self::ReadRow | Self::Cell | Self::BaselineWrite | Self::BaselineInsert => texts(2),
            Self::BaselineRead => texts(1),
            Self::Heartbeat | Self::FirstHeartbeat => {
                vec![Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT]
            }
            Self::Initialize => vec![
                Type::TEXT,
                Type::TEXT,
                Type::TEXT,
                Type::INT4,
                Type::TEXT,
                Type::TEXT,
            ],
            Self::Commit => {
                let mut types = texts(9);
                (types[2], types[6]) = (Type::INT8, Type::INT8);
                types.extend(vec![Type::TEXT_ARRAY; 7]);
                types.push(Type::TEXT);
                types
            }
        }
    }
}

/// What a row of an answer is: its first column.
pub(super) mod kind {
    /// The version row, in the column `parts`.
    pub(in super::super) const VERSION: i16 = 0;
    /// A silo row.
    pub(in super::super) const ROW: i16 = 1;
    /// A heartbeat.
    pub(in super::super) const HEARTBEAT: i16 = 2;
    /// The commit was executed; `body` says whether it waits for standbys.
    pub(in super::super) const DONE: i16 = 3;
    /// The cluster's cell.
    pub(in super::super) const CELL: i16 = 4;
    /// Some row of a cluster that has no version row.
    pub(in super::super) const ORPHAN: i16 = 5;
    /// The server is a standby: behind a pooler it can become one, or another one answers.
    pub(in super::super) const STANDBY: i16 = 6;
    /// A key if standbys confirm the statement, and the number of standbys in `counter`.
    pub(in super::super) const BARRIER: i16 = 7;
    /// A heartbeat without a row.
    pub(in super::super) const ROWLESS: i16 = 8;
}

const VERSION_ROW: &str = "SELECT 0::int2 AS kind, NULL::text AS key, NULL::text AS body, NULL::int8 AS counter, NULL::text AS at,
       ARRAY[table_id, version::text, commit_id, deleting::text, row_count::text, layout::text, min_layout::text, settings, core, extra] || recent
           AS parts
FROM {version} WHERE cluster = $1";
const ROWS: &str = "SELECT 1::int2, silo, body, NULL, NULL, NULL FROM {silo} WHERE cluster = $1";
/// $2: null if those without a row are wanted, too.
const HEARTBEATS: &str =
    "SELECT CASE WHEN s.silo IS NULL THEN 8 ELSE 2 END::int2, h.silo, NULL, h.counter, h.at, NULL
FROM {heartbeat} h LEFT JOIN {silo} s ON s.cluster = h.cluster AND s.silo = h.silo
WHERE h.cluster = $1 AND h.counter IS NOT NULL AND (s.silo IS NOT NULL OR $2 IS NULL)";

const STANDBY: &str = "SELECT 6::int2, NULL, NULL, NULL, NULL, NULL WHERE pg_is_in_recovery()";

/// The standbys that are connected or have a place kept. A base backup is none; only users with
/// `pg_monitor` can tell.
pub(super) const STANDBYS: &str = "(SELECT count(*) FROM pg_stat_replication WHERE application_name IS DISTINCT FROM 'pg_basebackup')
       + (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT temporary)";

/// A message in the log lets the statement end as a commit does: when the synchronous standbys have
/// confirmed it, which they do only for their primary.
const BARRIER: &str = "SELECT 7::int2, CASE WHEN {waits} THEN pg_logical_emit_message(true, 'membership', '')::text END, NULL, {standbys}, NULL, NULL WHERE NOT pg_is_in_recovery(){settings}";

/// A version row that this build may work with.
const USABLE: &str = "NOT deleting AND min_layout <= 1";

/// Whether a row with that key exists, looked up by the whole primary key: a plan from when the
/// table was empty is used until the table is analysed. For the same reason rows are updated
/// through their conflict with an insert; `xmax` shows that there was one.
const THERE: &str = "(SELECT true FROM {silo} t WHERE t.cluster = $1 AND t.silo = r.silo OFFSET 0)";

/// $1 cluster; the token: $2 table id, $3 version, $4 commit id; $5 the new commit's id, $6 its
/// record; $7 the number of added rows; $8 settings and $9 core, null if unchanged; rows to insert:
/// $10 keys, $11 statuses, $12 bodies; rows to update: $13, $14, $15; $16 keys to remove; $17 the
/// channel to notify, or nothing.
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
SELECT 3::int2 AS kind, NULL::text AS key, ({waits} AND current_setting('fsync') = 'on')::text AS body,
       (1 / (CASE WHEN (SELECT count(*) FROM inserted) = cardinality($10) AND (SELECT count(*) FROM updated WHERE was_there) = cardinality($13)
                   AND (SELECT count(*) FROM removed) = cardinality($16) THEN 1 ELSE 0 END))::int8 AS counter,
       {announce} AS at, NULL::text[] AS parts
FROM v
UNION ALL
SELECT * FROM ({version_row}) AS t WHERE NOT EXISTS (SELECT FROM v)
UNION ALL
{rows_of_table} AND NOT EXISTS (SELECT FROM v)";

/// One update of one row; the counter never falls.
const HEARTBEAT: &str = "UPDATE {heartbeat} SET counter = greatest(counter, $3), at = CASE WHEN counter > $3 THEN at ELSE $4 END
WHERE cluster = $1 AND silo = $2 AND EXISTS (SELECT FROM {version} v WHERE v.cluster = $1 AND {usable}){settings}
RETURNING true";

const FIRST_HEARTBEAT: &str = "INSERT INTO {heartbeat} AS h (cluster, silo, counter, at)
SELECT s.cluster, s.silo, $3, $4 FROM {silo} s
WHERE s.cluster = $1 AND s.silo = $2 AND EXISTS (SELECT FROM {version} v WHERE v.cluster = $1 AND {usable}){settings}
ON CONFLICT (cluster, silo) DO UPDATE
    SET counter = greatest(h.counter, excluded.counter), at = CASE WHEN h.counter > excluded.counter THEN h.at ELSE excluded.at END
RETURNING true";

const CELL: &str =
    "INSERT INTO {cell} AS c (cluster, text) SELECT v.cluster, $2 FROM {version} v WHERE v.cluster = $1 AND {usable}{settings}
ON CONFLICT (cluster) DO UPDATE SET text = excluded.text
RETURNING true";

/// Also removes orphans of an earlier cluster.
const INITIALIZE: &str = "WITH made AS (
    INSERT INTO {version} (cluster, name, table_id, version, commit_id, row_count, layout, min_layout, recent, settings, core, extra)
    SELECT $1, $2, $3, 0, {zero}, 0, $4, 1, '{}', $5, $6, '{}'
    WHERE NOT EXISTS (SELECT FROM {silo} WHERE cluster = $1){settings}
    ON CONFLICT DO NOTHING
    RETURNING 1
), heartbeats AS (
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
{HEARTBEATS} AND $5
UNION ALL
SELECT 4::int2, NULL, text, NULL, NULL, NULL FROM {{cell}} WHERE cluster = $1 AND $5
UNION ALL
{STANDBY}"
        );
        let read_row = format!(
            "{VERSION_ROW}
UNION ALL
{ROWS} AND silo = $2
UNION ALL
{HEARTBEATS} AND h.silo = $2
UNION ALL
(SELECT 5::int2, silo, NULL, NULL, NULL, NULL FROM {{silo}} WHERE cluster = $1
 AND NOT EXISTS (SELECT FROM {{version}} WHERE cluster = $1) LIMIT 1)
UNION ALL
{STANDBY}"
        );
        let waits = match config.synchronous_commit {
            PostgresSynchronousCommit::Local => "false",
            _ => "current_setting('synchronous_standby_names') <> ''",
        };
        let barrier = format!("{read}\nUNION ALL\n{BARRIER}")
            .replace("{waits}", waits)
            .replace("{standbys}", STANDBYS);
        let announce = if config.announces() {
            "(SELECT count(pg_notify($17, '')) FROM v WHERE $17 <> '')::text"
        } else {
            "NULL::text"
        };
        let commit = COMMIT
            .replace("{version_row}", VERSION_ROW)
            .replace("{rows_of_table}", ROWS)
            .replace("{there}", THERE)
            .replace("{announce}", announce)
            .replace("{waits}", waits)
            .replace("{rows}", &max_rows.to_string());
        // In a pooled session each write sets what it needs, until its end.
        let settings = if config.pooler {
            let set = |name: &str, value: &str| format!("set_config('{name}', '{value}', true)");
            format!(
                " AND (SELECT {} || {} || {}) IS NOT NULL",
                set("synchronous_commit", config.synchronous_commit.as_str()),
                // A warning reports a commit that did not reach the standbys.
                set("client_min_messages", "warning"),
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
                Statement::Barrier => &barrier,
                Statement::ReadRow => &read_row,
                Statement::Commit => &commit,
                Statement::Heartbeat => HEARTBEAT,
                Statement::FirstHeartbeat => FIRST_HEARTBEAT,
                Statement::Cell => CELL,
                Statement::Initialize => INITIALIZE,
                Statement::BaselineWrite => {
                    "UPDATE {cell} SET text = $2 WHERE cluster = $1{settings} RETURNING true"
                }
                Statement::BaselineInsert => {
                    "INSERT INTO {cell} (cluster, text) VALUES ($1, $2) ON CONFLICT DO NOTHING"
                }
                Statement::BaselineRead => "SELECT text FROM {cell} WHERE cluster = $1",
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
