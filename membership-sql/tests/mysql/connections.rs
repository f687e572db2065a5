//! Connections and servers: poolers, read-only and lossy servers, TLS, a frozen and a killed
//! server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance_tests::helpers::{commit as committed, entry, heartbeat, silo, update};
use conformance_tests::proxy::Proxy;
use membership_core::{CommitOutcome, Durability, MembershipTable, ReadRequest, TableErrorKind};
use membership_sql::{MysqlConfig, MysqlProcedure, MysqlSslMode};
use membership_testbed::{Kind, Options, Server, suite};
use mysql_async::prelude::Queryable;

use crate::support::{IMPATIENT, MariaDb, SECRET};
use crate::warnings::Warnings;
use crate::{insert, made, open, read, request};

/// What a pooler does between two transactions, done by hand: the session gets the server's
/// defaults again.
pub async fn poolers_may_reset_sessions(server: &MariaDb) {
    let mut shell = server.shell().await.unwrap();
    shell
        .query_drop("SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'")
        .await
        .unwrap();
    shell
        .query_drop("SET GLOBAL tx_isolation = 'READ-UNCOMMITTED'")
        .await
        .unwrap();
    let (table, token) = made(server.config().pooler(true), "pooled").await;
    let token = committed(&table, &update(&token, 1, "o'b\\x")).await;
    table.update_i_am_alive(&heartbeat(1, 3)).await.unwrap();
    let CommitOutcome::Conflict(conflict) = table.commit(&insert(&token, 1)).await.unwrap() else {
        panic!("the row is there")
    };
    assert_eq!(
        conflict
            .snapshot
            .unwrap()
            .rows
            .get(&entry(1).address)
            .unwrap()
            .info
            .silo_name,
        "o'b\\x"
    );
    // A wrong default does not affect a client that keeps its connection.
    let direct = open(server.config(), "pooled").await.unwrap();
    committed(&direct, &update(&token, 1, "y")).await;
    table.delete().await.unwrap();
    assert_eq!(
        direct.read(&ReadRequest::all()).await.unwrap_err().kind(),
        TableErrorKind::NotInitialized
    );
    shell
        .query_drop("SET GLOBAL sql_mode = DEFAULT")
        .await
        .unwrap();
    shell
        .query_drop("SET GLOBAL tx_isolation = DEFAULT")
        .await
        .unwrap();
}

/// The user has the privilege to write nevertheless.
pub async fn a_server_that_becomes_read_only_is_refused(
    server: &MariaDb,
    procedure: MysqlProcedure,
) {
    let config = || server.config().procedure(procedure);
    let (table, token) = made(config(), &format!("read-only-{procedure:?}")).await;
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    server.sql("SET GLOBAL read_only = 1").await.unwrap();
    // First the writes: each uses a connection from before the server became read-only.
    let commit = table.commit(&update(&token, 1, "x")).await.unwrap_err();
    server.sql("SET GLOBAL read_only = 0").await.unwrap();
    assert_eq!(read(&table).await.token, token);
    server.sql("SET GLOBAL read_only = 1").await.unwrap();
    for error in [
        commit,
        table.update_i_am_alive(&heartbeat(1, 2)).await.unwrap_err(),
        table.read(&ReadRequest::all()).await.unwrap_err(),
        table.commit(&update(&token, 1, "x")).await.unwrap_err(),
        open(config(), "read-only").await.unwrap_err(),
    ] {
        assert!(
            error.kind() == TableErrorKind::Unavailable && error.to_string().contains("primary"),
            "{error}"
        );
    }
    server.sql("SET GLOBAL read_only = 0").await.unwrap();
    assert_eq!(read(&table).await.token, token);
    committed(&table, &update(&token, 1, "y")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_lose_commits_are_reported_or_refused() {
    let server = MariaDb::start_with("", &["--innodb-flush-log-at-trx-commit=2"]).await;
    let table = open(server.config(), "lossy").await.unwrap();
    assert_eq!(table.guarantees().durability, Durability::MayBeLost);
    let error = open(server.config().require_durable(true), "lossy")
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration
            && error
                .to_string()
                .contains("innodb_flush_log_at_trx_commit = 2"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ssl_mode_decides_about_tls() {
    let options = Options {
        tls: true,
        password: Some(SECRET.to_owned()),
        ..Options::default()
    };
    let server = Server::start(Kind::MariaDb, options).await.unwrap();
    let base = server.url().split('?').next().unwrap().to_owned();
    let config = |mode: MysqlSslMode| {
        MysqlConfig::from_url(&base)
            .unwrap()
            .ssl_mode(mode)
            .operation_timeout(IMPATIENT)
    };
    let ca = server.tls().unwrap().ca.clone();
    for config in [
        config(MysqlSslMode::Disabled),
        config(MysqlSslMode::Preferred),
        config(MysqlSslMode::Required),
        config(MysqlSslMode::VerifyCa).ssl_ca(&ca),
        config(MysqlSslMode::VerifyIdentity).ssl_ca(&ca),
    ] {
        let said = format!("{config:?}");
        let table = open(config, "tls")
            .await
            .unwrap_or_else(|e| panic!("{said}: {e}"));
        table.initialize(&request()).await.unwrap();
    }
    // No public authority has signed this server's certificate.
    let error = open(config(MysqlSslMode::VerifyIdentity), "tls")
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration && error.to_string().contains("certificate"),
        "{error}"
    );
    assert!(
        error.to_string().contains("ssl-ca") && error.to_string().matches('[').count() == 1,
        "one error, not two: {error}"
    );
    // A server that requires TLS.
    let mut shell = mysql_async::Conn::from_url(&base).await.unwrap();
    shell
        .query_drop("SET GLOBAL require_secure_transport = ON")
        .await
        .unwrap();
    let error = open(config(MysqlSslMode::Disabled), "tls")
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::PermissionDenied && error.to_string().contains("ssl-mode"),
        "{error}"
    );
    // A server without TLS.
    let plain = MariaDb::start("").await;
    assert!(
        open(plain.config().ssl_mode(MysqlSslMode::Preferred), "tls")
            .await
            .is_ok()
    );
    let error = open(plain.config().ssl_mode(MysqlSslMode::Required), "tls")
        .await
        .unwrap_err();
    assert!(
        error.kind() == TableErrorKind::Configuration
            && error.to_string().contains("offers no TLS"),
        "{error}"
    );
}

/// A server that is frozen, and then killed and started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_and_a_killed_server_recover() {
    let server = MariaDb::start("procedure=never").await;
    let (table, token) = made(server.config().operation_timeout(IMPATIENT), "hangs").await;
    let table = Arc::new(table);
    let beaten = table.read_row(&silo(1), None).await.unwrap().heartbeat;
    server.server.pause().await.unwrap();
    let began = Instant::now();
    let (all, lost, write) = (ReadRequest::all(), update(&token, 1, "x"), heartbeat(1, 1));
    let (read_error, commit_error, beat_error) = tokio::join!(
        table.read(&all),
        table.commit(&lost),
        table.update_i_am_alive(&write)
    );
    assert_eq!(read_error.unwrap_err().kind(), TableErrorKind::Unavailable);
    // The first round trip of a commit only reads.
    assert_eq!(
        commit_error.unwrap_err().kind(),
        TableErrorKind::Unavailable
    );
    let beat_error = beat_error.unwrap_err();
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(30), "{waited:?}");
    server.server.resume().await.unwrap();
    assert_eq!(read(&table).await.token, token);
    // Reads and heartbeats take turns on one connection. When the read times out, the heartbeat
    // times out too; it was sent or not.
    match beat_error.kind() {
        TableErrorKind::OutcomeUnknown => {}
        TableErrorKind::Busy | TableErrorKind::Unavailable => {
            assert_eq!(
                table.read_row(&silo(1), None).await.unwrap().heartbeat,
                beaten,
                "{beat_error}"
            );
        }
        _ => panic!("{beat_error}"),
    }
    let token = committed(&table, &update(&token, 1, "y")).await;
    server.server.kill().await.unwrap();
    assert_eq!(
        table.read(&ReadRequest::all()).await.unwrap_err().kind(),
        TableErrorKind::Unavailable
    );
    server.server.start_again().await.unwrap();
    committed(&table, &update(&token, 1, "z")).await;
}

