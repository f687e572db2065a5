//! The batches of a running cluster: one per operation.
//!
//! Every transaction locks the version row first, then rows, then heartbeats, so that two of them
//! never wait for each other in a circle. A commit changes the version row only if that is exactly
//! the expected one, and holds its lock until the end: what it then finds of the rows is current. A
//! read holds a shared lock of the version row while it copies the rows, so that no commit comes in
//! between, with or without row versioning in the database. It copies them into a variable and ends
//! its transaction before the server sends anything: a client that does not take its answer holds no
//! lock.
//!
//! Each batch ends at its first error, and its transaction is rolled back (`XACT_ABORT`). A line of
//! the kind [`kind::COMMITTING`] before the COMMIT shows whether an error came before it.
//!
//! No parameter is null: the driver gives a null no type.

/// What a line of an answer is: its first column. The others are `silo, body, number, at`.
pub(super) mod kind {
    /// The version row as a JSON object of its columns.
    pub(in super::super) const VERSION: i32 = 0;
    /// A row.
    pub(in super::super) const ROW: i32 = 1;
    /// A heartbeat.
    pub(in super::super) const HEARTBEAT: i32 = 2;
    /// The cluster's cell.
    pub(in super::super) const CELL: i32 = 3;
    /// All is written, and COMMIT follows.
    pub(in super::super) const COMMITTING: i32 = 4;
    /// Done; a number where there is one.
    pub(in super::super) const DONE: i32 = 5;
    /// The database does not accept writes: the server is a secondary.
    pub(in super::super) const READ_ONLY: i32 = 6;
    /// A fact about the server, a mark or a column: see `checks`.
    pub(in super::super) const FACT: i32 = 7;
    /// A heartbeat without a row.
    pub(in super::super) const ROWLESS: i32 = 8;
}

/// The end of an answer. A transaction that has only read is ended before.
macro_rules! show {
    () => {
        "SELECT kind, silo, body, number, at FROM @t \
UNION ALL SELECT 6, NULL, NULL, NULL, NULL WHERE DATABASEPROPERTYEX(DB_NAME(), 'Updateability') <> N'READ_WRITE';\n"
    };
}

macro_rules! lines {
    () => {
        "DECLARE @t TABLE (kind int NOT NULL, silo nvarchar(128) NULL, body nvarchar(max) NULL, number bigint NULL, at nvarchar(64) NULL);\n"
    };
}

macro_rules! version {
    ($hint:literal) => {
        concat!(
            "INSERT @t (kind, body) SELECT 0, (SELECT v.table_id, v.version, v.commit_id, v.deleting, v.row_count, v.layout, v.min_layout, \
v.settings, v.core, v.extra, v.recent_0, v.recent_1, v.recent_2, v.recent_3, v.recent_4, v.recent_5, v.recent_6, v.recent_7, v.recent_8, \
v.recent_9, v.recent_10, v.recent_11, v.recent_12, v.recent_13, v.recent_14, v.recent_15 FOR JSON PATH, WITHOUT_ARRAY_WRAPPER) \
FROM membership_version AS v", $hint, " WHERE v.cluster = @P1;\n"
        )
    };
}

macro_rules! rows {
    () => {
        "INSERT @t (kind, silo, body) SELECT 1, s.silo, s.body FROM membership_silo AS s WHERE s.cluster = @P1"
    };
}

/// Those without a row only where @P2 is empty.
macro_rules! heartbeats {
    () => {
        "INSERT @t (kind, silo, number, at) SELECT CASE WHEN s.silo IS NULL THEN 8 ELSE 2 END, h.silo, h.counter, h.at \
FROM membership_heartbeat AS h LEFT JOIN membership_silo AS s ON s.cluster = h.cluster AND s.silo = h.silo \
WHERE h.cluster = @P1 AND h.counter IS NOT NULL AND (s.silo IS NOT NULL OR @P2 = N'')"
    };
}

/// A version row that this build may work with.
macro_rules! usable {
    () => {
        "deleting = 0 AND min_layout <= 1"
    };
}

/// @P1 cluster; @P2 table id, @P3 version, @P4 commit id of what is known, or empty and -1; @P5 whether
/// heartbeats are wanted.
pub(super) const READ: &str = concat!(
    lines!(),
    "BEGIN TRANSACTION;\n",
    version!(" WITH (HOLDLOCK)"),
    "IF NOT EXISTS (SELECT 1 FROM membership_version WHERE cluster = @P1 AND table_id = @P2 AND version = @P3 AND commit_id = @P4)\n",
    rows!(),
    ";\nIF @P5 = 1\nBEGIN\n",
    heartbeats!(),
    ";\nINSERT @t (kind, body) SELECT 3, c.text FROM membership_cell AS c WHERE c.cluster = @P1;\nEND;\nCOMMIT TRANSACTION;\n",
    show!(),
);

