//! A master, a replica and a sentinel: the master is found, and found again after it has died.

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
        // Confirmed by the replica before: still there.
        assert_eq!(read(&calm).await.0.token, token);
        until("the old handle follows", async || {
            read_kind(&table, Some(&token)).await.is_ok()
        })
        .await;
        commit(&calm, &insert(&token, [8])).await;
        assert_eq!(read(&table).await.0.version(), token.version() + 1);
    }
}

/// Writers that each have one handle, on a table that the replica has, too: nobody could go on where a failover loses its beginning.
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
            "versions {lost:?} are lost, and nobody was told"
        );
    }
}

/// The old master lives on, as a replica: whoever is connected to it must leave it.
#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_master_is_left_under_load() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let watched = Watched::start(kind, Duration::from_secs(5)).await;
        let load = writers(&watched).await;
        load.everybody_commits(20).await;
        load.enter(Phase::Trouble);
        // Refused while it thinks the replica out of reach, as after a moment in which nothing ran.
        let failover = async || {
            let mut sentinel = raw(watched.sentinel.url()).await.ok()?;
            redis::cmd("SENTINEL")
                .arg("FAILOVER")
                .arg(MASTER)
                .query_async::<()>(&mut sentinel)
                .await
                .ok()
        };
        until("the sentinel does as it is told", async || {
            failover().await.is_some()
        })
        .await;
        for (server, role) in [
            (&watched.replica, "role:master"),
            (&watched.master, "role:slave"),
        ] {
            // The sentinel hangs up on everybody there.
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
            "versions {lost:?} are lost, and nobody was told"
        );
    }
}

/// What the successor never heard of is lost although it was acknowledged: who knew it is told, and none of it lands.
#[tokio::test]
async fn commits_that_a_failover_loses_are_told() {
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

/// Replica and sentinel reach the master by the address that it tells clients, and so by the same proxy: what befalls a client's connection
/// is nothing to them.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn trouble_on_the_way_of_clients_is_nothing_to_servers() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(60)).await;
    let table = connect(&format!("{}?operation_timeout=2s", watched.url()))
        .await
        .unwrap();
    let mut token = fill(&table, 1).await;
    assert!(
        watched.proxy.links() > 0,
        "replica and sentinel do not go through the proxy"
    );
    // How often the replica has asked for what it missed, or for everything.
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
    // One sentinel that is away is no harm.
    let url = format!(
        "redis+sentinel://127.0.0.1:1,{}/main",
        watched.sentinel.address()
    );
    fill(&connect(&url).await.unwrap(), 1).await;
}
