//! A server that loses keys, is full, busy, hangs, or refuses clients: clauses T4, T5, T13, T15 and
//! T16.

use std::time::{Duration, Instant};

use membership_core::{CommitOutcome, MembershipTable, ReadRequest, TableErrorKind};
use membership_redis::{RedisConfig, RedisTable};

use crate::support::*;
use conformance_tests::helpers::*;

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_scripts_are_loaded_again_under_use() {
    let server = own_server().await;
    let table = table_on(&server, "").await;
    let mut token = fill(&table, 1).await;
    let flushing = tokio::spawn({
        let mut admin = raw(server.url()).await.unwrap();
        async move {
            loop {
                redis::cmd("SCRIPT")
                    .arg("FLUSH")
                    .exec_async(&mut admin)
                    .await
                    .unwrap();
                tokio::task::yield_now().await;
            }
        }
    });
    for n in 1..100 {
        // If the scripts are forgotten again between load and call, the error is "certainly not
        // applied".
        let request = insert(&token, [n]);
        token = loop {
            match table.commit(&request).await {
                Ok(CommitOutcome::Committed(token)) => break token,
                Ok(other) => panic!("{other:?}"),
                Err(e) => assert_eq!(e.kind(), TableErrorKind::PermissionDenied, "{e}"),
            }
        };
    }
    flushing.abort();
    shell::<()>(&server, &["SCRIPT", "FLUSH"]).await;
    assert_eq!(read(&table).await.0.rows.len(), 100);
    shell::<()>(&server, &["SCRIPT", "FLUSH"]).await;
    table.update_i_am_alive(&heartbeat(3, 1)).await.unwrap();
    shell::<()>(&server, &["SCRIPT", "FLUSH"]).await;
    assert_eq!(
        table
            .read_row(&silo(3), Some(&token))
            .await
            .unwrap()
            .heartbeat
            .unwrap()
            .counter,
        1
    );
    shell::<()>(&server, &["SCRIPT", "FLUSH"]).await;
    table.delete().await.unwrap();
    shell::<()>(&server, &["SCRIPT", "FLUSH"]).await;
    initialize(&table).await.unwrap();
}

#[tokio::test]
async fn missing_keys_are_reported() {
    let server = own_server().await;
    let table = table_on(&server, "").await;
    let token = fill(&table, 3).await;
    // The rows are missing, as after an eviction.
    shell::<()>(&server, &["DEL", &key(&blue(), "rows")]).await;
    for known in [None, Some(&token)] {
        assert_eq!(read_kind(&table, known).await, Err(TableErrorKind::Damaged));
        assert_eq!(
            table.read_row(&silo(1), known).await.unwrap_err().kind(),
            TableErrorKind::Damaged
        );
    }
    assert!(
        table
            .read(&ReadRequest::all())
            .await
            .unwrap_err()
            .to_string()
            .contains("maxmemory-policy")
    );
    for request in [insert(&token, [7]), remove(&token, 1)] {
        assert_eq!(commit_kind(&table, &request).await, TableErrorKind::Damaged);
    }
    assert_eq!(
        initialize(&table).await.unwrap_err().kind(),
        TableErrorKind::Damaged
    );
    assert!(
        !shell::<bool>(&server, &["EXISTS", &key(&blue(), "rows")]).await,
        "something was written"
    );
    table.delete().await.unwrap();
    let token = fill(&table, 3).await;
    // The version row is missing.
    shell::<()>(&server, &["DEL", &key(&blue(), "version")]).await;
    assert_eq!(read_kind(&table, None).await, Err(TableErrorKind::Damaged));
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::TableReplaced)
    );
    assert_eq!(
        commit_kind(&table, &insert(&token, [7])).await,
        TableErrorKind::TableReplaced
    );
    // The heartbeats are missing: they are written again in time.
    table.delete().await.unwrap();
    let token = fill(&table, 3).await;
    table.update_i_am_alive(&heartbeat(1, 5)).await.unwrap();
    shell::<()>(&server, &["DEL", &key(&blue(), "heartbeats")]).await;
    assert_eq!(read(&table).await.1.counter(&silo(1)), 0);
    table.update_i_am_alive(&heartbeat(1, 6)).await.unwrap();
    commit(&table, &insert(&token, [7])).await;
    // Everything is missing.
    let token = read(&table).await.0.token;
    shell::<()>(&server, &["FLUSHALL"]).await;
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::TableReplaced)
    );
    assert_eq!(
        read_kind(&table, None).await,
        Err(TableErrorKind::NotInitialized)
    );
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(1, 7))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::NotInitialized
    );
    assert_eq!(
        commit_kind(&table, &insert(&token, [8])).await,
        TableErrorKind::TableReplaced
    );
    assert_eq!(
        shell::<u64>(&server, &["DBSIZE"]).await,
        0,
        "something was written"
    );
}

