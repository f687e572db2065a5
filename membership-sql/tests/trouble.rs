//! Files that are missing, replaced, damaged, locked, or foreign: clauses T4, T12, T13, T15 and
//! T16.
#![cfg(feature = "sqlite")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::time::{Duration, Instant};

use membership_core::{HeartbeatWrite, MembershipTable, ReadAnswer, ReadRequest, TableErrorKind};
use membership_sql::{SqliteConfig, SqliteTable};
use support::*;

async fn read_kind(table: &SqliteTable) -> TableErrorKind {
    table.read(&ReadRequest::all()).await.unwrap_err().kind()
}

#[tokio::test]
async fn a_deleted_file_is_reported_and_nothing_is_written() {
    let place = Place::new();
    let (table, token) = table_with(&place, 2).await;
    place.remove_file();
    assert_eq!(read_kind(&table).await, TableErrorKind::TableReplaced);
    assert_eq!(
        table.commit(&insert(&token, [5])).await.unwrap_err().kind(),
        TableErrorKind::TableReplaced
    );
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(0, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::TableReplaced
    );
    assert_eq!(
        table.delete().await.unwrap_err().kind(),
        TableErrorKind::TableReplaced
    );
    assert!(!place.path().exists());
    // A client that starts now finds no table, and `initialize` creates another one.
    let table_of_a_client = place.open().await;
    let missing = table_of_a_client.read(&ReadRequest::all()).await;
    let missing = missing.unwrap_err();
    assert_eq!(missing.kind(), TableErrorKind::NotInitialized);
    assert!(missing.to_string().contains("no such file"), "{missing}");
    initialize(&table).await.unwrap();
    assert_eq!(
        read_with(&table, &token).await.unwrap_err(),
        TableErrorKind::TableReplaced
    );
    assert_eq!(read(&table).await.0.rows.len(), 0);
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let (table, _) = table_with(&place, 1).await;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&place.path()) & 0o777, 0o600);
    // What the owner allows stays.
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o660)).unwrap();
    read(&table).await;
    drop(place.open().await);
    assert_eq!(mode(&place.path()) & 0o777, 0o660);
}

#[tokio::test]
async fn a_replaced_file_is_reported_even_with_the_same_content() {
    let place = Place::new();
    let (table, token) = table_with(&place, 2).await;
    place
        .shell()
        .execute(
            "VACUUM INTO ?1",
            [place.beside("copy.db").to_str().unwrap()],
        )
        .unwrap();
    commit(&table, &insert(&token, [7])).await;
    place.remove_file();
    std::fs::rename(place.beside("copy.db"), place.path()).unwrap();
    assert_eq!(read_kind(&table).await, TableErrorKind::TableReplaced);
    assert_eq!(
        table.commit(&insert(&token, [5])).await.unwrap_err().kind(),
        TableErrorKind::TableReplaced
    );
    // For a new client it is the same table, rolled back.
    let other = place.open().await;
    assert_eq!(read(&other).await.0.rows.len(), 2);
    let later = insert(&token, [8]).next_token(&[]);
    assert_eq!(
        read_with(&other, &later).await.unwrap_err(),
        TableErrorKind::TableRolledBack
    );
    assert_eq!(
        other.commit(&insert(&later, [9])).await.unwrap_err().kind(),
        TableErrorKind::TableRolledBack
    );
}

