//! A client that is killed in the middle of its commits.
//!
//! The suite starts a process with the command of [`Backend::child`](crate::Backend::child), kills
//! it at a random moment, and checks that the table is whole and holds every commit that the
//! process reported. In the provider's tests that process is usually the test program itself, with
//! one test that does nothing unless it runs in such a process:
//!
//! ```no_run
//! use conformance_tests::child;
//! # use std::sync::Arc;
//! # use membership_core::{MembershipTable, MemoryTable};
//! # async fn connect(cluster: &membership_core::ClusterName) -> Arc<dyn MembershipTable> {
//! #     Arc::new(MemoryTable::new(cluster.clone()))
//! # }
//! // #[tokio::test]
//! async fn crash_child() {
//!     if let Some(cluster) = child::cluster() {
//!         // The parent passes the store's address in another environment variable.
//!         child::run(&*connect(&cluster).await).await;
//!     }
//! }
//!
//! // In the backend:
//! fn child(cluster: &membership_core::ClusterName) -> Result<std::process::Command, conformance_tests::Stop> {
//!     let mut command = child::this_test("crash_child", cluster)?;
//!     command.env("MY_STORE", "where it is");
//!     Ok(command)
//! }
//! ```

use std::io::Write;
use std::process::Command;

use membership_core::{
    ClusterName, CommitId, CommitOutcome, CommitRequest, MembershipEntry, MembershipTable,
    ReadAnswer, ReadRequest,
};

use crate::Stop;

/// The environment variable that makes a process a child.
const CLUSTER: &str = "MEMBERSHIP_CONFORMANCE_CHILD";
/// The beginning of each line for the parent.
pub(crate) const MARK: &str = "conformance-child ";

/// The cluster to commit to, if this process is such a child.
#[must_use]
pub fn cluster() -> Option<ClusterName> {
    std::env::var(CLUSTER).ok()?.parse().ok()
}

/// The command that runs this test program again, with only this test, as a child for this cluster.
///
/// # Errors
/// The path of the running program cannot be found out.
pub fn this_test(test: &str, cluster: &ClusterName) -> Result<Command, Stop> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CLUSTER, cluster.to_string());
    Ok(command)
}

/// The command that runs this program again with these arguments, as a child for this cluster. The
/// new process calls [`cluster`], then [`run`].
///
/// # Errors
/// As [`this_test`].
pub fn this_program(args: &[&str], cluster: &ClusterName) -> Result<Command, Stop> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).env(CLUSTER, cluster.to_string());
    Ok(command)
}

/// Commits to the table until the process is killed. Each commit writes one mark into every row,
/// inserts a row and removes one. Reports each committed version on standard output. Returns only
/// if the table cannot be used.
pub async fn run(table: &dyn MembershipTable) {
    if let Err(why) = commits(table).await {
        report(&format!("stopped {why:?}"));
    }
}

async fn commits(table: &dyn MembershipTable) -> Result<(), Stop> {
    loop {
        let ReadAnswer::Snapshot { snapshot, .. } = table.read(&ReadRequest::all()).await? else {
            return Err(Stop::failed(
                "a read without a known version was answered with unchanged",
            ));
        };
        let mut rows: Vec<MembershipEntry> = snapshot.rows.entries().cloned().collect();
        let mut token = snapshot.token;
        loop {
            if rows.is_empty() {
                return Err(Stop::failed("no rows"));
            }
            let removed = rows.remove(0);
            let version = token.version() + 1;
            let mut inserted = removed.clone();
            inserted.address = removed.address.with_epoch(version);
            for row in rows.iter_mut().chain([&mut inserted]) {
                row.info.role = format!("mark {version}");
            }
            let id = CommitId::new(u128::from(std::process::id()) << 64 | u128::from(version));
            let request = CommitRequest::new(
                token.clone(),
                id,
                None,
                [inserted.clone()],
                rows.iter().cloned(),
                [removed.address.row_key()],
            );
            match table.commit(&request).await {
                Ok(CommitOutcome::Committed(next)) => token = next,
                // Another client committed, or the store is busy: read again.
                Ok(_) | Err(_) => break,
            }
            rows.push(inserted);
            report(&format!("committed {}", token.version()));
        }
    }
}

fn report(text: &str) {
    let mut out = std::io::stdout().lock();
    // If the output is closed, the parent needs no more lines.
    let _ = writeln!(out, "\n{MARK}{text}").and_then(|()| out.flush());
}
