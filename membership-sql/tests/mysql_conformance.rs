//! The suite that every provider runs, over MariaDB, with and without the stored procedure; and the process that it kills.
#![cfg(feature = "mysql")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "support/mysql.rs"]
mod support;

use conformance_tests::{Suite, child};
use support::{MariaDb, URL, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mariadb() {
    let report = Suite::new(MariaDb::start("procedure=never").await)
        .run()
        .await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mariadb_with_the_procedure() {
    let backend = MariaDb::start("procedure=require").await;
    backend.make_procedure().await;
    let report = Suite::new(backend).run().await;
    assert!(report.passed(), "{report}");
}

/// Does nothing unless it is the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Ok(url)) = (child::cluster(), std::env::var(URL)) {
        child::run(&*open(&url, &cluster).await.unwrap()).await;
    }
}
