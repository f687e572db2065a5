//! Three members: one is down, one hangs, or there is no majority. Clauses T4, T5, T13.

use std::time::{Duration, Instant};

use membership_core::{CommitOutcome, MembershipTable, TableErrorKind};

use crate::support::*;
use conformance_tests::helpers::*;

#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_suffice_and_one_does_not() {
    let cluster = three_members().await;
    let table = connect(&format!(
        "{}/?operation_timeout=3s&connect_timeout=1s",
        cluster.url()
    ))
    .await
    .unwrap();
    let mut token = fill(&table, 3).await;
    // Whichever member is down, the others answer. A request to an unreachable member was not
    // carried out.
    for n in 0..3 {
        cluster.servers()[n].kill().await.unwrap();
        until("the others serve", async || {
            read_kind(&table, Some(&token)).await.is_ok()
        })
        .await;
        let request = insert(&token, [10 + n as u64]);
        token = match table.commit(&request).await {
            Ok(CommitOutcome::Committed(token)) => token,
            Ok(other) => panic!("{other:?}"),
            // The leader was killed, and the election of the next one was under way.
            Err(e) => {
                assert!(
                    matches!(
                        e.kind(),
                        TableErrorKind::OutcomeUnknown | TableErrorKind::Unavailable
                    ),
                    "{e}"
                );
                until("the others write", async || {
                    table.commit(&request.again()).await.is_ok()
                })
                .await;
                commit(&table, &request.again()).await
            }
        };
        cluster.servers()[n].start_again().await.unwrap();
    }
    assert_eq!(read(&table).await.0.version(), token.version());

    // A member without a majority neither answers a read with old data, nor reports a write as
    // done.
    let leader = cluster.leader_but(None).await.unwrap();
    for n in (0..3).filter(|n| *n != leader) {
        cluster.servers()[n].kill().await.unwrap();
    }
    let one = format!(
        "etcd://root:{SECRET}@{}?operation_timeout=3s",
        cluster.servers()[leader].address()
    );
    let request = insert(&token, [20]);
    assert_eq!(
        read_kind(&table, Some(&token)).await,
        Err(TableErrorKind::Unavailable)
    );
    let kind = commit_kind(&table, &request).await;
    assert!(
        matches!(
            kind,
            TableErrorKind::OutcomeUnknown | TableErrorKind::Unavailable
        ),
        "{kind:?}"
    );
    if let Ok(alone) = connect(&one).await {
        assert_eq!(
            read_kind(&alone, Some(&token)).await,
            Err(TableErrorKind::Unavailable)
        );
    }
    // Once it knows that it has no followers, it says so at once, and clients need not wait for it.
    until("the member knows that it is alone", async || {
        let error = table.read_row(&silo(1), None).await.unwrap_err();
        assert_eq!(error.kind(), TableErrorKind::Unavailable, "{error}");
        format!("{error}").contains("no leader") || format!("{error}").contains("cannot be reached")
    })
    .await;
    let began = Instant::now();
    let refused = commit_kind(&table, &insert(&token, [21])).await;
    assert_eq!(
        refused,
        TableErrorKind::Unavailable,
        "refused before it was proposed: certainly not done"
    );
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    cluster.set_running(true).await.unwrap();
    until("all are back", async || {
        read_kind(&table, None).await.is_ok()
    })
    .await;
    let made = commit(&table, &request.again()).await;
    assert_eq!(made.version(), token.version() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_member_delays_reads_and_leaves_writes_unknown() {
    let cluster = three_members().await;
    let leader = cluster.leader_but(None).await.unwrap();
    // A follower, which is asked first.
    let slow = (leader + 1) % 3;
    let order =
        [slow, leader, (leader + 2) % 3].map(|n| cluster.servers()[n].address().to_string());
    let slow_one = order[0].clone();
    let hosts = order.join(",");
    let url = format!("etcd://root:{SECRET}@{hosts}/?operation_timeout=6s");
    let (table, other) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
    let token = fill(&table, 3).await;
    cluster.servers()[slow].pause().await.unwrap();
    // The read spends a part of the time on the member that hangs, and the rest on the others.
    read(&table).await;
    // From now on that member is not asked first any more.
    let mut request = insert(&token, [5]);
    let token = loop {
        match table.commit(&request).await {
            Ok(CommitOutcome::Committed(token)) => break token,
            Ok(other) => panic!("{other:?}"),
            // On a busy machine a leader may be considered missing although it runs.
            Err(e) => assert_ne!(e.place(), Some(slow_one.as_str()), "{e}"),
        }
        request = request.again();
    };
    // A write that was sent to it may be carried out when it continues, so no other member gets the
    // write.
    assert_eq!(
        commit_kind(&other, &insert(&token, [6])).await,
        TableErrorKind::OutcomeUnknown
    );
    cluster.servers()[slow].resume().await.unwrap();
    until("it is settled", async || {
        read_kind(&other, None).await.is_ok()
    })
    .await;
    let version = read(&other).await.0.version();
    assert!(
        version == token.version() || version == token.version() + 1,
        "{version}"
    );
}