#[tokio::test]
async fn evicted_keys_of_a_full_server_are_reported() {
    let server = own_server().await;
    let table = table_on(&server, "").await;
    let token = fill(&table, 50).await;
    shell::<()>(
        &server,
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-random"],
    )
    .await;
    shell::<()>(&server, &["CONFIG", "SET", "maxmemory", "4mb"]).await;
    let mut admin = raw(server.url()).await.unwrap();
    let mut n = 0_u64;
    let ours = [key(&blue(), "version"), key(&blue(), "rows")];
    while redis::cmd("EXISTS")
        .arg(&ours)
        .query_async::<u64>(&mut admin)
        .await
        .unwrap()
        == 2
    {
        n += 1;
        redis::cmd("SET")
            .arg(format!("filler:{n}"))
            .arg(vec![b'x'; 2000])
            .exec_async(&mut admin)
            .await
            .unwrap();
    }
    let seen = read_kind(&table, Some(&token)).await.unwrap_err();
    assert!(
        matches!(
            seen,
            TableErrorKind::Damaged | TableErrorKind::TableReplaced
        ),
        "{seen:?}"
    );
    let refused = commit_kind(&table, &insert(&token, [90])).await;
    assert!(
        matches!(
            refused,
            TableErrorKind::Damaged | TableErrorKind::TableReplaced
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_full_server_writes_nothing_and_still_reads() {
    let server = own_server().await;
    let table = table_on(&server, "").await;
    let token = fill(&table, 3).await;
    for n in [1, 2] {
        table.update_i_am_alive(&heartbeat(n, 0)).await.unwrap();
    }
    let before = read(&table).await;
    shell::<()>(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    for request in [insert(&token, [7]), update(&token, 1, "x")] {
        assert_eq!(
            commit_kind(&table, &request).await,
            TableErrorKind::Unavailable
        );
    }
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(1, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::Unavailable
    );
    assert_eq!(read(&table).await, before);
    // A commit that frees memory is applied, and applied as a whole.
    let token = commit(&table, &remove(&token, 1)).await;
    let now = read(&table).await;
    assert_eq!(
        (now.0.version(), now.0.rows.len(), now.1.silos.len()),
        (token.version(), 2, 1)
    );
    shell::<()>(&server, &["CONFIG", "SET", "maxmemory", "0"]).await;
    commit(&table, &insert(&token, [7])).await;
}

#[tokio::test]
async fn a_master_without_enough_replicas_takes_no_writes() {
    let server = own_server().await;
    let table = table_on(&server, "").await;
    let token = fill(&table, 3).await;
    let before = read(&table).await;
    shell::<()>(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let error = table.commit(&insert(&token, [7])).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Unavailable);
    assert!(
        error.to_string().contains("min-replicas-to-write"),
        "{error}"
    );
    assert_eq!(read(&table).await, before);
}

#[tokio::test]
async fn a_long_script_of_another_client_makes_the_server_busy() {
    let server = own_server().await;
    let table = table_on(&server, "").await;
    let token = fill(&table, 3).await;
    shell::<()>(&server, &["CONFIG", "SET", "lua-time-limit", "50"]).await;
    let mut other = raw(server.url()).await.unwrap();
    let running = tokio::spawn(async move {
        redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .exec_async(&mut other)
            .await
    });
    until("the server is busy", async || {
        redis::cmd("GET")
            .arg("x")
            .exec_async(&mut raw(server.url()).await.unwrap())
            .await
            .is_err_and(|e| e.code() == Some("BUSY"))
    })
    .await;
    assert_eq!(
        commit_kind(&table, &insert(&token, [7])).await,
        TableErrorKind::Busy
    );
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::Busy)
    );
    // A new client cannot even load its scripts.
    assert_eq!(
        connect(server.url()).await.unwrap_err().kind(),
        TableErrorKind::Busy
    );
    shell::<()>(&server, &["SCRIPT", "KILL"]).await;
    running.await.unwrap().unwrap_err();
    commit(&table, &insert(&token, [7])).await;
}

#[tokio::test]
async fn calls_to_a_frozen_server_time_out() {
    let server = own_server().await;
    let table = table_on(&server, "operation_timeout=500ms").await;
    let token = fill(&table, 3).await;
    let request = insert(&token, [7]);
    server.pause().await.unwrap();
    let began = Instant::now();
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::Unavailable)
    );
    // The sent commit may have been applied, also if the next attempt finds no connection.
    let kinds = [
        commit_kind(&table, &request).await,
        commit_kind(&table, &request.again()).await,
    ];
    assert!(
        matches!(
            kinds[0],
            TableErrorKind::OutcomeUnknown | TableErrorKind::Unavailable
        ),
        "{kinds:?}"
    );
    assert_eq!(kinds[1], TableErrorKind::OutcomeUnknown);
    assert!(began.elapsed() < Duration::from_secs(20));
    server.resume().await.unwrap();
    until("the server is back", async || {
        read_kind(&table, None).await.is_ok()
    })
    .await;
    commit(&table, &request.again()).await;
    assert_eq!(read(&table).await.0.version(), token.version() + 1);
}

