//! The stored procedure that makes a commit one round trip: its text, and that of a call. It is
//! optional: an operator creates it, and the table finds it.
//!
//! It only checks whether the version row is exactly the expected one. If it is not, it changes
//! nothing and returns the table as it is now, and `commit` applies the rules of the contract.

use std::fmt::Write as _;

use membership_core::{CommitRequest, RowChange, TableLimits};
use membership_provider::json;

use super::sql::{self, hex, text};
use crate::shared::shown;

/// Its name ends with its version: a build calls the one that it knows, and an older one may exist
/// too.
const NAME: &str = "membership_commit_1";
/// The status that it returns first.
pub(super) const COMMITTED: u64 = 0;
pub(super) const NOT_CURRENT: u64 = 1;
pub(super) const ROWS_DO_NOT_FIT: u64 = 2;
pub(super) const TOO_MANY_ROWS: u64 = 3;
const FAILED: u64 = 4;

/// The rows that are changed, as a table. Keys and bodies are hexadecimal, so that the JSON needs
/// no escapes.
const CHANGES: &str = "JSON_TABLE(p_changes, '$[*]' COLUMNS (op CHAR(1) PATH '$.o', k VARCHAR(1600) PATH '$.k', \
st VARCHAR(32) PATH '$.s', w BIGINT UNSIGNED PATH '$.w', b LONGTEXT PATH '$.b')) AS j";
const KEY: &str = "CONVERT(UNHEX(j.k) USING utf8mb4) COLLATE utf8mb4_bin";

fn creation() -> String {
    let snapshot = sql::read("p_cluster", None, false);
    let settle = sql::settle("p_cluster", None).replacen("; ", ";\n            ", 1);
    let theirs = format!(
        "FROM {CHANGES} STRAIGHT_JOIN membership_silo s ON s.cluster = p_cluster AND s.silo = {KEY}"
    );
    let varchar = |n: u32| format!("VARCHAR({n}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin");
    let (key, short, long) = (
        varchar(512),
        varchar(128),
        "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    );
    format!(
        "CREATE PROCEDURE {NAME} (
    IN p_cluster {key},
    IN p_table_id {short},
    IN p_version BIGINT UNSIGNED,
    IN p_commit {short},
    IN p_token {short},
    IN p_layout INT UNSIGNED,
    IN p_record {long},
    IN p_settings {long},
    IN p_core {long},
    IN p_more BIGINT,
    IN p_most BIGINT,
    IN p_there BIGINT,
    IN p_changes {long}
)
MODIFIES SQL DATA
SQL SECURITY INVOKER
COMMENT 'silo-membership: one commit in one round trip'
BEGIN
    DECLARE v_body, v_next, v_text {long};
    DECLARE v_deleting, v_recent, v_errno INT DEFAULT 0;
    DECLARE v_rows, v_new, v_old BIGINT DEFAULT 0;
    DECLARE v_answer INT DEFAULT {NOT_CURRENT};
    DECLARE v_committing BOOLEAN DEFAULT FALSE;
    DECLARE v_last {short} DEFAULT '00000000000000000000000000000000';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        GET DIAGNOSTICS CONDITION 1 v_errno = MYSQL_ERRNO, v_text = MESSAGE_TEXT;
        IF v_committing THEN
            RESIGNAL;
        END IF;
        ROLLBACK;
        SELECT {FAILED} AS answer, v_errno AS number, v_text AS message;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT v.body, v.deleting INTO v_body, v_deleting FROM membership_version v WHERE v.cluster = p_cluster FOR UPDATE;
    IF v_deleting = 0 AND JSON_VALID(v_body) THEN
        SET v_recent = JSON_LENGTH(v_body, '$.recent');
        IF v_recent > 0 THEN
            SET v_last = JSON_UNQUOTE(JSON_EXTRACT(v_body, CONCAT('$.recent[', v_recent - 1, '].id')));
        END IF;
        IF JSON_UNQUOTE(JSON_EXTRACT(v_body, '$.table_id')) = p_table_id
            AND CAST(JSON_EXTRACT(v_body, '$.version') AS UNSIGNED) = p_version
            AND CAST(JSON_EXTRACT(v_body, '$.min_layout') AS UNSIGNED) <= p_layout
            AND v_last = p_commit
            AND COALESCE(JSON_UNQUOTE(JSON_EXTRACT(v_body, '$.deleting')), 'false') = 'false'
            AND CAST(@@global.read_only AS CHAR) IN ('0', 'OFF')
        THEN
            SET v_rows = CAST(JSON_EXTRACT(v_body, '$.row_count') AS SIGNED) + p_more;
            SELECT COALESCE(SUM(j.op = 'i'), 0), COALESCE(SUM(j.op <> 'i'), 0) INTO v_new, v_old {theirs};
            IF v_new <> 0 OR v_old <> p_there THEN
                SET v_answer = {ROWS_DO_NOT_FIT};
            ELSEIF p_more > 0 AND v_rows > p_most THEN
                SET v_answer = {TOO_MANY_ROWS};
            ELSE
                SET v_answer = {COMMITTED};
            END IF;
        END IF;
    END IF;
    IF v_answer = {COMMITTED} THEN
        SET v_next = JSON_ARRAY_APPEND(v_body, '$.recent', JSON_EXTRACT(p_record, '$'));
        WHILE JSON_LENGTH(v_next, '$.recent') > 16 DO
            SET v_next = JSON_REMOVE(v_next, '$.recent[0]');
        END WHILE;
        SET v_next = JSON_SET(v_next, '$.version', p_version + 1, '$.row_count', GREATEST(v_rows, 0),
            '$.layout', GREATEST(CAST(JSON_EXTRACT(v_body, '$.layout') AS UNSIGNED), p_layout));
        IF p_settings IS NOT NULL THEN
            SET v_next = JSON_SET(v_next, '$.settings', JSON_EXTRACT(p_settings, '$'));
        END IF;
        IF p_core IS NOT NULL THEN
            SET v_next = JSON_SET(v_next, '$.core', p_core);
        END IF;
        IF p_there > 0 THEN
            UPDATE {CHANGES} STRAIGHT_JOIN membership_silo s ON s.cluster = p_cluster AND s.silo = {KEY}
                SET s.status = j.st, s.written_at = j.w, s.body = CONVERT(UNHEX(j.b) USING utf8mb4) WHERE j.op = 'u';
            DELETE h FROM {CHANGES} STRAIGHT_JOIN membership_heartbeat h ON h.cluster = p_cluster AND h.silo = {KEY} WHERE j.op = 'd';
            DELETE s {theirs} WHERE j.op = 'd';
        END IF;
        INSERT INTO membership_silo (cluster, silo, status, written_at, body)
            SELECT p_cluster, CONVERT(UNHEX(j.k) USING utf8mb4), j.st, j.w, CONVERT(UNHEX(j.b) USING utf8mb4) FROM {CHANGES} WHERE j.op = 'i';
        UPDATE membership_version SET version = p_version + 1, token = p_token, body = v_next WHERE cluster = p_cluster;
        SET v_committing = TRUE;
        COMMIT;
        SET v_committing = FALSE;
        SELECT v_answer AS answer, 0 AS number, '' AS message;
    ELSE
        ROLLBACK;
        SELECT v_answer AS answer, v_rows AS number, '' AS message;
        {snapshot};
        IF @@global.log_bin = 0 AND @@global.innodb_flush_log_at_trx_commit = 1 THEN
            {settle};
        END IF;
    END IF;
END"
    )
}

