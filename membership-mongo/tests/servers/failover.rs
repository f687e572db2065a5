//! Three members whose primary fails. T2, T5, T6, T13, T16.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use membership_core::{
    ClusterKey, CommitId, CommitOutcome, CommitRequest, InitializeRequest, MembershipTable,
    NextStep, ReadAnswer, ReadRequest, Recency, SharedSettings, TableId, VersionToken,
};
use membership_mongo::{MongoConfig, MongoTable};

use crate::support::set::Set;
use crate::{blue, entry};

/// The longest time until a set that has a majority serves again.
const PATIENCE: Duration = Duration::from_secs(120);

async fn client(set: &Set, reads: Recency) -> MongoTable {
    let config = MongoConfig::from_url(&set.servers.url())
        .unwrap()
        .reads(reads)
        .operation_timeout(Duration::from_secs(3));
    MongoTable::connect(config, blue()).await.unwrap()
}

/// Commits one after the other, like a silo; returns the acknowledged tokens. No error requires
/// more than trying again and finding out.
async fn commits(table: MongoTable, port: u16, until: Arc<AtomicBool>) -> Vec<VersionToken> {
    let mut acknowledged = Vec::new();
    let (mut known, mut name, mut there) = (None::<VersionToken>, 0, false);
    while !until.load(Ordering::SeqCst) {
        // The read states the newest known token: a primary that was replaced must not make the
        // table look rolled back.
        let answer = match table
            .read(
                &ReadRequest::all()
                    .with_known(known.clone())
                    .with_heartbeats(false),
            )
            .await
        {
            Ok(answer) => answer,
            Err(e) if e.next_step() == NextStep::Retry => continue,
            Err(e) => panic!("a read is answered with {e}"),
        };
        let token = match answer {
            ReadAnswer::Snapshot { snapshot, .. } => {
                there = snapshot.rows.get(&entry(port).address).is_some();
                snapshot.token
            }
            ReadAnswer::Unchanged { .. } => known.clone().unwrap(),
            other => panic!("{other:?}"),
        };
        name += 1;
        let mut row = entry(port);
        row.info.role = format!("mark {name}");
        let id = CommitId::new(u128::from(port) << 64 | name);
        let mut request = match there {
            false => CommitRequest::new(token, id, None, [row], [], []),
            true => CommitRequest::new(token, id, None, [], [row], []),
        };
        let deadline = Instant::now() + PATIENCE;
        known = loop {
            match table.commit(&request).await {
                Ok(CommitOutcome::Committed(token)) => {
                    there = true;
                    acknowledged.push(token.clone());
                    break Some(token);
                }
                // The next read does not state a known token.
                Ok(CommitOutcome::Conflict(_)) => break None,
                // So many other commits followed that only the rows show the outcome. Commits that
                // were not acknowledged do not count here.
                Err(e)
                    if e.next_step() == NextStep::FindOut && moved_far(&table, &request).await =>
                {
                    break None;
                }
                // The same bytes again, which also finds out the outcome.
                Err(e) if e.next_step() != NextStep::GiveUp && Instant::now() < deadline => {
                    request = request.again()
                }
                Err(e) => panic!("a commit is answered with {e}"),
                Ok(other) => panic!("{other:?}"),
            }
        };
    }
    acknowledged
}

async fn moved_far(table: &MongoTable, request: &CommitRequest) -> bool {
    match table.read(&ReadRequest::all()).await {
        Ok(ReadAnswer::Snapshot { snapshot, .. }) => {
            snapshot.version() > request.expected.version() + 16
        }
        _ => false,
    }
}

/// Four writers commit while the primary fails in some way. Afterwards every acknowledged commit is
/// there, each version once.
async fn under_load(reads: Recency, what: impl AsyncFnOnce(&Set)) {
    let set = Set::start().await;
    let table = client(&set, reads).await;
    table
        .initialize(&InitializeRequest::new(
            TableId::new(7),
            SharedSettings::default(),
            ClusterKey::new([7; 32]),
        ))
        .await
        .unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for port in 1..=4 {
        writers.push(tokio::spawn(commits(
            client(&set, reads).await,
            port,
            done.clone(),
        )));
    }
    // Waits for twenty more commits than at the first read.
    let moves_on = async |what: &str| {
        let (mut from, deadline) = (None, Instant::now() + PATIENCE);
        loop {
            if let Ok(ReadAnswer::Snapshot { snapshot, .. }) = table.read(&ReadRequest::all()).await
            {
                let from = *from.get_or_insert(snapshot.version());
                if snapshot.version() > from + 20 {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "waited for: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    moves_on("commits before anything happens").await;
    what(&set).await;
    moves_on("commits after it").await;
    done.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for writer in writers {
        let tokens = writer.await.unwrap();
        assert!(!tokens.is_empty(), "a writer made no commit");
        acknowledged.extend(tokens);
    }
    let ReadAnswer::Snapshot { snapshot: now, .. } = table.read(&ReadRequest::all()).await.unwrap()
    else {
        panic!("no snapshot")
    };
    let mut versions: Vec<u64> = acknowledged.iter().map(VersionToken::version).collect();
    versions.sort_unstable();
    let count = versions.len();
    versions.dedup();
    assert_eq!(versions.len(), count, "a version was given twice");
    assert!(
        now.version() >= versions.last().copied().unwrap_or(0),
        "the table is at {} and {versions:?} were acknowledged",
        now.version()
    );
    for token in acknowledged
        .iter()
        .filter(|token| token.version() + 15 >= now.version())
    {
        let record = now.version_row.record(token.version());
        assert_eq!(
            record.map(|record| record.id),
            Some(token.commit()),
            "version {} belongs to another commit",
            token.version()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_acknowledged_is_lost_with_the_primary() {
    under_load(Recency::Linearizable, async |set: &Set| {
        let killed = set.servers.kill_leader().await.unwrap();
        set.servers.leader_but(Some(killed)).await.unwrap();
        // Two of three members serve, before the third is there again.
        let table = client(set, Recency::Linearizable).await;
        let barrier = ReadRequest::all().with_barrier(true);
        let deadline = Instant::now() + PATIENCE;
        while let Err(e) = table.read(&barrier).await {
            assert!(
                Instant::now() < deadline,
                "two of three members do not serve: {e}"
            );
        }
        set.servers.start_again(killed).await.unwrap();
    })
    .await;
}

/// When it continues it still believes to be the primary, and there is another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_former_primary_shows_no_client_an_older_table() {
    under_load(Recency::MonotonicPerClient, async |set: &Set| {
        let primary = set.servers.leader_but(None).await.unwrap();
        let member = &set.servers.servers()[primary];
        member.pause().await.unwrap();
        set.servers.leader_but(Some(primary)).await.unwrap();
        member.resume().await.unwrap();
    })
    .await;
}