/// @P1 cluster, @P2 silo. Without a version row any row shows that the table is damaged.
pub(super) const READ_ROW: &str = concat!(
    lines!(),
    "BEGIN TRANSACTION;\n",
    version!(" WITH (HOLDLOCK)"),
    "IF EXISTS (SELECT 1 FROM @t)\nBEGIN\n",
    rows!(),
    " AND s.silo = @P2;\n",
    heartbeats!(),
    " AND h.silo = @P2;\nEND\nELSE INSERT @t (kind, silo, body) SELECT TOP (1) 1, s.silo, s.body FROM membership_silo AS s WHERE s.cluster = @P1;\n",
    "COMMIT TRANSACTION;\n",
    show!(),
);

/// @P1 cluster; the token: @P2 table id, @P3 version, @P4 commit id; @P5 the new commit's id, @P6
/// its record; @P7 the number of added rows; @P8 settings and @P9 core, empty if unchanged; @P10 the
/// changes as JSON: lists of kind (0 insert, 1 update, 2 remove), key, status and body.
const COMMIT: &str = concat!(
    lines!(),
    "DECLARE @done bit = 0;\n\
DECLARE @c TABLE (kind int NOT NULL, silo nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY, status nvarchar(32) NULL, body nvarchar(max) NULL);\n\
INSERT @c (kind, silo, status, body) SELECT j.kind, j.silo, j.status, j.body FROM OPENJSON(@P10) \
WITH (kind int '$[0]', silo nvarchar(128) '$[1]', status nvarchar(32) '$[2]', body nvarchar(max) '$[3]') AS j;\n\
BEGIN TRANSACTION;\n\
UPDATE membership_version SET version = version + 1, commit_id = @P5, recent_{slot} = @P6, \
row_count = CASE WHEN row_count + @P7 < 0 THEN 0 ELSE row_count + @P7 END, settings = CASE WHEN @P8 = N'' THEN settings ELSE @P8 END, core = CASE WHEN @P9 = N'' THEN core ELSE @P9 END, \
layout = CASE WHEN layout < 1 THEN 1 ELSE layout END \
WHERE cluster = @P1 AND table_id = @P2 AND version = @P3 AND commit_id = @P4 AND ",
    usable!(),
    " AND (row_count + @P7 <= {rows} OR @P7 <= 0);\n\
IF @@ROWCOUNT = 1 AND NOT EXISTS (SELECT 1 FROM @c AS c LEFT JOIN membership_silo AS s ON s.cluster = @P1 AND s.silo = c.silo \
WHERE (c.kind = 0 AND s.silo IS NOT NULL) OR (c.kind <> 0 AND s.silo IS NULL))\n\
BEGIN\n\
INSERT INTO membership_silo (cluster, silo, status, written_at, body) SELECT @P1, c.silo, c.status, @P3 + 1, c.body FROM @c AS c WHERE c.kind = 0;\n\
UPDATE s SET status = c.status, written_at = @P3 + 1, body = c.body FROM membership_silo AS s JOIN @c AS c ON c.silo = s.silo \
WHERE s.cluster = @P1 AND c.kind = 1;\n\
DELETE s FROM membership_silo AS s JOIN @c AS c ON c.silo = s.silo WHERE s.cluster = @P1 AND c.kind = 2;\n\
DELETE h FROM membership_heartbeat AS h JOIN @c AS c ON c.silo = h.silo WHERE h.cluster = @P1 AND c.kind <> 1;\n\
INSERT INTO membership_heartbeat (cluster, silo) SELECT @P1, c.silo FROM @c AS c WHERE c.kind = 0;\n\
SET @done = 1;\n\
END;\n\
IF @done = 1\nBEGIN\n\
SELECT 4;\n\
COMMIT TRANSACTION;\n\
SELECT 5;\n\
END\nELSE\nBEGIN\n\
ROLLBACK TRANSACTION;\n\
BEGIN TRANSACTION;\n",
    version!(" WITH (HOLDLOCK)"),
    rows!(),
    ";\nCOMMIT TRANSACTION;\n",
    show!(),
    "END;\n",
);

/// A commit whose record goes into this place, of a table with at most this many rows.
pub(super) fn commit(slot: u64, rows: usize) -> String {
    COMMIT
        .replace("{slot}", &slot.to_string())
        .replace("{rows}", &rows.to_string())
}

