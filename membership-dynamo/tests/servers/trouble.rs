//! A server that refuses, collides or hangs, and items that were changed by hand: clauses T3 to T6,
//! T11, T13, T15 and T16.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use membership_core::{
    Attempt, CommitOutcome, Heartbeat, HeartbeatWrite, MembershipTable, ReadAnswer, ReadRequest,
    TableErrorKind, WallTime,
};
use membership_dynamo::{DynamoConfig, DynamoTable};
use membership_testbed::Server;

use crate::support::*;
use conformance_tests::helpers::*;

pub async fn connections_that_cannot_work_say_why(server: &Server) {
    let at = server.address().to_string();
    let url = |keys: &str, endpoint: &str| {
        format!("dynamodb://{keys}@us-east-1/membership?endpoint={endpoint}&connect_timeout=2s")
    };
    let good = format!("local:{SECRET}");
    for (url, kind, words) in [
        (
            url(&format!("no-such-key:{SECRET}"), &format!("http://{at}")),
            TableErrorKind::PermissionDenied,
            at.as_str(),
        ),
        (
            url(&good, "http://127.0.0.1:1"),
            TableErrorKind::Unavailable,
            "127.0.0.1:1 cannot be reached",
        ),
        (
            url(&good, "http://no-such-host.invalid:8000"),
            TableErrorKind::Unavailable,
            "no-such-host.invalid:8000 cannot be reached",
        ),
        (
            url(&good, &format!("https://{at}")),
            TableErrorKind::Configuration,
            "TLS",
        ),
    ] {
        let error = connect(&url).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(shown.contains(words) && !shown.contains(SECRET), "{error}");
    }
}

/// The actions of the requests that were sent. A transaction needs those of its single requests.
#[derive(Clone, Debug, Default)]
struct Actions(Arc<Mutex<BTreeSet<String>>>);

impl Intercept for Actions {
    fn name(&self) -> &'static str {
        "actions"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let target = context.request().headers().get("x-amz-target").unwrap();
        let action = match target.strip_prefix("DynamoDB_20120810.").unwrap() {
            "TransactGetItems" => "GetItem",
            other => other,
        };
        self.0.lock().unwrap().insert(format!("dynamodb:{action}"));
        Ok(())
    }
}

/// DynamoDB Local enforces no policy. This proves only that clients send what the policy for them in
/// the README allows, and nothing else.
pub async fn a_user_that_may_only_read_is_enough_for_clients(server: &Server) {
    let url = at(server, "reading", "");
    let owner = connect(&url).await.unwrap();
    let token = fill(&owner, 3).await;
    let (client, name) = shell(&url);
    let actions = Actions::default();
    let config = client.config().to_builder().interceptor(actions.clone());
    let config = DynamoConfig::from_client(Client::from_conf(config.build()), name);
    let client = DynamoTable::connect(config, blue()).await.unwrap();
    assert_eq!(read_like_a_client(&client).await, read(&owner).await);
    // Then it reads only what has changed.
    commit(&owner, &update(&token, 1, "x")).await;
    client
        .read(&ReadRequest::default().with_known(token))
        .await
        .unwrap();
    let readme = include_str!("../../README.md");
    let policy = readme.split("```json").nth(2).unwrap();
    let policy: serde_json::Value =
        serde_json::from_str(policy.split("```").next().unwrap()).unwrap();
    let allowed = policy["Statement"][0]["Action"].as_array().unwrap();
    let allowed: BTreeSet<_> = allowed.iter().map(|a| a.as_str().unwrap().into()).collect();
    assert_eq!(*actions.0.lock().unwrap(), allowed);
}

pub async fn a_commit_is_the_same_transaction_when_it_is_sent_again(server: &Server) {
    let table = connect(&at(server, "again", "")).await.unwrap();
    let token = fill(&table, 20).await;
    let mut request = insert(&token, 20..40);
    request.changes.extend(remove(&token, 1).changes);
    request.core = Some("x".to_owned().into());
    let made = commit(&table, &request).await;
    for attempt in [Attempt::Again, Attempt::First, Attempt::Again] {
        request.attempt = attempt;
        let other = connect(&at(server, "again", "")).await.unwrap();
        assert_eq!(
            commit(&other, &request).await,
            made,
            "one's own success is never a conflict"
        );
    }
    assert_eq!(read(&table).await.0.version(), made.version());
}

