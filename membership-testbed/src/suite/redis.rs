//! Several servers of Redis or Valkey together, under the conformance suite: a [`Cluster`] of three
//! masters, and a master with a replica and a sentinel, [`Watched`]. Clients find them by the
//! addresses that they announce, and these are a proxy's.
#![allow(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

mod cluster;
mod sentinel;

pub use cluster::{Cluster, owner};
pub use sentinel::{MASTER, Watched};

use conformance_tests::helpers::until;
use membership_fault_proxy::Proxy;

use super::own_server;
use crate::launch::redis_call;
use crate::{Kind, Options, Server};

/// A master does not wait for more replicas before it sends its data.
const AT_ONCE: &[&str] = &["--repl-diskless-sync-delay", "0"];
/// A server keeps what it has acknowledged.
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// One command by an administrator; the answer as text, and of a list the number of its entries.
async fn ask(server: &Server, line: &[&str]) -> String {
    match try_ask(server, line).await {
        Ok(answer) => answer,
        Err(error) => panic!("{line:?} at {}: {error}", server.address()),
    }
}

/// The same of a server that may close the connection: a sentinel that gives it another master does
/// that.
async fn try_ask(server: &Server, line: &[&str]) -> std::io::Result<String> {
    let address = server.address();
    let words: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
    let asked = tokio::task::spawn_blocking(move || redis_call(address, &words));
    asked.await.unwrap()
}

/// A server of one test alone, with these arguments.
async fn server(kind: Kind, args: &[&str]) -> Server {
    own_server(kind, args, Options::default()).await
}

/// A proxy with so many addresses.
fn proxy(addresses: usize) -> Proxy {
    let any = ([127, 0, 0, 1], 0).into();
    let proxy = Proxy::on(any, None).unwrap();
    for _ in 1..addresses {
        proxy.also(any, None).unwrap();
    }
    proxy
}

/// A replica of a server, with more arguments; follows it already.
///
/// # Panics
/// When it does not start, or does not follow within two minutes.
pub async fn replica_of(master: &Server, more: &[&str]) -> Server {
    let port = master.address().port().to_string();
    let args = [&["--replicaof", "127.0.0.1", &port], AT_ONCE, more].concat();
    let replica = server(master.kind(), &args).await;
    in_step(&replica).await;
    replica
}

/// Waits until a replica follows its master.
///
/// # Panics
/// When it does not within two minutes.
pub async fn in_step(replica: &Server) {
    until("a replica follows", async || follows(replica).await).await;
}

/// Whether a replica follows its master now.
async fn follows(replica: &Server) -> bool {
    let info = try_ask(replica, &["INFO", "replication"]).await;
    info.is_ok_and(|info| info.contains("master_link_status:up"))
}

/// A number from what a server says of its replication.
///
/// # Panics
/// When the server does not answer, or does not name the field.
pub async fn replication(server: &Server, field: &str) -> u64 {
    let info = ask(server, &["INFO", "replication"]).await;
    let number = |line: &str| {
        let number = line.trim().strip_prefix(field)?.strip_prefix(':')?;
        number.parse().ok()
    };
    info.lines().find_map(number).unwrap()
}

/// Waits until this replica has what this master has now.
///
/// # Panics
/// When it has not within two minutes.
pub async fn caught_up(replica: &Server, master: &Server) {
    let due = replication(master, "master_repl_offset").await;
    until("the replica has caught up", async || {
        replication(replica, "slave_repl_offset").await >= due
    })
    .await;
}

/// From here on replicas hear nothing of this master any more: it has cut them off, and does not
/// take them back.
///
/// # Panics
/// When it still has replicas after two minutes.
pub async fn cut_off(master: &Server) {
    ask(master, &["ACL", "SETUSER", "default", "-psync", "-sync"]).await;
    ask(master, &["CLIENT", "KILL", "TYPE", "replica"]).await;
    until("the replicas are cut off", async || {
        replication(master, "connected_slaves").await == 0
    })
    .await;
}
