//! Servers that answer in the place of the right one: of another kind, of another cluster, with
//! other users, replicas, and former masters. Clauses T6, T13 and T16.

use membership_core::{MembershipTable, ReadRequest, TableErrorKind};
use membership_testbed::{Kind, Server};

use crate::support::nodes::{in_step, replica_of};
use crate::support::*;
use conformance_tests::helpers::*;

/// A replica that takes writes loses them with the next synchronisation.
#[tokio::test]
async fn a_replica_that_takes_writes_is_refused() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let master = server(kind, &[]).await;
        fill(&table_on(&master, "").await, 3).await;
        let replica = replica_of(&master, &["--replica-read-only", "no"]).await;
        match connect(replica.url()).await {
            Err(e) => assert_eq!(e.kind(), TableErrorKind::Unavailable, "{e}"),
            Ok(table) => {
                let read = table.read(&ReadRequest::all()).await;
                assert_eq!(read.unwrap_err().kind(), TableErrorKind::Unavailable);
            }
        }
    }
}

/// A server that cannot save, as with a full disk.
async fn cannot_save(server: &Server) {
    shell::<()>(server, &["CONFIG", "SET", "save", "900 1"]).await;
    std::fs::remove_dir_all(server.folder().unwrap()).unwrap();
    until("the server cannot save", async || {
        // It may be saving already.
        let mut raw = raw(server.url()).await.unwrap();
        let _saves = redis::cmd("BGSAVE").exec_async(&mut raw).await;
        let about: String = shell(server, &["INFO", "persistence"]).await;
        about.contains("rdb_last_bgsave_status:err")
    })
    .await;
    std::fs::create_dir_all(server.folder().unwrap()).unwrap();
}

/// Valkey's replicas then say so, and not that they are replicas.
#[tokio::test]
async fn a_replica_that_cannot_save_is_refused_and_a_master_is_read() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let master = server(kind, &[]).await;
        let at_master = table_on(&master, "").await;
        let token = fill(&at_master, 3).await;
        // It becomes a replica under connected clients.
        let replica = server(kind, &[]).await;
        let (reads, rows) = (table_on(&replica, "").await, table_on(&replica, "").await);
        let port = master.address().port().to_string();
        shell::<()>(&replica, &["REPLICAOF", "127.0.0.1", &port]).await;
        in_step(&replica).await;
        for server in [&master, &replica] {
            cannot_save(server).await;
        }
        for known in [None, Some(&token)] {
            let refused = Err(TableErrorKind::Unavailable);
            assert_eq!(read_kind(&reads, known).await, refused);
            let row = rows.read_row(&silo(1), known).await;
            assert_eq!(row.unwrap_err().kind(), TableErrorKind::Unavailable);
            assert_eq!(read_kind(&at_master, known).await, Ok(()));
            at_master.read_row(&silo(1), known).await.unwrap();
        }
        assert_eq!(
            commit_kind(&at_master, &insert(&token, [7])).await,
            TableErrorKind::Unavailable
        );
    }
}