/// A server gets certificates of another authority, and clients the file with that one.
#[tokio::test(flavor = "multi_thread")]
async fn new_certificates_need_no_restart() {
    let options = || Options {
        tls: true,
        ..suite::durable(SECRET)
    };
    let (old, new) = tokio::join!(
        Server::start(Kind::MariaDb, options()),
        Server::start(Kind::MariaDb, options())
    );
    let (old, new) = (old.unwrap(), new.unwrap());
    for server in [&old, &new] {
        made(MysqlConfig::from_url(server.url()).unwrap(), "tls").await;
    }
    let address = Proxy::to(old.address()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::copy(&old.tls().unwrap().ca, &file).unwrap();
    let here = old.address().to_string();
    let url = old.url().replace(&here, &address.address().to_string());
    let config = MysqlConfig::from_url(&url)
        .unwrap()
        .ssl_mode(MysqlSslMode::VerifyIdentity)
        .ssl_ca(&file);
    let table = open(config, "tls").await.unwrap();
    read(&table).await;
    std::fs::copy(&new.tls().unwrap().ca, &file).unwrap();
    address.set_target(new.address());
    address.cut_connections();
    let began = Instant::now();
    while let Err(e) = table.read(&ReadRequest::all()).await {
        assert!(began.elapsed() < Duration::from_secs(60), "{e}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_unencrypted_password_for_another_machine_is_warned_of_once() {
    let options = Options {
        tls: true,
        ..suite::durable(SECRET)
    };
    let server = Server::start(Kind::MariaDb, options).await.unwrap();
    // Another name of this machine, which only its system knows.
    let there = format!("0x7f000001:{}", server.address().port());
    let far = server.url().replace(&server.address().to_string(), &there);
    for (url, mode, warnings) in [
        (far.as_str(), MysqlSslMode::Disabled, 1),
        (far.as_str(), MysqlSslMode::Preferred, 0),
        (far.as_str(), MysqlSslMode::Required, 0),
        (server.url(), MysqlSslMode::Disabled, 0),
    ] {
        let logged = Warnings::with("unencrypted");
        let config = MysqlConfig::from_url(url).unwrap().ssl_mode(mode);
        let table = open(config, "plain").await.unwrap();
        for _ in 0..2 {
            let anew = ReadRequest::all().with_new_connection(true);
            let _no_table = table.read(&anew).await;
        }
        assert_eq!(logged.count(), warnings, "{mode:?}");
    }
}
