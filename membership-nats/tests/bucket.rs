//! The bucket past the provider: deleted, made anew, made in another way; and who may use it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use conformance_tests::helpers::{
    commit, fill, heartbeat, initialize, insert, may_only_read, read, read_kind, until,
};
use membership_core::{
    ClusterName, CommitOutcome, Durability, MembershipTable, ReadAnswer, ReadRequest, Recency,
    TableError, TableErrorKind,
};
use membership_provider::Provider;
use membership_testbed::suite::own_server;
use membership_testbed::suite::restored::DataCopy;
use membership_testbed::{Kind, Options, Server, ServerSet};

const BUCKET: &str = "KV_membership";

fn durable() -> Options {
    Options {
        durable: true,
        ..Options::default()
    }
}

async fn connect(url: &str) -> Result<Arc<dyn MembershipTable>, TableError> {
    let cluster: ClusterName = "billing/blue".parse().unwrap();
    membership_nats::provider().connect(url, cluster).await
}

/// The server as its own tools see it.
async fn tool(server: &Server) -> jetstream::Context {
    let client = async_nats::connect(server.address().to_string()).await;
    jetstream::new(client.unwrap())
}

/// The bucket as tools make it, with direct get, and a history that the provider does not need.
fn usual() -> jetstream::stream::Config {
    jetstream::stream::Config {
        name: BUCKET.to_owned(),
        subjects: vec!["$KV.membership.>".to_owned()],
        max_messages_per_subject: 5,
        discard: jetstream::stream::DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        num_replicas: 1,
        ..jetstream::stream::Config::default()
    }
}

/// The sequences of a bucket that is made anew begin again: without an identity in the key, the
/// commit of a client of the old table would find the sequence that it expects.
#[tokio::test]
async fn a_commit_of_before_does_not_land_in_a_bucket_made_anew() {
    let server = own_server(Kind::Nats, &[], durable()).await;
    let (old, new) = (connect(server.url()).await.unwrap(), server.url());
    let new = connect(new).await.unwrap();
    let tool = tool(&server).await;
    for rows in [0, 2] {
        // The same requests in both lives, so that the document has the same sequence.
        let token = fill(&*old, rows).await;
        tool.delete_stream(BUCKET).await.unwrap();
        tool.create_stream(usual()).await.unwrap();
        let other = fill(&*new, rows).await;
        let before = read(&*new).await;
        match old.commit(&insert(&token, [7])).await {
            Ok(CommitOutcome::Committed(token)) => unreachable!("{token:?}"),
            Ok(_) => {}
            Err(e) => assert_eq!(e.kind(), TableErrorKind::TableReplaced, "{e}"),
        }
        assert_eq!(read(&*new).await, before);
        assert_eq!(
            read_kind(&*old, Some(&token)).await,
            Err(TableErrorKind::TableReplaced)
        );
        commit(&*new, &insert(&other, [8])).await;
        new.delete().await.unwrap();
        let left = tool.get_stream(BUCKET).await.unwrap();
        assert_eq!(left.cached_info().state.messages, 0);
    }
}

/// The commit is sent from memory: the client does not read before it.
#[tokio::test]
async fn a_commit_to_a_bucket_that_is_gone_is_no_success() {
    let server = own_server(Kind::Nats, &[], durable()).await;
    let table = connect(server.url()).await.unwrap();
    let token = fill(&*table, 1).await;
    tool(&server).await.delete_stream(BUCKET).await.unwrap();
    let error = table.commit(&insert(&token, [7])).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::TableReplaced, "{error}");
    let error = table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap_err();
    assert!(
        error.to_string().contains("the bucket does not exist"),
        "{error}"
    );
    let missing = read_kind(&*table, None).await;
    assert_eq!(missing, Err(TableErrorKind::NotInitialized));
}

