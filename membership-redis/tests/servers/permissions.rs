//! The users with the fewest permissions for everything and for reading, as the README lists them;
//! and errors for users with fewer. Clause T4.

use membership_core::{CommitOutcome, HeartbeatWrite, MembershipTable, TableErrorKind};

use crate::support::*;
use conformance_tests::helpers::*;

/// The commands that the line grants by name.
fn granted(user: &str) -> Vec<String> {
    readme_line(user)
        .into_iter()
        .filter_map(|word| word.strip_prefix('+').map(str::to_owned))
        .collect()
}

async fn as_user(server: &membership_testbed::Server, user: &str) -> String {
    let line = readme_line(user);
    let line: Vec<&str> = line
        .iter()
        .map(|word| {
            if word.starts_with('>') {
                ">s3cret-s3cret"
            } else {
                word.as_str()
            }
        })
        .collect();
    shell::<()>(server, &line).await;
    format!("redis://{user}:s3cret-s3cret@{}", server.address())
}

#[tokio::test]
async fn the_user_of_the_readme_can_do_everything() {
    for kind in [
        membership_testbed::Kind::Redis,
        membership_testbed::Kind::Valkey,
    ] {
        let server = server(kind, &["--loglevel", "notice"]).await;
        let url = as_user(&server, "membership").await;
        let table = connect(&url).await.unwrap();
        let token = fill(&table, 3).await;
        table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
        table
            .update_i_am_alive(&HeartbeatWrite::Cluster {
                text: "x".to_owned(),
            })
            .await
            .unwrap();
        table.read_row(&silo(1), Some(&token)).await.unwrap();
        let stale = insert(&token, [9]);
        let token = commit(&table, &update(&token, 1, "new")).await;
        assert!(
            matches!(table.commit(&stale).await.unwrap(), CommitOutcome::Conflict(c) if c.snapshot.is_some())
        );
        commit(&table, &remove(&token, 1)).await;
        assert_eq!(read(&table).await.0.rows.len(), 2);
        let stick = table.baseline().unwrap();
        stick.write().await.unwrap();
        stick.read().await.unwrap();
        stick.remove().await.unwrap();
        shell::<()>(&server, &["DEL", &key(&blue(), "version")]).await;
        assert_eq!(
            initialize(&table).await.unwrap_err().kind(),
            TableErrorKind::Damaged
        );
        table.delete().await.unwrap();
        // None of the operations was denied.
        let denied: Vec<redis::Value> = shell(&server, &["ACL", "LOG"]).await;
        assert_eq!(denied.len(), 0, "{denied:?}");
        // The user sees nothing else on the server.
        let mut raw = raw(&url).await.unwrap();
        assert!(
            redis::cmd("SET")
                .arg("other")
                .arg(1)
                .exec_async(&mut raw)
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn a_denied_operation_is_a_permission_error_and_writes_nothing() {
    // The error texts of the servers differ.
    for kind in [
        membership_testbed::Kind::Redis,
        membership_testbed::Kind::Valkey,
    ] {
        denied(kind).await;
    }
}

async fn denied(kind: membership_testbed::Kind) {
    let server = server(kind, &["--loglevel", "notice"]).await;
    let url = as_user(&server, "membership").await;
    let good = connect(&url).await.unwrap();
    let mut token = fill(&good, 5).await;
    good.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    let mut needed = Vec::new();
    for command in granted("membership") {
        shell::<()>(
            &server,
            &["ACL", "SETUSER", "membership", &format!("-{command}")],
        )
        .await;
        let before = read(&table_on(&server, "").await).await;
        match connect(&url).await {
            Err(e) => {
                assert_eq!(
                    e.kind(),
                    TableErrorKind::PermissionDenied,
                    "without {command}: {e}"
                );
                needed.push(command.clone());
            }
            Ok(table) => {
                let mut results = vec![
                    table.update_i_am_alive(&heartbeat(1, 2)).await,
                    table
                        .update_i_am_alive(&HeartbeatWrite::Cluster {
                            text: "y".to_owned(),
                        })
                        .await,
                    read_all(&table).await,
                    table.read_row(&silo(1), None).await.map(drop),
                    initialize(&table).await,
                ];
                for turn in 0..3 {
                    let request = match turn {
                        0 => insert(&token, [99]),
                        1 => update(&token, 99, "z"),
                        _ => remove(&token, 99),
                    };
                    results.push(attempt(&table, &mut token, request).await);
                }
                let denied: Vec<_> = results.into_iter().filter_map(Result::err).collect();
                for e in &denied {
                    assert_eq!(
                        e.kind(),
                        TableErrorKind::PermissionDenied,
                        "without {command}: {e}"
                    );
                    assert!(
                        e.to_string().contains("README") || e.to_string().contains("+script|load"),
                        "{e}"
                    );
                }
                if !denied.is_empty() {
                    needed.push(command.clone());
                }
            }
        }
        let after = read(&table_on(&server, "").await).await;
        if after.0.version() == before.0.version() {
            assert_eq!(
                after.0.rows, before.0.rows,
                "without {command} half a commit happened"
            );
        }
        assert_eq!(
            after.0.rows.len() as u64,
            after.0.version_row.row_count,
            "without {command} half a commit happened"
        );
        token = after.0.token;
        shell::<()>(
            &server,
            &["ACL", "SETUSER", "membership", &format!("+{command}")],
        )
        .await;
    }
    // Every permission of the line is necessary: these are the ones that the loop above does not
    // test.
    let elsewhere = [
        "script|load",
        "hrandfield",
        "exists",
        "unlink",
        "get",
        "wait",
        "info",
        "publish",
        "subscribe",
        "ping",
        "set",
        "persist",
        "select",
    ];
    for command in granted("membership") {
        assert!(
            needed.contains(&command) || elsewhere.contains(&command.as_str()),
            "{command} is granted and not needed"
        );
    }
}

#[tokio::test]
async fn a_user_that_may_only_read_is_enough_for_clients() {
    for kind in [
        membership_testbed::Kind::Redis,
        membership_testbed::Kind::Valkey,
    ] {
        let server = server(kind, &["--loglevel", "notice"]).await;
        let owner = table_on(&server, "").await;
        let client = connect(&as_user(&server, "clients").await).await.unwrap();
        may_only_read(&client, &owner).await;
        // The one write that it may make changes nothing.
        fill(&owner, 3).await;
        let before = read(&owner).await;
        let mut raw = raw(&as_user(&server, "clients").await).await.unwrap();
        for what in KEYS {
            let persist = redis::cmd("PERSIST").arg(key(&blue(), what)).to_owned();
            persist.exec_async(&mut raw).await.unwrap();
        }
        assert_eq!(read(&owner).await, before);
        // A silo without `persist` reads, too: by a write that it may make.
        let silo = connect(&as_user(&server, "membership").await)
            .await
            .unwrap();
        shell::<()>(&server, &["ACL", "SETUSER", "membership", "-persist"]).await;
        assert_eq!(read_like_a_client(&silo).await, before);
        // A replica is refused, and not reported as a missing permission.
        shell::<()>(&server, &["REPLICAOF", "127.0.0.1", "1"]).await;
        assert_eq!(
            read_kind(&client, None).await,
            Err(TableErrorKind::Unavailable)
        );
    }
}

/// A script that a missing permission stops has changed nothing: the heartbeats of rows that it was
/// to remove still exist.
#[tokio::test]
async fn a_denied_commit_removes_no_heartbeat() {
    for kind in [
        membership_testbed::Kind::Redis,
        membership_testbed::Kind::Valkey,
    ] {
        let server = server(kind, &["--loglevel", "notice"]).await;
        let url = as_user(&server, "membership").await;
        let table = connect(&url).await.unwrap();
        let token = fill(&table, 3).await;
        for n in 0..3 {
            table.update_i_am_alive(&heartbeat(n, 5)).await.unwrap();
        }
        let before = read(&table).await;
        assert_eq!(before.1.silos.len(), 3);
        for command in ["hset", "hdel", "hlen", "hexists", "hmget"] {
            shell::<()>(
                &server,
                &["ACL", "SETUSER", "membership", &format!("-{command}")],
            )
            .await;
            assert_eq!(
                commit_kind(&table, &remove(&token, 1)).await,
                TableErrorKind::PermissionDenied,
                "without {command}"
            );
            shell::<()>(
                &server,
                &["ACL", "SETUSER", "membership", &format!("+{command}")],
            )
            .await;
            assert_eq!(
                read(&table).await,
                before,
                "without {command} a part of a commit happened"
            );
        }
        commit(&table, &remove(&token, 1)).await;
        assert_eq!(read(&table).await.1.silos.len(), 2);
    }
}

async fn read_all(table: &dyn MembershipTable) -> Result<(), membership_core::TableError> {
    table
        .read(&membership_core::ReadRequest::all())
        .await
        .map(drop)
}

async fn attempt(
    table: &dyn MembershipTable,
    token: &mut membership_core::VersionToken,
    request: membership_core::CommitRequest,
) -> Result<(), membership_core::TableError> {
    match table.commit(&request).await? {
        CommitOutcome::Committed(next) => *token = next,
        CommitOutcome::Conflict(_) => {}
        other => panic!("{other:?}"),
    }
    Ok(())
}