/// A script for the server's own shell.
pub(super) fn script() -> String {
    format!(
        "DROP PROCEDURE IF EXISTS {NAME};\nDELIMITER //\n{}//\nDELIMITER ;\n",
        creation()
    )
}

/// A query that counts it.
pub(super) fn presence() -> String {
    format!(
        "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name = '{NAME}' AND routine_type = 'PROCEDURE'"
    )
}

/// The message if it is required and missing.
pub(super) fn missing() -> String {
    format!(
        "the procedure {NAME} is missing, or this user may not call it: run what `MysqlConfig::procedure_sql()` prints and GRANT \
         EXECUTE on it, or use procedure=auto"
    )
}

/// A call.
pub(super) fn call(cluster: &str, request: &CommitRequest, limits: &TableLimits) -> String {
    let expected = &request.expected;
    let optional = |value: Option<&str>| value.map_or_else(|| "NULL".to_owned(), text);
    let settings = request.settings.as_ref().map(json);
    let inserts = |change: &&RowChange| matches!(change, RowChange::Insert(_));
    let there = request.changes.len() - request.changes.iter().filter(inserts).count();
    format!(
        "CALL {NAME}({cluster}, '{table}', {version}, '{commit}', '{token}', {layout}, {record}, {settings}, {core}, {more}, {most}, {there}, '{changes}')",
        table = expected.table_id(),
        version = expected.version(),
        commit = expected.commit(),
        token = sql::token(&request.next_token(&[])),
        layout = membership_core::encoding::LAYOUT,
        record = text(&json(&request.record())),
        settings = optional(settings.as_deref()),
        core = optional(request.core.as_ref().map(|core| core.stored())),
        more = request.added_rows(),
        most = limits.rows,
        changes = changes(&request.changes),
    )
}

/// The changes as JSON. Keys and texts are hexadecimal, so that nothing needs an escape.
fn changes(all: &[RowChange]) -> String {
    let mut out = String::from("[");
    for change in all {
        if out.len() > 1 {
            out.push(',');
        }
        let row = match change {
            RowChange::Insert(row) | RowChange::Update(row) => Some(row),
            RowChange::Remove(_) => None,
        };
        let op = match change {
            RowChange::Insert(_) => 'i',
            RowChange::Update(_) => 'u',
            RowChange::Remove(_) => 'd',
        };
        let _ = write!(out, "{{\"o\":\"{op}\",\"k\":\"");
        hex(change.key().as_bytes(), &mut out);
        out.push('"');
        if let Some(row) = row {
            let (status, written_at) = shown(row);
            let _ = write!(out, ",\"s\":\"{status}\",\"w\":{written_at},\"b\":\"");
            hex(row.body().as_bytes(), &mut out);
            out.push('"');
        }
        out.push('}');
    }
    out.push(']');
    out
}
