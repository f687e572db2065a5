//! Refusals of servers, and the errors that callers get. T4, T5, T11, T12.

use conformance_tests::helpers::{may_only_read, until};
use membership_core::TableErrorKind::{
    Busy, Configuration, ForeignTable, LimitExceeded, OutcomeUnknown, PermissionDenied, Unavailable,
};
use membership_core::{
    ClusterKey, CommitId, CommitOutcome, CommitRequest, Durability, Heartbeat, HeartbeatWrite,
    InitializeRequest, MembershipEntry, MembershipTable, ReadAnswer, ReadRequest, SharedSettings,
    TableErrorKind, TableId, WallTime,
};
use membership_testbed::{Kind, suite};
use mongodb::bson::{Document, doc};

use crate::support::SECRET;
use crate::{blue, connect, entry, insert, is_committed, made, read, server, shell};

/// Makes the next update fail in this way.
async fn fail_next_update(server: &membership_testbed::Server, how: Document) {
    let mut data = doc! { "failCommands": ["update"] };
    data.extend(how);
    let command =
        doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
    shell(server, "admin")
        .await
        .run_command(command)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unconfirmed_write_has_an_unknown_outcome_and_is_applied() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    made(&table).await;
    for (port, code) in [(1, 64), (2, 91), (3, 189), (4, 11_602), (5, 100)] {
        let request = insert(&table, port).await;
        fail_next_update(
            &server,
            doc! { "writeConcernError": { "code": code, "errmsg": "nobody confirms it" } },
        )
        .await;
        let answer = table.commit(&request).await;
        assert_eq!(
            answer.as_ref().map_err(|e| e.kind()),
            Err(OutcomeUnknown),
            "{code}: {answer:?}"
        );
        // The server does not wait for its journal here, and reads show what is in it.
        until("the commit is in the journal", async || {
            read(&table).await.version() == u64::from(port)
        })
        .await;
        let again = table.commit(&request.again()).await;
        assert!(is_committed(&again), "{code}: sent again it is {again:?}");
        assert_eq!(
            read(&table).await.version(),
            u64::from(port),
            "code {code}, sent again"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_commits_are_not_applied_or_have_unknown_outcomes() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    made(&table).await;
    for (port, how, kind) in [
        (1, doc! { "errorCode": 10_107 }, Unavailable),
        (2, doc! { "errorCode": 13_435 }, Unavailable),
        (3, doc! { "errorCode": 189 }, OutcomeUnknown),
        (4, doc! { "errorCode": 11_602 }, OutcomeUnknown),
        (5, doc! { "errorCode": 91 }, OutcomeUnknown),
        (6, doc! { "errorCode": 50 }, OutcomeUnknown),
        (7, doc! { "errorCode": 112 }, Busy),
        (8, doc! { "errorCode": 13 }, PermissionDenied),
        (9, doc! { "closeConnection": true }, OutcomeUnknown),
    ] {
        let request = insert(&table, port).await;
        let before = read(&table).await.version();
        fail_next_update(&server, how.clone()).await;
        let answer = table.commit(&request).await;
        assert_eq!(
            answer.as_ref().map_err(|e| e.kind()),
            Err(kind),
            "{how}: {answer:?}"
        );
        // None of the commits was applied; where the outcome is unknown, sending again finds it
        // out.
        assert_eq!(read(&table).await.version(), before, "{how}");
        let again = table.commit(&request.again()).await;
        assert!(is_committed(&again), "{how}: sent again it is {again:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standalone_server_is_refused_unless_it_is_allowed() {
    let server = server(&["--replSet="]).await;
    let refused = connect(server.url()).await.unwrap_err();
    assert_eq!(refused.kind(), Configuration);
    assert!(
        refused.to_string().contains("allow_standalone=true")
            && refused.to_string().contains(&server.address().to_string()),
        "{refused}"
    );
    let table = connect(&format!("{}&allow_standalone=true", server.url()))
        .await
        .unwrap();
    assert_eq!(table.guarantees().durability, Durability::MayBeLost);
    made(&table).await;
    let answer = table.commit(&insert(&table, 1).await).await;
    assert!(is_committed(&answer), "{answer:?}");
    let barrier = ReadRequest::all().with_barrier(true);
    assert!(
        matches!(table.read(&barrier).await, Ok(ReadAnswer::Snapshot { snapshot, .. }) if snapshot.version() == 1)
    );
    table.delete().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_documents_are_refused_and_kept() {
    let server = server(&[]).await;
    let others = shell(&server, "membership")
        .await
        .collection::<Document>("membership");
    // A cluster as another membership provider stores it.
    others
        .insert_one(doc! { "_id": "blue", "Version": 3, "VersionEtag": "x", "Members": {} })
        .await
        .unwrap();
    let table = connect(server.url()).await.unwrap();
    let request = InitializeRequest::new(
        TableId::new(7),
        SharedSettings::default(),
        ClusterKey::new([7; 32]),
    );
    assert_eq!(
        table.initialize(&request).await.map_err(|e| e.kind()),
        Err(ForeignTable)
    );
    // The document has the cluster's own name.
    let id = blue().store_key();
    others
        .insert_one(doc! { "_id": &id, "Version": 3 })
        .await
        .unwrap();
    for kind in [
        table.initialize(&request).await.map_err(|e| e.kind()),
        table
            .read(&ReadRequest::all())
            .await
            .map(drop)
            .map_err(|e| e.kind()),
        table.delete().await.map_err(|e| e.kind()),
    ] {
        assert_eq!(kind, Err(ForeignTable));
    }
    assert_eq!(others.count_documents(doc! {}).await.unwrap(), 2);
    // Another collection is usable.
    made(
        &connect(&format!("{}&collection=ours", server.url()))
            .await
            .unwrap(),
    )
    .await;
}

/// `count` rows that fill a commit.
fn heavy(first: u16, count: u16, bytes: usize) -> impl Iterator<Item = MembershipEntry> {
    (first..first + count).map(move |port| {
        let mut heavy = entry(port);
        heavy.info.silo_name = "x".repeat(bytes);
        heavy
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_grows_up_to_the_largest_document() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    made(&table).await;
    let bytes = 250_000;
    let mut token = read(&table).await.token;
    let mut port = 1;
    let refused = loop {
        let request = CommitRequest::new(
            token.clone(),
            CommitId::new(u128::from(port)),
            None,
            heavy(port, 8, bytes),
            [],
            [],
        );
        match table.commit(&request).await {
            Ok(CommitOutcome::Committed(next)) => token = next,
            other => break other,
        }
        port += 8;
        assert!(port < 100, "more than 16 MB fit");
    };
    assert_eq!(
        refused.as_ref().map_err(|e| e.kind()),
        Err(LimitExceeded),
        "{refused:?}"
    );
    let now = read(&table).await;
    assert!(
        now.token.same_commit(&token) && now.rows.len() == usize::from(port) - 1,
        "something of the refused commit is there"
    );

    // Heartbeats that do not fit into the same answer are read nevertheless.
    let id = format!("{}/heartbeats", blue().store_key());
    let collection = shell(&server, "membership")
        .await
        .collection::<Document>("membership");
    let room = doc! { "$set": { "more": "x".repeat(3 << 20) } };
    collection
        .update_one(doc! { "_id": id }, room)
        .await
        .unwrap();
    let heartbeat = Heartbeat {
        counter: 5,
        at: WallTime::from_millis(17),
    };
    let silo = entry(1).address;
    table
        .update_i_am_alive(&HeartbeatWrite::Silo { silo, heartbeat })
        .await
        .unwrap();
    let Ok(ReadAnswer::Snapshot {
        heartbeats,
        snapshot,
    }) = table.read(&ReadRequest::all()).await
    else {
        panic!("no snapshot")
    };
    assert_eq!(heartbeats.unwrap().silos.get(&silo), Some(&heartbeat));
    assert_eq!(snapshot.rows.len(), now.rows.len());
    // With one row less, commits succeed again.
    let smaller = CommitRequest::new(token, CommitId::new(999), None, [], [], [silo.row_key()]);
    assert!(is_committed(&table.commit(&smaller).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_recreate_their_removed_document() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    let heartbeat = Heartbeat {
        counter: 5,
        at: WallTime::from_millis(17),
    };
    let write = HeartbeatWrite::Silo {
        silo: entry(1).address,
        heartbeat,
    };
    let kind = table.update_i_am_alive(&write).await.map_err(|e| e.kind());
    assert_eq!(
        kind,
        Err(TableErrorKind::NotInitialized),
        "there is no such table"
    );
    made(&table).await;
    table.commit(&insert(&table, 1).await).await.unwrap();
    let collection = shell(&server, "membership")
        .await
        .collection::<Document>("membership");
    collection
        .delete_one(doc! { "_id": format!("{}/heartbeats", blue().store_key()) })
        .await
        .unwrap();
    table.update_i_am_alive(&write).await.unwrap();
    // An older heartbeat that arrives late changes nothing.
    let older = Heartbeat {
        counter: 4,
        at: WallTime::from_millis(99),
    };
    table
        .update_i_am_alive(&HeartbeatWrite::Silo {
            silo: entry(1).address,
            heartbeat: older,
        })
        .await
        .unwrap();
    let one = table.read_row(&entry(1).address, None).await.unwrap();
    assert_eq!(one.heartbeat, Some(heartbeat));
    table.delete().await.unwrap();
    assert_eq!(
        collection.count_documents(doc! {}).await.unwrap(),
        0,
        "delete leaves something behind"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_only_read_is_enough_for_clients() {
    let server = suite::locked_server(Kind::MongoDb, SECRET).await;
    let admin = shell(&server, "membership").await;
    let resource = doc! { "db": "membership", "collection": "membership" };
    let find = doc! { "resource": resource, "actions": ["find"] };
    for command in [
        doc! { "createRole": "clients", "privileges": [find], "roles": [] },
        doc! { "createUser": "clients", "pwd": SECRET, "roles": ["clients"] },
    ] {
        admin.run_command(command).await.unwrap();
    }
    let url = format!("mongodb://clients:{SECRET}@{}", server.address());
    let owner = connect(server.url()).await.unwrap();
    for reads in ["linearizable", "majority"] {
        let client = connect(&format!("{url}/membership?reads={reads}"))
            .await
            .unwrap();
        may_only_read(&client, &owner).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_errors_are_one_line() {
    let nowhere = membership_testbed::free_port().unwrap();
    let quickly = "operation_timeout=2s&connect_timeout=1s";
    let e = connect_as(&format!("mongodb://127.0.0.1:{nowhere}/?{quickly}")).await;
    assert!(
        e.kind() == Unavailable && e.to_string().contains(&format!("127.0.0.1:{nowhere}")),
        "{e}"
    );
    let server = server(&[]).await;
    let address = server.address();
    let e = connect_as(&format!("mongodb://{address}/?replicaSet=other&{quickly}")).await;
    assert!(
        e.kind() == Unavailable && e.to_string().contains(&address.to_string()),
        "{e}"
    );
    let e = connect_as(&format!(
        "mongodb://ann:hunter2@{address}/?directConnection=true&{quickly}"
    ))
    .await;
    assert!(
        e.kind() == PermissionDenied && e.to_string().contains(&address.to_string()),
        "{e}"
    );
    assert!(!format!("{e} {e:?}").contains("hunter2"), "{e:?}");
    let e = connect_as(&format!("mongodb://{address}/?tls=true&{quickly}")).await;
    assert!(
        matches!(e.kind(), Unavailable | Configuration)
            && e.to_string().contains(&address.to_string()),
        "{e}"
    );
    assert_eq!(e.to_string().lines().count(), 1, "{e}");
}

async fn connect_as(url: &str) -> membership_core::TableError {
    let config = membership_mongo::MongoConfig::from_url(url).unwrap();
    match membership_mongo::MongoTable::connect(config, blue()).await {
        // A server may refuse an unknown user only at the first command.
        Ok(table) => table.read(&ReadRequest::all()).await.map(drop).unwrap_err(),
        Err(e) => e,
    }
}