#[tokio::test]
async fn a_bucket_that_does_not_fit_is_refused_before_anything_is_written() {
    let server = own_server(Kind::Nats, &[], durable()).await;
    let tool = tool(&server).await;
    let forgets = jetstream::stream::Config {
        max_age: Duration::from_secs(3600),
        ..usual()
    };
    let in_memory = jetstream::stream::Config {
        storage: jetstream::stream::StorageType::Memory,
        ..usual()
    };
    for (config, why) in [(forgets, "TTL"), (in_memory, "`sync=always` is not true")] {
        // Made between connecting and `initialize`, or before both.
        let table = connect(server.url()).await.unwrap();
        tool.create_stream(config).await.unwrap();
        for error in [
            initialize(&*table).await.unwrap_err(),
            connect(server.url()).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), TableErrorKind::Configuration, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
        tool.delete_stream(BUCKET).await.unwrap();
    }
    // Nothing is asserted of it, so nothing is promised.
    let in_memory = jetstream::stream::Config {
        storage: jetstream::stream::StorageType::Memory,
        ..usual()
    };
    tool.create_stream(in_memory).await.unwrap();
    let url = server.url().replace("?sync=always", "");
    let table = connect(&url).await.unwrap();
    initialize(&*table).await.unwrap();
    assert_eq!(table.guarantees().durability, Durability::MayBeLost);
    let error = connect(&format!("{url}?replicas=3")).await.map(drop);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("has 1 replicas"), "{error}");
}

#[tokio::test]
async fn replicas_that_the_servers_cannot_keep_are_refused() {
    let server = own_server(Kind::Nats, &[], durable()).await;
    let url = format!("{}&replicas=3", server.url());
    let table = connect(&url).await.unwrap();
    let error = initialize(&*table).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Configuration, "{error}");
}

