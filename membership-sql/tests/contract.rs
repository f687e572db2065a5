//! The clauses of the table contract that need no damage to the file; the shared suite tests more
//! of them.
#![cfg(feature = "sqlite")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use membership_core::{
    CommitOutcome, Durability, HeartbeatWrite, MembershipTable, ReadAnswer, ReadRequest, Recency,
    TableErrorKind, check_snapshot,
};
use support::*;

#[tokio::test]
async fn a_life_of_a_table() {
    let place = Place::new();
    let table = place.open().await;
    assert!(!place.path().exists(), "opening makes no file");
    assert_eq!(
        table.read(&ReadRequest::all()).await.unwrap_err().kind(),
        TableErrorKind::NotInitialized
    );
    assert!(!place.path().exists(), "reading makes no file");
    initialize(&table).await.unwrap();
    let (start, _) = read(&table).await;
    assert_eq!((start.version(), start.rows.len()), (0, 0));

    let first = insert(&start.token, [1, 2, 3]);
    let token = commit(&table, &first).await;
    let (now, _) = read(&table).await;
    assert_eq!(now, first.apply_to(&start, token.clone()));
    assert_eq!(
        read_with(&table, &token).await,
        Ok(ReadAnswer::Unchanged { heartbeats: None })
    );

    let token = commit(&table, &update(&token, 2, "two")).await;
    let token = commit(&table, &remove(&token, 1)).await;
    initialize(&table).await.unwrap();
    let (end, _) = read(&table).await;
    assert_eq!(
        (
            end.version(),
            &end.token,
            end.rows.len(),
            end.version_row.row_count
        ),
        (3, &token, 2, 2)
    );
    assert_eq!(end.rows.get(&silo(2)).unwrap().info.silo_name, "two");
    assert_eq!(check_snapshot(&now, &end), Ok(()));

    let one = table.read_row(&silo(2), Some(&token)).await.unwrap();
    assert_eq!(
        (one.token, one.row.as_ref()),
        (token.clone(), end.rows.row(&silo(2)))
    );
    assert_eq!(table.read_row(&silo(1), None).await.unwrap().row, None);

    table.delete().await.unwrap();
    table.delete().await.unwrap();
    assert_eq!(
        table.read(&ReadRequest::all()).await.unwrap_err().kind(),
        TableErrorKind::NotInitialized
    );
    assert_eq!(
        read_with(&table, &token).await,
        Err(TableErrorKind::TableReplaced)
    );
    initialize(&table).await.unwrap();
    assert_eq!(
        read_with(&table, &token).await,
        Err(TableErrorKind::TableReplaced)
    );
    assert_eq!(
        table.commit(&insert(&token, [9])).await.unwrap_err().kind(),
        TableErrorKind::TableReplaced
    );
    assert_eq!(read(&table).await.0.rows.len(), 0);
}

#[tokio::test]
async fn conflicts_are_true_and_change_nothing() {
    let place = Place::new();
    let (table, token) = table_with(&place, 2).await;
    let other = place.open().await;
    let before = read(&other).await;
    let there = insert(&token, [0]);
    for request in [there, update(&token, 7, "x"), remove(&token, 7)] {
        assert_eq!(conflicts(&table, &request).await, before.0);
        assert_eq!(read(&other).await, before);
    }
    let mine = insert(&token, [5]);
    let later = commit(&table, &mine).await;
    assert_eq!(conflicts(&other, &insert(&token, [6])).await.token, later);
    // Every client can find out that the commit succeeded.
    assert_eq!(
        other.commit(&mine.again()).await.unwrap(),
        CommitOutcome::Committed(later)
    );
    let (mut now, _) = read(&table).await;
    let lost = insert(&now.token, [8]);
    for n in 0..17 {
        now.token = commit(&table, &update(&now.token, 0, &n.to_string())).await;
    }
    assert_eq!(
        table.commit(&lost.again()).await.unwrap_err().kind(),
        TableErrorKind::OutcomeUnknown
    );
    assert!(matches!(
        table.commit(&lost).await.unwrap(),
        CommitOutcome::Conflict(_)
    ));
}

