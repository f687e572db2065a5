//! Servers that accept no writes: a standby, and a read-only server.

use std::path::PathBuf;

use membership_core::{CommitOutcome, Durability, MembershipTable, TableErrorKind};
use membership_sql::{PostgresConfig, PostgresFailover};
use membership_testbed::Server;

use crate::postgres::{Options, Shell};
use crate::{commit, config, connect, insert, read, ready, server, until};

/// A copy of a server that follows it, until it is promoted. Its process is killed at the end of the
/// test, whether it passes or fails.
pub struct Standby {
    process: std::process::Child,
    pub port: u16,
    /// The folder of its socket, where no password is needed.
    pub folder: PathBuf,
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Standby {
    /// Starts a standby of a local server, and waits until it answers.
    pub async fn of(primary: &Server) -> Self {
        let run = primary.folder().unwrap().join("run");
        let folder = run.join("standby");
        let from = primary.address().port().to_string();
        let copied = primary
            .command("pg_basebackup")
            .unwrap()
            .args(["-h", run.to_str().unwrap(), "-p", &from, "-U", "postgres"])
            .args(["-D", folder.to_str().unwrap()])
            .args(["--checkpoint=fast", "--no-sync", "-R"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&copied.stderr);
        assert!(copied.status.success(), "{said}");
        let port = membership_testbed::free_port().unwrap();
        let log = std::fs::File::create(primary.folder().unwrap().join("standby.log")).unwrap();
        let socket = format!("unix_socket_directories={}", folder.display());
        let process = primary
            .command("postgres")
            .unwrap()
            .args(["-D", folder.to_str().unwrap(), "-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", &socket])
            .args(["-c", "dynamic_shared_memory_type=mmap"])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let standby = Self {
            process,
            port,
            folder,
        };
        let url = standby.url(primary);
        until("the standby answers", async || {
            Shell::connect(&url).await.is_ok()
        })
        .await;
        standby
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of the standby of this server.
    pub fn url(&self, primary: &Server) -> String {
        url_of(primary, &self.address())
    }
}

/// The URL of a server with other hosts in it.
pub fn url_of(server: &Server, hosts: &str) -> String {
    server.url().replace(&server.address().to_string(), hosts)
}

/// A primary that has standbys.
pub async fn primary() -> Server {
    server(Options {
        local: true,
        ..Options::default()
    })
    .await
}

#[tokio::test]
async fn a_standby_is_refused_and_the_next_host_is_used() {
    let primary = primary().await;
    let table = ready(&primary).await;
    assert_eq!(table.guarantees().durability, Durability::Kept);
    let standby = Standby::of(&primary).await;
    let there = standby.address();
    let url = standby.url(&primary);
    let refused = connect(PostgresConfig::from_url(&url).unwrap())
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Configuration);
    assert!(refused.to_string().contains("standby"), "{refused}");
    // Of several hosts, the client uses the one that accepts writes.
    let both = url_of(&primary, &format!("{there},{}", primary.address()));
    let table = connect(PostgresConfig::from_url(&both).unwrap())
        .await
        .unwrap();
    commit(&table, &insert(&read(&table).await.token, 1)).await;
    // If an asynchronous standby may be promoted, the last commits can be lost; the configuration
    // can state that it is never promoted.
    let admin = Shell::connect(primary.url()).await.unwrap();
    until("the standby streams", async || {
        admin
            .ask("SELECT count(*) FROM pg_stat_replication")
            .await
            .unwrap()
            == [["1"]]
    })
    .await;
    let detected = connect(config(&primary)).await.unwrap();
    assert_eq!(detected.guarantees().durability, Durability::MayBeLost);
    let safe = connect(config(&primary).failover(PostgresFailover::Safe))
        .await
        .unwrap();
    assert_eq!(safe.guarantees().durability, Durability::Kept);
    drop(standby);

    // If the wait for a synchronous standby is cancelled, the commit is applied, and it is unknown
    // whether it will stay.
    admin
        .run("ALTER SYSTEM SET synchronous_standby_names = '*'")
        .await
        .unwrap();
    admin.run("SELECT pg_reload_conf()").await.unwrap();
    until("the setting is there", async || {
        admin.ask("SHOW synchronous_standby_names").await.unwrap() == [["*"]]
    })
    .await;
    let request = insert(&read(&table).await.token, 2);
    let waiting = {
        let (table, request) = (table.clone(), request.clone());
        tokio::spawn(async move { table.commit(&request).await })
    };
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("the commit waits and is cancelled", async || {
        !admin.ask(cancel).await.unwrap().is_empty()
    })
    .await;
    let unknown = waiting.await.unwrap().unwrap_err();
    assert_eq!(unknown.kind(), TableErrorKind::OutcomeUnknown, "{unknown}");
    assert!(unknown.to_string().contains("standbys"), "{unknown}");
    assert!(matches!(
        table.commit(&request.again()).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
}

#[tokio::test]
async fn a_read_only_server_is_refused() {
    let server = server(Options::default()).await;
    let table = ready(&server).await;
    let token = read(&table).await.token;
    let admin = Shell::connect(server.url()).await.unwrap();
    admin
        .run("ALTER ROLE postgres SET default_transaction_read_only = on")
        .await
        .unwrap();
    let refused = connect(config(&server)).await.unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Configuration);
    assert!(
        refused
            .to_string()
            .contains("default_transaction_read_only"),
        "{refused}"
    );
    admin
        .run("ALTER ROLE postgres RESET default_transaction_read_only")
        .await
        .unwrap();
    commit(&table, &insert(&token, 1)).await;
}