#[tokio::test]
async fn the_permissions_of_the_readme_are_enough_and_clients_only_read() {
    // The launcher's configuration has one user; this one has two.
    let folder = std::env::temp_dir().join(format!("membership-nats-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let users = folder.join("users.conf");
    let api = |names: &[&str]| -> String {
        let subject = |name: &&str| format!("\"$JS.API.STREAM.{name}.KV_membership\"");
        names.iter().map(subject).collect::<Vec<_>>().join(", ")
    };
    let reads = api(&["INFO", "MSG.GET"]);
    let all = format!(
        "\"$KV.membership.>\", {reads}, {}",
        api(&["PURGE", "CREATE"])
    );
    let user = |name: &str, publish: &str| {
        format!(
            "{{ user: {name}, password: pw, permissions {{ publish: [{publish}], subscribe: \"_INBOX.>\" }} }}"
        )
    };
    // The launcher asks without a user whether JetStream answers.
    let guest = "{ user: guest, permissions { publish: \"$JS.API.INFO\", subscribe: it } }";
    let text = format!(
        "jetstream {{ store_dir: {:?}, sync_interval: always }}\nno_auth_user: guest\nauthorization {{ users = [ {}, {}, {guest} ] }}\n",
        folder.join("js"),
        user("silo", &all),
        user("client", &reads)
    );
    std::fs::write(&users, text).unwrap();
    let users = format!("-c={}", users.display());
    let server = own_server(Kind::Nats, &[&users], Options::default()).await;
    let url = |user: &str| format!("nats://{user}:pw@{}?sync=always", server.address());
    let (silo, client) = (connect(&url("silo")).await, connect(&url("client")).await);
    may_only_read(&*client.unwrap(), &*silo.unwrap()).await;
    let wrong = connect(&format!("nats://silo:no@{}", server.address())).await;
    let error = wrong.map(drop).unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::PermissionDenied, "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Clients that connected before the bucket was there, or while one server had it. Then more servers
/// get it, and the leader is frozen until another one leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_as_recent_as_promised_after_the_bucket_got_replicas() {
    let set = ServerSet::start(Kind::Nats, 3, None).await.unwrap();
    let to = |server: usize| {
        let address = set.servers()[server].address();
        format!("nats://{address}?sync=always&operation_timeout=30s")
    };
    let tool = tool(&set.servers()[0]).await;
    let early = connect(&to(0)).await.unwrap();
    tool.create_stream(usual()).await.unwrap();
    let table = connect(&to(1)).await.unwrap();
    let mut token = fill(&*table, 1).await;
    read(&*early).await;
    // Whoever will lead the bucket once it has more servers.
    let mut pinned = Vec::new();
    for server in 0..3 {
        let client = connect(&to(server)).await.unwrap();
        read(&*client).await;
        pinned.push(client);
    }
    let replicas = jetstream::stream::Config {
        num_replicas: 3,
        ..usual()
    };
    tool.update_stream(&replicas).await.unwrap();
    loop {
        let mut stream = tool.get_stream(BUCKET).await.unwrap();
        let cluster = stream.info().await.unwrap().cluster.clone().unwrap();
        if cluster.replicas.len() == 2 && cluster.replicas.iter().all(|it| it.current) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Asked while the leader is frozen, and answered when it runs again.
    let deposed = set.depose().await.unwrap();
    let pinned = pinned.swap_remove(deposed);
    let alive = connect(&to((deposed + 1) % 3)).await.unwrap();
    token = commit(&*alive, &insert(&token, [2])).await;
    let barrier = ReadRequest::all().with_barrier(true);
    let asked = tokio::spawn({
        let pinned = Arc::clone(&pinned);
        async move { pinned.read(&barrier).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    set.thaw().await.unwrap();
    match asked.await.unwrap() {
        Ok(ReadAnswer::Snapshot { snapshot, .. }) => {
            assert!(
                snapshot.token.same_commit(&token),
                "version {} is shown as the newest, {} is acknowledged",
                snapshot.version(),
                token.version()
            );
        }
        Ok(other) => unreachable!("{other:?}"),
        Err(e) => assert_eq!(e.kind(), TableErrorKind::Unavailable, "{e}"),
    }
    for client in [&early, &table, &pinned] {
        let all = ReadRequest::all();
        // A server that was frozen has no leader for a moment.
        until("it answers", async || client.read(&all).await.is_ok()).await;
        let recency = client.guarantees().reads;
        assert_eq!(recency, Recency::MonotonicPerClient);
    }
}

/// The connection lasts when the only copy goes back on another server, and the same sequence comes
/// again with another document.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_on_another_server_is_told_and_takes_no_commit_of_before() {
    let set = ServerSet::start(Kind::Nats, 3, None).await.unwrap();
    let tool = tool(&set.servers()[0]).await;
    let stream = tool.create_stream(usual()).await.unwrap();
    let cluster = stream.cached_info().cluster.clone().unwrap();
    let leader = cluster.leader.unwrap();
    let leader: usize = leader.trim_start_matches('n').parse().unwrap();
    let url = format!(
        "nats://{}?sync=always",
        set.servers()[(leader + 1) % 3].address()
    );
    let (first, stale) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
    let token = fill(&*first, 1).await;
    let copy = DataCopy::of(&set.servers()[leader]).await;
    while first.read(&ReadRequest::all()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let lost = commit(&*first, &insert(&token, [100])).await;
    read(&*stale).await;
    copy.restore(&set.servers()[leader]).await;
    while first.read(&ReadRequest::all()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let second = connect(&url).await.unwrap();
    commit(&*second, &insert(&token, [200])).await;
    let before = read(&*second).await;
    // Nor does a commit that is based on what was lost land, without a read before it.
    let late = stale.commit(&insert(&lost, [7])).await;
    assert!(!matches!(late, Ok(CommitOutcome::Committed(_))), "{late:?}");
    assert_eq!(read(&*second).await, before);
    assert_eq!(
        read_kind(&*stale, Some(&lost)).await,
        Err(TableErrorKind::TableRolledBack)
    );
}