#[tokio::test]
async fn heartbeats_need_a_row_never_fall_and_go_with_it() {
    let place = Place::new();
    let (table, token) = table_with(&place, 2).await;
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(9, 1))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::NoSuchRow
    );
    table.update_i_am_alive(&heartbeat(0, 5)).await.unwrap();
    table.update_i_am_alive(&heartbeat(0, 3)).await.unwrap();
    table.update_i_am_alive(&heartbeat(1, 1)).await.unwrap();
    let text = "the cluster's own".to_owned();
    table
        .update_i_am_alive(&HeartbeatWrite::Cluster { text: text.clone() })
        .await
        .unwrap();
    let too_much = HeartbeatWrite::Cluster {
        text: "x".repeat(4097),
    };
    assert_eq!(
        table.update_i_am_alive(&too_much).await.unwrap_err().kind(),
        TableErrorKind::LimitExceeded
    );

    let (now, beats) = read(&table).await;
    assert_eq!(now.token, token, "a heartbeat is no commit");
    assert_eq!(
        (
            beats.counter(&silo(0)),
            beats.counter(&silo(1)),
            beats.cluster.as_ref()
        ),
        (5, 1, Some(&text))
    );
    assert_eq!(
        table
            .read_row(&silo(0), None)
            .await
            .unwrap()
            .heartbeat
            .unwrap()
            .counter,
        5
    );

    let token = commit(&table, &update(&token, 0, "again")).await;
    let token = commit(&table, &remove(&token, 1)).await;
    let (_, beats) = read(&table).await;
    assert_eq!((beats.counter(&silo(0)), beats.silos.len()), (5, 1));
    assert_eq!(
        table
            .update_i_am_alive(&heartbeat(1, 2))
            .await
            .unwrap_err()
            .kind(),
        TableErrorKind::NoSuchRow
    );
    commit(&table, &insert(&token, [1])).await;
    assert_eq!(
        read(&table).await.1.silos.len(),
        1,
        "no heartbeat returns with the row"
    );
    let left: i64 = place
        .shell()
        .query_row("SELECT count(*) FROM membership_heartbeat", [], |r| {
            r.get(0)
        })
        .unwrap();
    assert_eq!(left, 1);
}

#[tokio::test]
async fn clusters_in_one_file_do_not_know_each_other() {
    let place = Place::new();
    let names = ["a", "a/b", "ab", "a%2Fb", "ü'\"; --", "%25", "_", "*", "A"];
    for (i, name) in names.iter().enumerate() {
        let table = place.open_as(name).await.unwrap();
        initialize(&table).await.unwrap();
        let token = commit(&table, &insert(&read(&table).await.0.token, 0..=i as u64)).await;
        table
            .update_i_am_alive(&heartbeat(0, i as u64 + 1))
            .await
            .unwrap();
        assert_eq!(token.version(), 1);
    }
    place.open_as("a").await.unwrap().delete().await.unwrap();
    for (i, name) in names.iter().enumerate().skip(1) {
        let (now, beats) = read(&place.open_as(name).await.unwrap()).await;
        assert_eq!(
            (now.rows.len(), beats.counter(&silo(0))),
            (i + 1, i as u64 + 1),
            "{name}"
        );
    }
}

