//! The document of heartbeats does not grow with silos that come and go. Clause T8.

use membership_core::{Heartbeat, HeartbeatWrite};
use mongodb::bson::{Document, doc};

use super::*;

async fn beat(table: &MongoTable, port: u16) {
    let write = HeartbeatWrite::Silo {
        silo: entry(port).address,
        heartbeat: Heartbeat {
            counter: 1,
            at: WallTime::default(),
        },
    };
    table.update_i_am_alive(&write).await.unwrap();
}

/// How many heartbeats are stored.
async fn stored(server: &Server) -> usize {
    let documents = shell(server, "membership").await;
    let documents = documents.collection::<Document>("membership");
    let all = doc! { "beats": { "$exists": true } };
    let found = documents.find_one(all).await.unwrap().unwrap();
    found.get_document("beats").unwrap().len()
}

async fn removal(table: &MongoTable, port: u16) -> CommitRequest {
    let (token, key) = (read(table).await.token, entry(port).address.row_key());
    CommitRequest::new(token, CommitId::new(port.into()), None, [], [], [key])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_of_removed_rows_go() {
    let server = server(&[]).await;
    let table = connect(server.url()).await.unwrap();
    made(&table).await;
    for port in 1..=3 {
        let request = insert(&table, port).await;
        assert!(is_committed(&table.commit(&request).await));
        beat(&table, port).await;
    }
    let first = removal(&table, 1).await;
    assert!(is_committed(&table.commit(&first).await));
    assert_eq!(stored(&server).await, 2);
    // One was still on its way. It goes with the next cleanup.
    beat(&table, 1).await;
    let second = removal(&table, 2).await;
    assert!(is_committed(&table.commit(&second).await));
    assert_eq!(stored(&server).await, 1);
    // The client that removed the row did not come to its heartbeat, and sends its commit again.
    let third = removal(&table, 3).await;
    assert!(is_committed(&table.commit(&third).await));
    beat(&table, 3).await;
    assert!(is_committed(&table.commit(&third.again()).await));
    assert_eq!(stored(&server).await, 0);
}