pub async fn a_token_of_another_transaction_does_not_block_a_commit(server: &Server) {
    let url = at(server, "mismatch", "");
    let table = connect(&url).await.unwrap();
    let token = fill(&table, 1).await;
    // A commit is applied, and an operator restores the table to the state before. Then the id of
    // the commit is used for another commit on the same version.
    let (client, name) = shell(&url);
    let key = item_key(&blue(), "row.version");
    let before = client
        .get_item()
        .table_name(&name)
        .set_key(Some(key))
        .consistent_read(true)
        .send()
        .await
        .unwrap()
        .item;
    let first = insert(&token, [4]);
    commit(&table, &first).await;
    client
        .put_item()
        .table_name(&name)
        .set_item(before)
        .send()
        .await
        .unwrap();
    for item in ["row", "heartbeat"] {
        let key = item_key(&blue(), &format!("{item}/{}", silo(4).row_key()));
        client
            .delete_item()
            .table_name(&name)
            .set_key(Some(key))
            .send()
            .await
            .unwrap();
    }
    let table = connect(&url).await.unwrap();
    let mut request = insert(&token, [5]);
    request.id = first.id;
    let made = commit(&table, &request).await;
    assert_eq!(read(&table).await.0.token, made);
    assert_eq!(commit(&table, &request.again()).await, made);
}

pub async fn a_success_after_a_wipe_is_checked(server: &Server) {
    let table = connect(&at(server, "wiped", "")).await.unwrap();
    let token = fill(&table, 1).await;
    let request = insert(&token, [5]);
    commit(&table, &request).await;
    table.delete().await.unwrap();
    assert_eq!(
        commit_kind(&table, &request.again()).await,
        TableErrorKind::TableReplaced
    );
    initialize(&table).await.unwrap();
    assert_eq!(
        commit_kind(&table, &request.again()).await,
        TableErrorKind::TableReplaced
    );
}

/// Many writers at once: each answer is a commit, a conflict, or certainly no change.
pub async fn colliding_transactions_are_busy_and_not_applied(server: &Server) {
    let url = at(server, "collide", "");
    let table = connect(&url).await.unwrap();
    let token = fill(&table, 1).await;
    let mut racers = tokio::task::JoinSet::new();
    for n in 0..16 {
        let (url, request) = (url.clone(), insert(&token, [100 + n]));
        racers.spawn(async move {
            (
                request.id,
                connect(&url).await.unwrap().commit(&request).await,
            )
        });
    }
    let mut won = None;
    while let Some(racer) = racers.join_next().await {
        match racer.unwrap() {
            (id, Ok(CommitOutcome::Committed(_))) => assert!(won.replace(id).is_none(), "two won"),
            (_, Ok(CommitOutcome::Conflict(conflict))) => assert!(conflict.newest.is_some()),
            (_, Err(e)) => assert_eq!(e.kind(), TableErrorKind::Busy, "{e}"),
            (_, Ok(other)) => panic!("{other:?}"),
        }
    }
    let now = read(&table).await.0;
    let moved = now.version() - token.version();
    assert_eq!(
        (moved, now.rows.len() as u64),
        (u64::from(won.is_some()), 1 + moved)
    );
    assert!(won.is_none_or(|id| id == now.version_row.last_commit()));
}

