//! A server whose data is replaced by an older copy while clients know newer versions, as after a
//! restored backup, or a loss of power that took what was not flushed. T16.
//!
//! Whatever the store counts (revisions, sequences, indexes, versions of a key) goes back with the
//! data. The same requests then give other commits the numbers that clients remember.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance_tests::helpers::{commit, fill, insert, read, unique};
use conformance_tests::servers::Store;
use membership_core::{
    ClusterName, CommitOutcome, CommitRequest, MembershipTable, NextStep, ReadRequest, TableError,
    TableErrorKind, VersionToken,
};

use crate::Server;

/// How many commits the copy lacks, and how many the restored table then gets.
const COMMITS: u64 = 5;
/// How long a client may take to be served again.
const PATIENCE: Duration = Duration::from_secs(60);

/// A copy of a server's data. Dropping it removes the copy, which is beside the data.
#[derive(Debug)]
pub struct DataCopy {
    data: PathBuf,
    copy: PathBuf,
}

impl DataCopy {
    /// Stops the server in order, copies its data, and starts it again.
    ///
    /// # Panics
    /// If anything fails.
    pub async fn of(server: &Server) -> Self {
        let folder = server.folder().unwrap();
        let copy = Self {
            data: folder.join("data"),
            copy: folder.join("copy"),
        };
        server.stop().await.unwrap();
        run("cp", &["-a"], &[&copy.data, &copy.copy]);
        server.start_again().await.unwrap();
        copy
    }

    /// Kills the server, replaces its data by the copy, and starts it again.
    ///
    /// # Panics
    /// If anything fails.
    pub async fn restore(&self, server: &Server) {
        server.kill().await.unwrap();
        run("rm", &["-rf"], &[&self.data]);
        run("cp", &["-a"], &[&self.copy, &self.data]);
        server.start_again().await.unwrap();
    }
}

fn run(program: &str, options: &[&str], paths: &[&PathBuf]) {
    let done = Command::new(program).args(options).args(paths).status();
    assert!(done.unwrap().success(), "{program} {options:?} {paths:?}");
}

/// Repeats a request until it is answered with something else than that the server is away.
async fn answered<T>(mut ask: impl AsyncFnMut() -> Result<T, TableError>) -> Result<T, TableError> {
    let began = Instant::now();
    loop {
        match ask().await {
            Err(e) if e.next_step() != NextStep::GiveUp && began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}

/// How long idle clients may take to connect again by themselves.
const RECONNECTED: Duration = Duration::from_secs(2);

/// Two clients that know a version that the copy lacks.
struct Stale {
    reader: Arc<dyn MembershipTable>,
    committer: Arc<dyn MembershipTable>,
    known: VersionToken,
}

impl Stale {
    /// No read takes another table for the known one, and no commit on the known version lands.
    async fn are_told(&self, round: u64) {
        let what = |who: &str| format!("round {round}, {who} at version {}", self.known.version());
        let mut request = insert(&self.known, [1_000 + round]);
        let answer = answered(async || {
            let answer = self.committer.commit(&request).await;
            if matches!(&answer, Err(e) if e.next_step() == NextStep::FindOut) {
                request = CommitRequest::again(&request);
            }
            answer
        });
        match answer.await {
            Ok(CommitOutcome::Conflict(_)) => {}
            Err(e) if is_told(&e) => {}
            other => panic!("{}: the commit comes to {other:?}", what("committer")),
        }
        for heartbeats in [false, true] {
            let mut all = ReadRequest::all().with_known(self.known.clone());
            all.heartbeats = heartbeats;
            match answered(async || self.reader.read(&all).await).await {
                Err(e) if is_told(&e) => {}
                other => panic!("{}: the read comes to {other:?}", what("reader")),
            }
        }
    }
}

fn is_told(e: &TableError) -> bool {
    use TableErrorKind::{TableReplaced, TableRolledBack};
    matches!(e.kind(), TableReplaced | TableRolledBack)
}

/// Requires of the clients of this server, which must be the test's own: after its data was replaced
/// by an older copy, clients that know a newer version are told so, whatever the older one has got
/// since, and no commit of theirs lands.
///
/// # Panics
/// If a client takes the restored table for the one that it knew.
pub async fn older_data_is_told<S: Store>(store: &S, server: &Server) {
    let name = format!("restored/{}", unique());
    let cluster: ClusterName = name.parse().unwrap();
    let connect = async || answered(async || store.connect(server.url(), &cluster).await).await;
    let table = connect().await.unwrap();
    let mut token = fill(&*table, 3).await;
    let copy = DataCopy::of(server).await;
    // The same requests in both lives: each number that the store counts comes twice.
    let first = connect().await.unwrap();
    let mut stale = Vec::new();
    for round in 0..COMMITS {
        token = commit(&*first, &insert(&token, [100 + round])).await;
        let (reader, committer) = (connect().await.unwrap(), connect().await.unwrap());
        for client in [&reader, &committer] {
            let (snapshot, _) = read(&**client).await;
            assert!(snapshot.token.same_commit(&token));
        }
        stale.push(Stale {
            reader,
            committer,
            known: token.clone(),
        });
    }
    copy.restore(server).await;
    // Clients that connect again by themselves do so, and remember what they know.
    tokio::time::sleep(RECONNECTED).await;
    let second = connect().await.unwrap();
    let (mut now, _) = read(&*second).await;
    assert_eq!(
        now.version() + COMMITS,
        token.version(),
        "the copy is older"
    );
    for round in 1..=COMMITS {
        let request = insert(&now.token, [200 + round]);
        let token = commit(&*second, &request).await;
        now = request.apply_to(&now, token);
        // Those of this very version ask for the first time: they are the ones that may be fooled.
        for stale in stale.iter().take(usize::try_from(round).unwrap()).rev() {
            stale.are_told(round).await;
        }
        let (after, _) = read(&*second).await;
        assert_eq!(after, now, "round {round}: the stale clients changed it");
    }
    second.delete().await.unwrap();
}
