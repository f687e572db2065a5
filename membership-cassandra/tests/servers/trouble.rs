//! Refusals of servers, and damaged or unexpected contents of the tables: clauses T3 to T5, T8,
//! T11, T13, T15.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use conformance_tests::proxy::{Proxy, Way};
use membership_cassandra::{CassandraConfig, CassandraTable};
use membership_core::{
    CommitOutcome, CommitRequest, Durability, HeartbeatWrite, MembershipTable, ReadAnswer,
    ReadRequest, RowChange, Snapshot, TableErrorKind, VersionToken,
};
use membership_testbed::{Kind, Options, Server};
use tokio::time::{Instant, sleep};

use crate::support::*;
use conformance_tests::helpers::*;

pub async fn connections_that_cannot_work_say_why(server: &Server) {
    let here = server.address().to_string();
    let with_user = |user: &str, at: &str, options: &str| {
        format!("cassandra://{user}@{at}/membership?connect_timeout=2s&{options}")
    };
    let good = format!("cassandra:{SECRET}");
    for (url, kind, words) in [
        (
            with_user(&format!("nobody:{SECRET}"), &here, "tls=false"),
            TableErrorKind::PermissionDenied,
            "refuse this user or password",
        ),
        (
            format!("cassandra://{here}/membership"),
            TableErrorKind::PermissionDenied,
            "MEMBERSHIP_CASSANDRA_PASSWORD",
        ),
        (
            with_user(&good, "127.0.0.1:1", "tls=false"),
            TableErrorKind::Unavailable,
            "127.0.0.1:1",
        ),
        (
            with_user(&good, "no-such-host.invalid", "tls=false"),
            TableErrorKind::Unavailable,
            "no-such-host.invalid:9042",
        ),
        (
            with_user(&good, &here, "tls=true"),
            TableErrorKind::Configuration,
            "tls_ca",
        ),
    ] {
        let error = connect(&url).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(shown.contains(words) && !shown.contains(SECRET), "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

pub async fn clients_may_use_tls(server: &Server) {
    let files = server.tls().unwrap();
    let url = at(server, "by_many", &format!("tls_ca={}", files.ca.display()));
    let table = connect(&url).await.unwrap();
    initialize(&table).await.unwrap();
    read(&table).await;
    let strange = at(
        server,
        "by_many",
        &format!("tls_ca={}", files.key.display()),
    );
    assert_eq!(
        connect(&strange).await.unwrap_err().kind(),
        TableErrorKind::Configuration
    );
}

pub async fn missing_permissions_are_refused(server: &Server) {
    let shell = Shell::open(server.url()).await.unwrap();
    shell
        .run(
            &format!("CREATE ROLE silos WITH PASSWORD = '{SECRET}' AND LOGIN = true"),
            (),
        )
        .await
        .unwrap();
    let url = at(server, "granted", "").replace("//cassandra:", "//silos:");
    until("the role may log in", || async {
        connect(&url).await.is_ok()
    })
    .await;
    let table = connect(&url).await.unwrap();
    // The role may neither create the keyspace nor use an existing one.
    assert_eq!(
        initialize(&table).await.unwrap_err().kind(),
        TableErrorKind::PermissionDenied
    );
    let owner = connect(&at(server, "granted", "")).await.unwrap();
    let token = fill(&owner, 1).await;
    assert_eq!(
        read_kind(&table, None).await,
        Err(TableErrorKind::PermissionDenied)
    );
    assert_eq!(
        commit_kind(&table, &insert(&token, [5])).await,
        TableErrorKind::PermissionDenied
    );
    // The permissions that the README lists are sufficient, and each is necessary.
    shell
        .run("GRANT SELECT ON KEYSPACE granted TO silos", ())
        .await
        .unwrap();
    until("the grant is known", || async {
        read_kind(&table, None).await.is_ok()
    })
    .await;
    assert_eq!(
        commit_kind(&table, &insert(&token, [5])).await,
        TableErrorKind::PermissionDenied
    );
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(0, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::PermissionDenied
    );
    assert_eq!(read(&owner).await.0.version(), token.version());
    shell
        .run("GRANT MODIFY ON KEYSPACE granted TO silos", ())
        .await
        .unwrap();
    until("the grant is known", || async {
        table.update_i_am_alive(&heartbeat(0, 1)).await.is_ok()
    })
    .await;
    let token = commit(&table, &insert(&token, [5])).await;
    commit(&table, &remove(&token, 5)).await;
    table.delete().await.unwrap();
    initialize(&table).await.unwrap();
}

pub async fn a_user_that_may_only_read_is_enough_for_clients(server: &Server) {
    let owner = connect(&at(server, "reading", "")).await.unwrap();
    fill(&owner, 0).await;
    let shell = Shell::open(server.url()).await.unwrap();
    for statement in [
        &format!("CREATE ROLE clients WITH PASSWORD = '{SECRET}' AND LOGIN = true"),
        "GRANT SELECT ON KEYSPACE reading TO clients",
    ] {
        shell.run(statement, ()).await.unwrap();
    }
    let url = at(server, "reading", "").replace("//cassandra:", "//clients:");
    until("role and grant are known", || async {
        match connect(&url).await {
            Ok(client) => read_kind(&client, None).await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
    may_only_read(&connect(&url).await.unwrap(), &owner).await;
}

pub async fn durability_follows_the_settings_of_the_nodes(server: &Server) {
    let of = |url: String| async move { connect(&url).await.unwrap().guarantees().durability };
    let (ours, theirs) = (
        at(server, "granted", ""),
        at(server, "granted", "").replace("//cassandra:", "//silos:"),
    );
    assert_eq!(of(ours.clone()).await, Durability::Kept);
    // Without permission to read the settings, durability is unknown, and the table still works.
    assert_eq!(of(theirs.clone()).await, Durability::MayBeLost);
    let shell = Shell::open(server.url()).await.unwrap();
    shell
        .run("GRANT SELECT ON system_views.settings TO silos", ())
        .await
        .unwrap();
    until("the grant is known", || async {
        of(theirs.clone()).await == Durability::Kept
    })
    .await;
    shell
        .run("ALTER KEYSPACE granted WITH durable_writes = false", ())
        .await
        .unwrap();
    assert_eq!(of(ours).await, Durability::MayBeLost);
}

pub async fn a_token_without_the_row_count_is_sufficient(server: &Server) {
    let table = connect(&at(server, "tokens", "")).await.unwrap();
    let token = fill(&table, 3).await;
    let bare = VersionToken::new(token.table_id(), token.version(), token.commit(), &[]);
    let made = commit(&table, &insert(&bare, [9])).await;
    let (now, _) = read(&table).await;
    assert_eq!((now.version_row.row_count, now.token), (4, made));
}

/// Sends a commit until its outcome is known; returns whether it was applied.
async fn decide(table: &CassandraTable, request: CommitRequest) -> bool {
    let mut request = request;
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        match table.commit(&request).await {
            Ok(CommitOutcome::Committed(_)) => return true,
            Ok(CommitOutcome::Conflict(conflict)) => {
                assert!(conflict.newest.is_some());
                return false;
            }
            Err(e) if e.kind() == TableErrorKind::OutcomeUnknown => request = request.again(),
            Err(e) => assert_eq!(e.kind(), TableErrorKind::Busy, "{e}"),
            Ok(other) => panic!("{other:?}"),
        }
        assert!(
            Instant::now() < deadline,
            "the outcome of {} is still unknown",
            request.id
        );
        sleep(Duration::from_millis(20)).await;
    }
}

pub async fn many_writers_on_one_version_have_one_winner(server: &Server) {
    let url = at(server, "racers", "");
    let token = fill(&connect(&url).await.unwrap(), 1).await;
    let mut racers = tokio::task::JoinSet::new();
    for n in 0..12 {
        let (url, request) = (url.clone(), insert(&token, [100 + n]));
        racers.spawn(async move { decide(&connect(&url).await.unwrap(), request).await });
    }
    let won = racers
        .join_all()
        .await
        .into_iter()
        .filter(|made| *made)
        .count();
    let (now, _) = read(&connect(&url).await.unwrap()).await;
    assert!(
        won == 1
            && now.version() == token.version() + 1
            && now.rows.len() == 2
            && now.version_row.row_count == 2,
        "{won}: {now:?}"
    );
}

/// Repeats a read, because reads give way to transactions too.
async fn read_at_last(table: &CassandraTable) -> Snapshot {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match table.read(&ReadRequest::all()).await {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => return snapshot,
            Err(e) if e.kind() == TableErrorKind::Unavailable && Instant::now() < deadline => {
                sleep(Duration::from_millis(20)).await
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Counts how often the outcome of a commit was unknown and read from the table, by the log lines
/// about it.
struct LookUps(Arc<AtomicUsize>);

impl tracing::Subscriber for LookUps {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("membership_cassandra")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut said = String::new();
        event.record(
            &mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                if field.name() == "message" {
                    said = format!("{value:?}");
                }
            },
        );
        self.0.fetch_add(
            usize::from(said == "reads the outcome of a commit"),
            Ordering::Relaxed,
        );
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The server gives up a transaction as soon as another one contends with it, so that many outcomes
/// are unknown. Every outcome that a caller gets must be true and stay true.
pub async fn unknown_outcomes_are_looked_up() {
    let looked_up = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::set_global_default(LookUps(Arc::clone(&looked_up))).unwrap();
    let args = vec!["cas_contention_timeout: 1ms".to_owned()];
    let server = Server::start(
        Kind::Cassandra,
        Options {
            durable: true,
            local: true,
            args,
            ..Options::default()
        },
    )
    .await
    .unwrap();
    let url = at(&server, "contended", "");
    let table = Arc::new(connect(&url).await.unwrap());
    until("the table is created", || async {
        initialize(&*table).await.is_ok()
    })
    .await;
    let (mut made, mut told) = (BTreeSet::new(), Vec::new());
    let mut now = read_at_last(&table).await;
    for round in 0..60 {
        let mut racers = tokio::task::JoinSet::new();
        for n in 0..8 {
            let (table, request) = (Arc::clone(&table), insert(&now.token, [round * 10 + n]));
            racers.spawn(async move { (request.id, table.commit(&request).await) });
        }
        told.extend(
            racers
                .join_all()
                .await
                .into_iter()
                .map(|(id, answer)| match answer {
                    Ok(CommitOutcome::Committed(_)) => (id, Some(true)),
                    Ok(CommitOutcome::Conflict(_)) => (id, Some(false)),
                    Err(e) if e.kind() == TableErrorKind::OutcomeUnknown => (id, None),
                    Err(e) => {
                        assert_eq!(e.kind(), TableErrorKind::Busy, "{e}");
                        (id, Some(false))
                    }
                    Ok(other) => panic!("{other:?}"),
                }),
        );
        now = read_at_last(&table).await;
        made.extend(now.version_row.recent.iter().map(|record| record.id));
        if round >= 10 && looked_up.load(Ordering::Relaxed) >= 10 {
            break;
        }
    }
    for (id, told) in &told {
        assert!(
            told.is_none_or(|told| told == made.contains(id)),
            "the reported outcome of {id} is wrong: {told:?}"
        );
    }
    let looked_up = looked_up.load(Ordering::Relaxed);
    assert!(
        looked_up >= 10 && !made.is_empty(),
        "the server gave up {looked_up} of {} transactions, {} were applied",
        told.len(),
        made.len()
    );
}

pub async fn a_late_heartbeat_does_not_replace_a_newer_one(server: &Server) {
    let url = at(server, "late", "");
    let table = connect(&url).await.unwrap();
    fill(&table, 1).await;
    let proxy = Proxy::to(server.address()).unwrap();
    let config = CassandraConfig::from_url(
        &url.replace(&server.address().to_string(), &proxy.address().to_string()),
    )
    .unwrap();
    let slow = CassandraTable::connect(config.operation_timeout(IMPATIENT), blue())
        .await
        .unwrap();
    slow.update_i_am_alive(&heartbeat(0, 1)).await.unwrap();
    proxy.freeze_way(Way::Requests);
    assert_eq!(
        slow.update_i_am_alive(&heartbeat(0, 2))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::OutcomeUnknown
    );
    // The silo has given up that heartbeat, and writes the next one.
    table.update_i_am_alive(&heartbeat(0, 3)).await.unwrap();
    proxy.thaw();
    assert!(
        proxy.settled(Duration::from_secs(30)).await,
        "the late heartbeat does not arrive"
    );
    let (_, beats) = read(&table).await;
    assert_eq!(
        beats
            .silos
            .values()
            .map(|beat| beat.counter)
            .collect::<Vec<_>>(),
        [3],
        "{beats:?}"
    );
}

/// The cell was written by way of a node whose clock is an hour ahead.
pub async fn a_cell_of_a_fast_clock_is_replaced(server: &Server) {
    let table = connect(&at(server, "late", "")).await.unwrap();
    let hour_ahead = UNIX_EPOCH.elapsed().unwrap() + Duration::from_secs(3600);
    let fast = (
        table.cluster().to_string(),
        "cluster",
        "fast",
        i64::try_from(hour_ahead.as_micros()).unwrap(),
    );
    let insert =
        "INSERT INTO late.heartbeats (cluster, silo, heartbeat) VALUES (?, ?, ?) USING TIMESTAMP ?";
    let shell = Shell::open(server.url()).await.unwrap();
    shell.run(insert, fast).await.unwrap();
    for text in ["newer", "even newer", ""] {
        let text = text.to_owned();
        let cell = HeartbeatWrite::Cluster { text: text.clone() };
        table.update_i_am_alive(&cell).await.unwrap();
        assert_eq!(read(&table).await.1.cluster, Some(text));
    }
}

pub async fn a_cluster_whose_version_row_is_damaged_can_be_deleted(server: &Server) {
    let url = at(server, "damaged", "");
    let table = connect(&url).await.unwrap();
    let shell = Shell::open(server.url()).await.unwrap();
    for damage in [
        "version = -1",
        "serial = null",
        "layout = null",
        "min_layout = null",
        "settings = 'no JSON', serial = null",
        "commit_id = 'x'",
    ] {
        for begun in [false, true] {
            fill(&table, 3).await;
            table.update_i_am_alive(&heartbeat(0, 1)).await.unwrap();
            let begun = if begun { ", deleting = true" } else { "" };
            let set = format!(
                "UPDATE damaged.silos SET {damage}{begun} WHERE cluster = ? AND silo = 'version'"
            );
            shell
                .run(&set, (table.cluster().to_string(),))
                .await
                .unwrap();
            let fresh = connect(&url).await.unwrap();
            let kind = read_kind(&fresh, None).await.unwrap_err();
            let told = kind == TableErrorKind::Damaged
                || (kind == TableErrorKind::BeingDeleted && !begun.is_empty());
            assert!(told, "{damage}{begun}: {kind:?}");
            fresh.delete().await.unwrap();
            for left in ["silos", "heartbeats"] {
                let left = shell
                    .run(&format!("SELECT silo FROM damaged.{left}"), ())
                    .await
                    .unwrap();
                assert!(left.is_empty(), "{damage}{begun}: {left:?}");
            }
        }
    }
    // Without a readable serial consistency too, a client with another one is refused.
    fill(&table, 1).await;
    shell
        .run(
            "UPDATE damaged.silos SET version = -1 WHERE cluster = ? AND silo = 'version'",
            (table.cluster().to_string(),),
        )
        .await
        .unwrap();
    let local = connect(&at(
        server,
        "damaged",
        "serial=LOCAL_SERIAL&datacenter=datacenter1",
    ))
    .await
    .unwrap();
    assert_eq!(
        local.delete().await.unwrap_err().kind(),
        TableErrorKind::Configuration
    );
    table.delete().await.unwrap();
}

pub async fn missing_rows_are_reported(server: &Server) {
    let table = connect(&at(server, "missing", "")).await.unwrap();
    fill(&table, 3).await;
    let shell = Shell::open(server.url()).await.unwrap();
    let gone = (table.cluster().to_string(), silo(1).row_key());
    shell
        .run(
            "DELETE FROM missing.silos WHERE cluster = ? AND silo = ?",
            gone,
        )
        .await
        .unwrap();
    assert_eq!(read_kind(&table, None).await, Err(TableErrorKind::Damaged));
}

pub async fn orphans_are_removed_with_the_next_cleanup(server: &Server) {
    let table = connect(&at(server, "orphans", "")).await.unwrap();
    fill(&table, 3).await;
    for n in [0, 1, 2, 77] {
        table.update_i_am_alive(&heartbeat(n, 1)).await.unwrap();
    }
    let (now, beats) = read(&table).await;
    assert_eq!(beats.silos.len(), 3, "an orphan is shown: {beats:?}");
    commit(&table, &remove(&now.token, 1)).await;
    let shell = Shell::open(server.url()).await.unwrap();
    until("the heartbeats of removed rows are gone", || async {
        shell
            .run("SELECT silo FROM orphans.heartbeats", ())
            .await
            .unwrap()
            .len()
            == 2
    })
    .await;
}

pub async fn removing_a_row_with_the_cells_name_keeps_the_cell(server: &Server) {
    let table = connect(&at(server, "stray", "")).await.unwrap();
    fill(&table, 2).await;
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    table
        .update_i_am_alive(&HeartbeatWrite::Cluster {
            text: "ours".to_owned(),
        })
        .await
        .unwrap();
    let shell = Shell::open(server.url()).await.unwrap();
    let stray = (table.cluster().to_string(), "cluster", "no row");
    shell
        .run(
            "INSERT INTO stray.silos (cluster, silo, body) VALUES (?, ?, ?)",
            stray,
        )
        .await
        .unwrap();
    let mut request = remove(&read(&table).await.0.token, 1);
    request
        .changes
        .push(RowChange::Remove("cluster".to_owned()));
    commit(&table, &request).await;
    until("the heartbeat of the removed row is gone", || async {
        shell
            .run("SELECT silo FROM stray.heartbeats", ())
            .await
            .unwrap()
            .len()
            == 1
    })
    .await;
    assert_eq!(read(&table).await.1.cluster.as_deref(), Some("ours"));
}

pub async fn the_largest_commit_fits(server: &Server) {
    let url = at(server, "largest", "operation_timeout=30s");
    let table = CassandraTable::connect(CassandraConfig::from_url(&url).unwrap(), blue())
        .await
        .unwrap();
    let token = fill(&table, 0).await;
    let limits = table.limits();
    let entries = (0..limits.rows_per_commit as u64).map(|n| {
        let mut entry = entry(n);
        entry.info.silo_name = "x".repeat(limits.bytes_per_commit / limits.rows_per_commit - 700);
        entry
    });
    let mut request = insert(&token, []);
    for entry in entries {
        request.changes.extend(insert_entry(&token, entry).changes);
    }
    commit(&table, &request).await;
    assert_eq!(read(&table).await.0.rows.len(), limits.rows_per_commit);
}
