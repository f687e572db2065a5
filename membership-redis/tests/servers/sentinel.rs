//! A master, a replica and a sentinel: the client finds the master, and finds the new one after the
//! master was killed.

use std::time::Duration;

#[cfg(target_os = "linux")]
use conformance_tests::proxy::{Fault, Stage};
use membership_core::{Durability, MembershipTable, Recency, TableErrorKind};
use membership_testbed::Kind;

use crate::support::load::{Load, Phase};
use crate::support::nodes::{MASTER, Watched, caught_up, cut_off, replication};
use crate::support::*;
use conformance_tests::helpers::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_successor_of_a_dead_master_is_found() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let watched = Watched::start(kind, Duration::from_secs(1)).await;
        let table = connect(&format!(
            "{}?min_replicas=1&operation_timeout=3s",
            watched.url()
        ))
        .await
        .unwrap();
        let guarantees = table.guarantees();
        assert_eq!(
            (guarantees.reads, guarantees.durability),
            (Recency::MonotonicPerClient, Durability::MayBeLost)
        );
        let token = fill(&table, 3).await;
        watched.master.kill().await.unwrap();
        let kind = commit_kind(&table, &insert(&token, [7])).await;
        assert!(
            matches!(
                kind,
                TableErrorKind::OutcomeUnknown | TableErrorKind::Unavailable
            ),
            "{kind:?}"
        );
        let calm = connect_when_possible(&watched).await;
        // The replica confirmed it before, so it still exists.
        assert_eq!(read(&calm).await.0.token, token);
        until("the old handle follows", async || {
            read_kind(&table, Some(&token)).await.is_ok()
        })
        .await;
        commit(&calm, &insert(&token, [8])).await;
        assert_eq!(read(&table).await.0.version(), token.version() + 1);
    }
}

/// Writers with one handle each, on a table that the replica already has: if a failover lost the
/// beginning of the table, no writer could continue.
async fn writers(watched: &Watched) -> Load {
    fill(&connect(&watched.url()).await.unwrap(), 0).await;
    caught_up(&watched.replica, &watched.master).await;
    let mut tables = Vec::new();
    for _ in 0..4 {
        tables.push(
            connect(&format!("{}?operation_timeout=2s", watched.url()))
                .await
                .unwrap(),
        );
    }
    Load::start(tables)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_successor_of_a_dead_master_is_followed_under_load() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let watched = Watched::start(kind, Duration::from_secs(1)).await;
        let load = writers(&watched).await;
        load.everybody_commits(20).await;
        load.enter(Phase::Trouble);
        watched.master.kill().await.unwrap();
        load.enter(Phase::After);
        load.everybody_commits(20).await;
        let ended = load.end(&connect(&watched.url()).await.unwrap()).await;
        let lost = ended.lost();
        assert!(
            lost.is_empty() || ended.told > 0,
            "versions {lost:?} are lost, and no writer got an error"
        );
    }
}

/// The old master keeps running, as a replica: clients that are connected to it must leave it.
#[tokio::test(flavor = "multi_thread")]
async fn clients_leave_a_demoted_master_under_load() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let watched = Watched::start(kind, Duration::from_secs(5)).await;
        let load = writers(&watched).await;
        load.everybody_commits(20).await;
        load.enter(Phase::Trouble);
        // The sentinel refuses while it considers the replica unreachable, for example after a
        // moment in which no process ran.
        let failover = async || {
            let mut sentinel = raw(watched.sentinel.url()).await.ok()?;
            redis::cmd("SENTINEL")
                .arg("FAILOVER")
                .arg(MASTER)
                .query_async::<()>(&mut sentinel)
                .await
                .ok()
        };
        until("the sentinel accepts the command", async || {
            failover().await.is_some()
        })
        .await;
        for (server, role) in [
            (&watched.replica, "role:master"),
            (&watched.master, "role:slave"),
        ] {
            // The sentinel closes all connections to the old master.
            until("the roles are changed", async || {
                let Ok(mut raw) = raw(server.url()).await else {
                    return false;
                };
                let info: Result<String, _> = redis::cmd("INFO")
                    .arg("replication")
                    .query_async(&mut raw)
                    .await;
                info.is_ok_and(|info| info.contains(role))
            })
            .await;
        }
        load.enter(Phase::After);
        load.everybody_commits(20).await;
        let ended = load.end(&connect(&watched.url()).await.unwrap()).await;
        let lost = ended.lost();
        assert!(
            lost.is_empty() || ended.told > 0,
            "versions {lost:?} are lost, and no writer got an error"
        );
    }
}