/// The open file does not count: what the path leads to does.
#[tokio::test]
async fn a_read_over_a_new_connection_shows_the_file_that_is_there_now() {
    let place = Place::new();
    let (table, token) = table_with(&place, 2).await;
    let copy = place.beside("copy.db");
    let vacuum = "VACUUM INTO ?1";
    place
        .shell()
        .execute(vacuum, [copy.to_str().unwrap()])
        .unwrap();
    let later = commit(&table, &insert(&token, [7])).await;
    let anew = ReadRequest::all().with_new_connection(true);
    let rows = async || match table.read(&anew).await.unwrap() {
        ReadAnswer::Snapshot { snapshot, .. } => snapshot.rows.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(rows().await, 3);
    for overwrites in [true, false] {
        place.remove_log();
        if overwrites {
            std::fs::copy(&copy, place.path()).unwrap();
        } else {
            place.remove_file();
            std::fs::copy(&copy, place.path()).unwrap();
            assert_eq!(read_kind(&table).await, TableErrorKind::TableReplaced);
        }
        assert_eq!(rows().await, 2);
        assert_eq!(
            table.commit(&insert(&later, [8])).await.unwrap_err().kind(),
            TableErrorKind::TableRolledBack
        );
        assert_eq!(read(&place.open().await).await.0.rows.len(), 2);
    }
    commit(&table, &insert(&token, [9])).await;
    place.remove_file();
    assert_eq!(
        table.read(&anew).await.unwrap_err().kind(),
        TableErrorKind::NotInitialized
    );
    assert_eq!(
        table.commit(&insert(&token, [5])).await.unwrap_err().kind(),
        TableErrorKind::TableReplaced
    );
    assert!(!place.path().exists());
}

#[tokio::test]
async fn a_file_that_is_moved_away_and_back_is_the_same_file() {
    let place = Place::new();
    let (table, token) = table_with(&place, 2).await;
    std::fs::rename(place.path(), place.beside("away.db")).unwrap();
    assert_eq!(read_kind(&table).await, TableErrorKind::TableReplaced);
    std::fs::rename(place.beside("away.db"), place.path()).unwrap();
    commit(&table, &insert(&token, [5])).await;
}

#[tokio::test]
async fn foreign_files_are_refused_before_a_write() {
    for (sql, kind) in [
        (
            "CREATE TABLE membership_version (Version INT)",
            TableErrorKind::ForeignTable,
        ),
        (
            "CREATE TABLE membership_meta (name TEXT, value TEXT)",
            TableErrorKind::ForeignTable,
        ),
    ] {
        let place = Place::new();
        place.shell().execute_batch(sql).unwrap();
        let before = std::fs::read(place.path()).unwrap();
        assert_eq!(
            place.open_as("blue").await.unwrap_err().kind(),
            kind,
            "{sql}"
        );
        assert_eq!(std::fs::read(place.path()).unwrap(), before);
    }
    let place = Place::new();
    let text = "this is a letter, and not a database at all. ".repeat(100);
    std::fs::write(place.path(), &text).unwrap();
    assert_eq!(
        place.open_as("blue").await.unwrap_err().kind(),
        TableErrorKind::ForeignTable
    );
    assert_eq!(std::fs::read_to_string(place.path()).unwrap(), text);
}

#[tokio::test]
async fn a_table_that_turns_foreign_under_a_handle_is_refused_by_every_operation() {
    let place = Place::new();
    let table = place.open().await;
    place
        .shell()
        .execute_batch("CREATE TABLE membership_version (Version INT)")
        .unwrap();
    assert_eq!(
        initialize(&table).await.unwrap_err().kind(),
        TableErrorKind::ForeignTable
    );
    assert_eq!(
        table.delete().await.unwrap_err().kind(),
        TableErrorKind::ForeignTable
    );
    assert_eq!(read_kind(&table).await, TableErrorKind::ForeignTable);
}

#[tokio::test]
async fn an_applications_own_data_is_left_alone() {
    let place = Place::new();
    let shell = place.shell();
    shell
        .execute_batch("PRAGMA application_id = 77; PRAGMA user_version = 5; CREATE TABLE orders (n); INSERT INTO orders VALUES (1)")
        .unwrap();
    let (table, _) = table_with(&place, 2).await;
    table.delete().await.unwrap();
    let number = |sql: &str| shell.query_row(sql, [], |r| r.get::<_, i64>(0)).unwrap();
    let seen = [
        "PRAGMA application_id",
        "PRAGMA user_version",
        "SELECT count(*) FROM orders",
    ]
    .map(number);
    assert_eq!(seen, [77, 5, 1]);
}

#[tokio::test]
async fn newer_layouts_are_refused_before_a_write() {
    let place = Place::new();
    let (table, token) = table_with(&place, 1).await;
    let shell = place.shell();
    let all = |sql: &str| shell.execute_batch(sql).unwrap();
    all(
        "UPDATE membership_version SET body = replace(body, '\"min_layout\":1', '\"min_layout\":9')",
    );
    assert_eq!(
        initialize(&table).await.unwrap_err().kind(),
        TableErrorKind::NewerLayout
    );
    assert_eq!(read_kind(&table).await, TableErrorKind::NewerLayout);
    assert_eq!(
        table.commit(&insert(&token, [5])).await.unwrap_err().kind(),
        TableErrorKind::NewerLayout
    );
    assert_eq!(
        table.delete().await.unwrap_err().kind(),
        TableErrorKind::NewerLayout
    );
    all(
        "UPDATE membership_version SET body = replace(body, '\"min_layout\":9', '\"min_layout\":1')",
    );
    commit(&table, &insert(&token, [5])).await;
    all("UPDATE membership_meta SET value = '9' WHERE name = 'min_layout'");
    assert_eq!(
        place.open_as("blue").await.unwrap_err().kind(),
        TableErrorKind::NewerLayout
    );
}

#[tokio::test]
async fn rows_changed_by_hand_are_noticed() {
    let place = Place::new();
    let (table, token) = table_with(&place, 3).await;
    let (before, _) = read(&table).await;
    let shell = place.shell();
    let key = silo(1).row_key();
    shell
        .execute(
            "UPDATE membership_silo SET body = '{' WHERE silo = ?1",
            [&key],
        )
        .unwrap();
    let (now, _) = read(&table).await;
    assert_eq!(
        (
            now.rows.len(),
            now.rows
                .undecodable()
                .map(|r| r.key().to_owned())
                .collect::<Vec<_>>()
        ),
        (3, vec![key.clone()])
    );
    assert!(membership_core::check_snapshot(&before, &now).is_err());
    assert!(
        table
            .read_row(&silo(1), None)
            .await
            .unwrap()
            .row
            .unwrap()
            .undecodable()
            .is_some()
    );
    // A row that cannot be decoded blocks nothing else, and can be removed.
    let token = commit(&table, &insert(&token, [9])).await;
    let token = commit(&table, &remove(&token, 1)).await;
    // Bytes that are not UTF-8.
    shell
        .execute(
            "UPDATE membership_silo SET body = CAST(x'ff00fe' AS TEXT) WHERE silo = ?1",
            [silo(2).row_key()],
        )
        .unwrap();
    assert_eq!(read(&table).await.0.rows.undecodable().count(), 1);
    shell
        .execute("INSERT INTO membership_silo SELECT cluster, CAST(x'ff' AS TEXT), status, 0, body FROM membership_silo LIMIT 1", [])
        .unwrap();
    assert_eq!(read(&table).await.0.rows.len(), 4);
    commit(&table, &update(&token, 0, "still works")).await;
}

#[tokio::test]
async fn rows_without_a_version_row_are_damage_and_are_named() {
    let place = Place::new();
    let (table, token) = table_with(&place, 1).await;
    place
        .shell()
        .execute("DELETE FROM membership_version", [])
        .unwrap();
    for error in [
        table.read(&ReadRequest::all()).await.unwrap_err(),
        initialize(&table).await.unwrap_err(),
    ] {
        assert_eq!(
            (error.kind(), error.key()),
            (TableErrorKind::Damaged, Some(silo(0).row_key().as_str())),
            "{error}"
        );
    }
    assert_eq!(
        read_with(&table, &token).await.unwrap_err(),
        TableErrorKind::TableReplaced
    );
    assert_eq!(
        table.commit(&insert(&token, [5])).await.unwrap_err().kind(),
        TableErrorKind::TableReplaced
    );
    table.delete().await.unwrap();
    initialize(&table).await.unwrap();
}

#[tokio::test]
async fn an_interrupted_delete_is_reported_and_continues() {
    let place = Place::new();
    let (table, token) = table_with(&place, 3).await;
    place
        .shell()
        .execute("UPDATE membership_version SET deleting = 1", [])
        .unwrap();
    assert_eq!(
        initialize(&table).await.unwrap_err().kind(),
        TableErrorKind::BeingDeleted
    );
    assert_eq!(read_kind(&table).await, TableErrorKind::BeingDeleted);
    assert_eq!(
        table.commit(&insert(&token, [5])).await.unwrap_err().kind(),
        TableErrorKind::BeingDeleted
    );
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(0, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::BeingDeleted
    );
    let cell = HeartbeatWrite::Cluster { text: "x".into() };
    assert_eq!(
        table.update_i_am_alive(&cell).await.unwrap_err().kind(),
        TableErrorKind::BeingDeleted
    );
    place.open().await.delete().await.unwrap();
    assert_eq!(read_kind(&table).await, TableErrorKind::NotInitialized);
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(0, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::NotInitialized
    );
    assert_eq!(
        table.update_i_am_alive(&cell).await.unwrap_err().kind(),
        TableErrorKind::NotInitialized
    );
}

#[tokio::test]
async fn a_held_lock_is_busy_within_the_timeout_and_never_a_conflict() {
    let place = Place::new();
    let (_, token) = table_with(&place, 1).await;
    let table = place.impatient(Duration::from_millis(300)).await;
    let shell = place.shell();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let request = update(&token, 0, "x");
    assert_eq!(
        table.commit(&request).await.unwrap_err().kind(),
        TableErrorKind::Busy
    );
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(0, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::Busy
    );
    assert_eq!(
        table.delete().await.unwrap_err().kind(),
        TableErrorKind::Busy
    );
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    // Readers do not wait for writers.
    assert_eq!(read(&table).await.0.token, token);
    shell.execute_batch("ROLLBACK").unwrap();
    assert_eq!(
        read(&table).await.0.token,
        token,
        "what was answered Busy did not happen"
    );
    commit(&table, &request.again()).await;
}

#[tokio::test]
async fn operations_behind_a_lock_time_out() {
    let place = Place::new();
    let (_, token) = table_with(&place, 1).await;
    let table = place.impatient(Duration::from_millis(200)).await;
    let shell = place.shell();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let many: Vec<_> = (0..20).map(|n| update(&token, 0, &n.to_string())).collect();
    for answer in futures_util::future::join_all(many.iter().map(|r| table.commit(r))).await {
        assert_eq!(answer.unwrap_err().kind(), TableErrorKind::Busy);
    }
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    shell.execute_batch("ROLLBACK").unwrap();
    assert_eq!(read(&table).await.0.token, token);
}

#[tokio::test]
async fn damage_in_the_file_is_an_error_and_not_an_empty_table() {
    let place = Place::new();
    let (table, _) = table_with(&place, 500).await;
    table.close().await;
    let mut bytes = std::fs::read(place.path()).unwrap();
    for byte in bytes.iter_mut().skip(4096) {
        *byte ^= 0x5a;
    }
    std::fs::write(place.path(), &bytes).unwrap();
    let error = match place.open_as("blue").await {
        Ok(table) => table.read(&ReadRequest::all()).await.unwrap_err(),
        Err(e) => e,
    };
    assert_eq!(error.kind(), TableErrorKind::Damaged, "{error}");
}

/// The errors for each of these files, for a user without permissions.
#[cfg(unix)]
async fn is_forbidden(dir: &std::path::Path) {
    for name in ["read-only.db", "hidden.db", "closed/members.db"] {
        let config = SqliteConfig::new(dir.join(name));
        let error = match SqliteTable::connect(config, "blue".parse().unwrap()).await {
            Ok(table) => table.update_i_am_alive(&heartbeat(0, 1)).await.unwrap_err(),
            Err(e) => e,
        };
        assert_eq!(
            error.kind(),
            TableErrorKind::PermissionDenied,
            "{name}: {error}"
        );
    }
}

/// The folder for the test that [`passes_as_another_user`] runs.
#[cfg(unix)]
const DIR: &str = "MEMBERSHIP_SQL_TEST_FORBIDDEN";

/// Permissions do not apply to root. As root, runs the test in a process of another user, with
/// [`DIR`]; otherwise false.
#[cfg(unix)]
fn passes_as_another_user(test: &str, place: &Place) -> bool {
    use std::os::unix::{fs::MetadataExt, process::CommandExt};
    if std::fs::metadata("/proc/self").map_or(true, |m| m.uid() != 0) {
        return false;
    }
    // A copy of this program, at a path where other users may run it.
    let program = place.beside("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut other = std::process::Command::new(&program);
    other
        .args([test, "--exact", "--nocapture"])
        .env(DIR, place.beside(""))
        .uid(65534)
        .gid(65534);
    let said = other.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr),
    );
    assert!(
        said.status.success() && out.contains("1 passed"),
        "{out}{err}"
    );
    true
}

