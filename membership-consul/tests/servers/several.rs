//! Three servers: one is killed, one is frozen, two are down. Clauses T5 and T13.

use std::time::Duration;

use membership_consul::{ConsulConfig, ConsulTable};
use membership_core::{CommitOutcome, MembershipTable, NextStep, TableErrorKind, VersionToken};
use membership_testbed::{Kind, ServerSet};

use crate::support::*;
use conformance_tests::helpers::*;

async fn commit_somehow(table: &ConsulTable, token: &VersionToken, n: u64) -> VersionToken {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let mut request = insert(token, [n]);
    loop {
        match table.commit(&request).await {
            Ok(CommitOutcome::Committed(token)) => return token,
            Ok(CommitOutcome::Conflict(conflict)) => {
                panic!("there is no other writer: {conflict:?}")
            }
            Err(e) if e.next_step() == NextStep::GiveUp => panic!("{e}"),
            Err(e) => {
                assert!(
                    tokio::time::Instant::now() < deadline,
                    "not within a minute: {e}"
                );
                request = request.again();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_may_be_killed_or_frozen() {
    let three = ServerSet::start(Kind::Consul, 3, Some(SECRET))
        .await
        .unwrap();
    let servers = three.servers();
    let config = ConsulConfig::from_url(&three.url())
        .unwrap()
        .operation_timeout(Duration::from_secs(3));
    let table = ConsulTable::connect(config, blue()).await.unwrap();
    let mut token = fill(&table, 1).await;
    let mut rows = 1;
    for turn in 0..2 {
        let leader = three.leader_but(None).await.unwrap();
        if turn == 0 {
            servers[leader].kill().await.unwrap();
        } else {
            servers[leader].pause().await.unwrap();
        }
        for _ in 0..3 {
            token = commit_somehow(&table, &token, rows).await;
            rows += 1;
        }
        servers[leader].resume().await.unwrap();
        servers[leader].start_again().await.unwrap();
    }
    let (now, _) = read(&table).await;
    assert_eq!((now.rows.len() as u64, &now.token), (rows, &token));

    // Without a majority no read reports a missing table.
    servers[0].kill().await.unwrap();
    servers[1].kill().await.unwrap();
    until("there is no leader", async || {
        let kind = read_kind(&table, None).await;
        assert!(
            matches!(kind, Ok(()) | Err(TableErrorKind::Unavailable)),
            "{kind:?}"
        );
        kind.is_err()
    })
    .await;
    let error = table.commit(&insert(&token, [rows])).await.unwrap_err();
    assert!(
        matches!(
            error.kind(),
            TableErrorKind::Unavailable | TableErrorKind::OutcomeUnknown
        ),
        "{error}"
    );
    tokio::try_join!(servers[0].start_again(), servers[1].start_again()).unwrap();
    until("there is a leader again", async || {
        read_kind(&table, Some(&token)).await.is_ok()
    })
    .await;
}