/// Commits that the successor never received are lost although they were acknowledged. A client
/// that knows them gets an error, and none of them is applied.
#[tokio::test]
async fn commits_that_a_failover_loses_are_reported() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(1)).await;
    let table = connect(&format!("{}?operation_timeout=3s", watched.url()))
        .await
        .unwrap();
    let old = fill(&table, 3).await;
    caught_up(&watched.replica, &watched.master).await;
    cut_off(&watched.master).await;
    let lost = commit(&table, &insert(&old, [7])).await;
    watched.master.kill().await.unwrap();
    until("the table is served again", async || {
        read_kind(&table, Some(&lost)).await != Err(TableErrorKind::Unavailable)
    })
    .await;
    assert_eq!(
        read_kind(&table, Some(&lost)).await,
        Err(TableErrorKind::TableRolledBack)
    );
    assert_eq!(
        commit_kind(&table, &insert(&lost, [8])).await,
        TableErrorKind::TableRolledBack
    );
    assert_eq!(read(&table).await.0.token, old);
    commit(&table, &insert(&old, [30])).await;
}

/// Replica and sentinel reach the master by the address that it announces to clients, and so
/// through the same proxy; faults on a client's connection do not affect them.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn faults_between_clients_and_servers_cause_no_failover() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(60)).await;
    let table = connect(&format!("{}?operation_timeout=2s", watched.url()))
        .await
        .unwrap();
    let mut token = fill(&table, 1).await;
    assert!(
        watched.proxy.links() > 0,
        "replica and sentinel do not go through the proxy"
    );
    // How often the replica has requested missed writes, or everything.
    let syncs = async || {
        let stats: String = shell(&watched.master, &["INFO", "stats"]).await;
        stats
            .lines()
            .filter(|line| line.starts_with("sync_"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = syncs().await;
    for stage in Stage::ALL {
        watched.proxy.set_fault(Fault::Cut(stage));
        let request = insert(&token, [10 + token.version()]);
        let answer = table.commit(&request).await;
        assert!(
            watched.proxy.fired(Duration::from_secs(30)).await,
            "{stage}"
        );
        watched.proxy.heal();
        assert_eq!(
            answer.is_ok(),
            stage == Stage::AfterAnswer,
            "{stage}: {answer:?}"
        );
        until("the client is back", async || {
            table.commit(&request.again()).await.is_ok()
        })
        .await;
        token = read(&table).await.0.token;
    }
    assert!(watched.proxy.cut_connections() > 0);
    until("the client is back", async || {
        read_kind(&table, Some(&token)).await.is_ok()
    })
    .await;
    caught_up(&watched.replica, &watched.master).await;
    assert_eq!(syncs().await, before, "the replica has lost its master");
    assert_eq!(replication(&watched.master, "connected_slaves").await, 1);
}

async fn connect_when_possible(watched: &Watched) -> membership_redis::RedisTable {
    let found = std::cell::RefCell::new(None);
    until("the replica is promoted", async || {
        let Ok(table) = connect(&format!("{}?operation_timeout=2s", watched.url())).await else {
            return false;
        };
        if read_kind(&table, None).await.is_err() {
            return false;
        }
        *found.borrow_mut() = Some(table);
        true
    })
    .await;
    found.into_inner().unwrap()
}

#[tokio::test]
async fn an_unknown_master_is_a_configuration_error() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(1)).await;
    let url = format!("redis+sentinel://{}/other", watched.sentinel.address());
    let error = connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Configuration);
    assert!(error.to_string().contains("`other`"), "{error}");
    // One unreachable sentinel does not matter.
    let url = format!(
        "redis+sentinel://127.0.0.1:1,{}/main",
        watched.sentinel.address()
    );
    fill(&connect(&url).await.unwrap(), 1).await;
}
