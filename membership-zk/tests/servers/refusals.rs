//! Refusals of servers, and the errors that callers get. T4, T9, T11, T15, T16.

use std::time::{Duration, Instant};

use conformance_tests::helpers::{
    fill, may_only_read, read_kind, read_like_a_client, writes_are_denied,
};
use membership_core::TableErrorKind::{
    Configuration, Damaged, LimitExceeded, NoSuchRow, PermissionDenied, TableReplaced,
    TableRolledBack, Unavailable,
};
use membership_core::{
    ClusterKey, CommitId, CommitOutcome, CommitRequest, Heartbeat, HeartbeatWrite,
    InitializeRequest, MembershipTable, ReadRequest, SharedSettings, TableId,
};
use membership_testbed::{Kind, Options, Server, free_port};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use crate::support::shell::{Shell, znode};
use crate::{blue, connect, entry, insert, is_committed, made, read, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_gets_permission_errors() {
    let server = server(&[]).await;
    let at = server.address();
    let ours = connect(&format!("zk://silos:hush-hush@{at}"))
        .await
        .unwrap();
    made(&ours).await;
    assert!(is_committed(&ours.commit(&insert(&ours, 1).await).await));
    for url in [format!("zk://silos:wrong-hush@{at}"), format!("zk://{at}")] {
        let other = connect(&url).await.unwrap();
        let read = other.read(&ReadRequest::all()).await.unwrap_err();
        assert_eq!(read.kind(), PermissionDenied, "{read}");
        assert!(
            read.to_string().contains(&at.to_string()),
            "it names the server: {read}"
        );
        let write = HeartbeatWrite::Silo {
            silo: entry(1).address,
            heartbeat: Heartbeat {
                counter: 1,
                at: Default::default(),
            },
        };
        assert_eq!(
            other.update_i_am_alive(&write).await.map_err(|e| e.kind()),
            Err(PermissionDenied)
        );
        assert_eq!(
            other.delete().await.map_err(|e| e.kind()),
            Err(PermissionDenied)
        );
        assert!(!format!("{read:?} {other:?}").contains("hush"));
    }
    assert_eq!(read(&ours).await.version(), 1);
}

/// The permissions that the README gives a user of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_permissions_on_the_root_are_sufficient_and_necessary() {
    let server = server(&[]).await;
    let at = server.address();
    let admin = Shell::open(&format!("zk://admin:another-secret@{at}"))
        .await
        .unwrap();
    let all = Acl::new(Permission::ALL, AuthId::authed());
    // "hRSK…": the hash of "silos:secret".
    let silos = |rights| {
        Acl::new(
            rights,
            AuthId::new("digest", "silos:hRSKbxboGu1rdf5cZiQ6tuLi3mc="),
        )
    };
    let root = |rights| {
        let acls = [all.clone(), silos(rights)];
        let client = &admin.client;
        async move { client.set_acl("/membership", &acls, None).await.unwrap() }
    };
    admin
        .client
        .create(
            "/membership",
            b"",
            &CreateMode::Persistent.with_acls(Acls::creator_all()),
        )
        .await
        .unwrap();
    let table = connect(&format!("zk://silos:secret@{at}")).await.unwrap();
    let begin = InitializeRequest::new(
        TableId::new(7),
        SharedSettings::default(),
        ClusterKey::new([7; 32]),
    );
    assert_eq!(
        table.initialize(&begin).await.map_err(|e| e.kind()),
        Err(PermissionDenied)
    );
    root(Permission::CREATE).await;
    made(&table).await;
    assert!(is_committed(&table.commit(&insert(&table, 1).await).await));
    let beat = HeartbeatWrite::Silo {
        silo: entry(1).address,
        heartbeat: Heartbeat {
            counter: 1,
            at: Default::default(),
        },
    };
    table.update_i_am_alive(&beat).await.unwrap();
    assert_eq!(
        table.delete().await.map_err(|e| e.kind()),
        Err(PermissionDenied),
        "it may make clusters only"
    );
    root(Permission::CREATE | Permission::DELETE).await;
    table.delete().await.unwrap();
    made(&table).await;
    // The user need not see the other znodes below the root.
    let theirs = Shell::open(&format!("zk://silos:secret@{at}"))
        .await
        .unwrap();
    assert_eq!(
        theirs.client.list_children("/membership").await,
        Err(zookeeper_client::Error::NoAuth)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_only_read_is_enough_for_clients() {
    let server = server(&[]).await;
    let at = server.address();
    // The hash of "clients:another-secret".
    let user = "clients:yI8TTqbN3rzqDev90CbsAqpJ/LQ=";
    let url = format!("zk://silos:secret@{at}");
    let owner = connect(&format!("{url}?reader=digest:{user}"))
        .await
        .unwrap();
    let client = connect(&format!("zk://clients:another-secret@{at}"))
        .await
        .unwrap();
    may_only_read(&client, &owner).await;
    // Silos without the option create znodes that clients may not read, until they may.
    let alone = connect(&url).await.unwrap();
    fill(&alone, 2).await;
    assert_eq!(read_kind(&client, None).await, Err(PermissionDenied));
    let shell = Shell::open(&url).await.unwrap();
    let acls = [
        Acl::new(Permission::ALL, AuthId::authed()),
        Acl::new(Permission::READ, AuthId::new("digest", user)),
    ];
    for (path, _) in shell.save(&znode(&blue())).await.unwrap() {
        shell.client.set_acl(&path, &acls, None).await.unwrap();
    }
    assert_eq!(
        read_like_a_client(&client).await,
        conformance_tests::helpers::read(&alone).await
    );
    writes_are_denied(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_errors_say_where_and_what_to_do() {
    let port = free_port().unwrap();
    let began = Instant::now();
    let nobody = connect(&format!("zk://127.0.0.1:{port}"))
        .await
        .unwrap_err();
    assert_eq!(nobody.kind(), Unavailable);
    assert!(
        nobody
            .to_string()
            .contains(&format!("127.0.0.1:{port} refuses connections")),
        "{nobody}"
    );
    assert!(began.elapsed() < Duration::from_secs(10));
    let unknown = connect("zk://no-such-host.invalid").await.unwrap_err();
    assert!(
        unknown.kind() == Unavailable
            && unknown
                .to_string()
                .contains("no-such-host.invalid:2181 cannot be connected to"),
        "{unknown}"
    );
    // A server that is not ZooKeeper.
    let redis = Server::start(
        Kind::Redis,
        Options {
            local: true,
            ..Options::default()
        },
    )
    .await
    .unwrap();
    let other = connect(&format!("zk://{}", redis.address()))
        .await
        .unwrap_err();
    assert!(
        other.to_string().contains(&redis.address().to_string()),
        "{other}"
    );
    let missing = connect("zk://127.0.0.1?tls=true&tls_ca=/no/such/file.pem")
        .await
        .unwrap_err();
    assert!(
        missing.kind() == Configuration && missing.to_string().contains("/no/such/file.pem"),
        "{missing}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encryption_is_all_or_nothing() {
    let options = Options {
        tls: true,
        args: vec!["ssl.clientAuth=need".to_owned()],
        ..Options::default()
    };
    let server = Server::start(Kind::ZooKeeper, options).await.unwrap();
    let (at, tls) = (server.address(), server.tls().unwrap());
    let ca = tls.ca.display();
    let (certificate, key) = (tls.client_certificate.display(), tls.client_key.display());
    let whole = format!("zk://{at}?tls=true&tls_ca={ca}&tls_cert={certificate}&tls_key={key}");
    let table = connect(&whole).await.unwrap();
    made(&table).await;
    assert!(is_committed(&table.commit(&insert(&table, 1).await).await));
    for url in [
        format!("zk://{at}?tls=true&tls_ca={ca}"),
        format!("zk://{at}"),
    ] {
        let e = connect(&url).await.unwrap_err();
        assert!(e.to_string().contains(&at.to_string()), "{url}: {e}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_above_the_limit_are_not_sent() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    made(&table).await;
    let limits = table.limits();
    let token = read(&table).await.token;
    // The largest commit within the limits is applied.
    let mut largest: Vec<_> = (1..=limits.rows_per_commit)
        .map(|port| entry(u16::try_from(port).unwrap()))
        .collect();
    for entry in &mut largest {
        entry.info.silo_name = "x".repeat(limits.bytes_per_commit / limits.rows_per_commit - 400);
    }
    let request = CommitRequest::new(token.clone(), CommitId::new(5), None, largest, [], []);
    assert!(is_committed(&table.commit(&request).await));
    let mut one = entry(9_999);
    one.info.silo_name = "x".repeat(limits.bytes_per_row);
    let request = CommitRequest::new(token, CommitId::new(6), None, [one], [], []);
    assert_eq!(
        table.commit(&request).await.map_err(|e| e.kind()),
        Err(LimitExceeded)
    );
    assert_eq!(read(&table).await.rows.len(), limits.rows_per_commit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_token_is_refused_after_znodes_are_recreated() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    made(&table).await;
    for port in 1..=3 {
        assert!(is_committed(
            &table.commit(&insert(&table, port).await).await
        ));
    }
    // The znode has data version 3, like the one that is created next.
    let old = insert(&table, 4).await;
    let shell = Shell::open(server.url()).await.unwrap();
    let saved = shell.save(&znode(&blue())).await.unwrap();
    shell.remove(&znode(&blue())).await.unwrap();
    let other = connect(server.url()).await.unwrap();
    other
        .initialize(&membership_core::InitializeRequest::new(
            membership_core::TableId::new(8),
            membership_core::SharedSettings::default(),
            ClusterKey::new([7; 32]),
        ))
        .await
        .unwrap();
    for port in 11..=13 {
        assert!(is_committed(
            &other.commit(&insert(&other, port).await).await
        ));
    }
    assert_eq!(
        table.commit(&old).await.map_err(|e| e.kind()),
        Err(TableReplaced)
    );
    // The same table is restored, and gets other commits: versions 3 to 6, and the data version of
    // the znode is 3 again.
    shell.remove(&znode(&blue())).await.unwrap();
    shell.restore(&saved).await.unwrap();
    for port in 21..=23 {
        assert!(is_committed(
            &other.commit(&insert_anew(&other, port).await).await
        ));
    }
    let last = read_anew(&other).await;
    let answer = table.commit(&old).await;
    assert!(
        matches!(answer, Ok(CommitOutcome::Conflict(_)))
            || answer.as_ref().is_err_and(|e| e.kind() == TableRolledBack),
        "{answer:?}"
    );
    assert_eq!(read_anew(&other).await, last);
}

async fn read_anew(table: &membership_zk::ZkTable) -> u64 {
    read(table).await.version()
}

async fn insert_anew(table: &membership_zk::ZkTable, port: u16) -> CommitRequest {
    insert(table, port).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_removed_by_hand_is_reported() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    made(&table).await;
    for port in 1..=3 {
        assert!(is_committed(
            &table.commit(&insert(&table, port).await).await
        ));
    }
    Shell::open(server.url())
        .await
        .unwrap()
        .remove(&format!("{}/{}", znode(&blue()), entry(2).address))
        .await
        .unwrap();
    let missed = connect(server.url())
        .await
        .unwrap()
        .read(&ReadRequest::all())
        .await
        .unwrap_err();
    assert!(
        missed.kind() == Damaged && missed.to_string().contains("1 of 3 rows"),
        "{missed}"
    );
    table.delete().await.unwrap();
    made(&table).await;
    assert!(read(&table).await.rows.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_marks_changed_by_hand_are_tolerated() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    made(&table).await;
    let shell = Shell::open(server.url()).await.unwrap();
    // A row without a child for its heartbeat, created by hand.
    shell
        .put(&format!("{}/by hand", znode(&blue())), b"no JSON")
        .await
        .unwrap();
    let token = read(&table).await.token;
    let remove = CommitRequest::new(
        token,
        CommitId::new(1),
        None,
        [],
        [],
        ["by hand".to_owned()],
    );
    let answer = table.commit(&remove).await;
    assert!(is_committed(&answer), "{answer:?}");
    // Many such rows: each refusal names only one.
    let many: Vec<String> = (1..=7).map(|n| format!("by hand {n}")).collect();
    for name in &many {
        shell
            .put(&format!("{}/{name}", znode(&blue())), b"no JSON")
            .await
            .unwrap();
    }
    let token = read(&table).await.token;
    let answer = table
        .commit(&CommitRequest::new(
            token,
            CommitId::new(2),
            None,
            [],
            [],
            many,
        ))
        .await;
    assert!(
        is_committed(&answer) && read(&table).await.rows.is_empty(),
        "{answer:?}"
    );
    // The mark is missing: the next commit creates one.
    let mark = shell
        .client
        .list_children(&znode(&blue()))
        .await
        .unwrap()
        .into_iter()
        .find(|name| name.starts_with("~at-"))
        .unwrap();
    shell
        .remove(&format!("{}/{mark}", znode(&blue())))
        .await
        .unwrap();
    assert!(is_committed(&table.commit(&insert(&table, 2).await).await));
    assert!(is_committed(&table.commit(&insert(&table, 3).await).await));
    let marks = shell
        .client
        .list_children(&znode(&blue()))
        .await
        .unwrap()
        .into_iter()
        .filter(|name| name.starts_with("~at-"))
        .count();
    assert_eq!(marks, 1);
    // Znodes that were created by hand below a row are removed with the cluster.
    let below = format!("{}/{}/note", znode(&blue()), entry(2).address);
    shell
        .client
        .create(
            &below,
            b"",
            &CreateMode::Persistent.with_acls(Acls::anyone_all()),
        )
        .await
        .unwrap();
    table.delete().await.unwrap();
    assert!(
        shell
            .client
            .check_stat(&znode(&blue()))
            .await
            .unwrap()
            .is_none()
    );
    let beat = HeartbeatWrite::Silo {
        silo: entry(2).address,
        heartbeat: Heartbeat {
            counter: 1,
            at: Default::default(),
        },
    };
    assert_eq!(
        table.update_i_am_alive(&beat).await.map_err(|e| e.kind()),
        Err(NoSuchRow)
    );
}