/// Whether a heartbeat may be written. A row that a commit holds is skipped: a heartbeat waits for
/// no commit. A database with row versioning allows that only with the second hint.
macro_rules! refused {
    () => {
        "IF EXISTS (SELECT 1 FROM membership_version WITH (READPAST, READCOMMITTEDLOCK) WHERE cluster = @P1 AND (deleting = 1 OR min_layout > 1))\nSET @done = -1\nELSE\nBEGIN\n"
    };
}

/// What an unsuccessful heartbeat shows: the version row.
macro_rules! why_not {
    () => {
        concat!(
            "IF @done < 1\nBEGIN\n",
            version!(""),
            "END;\nINSERT @t (kind, number) VALUES (5, @done);\n",
            show!()
        )
    };
}

/// @P1 cluster, @P2 silo, @P3 counter, @P4 time. The counter never falls.
pub(super) const HEARTBEAT: &str = concat!(
    lines!(),
    "DECLARE @done int = 0;\n",
    refused!(),
    "UPDATE membership_heartbeat SET counter = CASE WHEN counter > @P3 THEN counter ELSE @P3 END, at = CASE WHEN counter > @P3 THEN at ELSE @P4 END \
WHERE cluster = @P1 AND silo = @P2;\n\
SET @done = @@ROWCOUNT;\n\
IF @done = 0\nBEGIN\n\
INSERT INTO membership_heartbeat (cluster, silo, counter, at) SELECT s.cluster, s.silo, @P3, @P4 FROM membership_silo AS s \
WHERE s.cluster = @P1 AND s.silo = @P2;\n\
SET @done = @@ROWCOUNT;\n\
END;\nEND;\n",
    why_not!(),
);

/// @P1 cluster, @P2 text.
pub(super) const CELL: &str = concat!(
    lines!(),
    "DECLARE @done int = 0;\n",
    refused!(),
    "UPDATE membership_cell SET text = @P2 WHERE cluster = @P1;\n\
SET @done = @@ROWCOUNT;\n\
IF @done = 0\nBEGIN\n\
INSERT INTO membership_cell (cluster, text) SELECT v.cluster, @P2 FROM membership_version AS v WHERE v.cluster = @P1;\n\
SET @done = @@ROWCOUNT;\n\
END;\nEND;\n",
    why_not!(),
);

/// @P1 cluster, @P2 name, @P3 table id, @P4 commit id, @P5 settings, @P6 core, @P7 extra. Creates
/// the cluster if there is no version row and no row; orphans of an earlier one go.
pub(super) const INITIALIZE: &str = "DECLARE @done int = 0;\n\
BEGIN TRANSACTION;\n\
INSERT INTO membership_version (cluster, name, table_id, version, commit_id, row_count, layout, min_layout, settings, core, extra) \
SELECT @P1, @P2, @P3, 0, @P4, 0, 1, 1, @P5, @P6, @P7 \
WHERE NOT EXISTS (SELECT 1 FROM membership_version WITH (UPDLOCK, HOLDLOCK) WHERE cluster = @P1) \
AND NOT EXISTS (SELECT 1 FROM membership_silo WITH (HOLDLOCK) WHERE cluster = @P1);\n\
SET @done = @@ROWCOUNT;\n\
IF @done = 1\nBEGIN\n\
DELETE FROM membership_heartbeat WHERE cluster = @P1;\n\
DELETE FROM membership_cell WHERE cluster = @P1;\n\
END;\n\
COMMIT TRANSACTION;\n\
SELECT 5, CAST(@done AS bigint);\n";

/// @P1 cluster. One step of a deletion: -1 where another client has created the cluster again, else
/// the number of removed rows. The step that removes fewer than a thousand also removes the rest.
pub(super) const DELETE: &str = "DECLARE @n int = -1;\n\
BEGIN TRANSACTION;\n\
IF NOT EXISTS (SELECT 1 FROM membership_version WITH (UPDLOCK, HOLDLOCK) WHERE cluster = @P1 AND deleting = 0)\nBEGIN\n\
DELETE TOP (1000) FROM membership_silo WHERE cluster = @P1;\n\
SET @n = @@ROWCOUNT;\n\
IF @n < 1000\nBEGIN\n\
DELETE FROM membership_heartbeat WHERE cluster = @P1;\n\
DELETE FROM membership_cell WHERE cluster = @P1;\n\
DELETE FROM membership_version WHERE cluster = @P1;\n\
END;\nEND;\n\
COMMIT TRANSACTION;\n\
SELECT 5, CAST(@n AS bigint);\n";

/// @P1 cluster. Marks it as being deleted.
pub(super) const MARK: &str =
    "UPDATE membership_version SET deleting = 1 WHERE cluster = @P1 AND deleting = 0;\n";
