//! A thousand calls that are dropped, time out or fail: they leave no connections and no tasks
//! behind, and the client works as soon as the server does. T13, T14.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of tests, which prints what it measures"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance_tests::helpers::{fill, heartbeat, insert, read, unique};
use conformance_tests::servers::{Store, with_options};
use membership_core::{ClusterName, MembershipTable, NextStep, ReadRequest, VersionToken};
use tokio::time::{sleep, timeout};

use crate::Server;

/// How many calls there are in each crowd.
const CALLS: u64 = 1_000;
/// The sockets of clients that send a request over one connection at a time, as HTTP/1.1 does.
pub const ONE_EACH: usize = 1_000;
/// The sockets of clients that share a few connections.
pub const FEW: usize = 16;
/// When the caller of a dropped call loses patience.
const DROPPED: Duration = Duration::from_millis(50);
/// An operation's time.
const LIMIT: Duration = Duration::from_secs(2);
/// What a busy machine may add to it.
const SLACK: Duration = Duration::from_secs(8);
/// Until what is left behind counts as left for good.
const SETTLED: Duration = Duration::from_secs(60);

/// The sockets of this process that are connected with this port, or about to be, and the tasks of this
/// runtime: other tests of the process have sockets, too.
fn in_use(port: u16) -> (usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let mine: BTreeSet<String> = links.map(|to| to.to_string_lossy().into_owned()).collect();
    let remote = format!(":{port:04X}");
    let sockets = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(|list| {
        // A machine without IPv6 has no second list.
        let list = std::fs::read_to_string(list).unwrap_or_default();
        let sockets = list.lines().filter(|line| {
            let mut fields = line.split_ascii_whitespace().skip(2);
            let there = fields.next().is_some_and(|it| it.ends_with(&remote));
            let inode = fields.nth(6).unwrap_or_default();
            there && mine.contains(&format!("socket:[{inode}]"))
        });
        sockets.count()
    });
    let tasks = tokio::runtime::Handle::current().metrics();
    (sockets.iter().sum(), tasks.num_alive_tasks())
}

/// One of the calls: a read, a heartbeat or a commit. Returns whether the answer allows a retry.
async fn call(table: &dyn MembershipTable, token: &VersionToken, n: u64) -> Result<(), NextStep> {
    let answer = match n % 3 {
        0 => table.read(&ReadRequest::all()).await.map(drop),
        1 => table.update_i_am_alive(&heartbeat(1, n)).await,
        _ => table.commit(&insert(token, [10_000 + n])).await.map(drop),
    };
    answer.map_err(|e| e.next_step())
}

/// The calls at the same time, each for at most `patience`; how many sockets there were at most.
async fn crowd(
    table: &Arc<dyn MembershipTable>,
    token: &VersionToken,
    patience: Duration,
    (what, port): (&str, u16),
) -> usize {
    let began = Instant::now();
    let mut calls = Vec::new();
    for n in 0..CALLS {
        let (table, token) = (Arc::clone(table), token.clone());
        calls.push(tokio::spawn(async move {
            timeout(patience, call(&*table, &token, n)).await
        }));
    }
    let mut most = 0;
    for (n, call) in calls.into_iter().enumerate() {
        if n % 50 == 0 {
            most = most.max(in_use(port).0);
        }
        match call.await.unwrap() {
            Err(_) if patience > LIMIT => {
                panic!("{what}: call {n} has not ended after {patience:?}")
            }
            Ok(Err(NextStep::GiveUp)) => panic!("{what}: call {n} says that a retry is useless"),
            _ => {}
        }
    }
    println!(
        "{what}: {CALLS} calls in {:?}, at most {most} sockets",
        began.elapsed()
    );
    most
}

/// Waits until the client works again and no more is in use than before.
async fn recovers(table: &dyn MembershipTable, before: (usize, usize), (what, port): (&str, u16)) {
    let began = Instant::now();
    while let Err(e) = table.read(&ReadRequest::all()).await {
        assert!(began.elapsed() < SETTLED, "{what}: {e}");
        sleep(Duration::from_millis(20)).await;
    }
    let served = began.elapsed();
    loop {
        let now = in_use(port);
        if now.0 <= before.0 + 3 && now.1 <= before.1 + 3 {
            println!(
                "{what}: served after {served:?}, settled after {:?}",
                began.elapsed()
            );
            return;
        }
        assert!(
            began.elapsed() < SETTLED,
            "{what}: sockets and tasks {now:?}, before {before:?}"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// Requires of a client of this server, which must be the test's own: whether a thousand calls are
/// dropped, time out or are refused, each ends in time, they open at most so many `sockets` at once,
/// and leave none.
///
/// # Panics
/// If not.
pub async fn a_thousand_calls_leave_nothing<S: Store>(store: &S, server: &Server, sockets: usize) {
    let name = format!("crowd/{}", unique());
    let cluster: ClusterName = name.parse().unwrap();
    let url = with_options(server.url(), store.short_timeouts());
    let table = store.connect(&url, &cluster).await.unwrap();
    let token = fill(&*table, 3).await;
    for n in 0..2 {
        call(&*table, &token, n).await.unwrap();
    }
    let port = server.address().port();
    let before = in_use(port);
    assert!(before.0 > 0, "no socket leads to port {port}");
    let mut most = Vec::new();
    for (what, patience) in [("dropped", DROPPED), ("late", LIMIT + SLACK)] {
        server.pause().await.unwrap();
        most.push((what, crowd(&table, &token, patience, (what, port)).await));
        server.resume().await.unwrap();
        recovers(&*table, before, (what, port)).await;
    }
    server.crash().await.unwrap();
    most.push((
        "refused",
        crowd(&table, &token, LIMIT + SLACK, ("refused", port)).await,
    ));
    server.start_again().await.unwrap();
    recovers(&*table, before, ("refused", port)).await;
    for (what, most) in most {
        let more = most.saturating_sub(before.0);
        assert!(more <= sockets, "{what}: {more} more sockets at once");
    }
    // All commits were on one version.
    let (after, _) = read(&*table).await;
    let rows = after.rows.len();
    assert!(
        after.version() <= 2 && rows <= 4,
        "version {} with {rows} rows",
        after.version()
    );
    table.delete().await.unwrap();
}
