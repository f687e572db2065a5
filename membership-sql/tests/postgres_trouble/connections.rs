//! Connections: a frozen server, a restart under listeners, a pooler, TLS.

use std::time::{Duration, Instant};

use conformance_tests::proxy::Proxy;
use futures_util::StreamExt;
use membership_core::{
    CommitOutcome, HeartbeatWrite, MembershipTable, ReadAnswer, ReadRequest, TableErrorKind,
};
use membership_sql::{PostgresConfig, PostgresSslMode, PostgresTable};

use crate::postgres::{Options, Shell};
use crate::standby::url_of;
use crate::warnings::Warnings;
use crate::{
    PATIENCE, commit, config, connect, heartbeat, initialize, insert, read, ready, server, until,
};

#[tokio::test]
async fn calls_to_a_frozen_server_time_out_and_the_handle_recovers() {
    let server = server(Options::default()).await;
    ready(&server).await;
    let table = connect(config(&server).operation_timeout(Duration::from_millis(700)))
        .await
        .unwrap();
    let token = read(&table).await.token;
    server.pause().await.unwrap();
    let began = Instant::now();
    let request = insert(&token, 1);
    let ask = ReadRequest::all();
    let (read_kind, commit_kind) = tokio::join!(table.read(&ask), table.commit(&request));
    assert_eq!(read_kind.unwrap_err().kind(), TableErrorKind::Unavailable);
    assert_eq!(
        commit_kind.unwrap_err().kind(),
        TableErrorKind::OutcomeUnknown
    );
    assert_eq!(
        table.commit(&request.again()).await.unwrap_err().kind(),
        TableErrorKind::OutcomeUnknown,
        "the first may have happened"
    );
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    server.resume().await.unwrap();
    let mut answer = table.commit(&request.again()).await;
    while answer
        .as_ref()
        .is_err_and(|e| e.kind() != TableErrorKind::InvalidRequest)
        && began.elapsed() < PATIENCE
    {
        answer = table.commit(&request.again()).await;
    }
    assert!(matches!(answer.unwrap(), CommitOutcome::Committed(_)));
    assert_eq!(read(&table).await.rows.len(), 1);
}

#[tokio::test]
async fn hints_report_commits_and_survive_a_restart() {
    let server = server(Options::default()).await;
    let table = ready(&server).await;
    let listener = connect(config(&server)).await.unwrap();
    let mut hints = listener.hints().unwrap();
    let mut again = listener.hints().unwrap();
    let ring = async |hints: &mut membership_core::HintStream| {
        tokio::time::timeout(PATIENCE, hints.next()).await.unwrap()
    };
    // One hint when the stream begins to listen.
    assert_eq!(ring(&mut hints).await, Some(()));
    let token = commit(&table, &insert(&read(&table).await.token, 1)).await;
    assert_eq!(
        (ring(&mut hints).await, ring(&mut again).await),
        (Some(()), Some(()))
    );
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'membership'";
    let admin = Shell::connect(server.url()).await.unwrap();
    assert_eq!(
        admin.ask(connections).await.unwrap(),
        [["3"]],
        "one of the table, two of the listener"
    );
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    assert_eq!(
        ring(&mut hints).await,
        Some(()),
        "once after each new connection"
    );
    until("the table is back", async || {
        table.read(&ReadRequest::all()).await.is_ok()
    })
    .await;
    commit(&table, &insert(&token, 2)).await;
    assert_eq!(ring(&mut hints).await, Some(()));
    drop(listener);
    let end = async { while hints.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, end)
        .await
        .expect("the stream ends with the handle");
    let admin = Shell::connect(server.url()).await.unwrap();
    until("its connections are closed", async || {
        admin.ask(connections).await.unwrap() == [["1"]]
    })
    .await;
    assert!(
        connect(config(&server).hints(false))
            .await
            .unwrap()
            .hints()
            .is_none()
    );
    assert!(
        connect(config(&server).pooler(true))
            .await
            .unwrap()
            .hints()
            .is_none()
    );
}

#[tokio::test]
async fn pooler_mode_leaves_nothing_in_the_session() {
    let server = server(Options {
        args: vec!["-c".into(), "log_statement=all".into()],
        ..Options::default()
    })
    .await;
    let table = connect(config(&server).pooler(true)).await.unwrap();
    initialize(&table).await.unwrap();
    let token = commit(&table, &insert(&read(&table).await.token, 1)).await;
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    table
        .update_i_am_alive(&HeartbeatWrite::Cluster { text: "x".into() })
        .await
        .unwrap();
    assert!(matches!(
        table.read(&ReadRequest::all().with_known(token)).await,
        Ok(ReadAnswer::Unchanged { .. })
    ));
    let log = server.log().unwrap();
    let own: Vec<&str> = log.lines().filter(|l| l.contains("membership_")).collect();
    assert!(!own.is_empty());
    // An unnamed statement is logged under `<unnamed>`; a named one by its name.
    for line in log.lines().filter(|l| l.contains("execute ")) {
        assert!(line.contains("execute <unnamed>"), "{line}");
    }
    for word in ["LISTEN", "PREPARE", "DISCARD", "pg_advisory_lock"] {
        assert!(!log.contains(word), "{word} was sent");
    }
    assert!(
        !log.lines()
            .any(|l| l.contains("statement: SET") || l.contains("statement: set"))
    );
    assert!(log.contains("set_config('synchronous_commit', 'on', true)"));
}

