//! Servers that accept no writes: a standby, and a read-only server.

use std::path::PathBuf;
use std::time::Duration;

use membership_core::{
    CommitOutcome, Durability, Guarantees, MembershipTable, ReadRequest, Recency, TableError,
    TableErrorKind,
};
use membership_sql::{PostgresConfig, PostgresFailover, PostgresSynchronousCommit, PostgresTable};
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
    /// How it is started.
    command: Option<std::process::Command>,
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
        let mut command = primary.command("postgres").unwrap();
        command
            .args(["-D", folder.to_str().unwrap(), "-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", &socket])
            .args(["-c", "dynamic_shared_memory_type=mmap"])
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let process = command.spawn().unwrap();
        let standby = Self {
            process,
            port,
            folder,
            command: Some(command),
        };
        let url = standby.url(primary);
        until("the standby answers", async || {
            Shell::connect(&url).await.is_ok()
        })
        .await;
        standby
    }

    /// Stops it, and waits until it confirms nothing more to its primary.
    async fn stop(self, primary: &Shell) {
        drop(self);
        is_gone(primary).await;
    }

    /// The same, of one that will start again.
    pub async fn pause(mut self, primary: &Shell) -> Paused {
        let again = Paused {
            command: self.command.take().unwrap(),
            port: self.port,
            folder: self.folder.clone(),
        };
        self.stop(primary).await;
        again
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of the standby of this server.
    pub fn url(&self, primary: &Server) -> String {
        url_of(primary, &self.address())
    }
}

/// A standby that is stopped.
pub struct Paused {
    command: std::process::Command,
    port: u16,
    folder: PathBuf,
}

impl Paused {
    pub fn start(mut self) -> Standby {
        let process = self.command.spawn().unwrap();
        Standby {
            process,
            port: self.port,
            folder: self.folder,
            command: Some(self.command),
        }
    }
}

/// Waits until no standby follows this primary.
async fn is_gone(primary: &Shell) {
    until("the standby is gone", async || {
        let senders = "SELECT count(*) FROM pg_stat_replication";
        primary.ask(senders).await.unwrap() == [["0"]]
    })
    .await;
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
    ready(&primary).await;
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
    let both = PostgresConfig::from_url(&both).unwrap();
    let table = connect(both.failover(PostgresFailover::Safe))
        .await
        .unwrap();
    commit(&table, &insert(&read(&table).await.token, 1)).await;
    let admin = Shell::connect(primary.url()).await.unwrap();
    standby.stop(&admin).await;

    // If the wait for a synchronous standby is cancelled, the commit is applied, and it is unknown
    // whether it will stay.
    let request = insert(&read(&table).await.token, 2);
    wait_for_standbys(&admin).await;
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
    wait_for_none(&admin).await;
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

/// Commits wait for a standby from now on.
pub async fn wait_for_standbys(admin: &Shell) {
    wait_for(admin, "*").await;
}

/// They do so no longer.
pub async fn wait_for_none(admin: &Shell) {
    wait_for(admin, "").await;
}

async fn wait_for(admin: &Shell, names: &str) {
    admin
        .run(&format!(
            "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
        ))
        .await
        .unwrap();
    admin.run("SELECT pg_reload_conf()").await.unwrap();
    until("the setting is there", async || {
        admin.ask("SHOW synchronous_standby_names").await.unwrap() == [[names]]
    })
    .await;
    // Whether commits wait is told to all sessions by the process that makes checkpoints. It reads the
    // settings before each, and may have begun one before it was told to read them.
    for _ in 0..2 {
        admin.run("CHECKPOINT").await.unwrap();
    }
}

async fn barrier(table: &PostgresTable) -> Result<(), TableError> {
    let newest = ReadRequest::all().with_barrier(true);
    table.read(&newest).await.map(drop)
}

/// What is promised, and whether a read with a barrier is answered.
async fn promised(config: PostgresConfig) -> (Recency, Durability, bool) {
    let table = connect(config).await.unwrap();
    let Guarantees {
        reads, durability, ..
    } = table.guarantees();
    let answered = match barrier(&table).await {
        Ok(()) => true,
        Err(e) => {
            assert_eq!(e.kind(), TableErrorKind::Unavailable, "{e}");
            assert!(e.to_string().contains("failover=safe"), "{e}");
            false
        }
    };
    // Other reads are answered in any case.
    table.read(&ReadRequest::all()).await.unwrap();
    (reads, durability, answered)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_was_checked_or_asserted_is_promised() {
    use Durability::{Kept, MayBeLost};
    use PostgresFailover::{MayLose, Safe};
    use Recency::{Linearizable, MonotonicPerClient};
    let primary = primary().await;
    let before = ready(&primary).await;
    let hosts = format!("{},127.0.0.1:1", primary.address());
    let several = || PostgresConfig::from_url(&url_of(&primary, &hosts)).unwrap();
    for (config, promise) in [
        // Nobody else can answer, but a standby may come.
        (config(&primary), (Linearizable, MayBeLost, true)),
        (config(&primary).failover(Safe), (Linearizable, Kept, true)),
        (several(), (MonotonicPerClient, MayBeLost, false)),
        (several().failover(Safe), (Linearizable, Kept, true)),
    ] {
        let said = format!("{config:?}");
        assert_eq!(promised(config).await, promise, "{said}");
    }
    // An asynchronous standby may be promoted, and this primary not know it.
    let standby = Standby::of(&primary).await;
    let admin = Shell::connect(primary.url()).await.unwrap();
    until("the standby streams", async || {
        admin
            .ask("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
            .await
            .unwrap()
            == [["1"]]
    })
    .await;
    for (config, promise) in [
        (config(&primary), (MonotonicPerClient, MayBeLost, false)),
        (config(&primary).failover(Safe), (Linearizable, Kept, true)),
        (
            config(&primary).failover(MayLose),
            (Linearizable, MayBeLost, true),
        ),
    ] {
        let said = format!("{config:?}");
        assert_eq!(promised(config).await, promise, "{said}");
    }
    // It came later than the connection.
    assert_eq!(before.guarantees().reads, Linearizable);
    let refused = barrier(&before).await.unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Unavailable, "{refused}");
    assert_eq!(before.guarantees().reads, MonotonicPerClient);
    // A synchronous one confirms that this is the primary, also if a pooler drops settings.
    wait_for_standbys(&admin).await;
    for pooler in [false, true] {
        let config = config(&primary).pooler(pooler);
        let promise = (MonotonicPerClient, Kept, true);
        assert_eq!(promised(config).await, promise, "pooler {pooler}");
    }
    let local = config(&primary).synchronous_commit(PostgresSynchronousCommit::Local);
    let promise = (MonotonicPerClient, MayBeLost, false);
    assert_eq!(promised(local).await, promise);
    let hasty = config(&primary).operation_timeout(Duration::from_secs(3));
    let table = connect(hasty).await.unwrap();
    standby.stop(&admin).await;
    let unconfirmed = barrier(&table).await.unwrap_err();
    assert_eq!(
        unconfirmed.kind(),
        TableErrorKind::Unavailable,
        "{unconfirmed}"
    );
    // While it waits for the standby, it holds back no other read.
    let waiting = {
        let table = table.clone();
        tokio::spawn(async move { barrier(&table).await })
    };
    until("the barrier waits", async || {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        admin.ask(waits).await.unwrap() == [["1"]]
    })
    .await;
    table.read(&ReadRequest::all()).await.unwrap();
    assert!(!waiting.is_finished(), "the read waited");
}
