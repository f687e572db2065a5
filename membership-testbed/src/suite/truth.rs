//! A server that is killed or frozen at any moment between requests and answers, under several
//! writers: what they are told of each commit is true. T2, T5, T13.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of tests, which prints what it measures"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conformance_tests::helpers::{fill, heartbeat, insert, read, silo, unique};
use conformance_tests::servers::{Store, with_options};
use membership_core::{
    ClusterName, CommitOutcome, MembershipTable, NextStep, ReadAnswer, ReadRequest, TableError,
};
use tokio::time::sleep;

use crate::Server;

/// How many commit at the same time.
const WRITERS: u64 = 4;
/// What a client may add to its operation's timeout on a busy machine.
const SLACK: Duration = Duration::from_secs(20);

/// What a writer was told of the commit that inserts this silo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Happened,
    DidNot,
    MayHave,
}

/// What one writer was told: of each commit, and the last heartbeat that was acknowledged.
#[derive(Default)]
struct Diary {
    commits: Vec<(u64, Told, String)>,
    beat: u64,
}

/// Commits and beats until it is told to stop.
async fn write(
    table: Arc<dyn MembershipTable>,
    writer: u64,
    next: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> Diary {
    let mut diary = Diary::default();
    let mut counter = 0;
    while !stop.load(Ordering::Relaxed) {
        counter += 1;
        if table
            .update_i_am_alive(&heartbeat(writer, counter))
            .await
            .is_ok()
        {
            diary.beat = counter;
        }
        let base = match table.read(&ReadRequest::default()).await {
            Ok(ReadAnswer::Snapshot { snapshot, .. }) => snapshot.token,
            Ok(other) => panic!("{other:?}"),
            Err(e) => {
                goes_on(&e);
                sleep(Duration::from_millis(5)).await;
                continue;
            }
        };
        let n = next.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let answer = table.commit(&insert(&base, [n])).await;
        assert!(
            began.elapsed() < SLACK,
            "a commit took {:?}",
            began.elapsed()
        );
        let said = format!("{answer:?}").chars().take(300).collect();
        let told = match &answer {
            Ok(CommitOutcome::Committed(_)) => Told::Happened,
            Ok(_) => Told::DidNot,
            Err(e) => {
                goes_on(e);
                match e.next_step() {
                    NextStep::FindOut => Told::MayHave,
                    _ => Told::DidNot,
                }
            }
        };
        diary.commits.push((n, told, said));
    }
    diary
}

/// Nothing has happened after which a silo must give up.
fn goes_on(e: &TableError) {
    assert_ne!(e.next_step(), NextStep::GiveUp, "{e}");
}

/// A moment that differs from turn to turn: after so many thousandths of a second.
async fn moment(turn: u64) {
    sleep(Duration::from_micros(30_000 + turn * 7_919 % 23_000)).await;
}

/// Requires of the clients of this server, which must be the test's own and keep what it
/// acknowledges: while it is killed `kills` times and frozen `freezes` times for longer than every
/// timeout, what was told to have happened is in the table, and what was told not to have happened
/// is not, also when all late requests have arrived.
///
/// # Panics
/// If a client was told what is not true.
pub async fn answers_are_true<S: Store>(store: &S, server: &Server, kills: u64, freezes: u64) {
    let name = format!("truth/{}", unique());
    let cluster: ClusterName = name.parse().unwrap();
    let hasty = with_options(server.url(), store.short_timeouts());
    let judge = store.connect(server.url(), &cluster).await.unwrap();
    fill(&*judge, WRITERS).await;
    let (next, stop) = (
        Arc::new(AtomicU64::new(1_000)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let table = store.connect(&hasty, &cluster).await.unwrap();
        writers.push(tokio::spawn(write(
            table,
            writer,
            next.clone(),
            stop.clone(),
        )));
    }
    for turn in 0..kills {
        moment(turn).await;
        server.kill().await.unwrap();
        server.start_again().await.unwrap();
        served(&*judge).await;
    }
    for turn in 0..freezes {
        moment(turn).await;
        server.pause().await.unwrap();
        // Twice the longest operation of these clients.
        sleep(Duration::from_secs(5)).await;
        server.resume().await.unwrap();
        served(&*judge).await;
    }
    moment(0).await;
    stop.store(true, Ordering::Relaxed);
    let mut diaries = Vec::new();
    for writer in writers {
        diaries.push(writer.await.unwrap());
    }
    // What is late arrives.
    sleep(Duration::from_secs(1)).await;
    let (now, heartbeats) = read(&*judge).await;
    let mut counts = [0; 3];
    for (writer, diary) in (0..).zip(&diaries) {
        for (n, told, said) in &diary.commits {
            let there = now.rows.row(&silo(*n)).is_some();
            match told {
                Told::Happened => assert!(there, "silo {n} is missing: {said}"),
                Told::DidNot => assert!(!there, "silo {n} is there: {said}"),
                Told::MayHave => {}
            }
            counts[*told as usize] += 1;
        }
        let stored = heartbeats
            .silos
            .get(&silo(writer))
            .map_or(0, |beat| beat.counter);
        assert!(
            stored >= diary.beat,
            "writer {writer} beat {}, stored is {stored}",
            diary.beat
        );
    }
    println!(
        "{kills} kills, {freezes} freezes: {} happened, {} did not, {} may have",
        counts[0], counts[1], counts[2]
    );
    assert!(counts[0] > 0, "no commit succeeded");
    assert_eq!(
        now.version(),
        now.rows.len() as u64 - WRITERS + 1,
        "each commit has one row"
    );
    judge.delete().await.unwrap();
}

async fn served(judge: &dyn MembershipTable) {
    let began = Instant::now();
    while let Err(e) = judge.read(&ReadRequest::default()).await {
        assert!(began.elapsed() < 3 * SLACK, "{e}");
        sleep(Duration::from_millis(20)).await;
    }
}