#[tokio::test]
async fn five_thousand_rows_and_nothing_decoded_twice() {
    let place = Place::new();
    let (table, token) = table_with(&place, 5000).await;
    let (first, _) = read(&table).await;
    assert_eq!(
        (first.rows.len(), first.rows.undecodable().count()),
        (5000, 0)
    );
    commit(&place.open().await, &update(&token, 17, "new")).await;
    let (second, _) = read(&table).await;
    let same = first
        .rows
        .iter()
        .zip(second.rows.iter())
        .filter(|(a, b)| a.is_same(b))
        .count();
    assert_eq!(same, 4999);
    assert_eq!(second.rows, read(&place.open().await).await.0.rows);
    let huge = insert(&second.token, 10_000..20_001);
    assert_eq!(
        table.commit(&huge).await.unwrap_err().kind(),
        TableErrorKind::LimitExceeded
    );
    table.delete().await.unwrap();
    let left: i64 = place
        .shell()
        .query_row("SELECT count(*) FROM membership_silo", [], |r| r.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn cached_rows_never_hide_changes() {
    let place = Place::new();
    let (table, token) = table_with(&place, 30).await;
    let watcher = place.open().await;
    let mut token = token;
    for step in 0..60_u64 {
        let n = step * 7 % 40;
        let there = read(&table).await.0.rows.get(&silo(n)).is_some();
        let request = if !there {
            insert(&token, [n])
        } else if step % 3 == 0 {
            update(&token, n, &step.to_string())
        } else {
            remove(&token, n)
        };
        token = commit(&table, &request).await;
        let (kept, _) = read(&watcher).await;
        let (fresh, _) = read(&place.open().await).await;
        assert_eq!(
            (&kept, kept.rows.digest()),
            (&fresh, fresh.rows.digest()),
            "step {step}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_make_every_version_once() {
    let place = Place::new();
    let (_table, _) = table_with(&place, 1).await;
    let place = Arc::new(place);
    let tasks: Vec<_> = (0..8_u64)
        .map(|me| {
            let place = Arc::clone(&place);
            tokio::spawn(async move {
                let table = place.open().await;
                let mut token = read(&table).await.0.token;
                let mut mine = Vec::new();
                while mine.len() < 15 {
                    match table
                        .commit(&update(&token, 0, &format!("{me}")))
                        .await
                        .unwrap()
                    {
                        CommitOutcome::Committed(t) => {
                            mine.push(t.version());
                            token = t;
                        }
                        CommitOutcome::Conflict(c) => {
                            let newer = c.snapshot.unwrap().token;
                            assert!(
                                newer.version() > token.version(),
                                "every conflict has a newer version to show"
                            );
                            token = newer;
                        }
                        other => panic!("{other:?}"),
                    }
                }
                mine
            })
        })
        .collect();
    let mut versions = Vec::new();
    for task in tasks {
        versions.extend(task.await.unwrap());
    }
    versions.sort_unstable();
    assert_eq!(versions, (2..=121).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_initialize_at_once() {
    let place = Arc::new(Place::new());
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let place = Arc::clone(&place);
            tokio::spawn(async move {
                let table = place.open().await;
                initialize(&table).await.unwrap();
                read(&table).await.0.table_id()
            })
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for task in tasks {
        ids.insert(task.await.unwrap());
    }
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn a_dropped_future_leaves_no_transaction_open() {
    let place = Place::new();
    let (table, mut token) = table_with(&place, 1).await;
    let other = place.open().await;
    let mut dropped = 0;
    for n in 0..50 {
        let request = update(&token, 0, &n.to_string());
        // On a busy machine the store may have answered before this looks.
        dropped += u32::from(table.commit(&request).now_or_never().is_none());
        // The other client can write at once, and finds one of the two legal states.
        let (now, _) = read(&other).await;
        token = match other.commit(&update(&now.token, 0, "other")).await.unwrap() {
            CommitOutcome::Committed(t) => t,
            CommitOutcome::Conflict(c) => c.snapshot.unwrap().token,
            other => panic!("{other:?}"),
        };
    }
    let (now, _) = read(&table).await;
    commit(&table, &update(&now.token, 0, "end")).await;
    assert!(dropped > 0, "no future was dropped before its end");
}

#[tokio::test]
async fn commits_of_other_clients_send_hints() {
    let place = Place::new();
    let (table, token) = table_with(&place, 1).await;
    let mut hints = table.hints().unwrap();
    let other = place.open().await;
    let token = commit(&other, &update(&token, 0, "x")).await;
    let within = std::time::Duration::from_secs(10);
    assert_eq!(
        tokio::time::timeout(within, hints.next()).await,
        Ok(Some(()))
    );
    commit(&table, &update(&token, 0, "y")).await;
    assert_eq!(
        tokio::time::timeout(within, hints.next()).await,
        Ok(Some(()))
    );
    drop(table);
    assert_eq!(tokio::time::timeout(within, hints.next()).await, Ok(None));
}

#[test]
fn works_without_any_runtime() {
    let place = Place::new();
    let (table, token) = block_on(table_with(&place, 1));
    assert_eq!(token.version(), 1);
    assert_eq!(
        (
            table.store(),
            table.guarantees().reads,
            table.guarantees().durability
        ),
        ("sqlite", Recency::Linearizable, Durability::Kept)
    );
    assert!(format!("{table:?}").contains("default/blue"));
    let twin = table.clone();
    block_on(table.close());
    let error = block_on(twin.read(&ReadRequest::all())).unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Unavailable);
    assert!(
        !place.beside("members.db-wal").exists(),
        "closing leaves one file"
    );
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future
            .as_mut()
            .poll(&mut std::task::Context::from_waker(&waker))
        {
            std::task::Poll::Ready(out) => return out,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[tokio::test]
async fn the_baseline_leaves_nothing() {
    let place = Place::new();
    let (table, token) = table_with(&place, 1).await;
    let baseline = table.baseline().unwrap();
    baseline.read().await.unwrap();
    baseline.write().await.unwrap();
    baseline.write().await.unwrap();
    baseline.read().await.unwrap();
    let left = || {
        place.shell().query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%baseline%'",
            [],
            |r| r.get::<_, u32>(0),
        )
    };
    assert_eq!(left().unwrap(), 1);
    assert_eq!(
        read_with(&table, &token).await,
        Ok(ReadAnswer::Unchanged { heartbeats: None }),
        "the table does not see it"
    );
    baseline.remove().await.unwrap();
    baseline.remove().await.unwrap();
    assert_eq!(left().unwrap(), 0);
    baseline.write().await.unwrap();
    baseline.remove().await.unwrap();
    commit(&table, &update(&token, 0, "still works")).await;
}

#[tokio::test]
async fn a_delete_leaves_nothing_in_the_file() {
    let place = Place::new();
    let (table, _) = table_with(&place, 2).await;
    table.update_i_am_alive(&heartbeat(0, 5)).await.unwrap();
    let text = "the cluster's own".to_owned();
    let cell = HeartbeatWrite::Cluster { text };
    table.update_i_am_alive(&cell).await.unwrap();
    table.delete().await.unwrap();
    for name in ["version", "silo", "heartbeat", "cell"] {
        let count = format!("SELECT count(*) FROM membership_{name}");
        let left: i64 = place
            .shell()
            .query_row(&count, [], |row| row.get(0))
            .unwrap();
        assert_eq!(left, 0, "membership_{name}");
    }
}

/// More rows than two steps of a delete remove.
const MANY: u64 = 2_500;

#[tokio::test]
async fn two_deletes_at_once_both_succeed_and_leave_nothing() {
    let place = Place::new();
    let (table, _) = table_with(&place, MANY).await;
    let other = place.open().await;
    let both = tokio::join!(table.delete(), other.delete());
    assert_eq!(both, (Ok(()), Ok(())));
    let select = "SELECT (SELECT count(*) FROM membership_silo) + count(*) FROM membership_version";
    let left: i64 = place
        .shell()
        .query_row(select, [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

/// After the first step of a delete another one takes the rest, and the cluster is created again:
/// the trigger does both before the second step can begin, with the rows of another cluster.
#[tokio::test]
async fn a_delete_leaves_a_cluster_that_was_created_again_between_its_steps() {
    let place = Place::new();
    let (table, _) = table_with(&place, MANY).await;
    let next = place.open_as("next").await.unwrap();
    initialize(&next).await.unwrap();
    let (start, _) = read(&next).await;
    commit(&next, &insert(&start.token, MANY..MANY + 3)).await;
    let (expected, _) = read(&next).await;

    let shell = place.shell();
    let select = "SELECT cluster FROM membership_version WHERE cluster LIKE '%' || ?1 || '%'";
    let key = |name: &str| {
        shell
            .query_row(select, [name], |row| row.get::<_, String>(0))
            .unwrap()
    };
    let (blue, next) = (key("blue"), key("next"));
    let left = MANY - 1_000;
    shell
        .execute_batch(&format!(
            "CREATE TRIGGER another AFTER DELETE ON membership_silo
             WHEN (SELECT count(*) FROM membership_silo WHERE cluster = '{blue}') = {left} BEGIN
                 DELETE FROM membership_silo WHERE cluster = '{blue}';
                 UPDATE membership_silo SET cluster = '{blue}' WHERE cluster = '{next}';
                 DELETE FROM membership_version WHERE cluster = '{blue}';
                 UPDATE membership_version SET cluster = '{blue}' WHERE cluster = '{next}';
             END"
        ))
        .unwrap();
    table.delete().await.unwrap();
    let (now, _) = read(&place.open().await).await;
    assert_eq!(now, expected);
}
