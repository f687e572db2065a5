//! Servers that refuse, and what stands in the tables otherwise than it should: clauses T3 to T5, T8, T11, T13, T15.

use conformance_tests::launch::Server;
use membership_cassandra::{CassandraConfig, CassandraTable};
use membership_core::{CommitOutcome, Durability, MembershipTable, TableErrorKind, VersionToken};

use crate::support::*;
use conformance_tests::words::*;

pub async fn connections_that_cannot_work_say_why(server: &Server) {
    let here = server.address().to_string();
    let with_user = |user: &str, at: &str, options: &str| format!("cassandra://{user}@{at}/membership?connect_timeout=2s&{options}");
    let good = format!("cassandra:{SECRET}");
    for (url, kind, words) in [
        (with_user(&format!("nobody:{SECRET}"), &here, "tls=false"), TableErrorKind::PermissionDenied, "refuse this user or password"),
        (format!("cassandra://{here}/membership"), TableErrorKind::PermissionDenied, "MEMBERSHIP_CASSANDRA_PASSWORD"),
        (with_user(&good, "127.0.0.1:1", "tls=false"), TableErrorKind::Unavailable, "127.0.0.1:1"),
        (with_user(&good, "no-such-host.invalid", "tls=false"), TableErrorKind::Unavailable, "no-such-host.invalid:9042"),
        (with_user(&good, &here, "tls=true"), TableErrorKind::Configuration, "tls_ca"),
    ] {
        let error = connect(&url).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(shown.contains(words) && !shown.contains(SECRET), "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

pub async fn tls_is_spoken_to_who_asks(server: &Server) {
    let files = server.tls().unwrap();
    let url = at(server, "by_many", &format!("tls_ca={}", files.ca.display()));
    let table = connect(&url).await.unwrap();
    initialize(&table).await.unwrap();
    read(&table).await;
    let strange = at(server, "by_many", &format!("tls_ca={}", files.key.display()));
    assert_eq!(connect(&strange).await.unwrap_err().kind(), TableErrorKind::Configuration);
}

pub async fn what_is_not_granted_is_refused(server: &Server) {
    let shell = Shell::open(server.url()).await.unwrap();
    shell.run(&format!("CREATE ROLE silos WITH PASSWORD = '{SECRET}' AND LOGIN = true"), ()).await.unwrap();
    let url = at(server, "granted", "").replace("//cassandra:", "//silos:");
    until("the role may log in", || async { connect(&url).await.is_ok() }).await;
    let table = connect(&url).await.unwrap();
    // Neither may it make the keyspace, nor use one that is there.
    assert_eq!(initialize(&table).await.unwrap_err().kind(), TableErrorKind::PermissionDenied);
    let owner = connect(&at(server, "granted", "")).await.unwrap();
    let token = fill(&owner, 1).await;
    assert_eq!(read_kind(&table, None).await, Err(TableErrorKind::PermissionDenied));
    assert_eq!(commit_kind(&table, &insert(&token, [5])).await, TableErrorKind::PermissionDenied);
    // What the README lists is enough, and no less is.
    shell.run("GRANT SELECT ON KEYSPACE granted TO silos", ()).await.unwrap();
    until("the grant is known", || async { read_kind(&table, None).await.is_ok() }).await;
    assert_eq!(commit_kind(&table, &insert(&token, [5])).await, TableErrorKind::PermissionDenied);
    assert_eq!(table.update_i_am_alive(&beat(0, 1)).await.unwrap_err().kind(), TableErrorKind::PermissionDenied);
    assert_eq!(read(&owner).await.0.version(), token.version());
    shell.run("GRANT MODIFY ON KEYSPACE granted TO silos", ()).await.unwrap();
    until("the grant is known", || async { table.update_i_am_alive(&beat(0, 1)).await.is_ok() }).await;
    let token = commit(&table, &insert(&token, [5])).await;
    commit(&table, &remove(&token, 5)).await;
    table.delete().await.unwrap();
    initialize(&table).await.unwrap();
}

pub async fn what_the_nodes_flush_is_answered_honestly(server: &Server) {
    let of = |url: String| async move { connect(&url).await.unwrap().guarantees().durability };
    let (ours, theirs) = (at(server, "granted", ""), at(server, "granted", "").replace("//cassandra:", "//silos:"));
    assert_eq!(of(ours.clone()).await, Durability::Kept);
    // Whoever may not ask knows nothing, and works all the same.
    assert_eq!(of(theirs.clone()).await, Durability::MayBeLost);
    let shell = Shell::open(server.url()).await.unwrap();
    shell.run("GRANT SELECT ON system_views.settings TO silos", ()).await.unwrap();
    until("the grant is known", || async { of(theirs.clone()).await == Durability::Kept }).await;
    shell.run("ALTER KEYSPACE granted WITH durable_writes = false", ()).await.unwrap();
    assert_eq!(of(ours).await, Durability::MayBeLost);
}

pub async fn a_token_without_its_number_is_enough(server: &Server) {
    let table = connect(&at(server, "tokens", "")).await.unwrap();
    let token = fill(&table, 3).await;
    let bare = VersionToken::new(token.table_id(), token.version(), token.commit(), &[]);
    let made = commit(&table, &insert(&bare, [9])).await;
    let (now, _) = read(&table).await;
    assert_eq!((now.version_row.row_count, now.token), (4, made));
}

pub async fn many_writers_on_one_version_have_one_winner(server: &Server) {
    let url = at(server, "racers", "");
    let token = fill(&connect(&url).await.unwrap(), 1).await;
    let mut racers = tokio::task::JoinSet::new();
    for n in 0..12 {
        let (url, request) = (url.clone(), insert(&token, [100 + n]));
        racers.spawn(async move { connect(&url).await.unwrap().commit(&request).await });
    }
    let mut won = 0;
    for answer in racers.join_all().await {
        match answer {
            Ok(CommitOutcome::Committed(_)) => won += 1,
            Ok(CommitOutcome::Conflict(conflict)) => assert!(conflict.newest.is_some()),
            Err(e) => assert!(matches!(e.kind(), TableErrorKind::Busy | TableErrorKind::OutcomeUnknown), "{e}"),
        }
    }
    let (now, _) = read(&connect(&url).await.unwrap()).await;
    assert!(won <= 1 && now.version() <= token.version() + 1 && now.version_row.row_count == now.rows.len() as u64, "{won}: {now:?}");
}

pub async fn rows_that_are_gone_are_missed(server: &Server) {
    let table = connect(&at(server, "missing", "")).await.unwrap();
    fill(&table, 3).await;
    let shell = Shell::open(server.url()).await.unwrap();
    let gone = (table.cluster().to_string(), silo(1).row_key());
    shell.run("DELETE FROM missing.silos WHERE cluster = ? AND silo = ?", gone).await.unwrap();
    assert_eq!(read_kind(&table, None).await, Err(TableErrorKind::Damaged));
}

pub async fn orphans_go_with_the_next_cleanup(server: &Server) {
    let table = connect(&at(server, "orphans", "")).await.unwrap();
    fill(&table, 3).await;
    for n in [0, 1, 2, 77] {
        table.update_i_am_alive(&beat(n, 1)).await.unwrap();
    }
    let (now, beats) = read(&table).await;
    assert_eq!(beats.silos.len(), 3, "an orphan is shown: {beats:?}");
    commit(&table, &remove(&now.token, 1)).await;
    let shell = Shell::open(server.url()).await.unwrap();
    until("the heartbeats of removed rows are gone", || async {
        shell.run("SELECT silo FROM orphans.heartbeats", ()).await.unwrap().len() == 2
    })
    .await;
}

pub async fn the_largest_commit_fits(server: &Server) {
    let url = at(server, "largest", "operation_timeout=30s");
    let table = CassandraTable::connect(CassandraConfig::from_url(&url).unwrap(), blue()).await.unwrap();
    let token = fill(&table, 0).await;
    let limits = table.limits();
    let entries = (0..limits.rows_per_commit as u64).map(|n| {
        let mut entry = entry(n);
        entry.silo_name = "x".repeat(limits.bytes_per_commit / limits.rows_per_commit - 700);
        entry
    });
    let mut request = insert(&token, []);
    for entry in entries {
        request.changes.extend(insert_entry(&token, entry).changes);
    }
    commit(&table, &request).await;
    assert_eq!(read(&table).await.0.rows.len(), limits.rows_per_commit);
}