pub async fn a_heartbeat_removed_by_hand_is_written_again(server: &Server) {
    let url = at(server, "beats", "");
    let table = connect(&url).await.unwrap();
    fill(&table, 2).await;
    let (client, name) = shell(&url);
    let key = item_key(&blue(), &format!("heartbeat/{}", silo(1).row_key()));
    client
        .delete_item()
        .table_name(name)
        .set_key(Some(key))
        .send()
        .await
        .unwrap();
    let beat = Heartbeat {
        counter: 9,
        at: WallTime::from_millis(9),
    };
    table
        .update_i_am_alive(&HeartbeatWrite::Silo {
            silo: silo(1),
            heartbeat: beat,
        })
        .await
        .unwrap();
    assert_eq!(
        table.read_row(&silo(1), None).await.unwrap().heartbeat,
        Some(beat)
    );
    let error = table
        .update_i_am_alive(&HeartbeatWrite::Silo {
            silo: silo(99),
            heartbeat: beat,
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::NoSuchRow, "{error}");
}

pub async fn missing_rows_are_reported(server: &Server) {
    let url = at(server, "gone", "");
    let table = connect(&url).await.unwrap();
    let mut token = fill(&table, 5).await;
    let (client, name) = shell(&url);
    let key = item_key(&blue(), &format!("row/{}", silo(3).row_key()));
    client
        .delete_item()
        .table_name(name)
        .set_key(Some(key))
        .send()
        .await
        .unwrap();
    // First with the record of the commit that wrote the row, then without it.
    for _ in 0..20 {
        let error = connect(&url)
            .await
            .unwrap()
            .read(&ReadRequest::all())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), TableErrorKind::Damaged, "{error}");
        token = commit(&table, &update(&token, 1, "x")).await;
    }
}

pub async fn a_full_read_shows_a_row_changed_by_hand(server: &Server) {
    let url = at(server, "by-hand", "");
    let table = connect(&url).await.unwrap();
    let token = fill(&table, 3).await;
    let (client, name) = shell(&url);
    let mut junk = item_key(&blue(), &format!("row/{}", silo(2).row_key()));
    junk.insert("body".to_owned(), number(7));
    client
        .put_item()
        .table_name(name)
        .set_item(Some(junk))
        .send()
        .await
        .unwrap();
    let now = read(&table).await.0;
    assert_eq!((now.rows.len(), now.rows.undecodable().count()), (3, 1));
    let next = commit(&table, &update(&token, 1, "x")).await;
    let since = ReadRequest::all().with_known(token);
    match connect(&url).await.unwrap().read(&since).await.unwrap() {
        ReadAnswer::Snapshot { snapshot, .. } => assert_eq!(
            (snapshot.token, snapshot.rows.undecodable().count()),
            (next, 1)
        ),
        other => panic!("{other:?}"),
    }
}

/// A commit with as many rows as the limits allow, each as large as possible; then a commit that
/// removes all of them.
pub async fn the_largest_commit_fits(server: &Server) {
    let table = connect(&at(server, "largest", "")).await.unwrap();
    let limits = table.limits();
    let token = fill(&table, 0).await;
    let rows = limits.rows_per_commit as u64;
    let room = limits.bytes_per_commit / limits.rows_per_commit - 1_000;
    let wide = |n: u64| {
        let mut wide = entry(n);
        wide.info.silo_name = "x".repeat(room);
        wide
    };
    let mut request = insert(&token, []);
    request.changes = (0..rows)
        .flat_map(|n| insert_entry(&token, wide(n)).changes)
        .collect();
    let token = commit(&table, &request).await;
    assert_eq!(
        read(&connect(&at(server, "largest", "")).await.unwrap())
            .await
            .0
            .rows
            .len() as u64,
        rows
    );
    let mut gone = remove(&token, 0);
    gone.changes = (0..rows).flat_map(|n| remove(&token, n).changes).collect();
    commit(&table, &gone).await;
    assert!(read(&table).await.0.rows.is_empty());
}

pub async fn calls_to_a_frozen_server_time_out(server: &Server) {
    let table = connect(&at(server, "hangs", "operation_timeout=2s"))
        .await
        .unwrap();
    let token = fill(&table, 3).await;
    let request = insert(&token, [7]);
    server.pause().await.unwrap();
    let began = Instant::now();
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::Unavailable)
    );
    assert_eq!(
        commit_kind(&table, &request).await,
        TableErrorKind::OutcomeUnknown
    );
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(1, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::OutcomeUnknown
    );
    assert!(began.elapsed() < Duration::from_secs(30));
    server.resume().await.unwrap();
    until("the server is back", async || {
        read_kind(&table, None).await.is_ok()
    })
    .await;
    commit(&table, &request.again()).await;
    assert_eq!(read(&table).await.0.version(), token.version() + 1);
}