#[tokio::test]
async fn connections_use_the_requested_encryption() {
    let server = server(Options {
        tls: true,
        ..Options::default()
    })
    .await;
    let ca = server.tls().unwrap().ca.clone();
    let admin_url = server.url().to_owned();
    let encrypted = async |table: &PostgresTable| {
        initialize(table).await.unwrap();
        let admin = Shell::connect(&admin_url).await.unwrap();
        let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'membership'";
        admin.ask(sql).await.unwrap() == [["t"]]
    };
    for mode in [PostgresSslMode::Prefer, PostgresSslMode::Require] {
        let table = connect(config(&server).ssl_mode(mode)).await.unwrap();
        assert!(encrypted(&table).await, "{mode:?}");
    }
    for mode in [
        PostgresSslMode::Require,
        PostgresSslMode::VerifyCa,
        PostgresSslMode::VerifyFull,
    ] {
        let table = connect(config(&server).ssl_mode(mode).ssl_root_cert(&ca))
            .await
            .unwrap();
        assert!(encrypted(&table).await, "{mode:?}");
    }
    let plain = connect(config(&server).ssl_mode(PostgresSslMode::Disable))
        .await
        .unwrap();
    assert!(!encrypted(&plain).await);
    // Another authority, and a name that is not in the certificate.
    let stranger = self::server(Options {
        tls: true,
        ..Options::default()
    })
    .await;
    let other_ca = stranger.tls().unwrap().ca.clone();
    for mode in [
        PostgresSslMode::VerifyCa,
        PostgresSslMode::VerifyFull,
        PostgresSslMode::Require,
    ] {
        let refused = connect(config(&server).ssl_mode(mode).ssl_root_cert(&other_ca))
            .await
            .unwrap_err();
        assert_eq!(
            refused.kind(),
            TableErrorKind::Configuration,
            "{mode:?}: {refused}"
        );
        assert!(refused.to_string().contains("sslrootcert"), "{refused}");
    }
    let misnamed = |mode: &str| {
        let url = format!(
            "{}?sslmode={mode}&sslrootcert={}&hostaddr=127.0.0.1",
            server.url().replace("127.0.0.1", "elsewhere.example"),
            ca.display()
        );
        connect(PostgresConfig::from_url(&url).unwrap())
    };
    assert_eq!(
        misnamed("verify-full").await.unwrap_err().kind(),
        TableErrorKind::Configuration
    );
    misnamed("verify-ca").await.unwrap();
    // A server without TLS, for a client that requires it.
    let bare = self::server(Options::default()).await;
    let refused = connect(config(&bare).ssl_mode(PostgresSslMode::Require))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Configuration, "{refused}");
    assert!(
        refused.to_string().contains("does not support TLS"),
        "{refused}"
    );
    let missing = connect(
        config(&bare)
            .ssl_mode(PostgresSslMode::VerifyFull)
            .ssl_root_cert("/no/such/file"),
    )
    .await
    .unwrap_err();
    assert!(missing.to_string().contains("/no/such/file"), "{missing}");
}

/// A server gets certificates of another authority, and clients the file with that one.
#[tokio::test(flavor = "multi_thread")]
async fn new_certificates_need_no_restart() {
    let tls = || Options {
        tls: true,
        ..Options::default()
    };
    let (old, new) = (server(tls()).await, server(tls()).await);
    for server in [&old, &new] {
        ready(server).await;
    }
    let address = Proxy::to(old.address()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::copy(&old.tls().unwrap().ca, &file).unwrap();
    let url = url_of(&old, &address.address().to_string());
    let config = PostgresConfig::from_url(&url)
        .unwrap()
        .ssl_mode(PostgresSslMode::VerifyFull)
        .ssl_root_cert(&file);
    let table = connect(config).await.unwrap();
    read(&table).await;
    std::fs::copy(&new.tls().unwrap().ca, &file).unwrap();
    address.set_target(new.address());
    address.cut_connections();
    until("the new certificate is trusted", async || {
        table.read(&ReadRequest::all()).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn the_systems_certificates_are_checked_in_full_or_not_used() {
    let server = server(Options {
        tls: true,
        ..Options::default()
    })
    .await;
    let with = |options: &str| PostgresConfig::from_url(&format!("{}?{options}", server.url()));
    for mode in ["disable", "prefer", "require", "verify-ca"] {
        let refused = with(&format!("sslrootcert=system&sslmode={mode}"));
        let refused = match refused {
            Err(e) => e,
            Ok(config) => connect(config).await.expect_err(mode),
        };
        assert_eq!(refused.kind(), TableErrorKind::Configuration);
        assert!(refused.to_string().contains("verify-full"), "{refused}");
    }
    // Alone it means verify-full. No public authority has signed this certificate.
    for options in [
        "sslrootcert=system",
        "sslrootcert=system&sslmode=verify-full",
    ] {
        let refused = connect(with(options).unwrap()).await.unwrap_err();
        assert_eq!(refused.kind(), TableErrorKind::Configuration, "{refused}");
    }
}

#[tokio::test]
async fn an_unencrypted_password_for_another_machine_is_warned_of_once() {
    let server = server(Options {
        tls: true,
        ..Options::default()
    })
    .await;
    // Another name of this machine, which only its system knows.
    let far = url_of(&server, &format!("0x7f000001:{}", server.address().port()));
    for (url, mode, warnings) in [
        (far.as_str(), PostgresSslMode::Disable, 1),
        (far.as_str(), PostgresSslMode::Prefer, 0),
        (far.as_str(), PostgresSslMode::Require, 0),
        (server.url(), PostgresSslMode::Disable, 0),
    ] {
        let logged = Warnings::with("unencrypted");
        let config = PostgresConfig::from_url(url).unwrap().ssl_mode(mode);
        let table = connect(config).await.unwrap();
        for _ in 0..2 {
            let anew = ReadRequest::all().with_new_connection(true);
            let _no_table = table.read(&anew).await;
        }
        assert_eq!(logged.count(), warnings, "{mode:?}");
    }
}