#[tokio::test]
async fn a_commit_without_answer_is_unknown_and_recognised_when_sent_again() {
    let server = own_server().await;
    let table = table_on(&server, "operation_timeout=500ms").await;
    let token = fill(&table, 3).await;
    let request = insert(&token, [7]);
    server.pause().await.unwrap();
    assert_eq!(
        commit_kind(&table, &request).await,
        TableErrorKind::OutcomeUnknown
    );
    server.resume().await.unwrap();
    until("the commit has arrived", async || {
        read_kind(&table, None).await.is_ok() && read(&table).await.0.version() > token.version()
    })
    .await;
    assert_eq!(
        commit(&table, &request.again()).await,
        request.next_token(&[])
    );
    assert_eq!(
        commit(&table, &request).await,
        request.next_token(&[]),
        "one's own success is never a conflict"
    );
}

#[tokio::test]
async fn connections_that_cannot_work_say_why() {
    let server = locked_server().await;
    let at = server.address();
    for (url, kind, words) in [
        (
            format!("redis://{at}"),
            TableErrorKind::PermissionDenied,
            "password",
        ),
        (
            format!("redis://:wrong-{SECRET}@{at}"),
            TableErrorKind::PermissionDenied,
            "password",
        ),
        (
            format!("redis://bo:{SECRET}@{at}"),
            TableErrorKind::PermissionDenied,
            "password",
        ),
        (
            format!("redis://:{SECRET}@{at}/99"),
            TableErrorKind::Configuration,
            "db index",
        ),
        (
            format!("rediss://:{SECRET}@{at}/?connect_timeout=2s"),
            TableErrorKind::Unavailable,
            "redis://",
        ),
        (
            format!("redis://:{SECRET}@127.0.0.1:1"),
            TableErrorKind::Unavailable,
            "cannot be reached",
        ),
        (
            format!("redis://:{SECRET}@{at}?durability=kept"),
            TableErrorKind::Configuration,
            "appendonly yes",
        ),
        (
            format!("redis+sentinel://:{SECRET}@{at}/main?sentinel_password={SECRET}"),
            TableErrorKind::Configuration,
            "sentinel",
        ),
    ] {
        let error = connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let shown = format!("{error} {error:?}");
        assert!(
            shown.to_lowercase().contains(words) && !shown.contains(SECRET),
            "{error}"
        );
        assert!(
            error.place().is_some_and(|place| url.contains(place)),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_existing_client_is_used() {
    let server = locked_server().await;
    let client = redis::Client::open(format!("redis://:{SECRET}@{}/3", server.address())).unwrap();
    let table = RedisTable::connect(RedisConfig::from_client(&client).prefix("mine"), blue())
        .await
        .unwrap();
    fill(&table, 2).await;
    assert!(!format!("{table:?} {:?}", table.config()).contains(SECRET));
    let url = format!("redis://:{SECRET}@{}/3?prefix=mine", server.address());
    assert_eq!(read(&connect(&url).await.unwrap()).await.0.rows.len(), 2);
}