#[cfg(unix)]
#[tokio::test]
async fn missing_file_permissions_are_reported() {
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    if let Some(dir) = std::env::var_os(DIR) {
        return is_forbidden(dir.as_ref()).await;
    }
    let place = Place::new();
    create_dir(place.beside("closed")).unwrap();
    for (name, mode) in [
        ("read-only.db", 0o444),
        ("hidden.db", 0o000),
        ("closed/members.db", 0o644),
    ] {
        let table = SqliteTable::connect(
            SqliteConfig::new(place.beside(name)),
            "blue".parse().unwrap(),
        )
        .await
        .unwrap();
        initialize(&table).await.unwrap();
        commit(&table, &insert(&read(&table).await.0.token, [0])).await;
        table.close().await;
        set_permissions(place.beside(name), Permissions::from_mode(mode)).unwrap();
    }
    let dir = place.beside("");
    set_permissions(place.beside("closed"), Permissions::from_mode(0o000)).unwrap();
    set_permissions(&dir, Permissions::from_mode(0o555)).unwrap();
    if !passes_as_another_user("missing_file_permissions_are_reported", &place) {
        is_forbidden(&dir).await;
    }
    for name in ["", "closed"] {
        set_permissions(place.beside(name), Permissions::from_mode(0o755)).unwrap();
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_user_that_may_only_read_is_enough_for_clients() {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    async fn check(dir: &std::path::Path) {
        let config = SqliteConfig::new(dir.join("members.db"));
        let client = SqliteTable::connect(config, blue()).await.unwrap();
        read_like_a_client(&client).await;
        writes_are_denied(&client).await;
    }
    if let Some(dir) = std::env::var_os(DIR) {
        return check(dir.as_ref()).await;
    }
    let place = Place::new();
    table_with(&place, 3).await.0.close().await;
    set_permissions(place.path(), Permissions::from_mode(0o644)).unwrap();
    // A silo has the file open, and SQLite keeps its files beside it, with the same mode.
    let owner = place.open().await;
    owner.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    let before = read(&owner).await;
    for name in ["members.db", "members.db-wal", "members.db-shm"] {
        let path = place.beside(name);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "{name}");
        // Only for a test that does not run as root.
        set_permissions(path, Permissions::from_mode(0o444)).unwrap();
    }
    set_permissions(place.beside(""), Permissions::from_mode(0o555)).unwrap();
    if !passes_as_another_user("a_user_that_may_only_read_is_enough_for_clients", &place) {
        check(&place.beside("")).await;
    }
    assert_eq!(read(&owner).await, before);
    set_permissions(place.beside(""), Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_configuration_that_cannot_work_says_why() {
    let place = Place::new();
    for (path, why) in [
        (place.beside("missing/m.db"), "create it first"),
        (place.beside(""), "is a directory"),
        (":memory:".into(), "private to one connection"),
        ("".into(), "no file"),
    ] {
        let error = SqliteTable::connect(SqliteConfig::new(path), "blue".parse().unwrap())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), TableErrorKind::Configuration);
        assert!(error.to_string().contains(why), "{error}");
    }
    let table = SqliteTable::connect(
        SqliteConfig::new(place.path()).create(false),
        "blue".parse().unwrap(),
    )
    .await
    .unwrap();
    assert_eq!(
        initialize(&table).await.unwrap_err().kind(),
        TableErrorKind::Configuration
    );
    assert!(!place.path().exists());
}

#[tokio::test]
async fn special_names_of_sqlite_are_plain_file_names() {
    let place = Place::new();
    let path = place.beside("file:x?mode=memory&cache=shared");
    let table = SqliteTable::connect(SqliteConfig::new(&path), "blue".parse().unwrap())
        .await
        .unwrap();
    initialize(&table).await.unwrap();
    assert!(path.exists());
}
