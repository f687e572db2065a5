//! The suite that every provider runs, over SQLite files in a temporary directory; and the process
//! that the suite kills.
#![cfg(feature = "sqlite")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Backend, Capability, Checkpoint, Reason, Stop, Suite, child};
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_sql::{SqliteConfig, SqliteTable};
use rusqlite::types::Value;

/// Where the killed process finds the file.
const PATH: &str = "MEMBERSHIP_SQL_TEST_FILE";
const TABLES: [&str; 4] = [
    "membership_version",
    "membership_silo",
    "membership_heartbeat",
    "membership_cell",
];

type Saved = Vec<(&'static str, Vec<Vec<Value>>)>;

struct Sqlite {
    dir: tempfile::TempDir,
}

impl Sqlite {
    fn path(&self) -> PathBuf {
        self.dir.path().join("members.db")
    }

    /// Another program that has the file open.
    fn shell(&self) -> Result<rusqlite::Connection, Stop> {
        let shell = rusqlite::Connection::open(self.path())?;
        shell.busy_timeout(Duration::from_secs(10))?;
        Ok(shell)
    }
}

async fn open(
    path: PathBuf,
    cluster: &ClusterName,
) -> Result<Arc<dyn MembershipTable>, TableError> {
    Ok(Arc::new(
        SqliteTable::connect(SqliteConfig::new(path), cluster.clone()).await?,
    ))
}

#[async_trait]
impl Backend for Sqlite {
    fn name(&self) -> String {
        "sqlite".to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        open(self.path(), cluster).await
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[
            (Capability::Restart, Reason::NoServer),
            (Capability::Unavailable, Reason::NoServer),
            (Capability::Depose, Reason::NoServer),
            (Capability::Recreate, Reason::NoServer),
            (Capability::Reader, Reason::NoServer),
            (Capability::Secret, Reason::NoSecret),
            (Capability::Proxy, Reason::NoServer),
            (Capability::Hints, Reason::NoHints),
        ]
    }

    async fn put_row(&self, cluster: &ClusterName, key: &str, body: &str) -> Result<(), Stop> {
        let sql = "INSERT OR REPLACE INTO membership_silo (cluster, silo, status, written_at, body) VALUES (?1, ?2, '', 0, ?3)";
        self.shell()?
            .execute(sql, [&cluster.store_key(), key, body])?;
        Ok(())
    }

    async fn put_version_row(&self, cluster: &ClusterName, text: &str) -> Result<(), Stop> {
        let sql =
            "INSERT INTO membership_version (cluster, name, version, body) VALUES (?1, ?1, 0, ?2)
                   ON CONFLICT DO UPDATE SET body = excluded.body";
        self.shell()?.execute(sql, [&cluster.store_key(), text])?;
        Ok(())
    }

    async fn drop_row(&self, cluster: &ClusterName, key: &str) -> Result<(), Stop> {
        let sql = "DELETE FROM membership_silo WHERE cluster = ?1 AND silo = ?2";
        self.shell()?.execute(sql, [&cluster.store_key(), key])?;
        Ok(())
    }

    async fn drop_version_row(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.shell()?.execute(
            "DELETE FROM membership_version WHERE cluster = ?1",
            [cluster.store_key()],
        )?;
        Ok(())
    }

    async fn wipe(&self, cluster: &ClusterName) -> Result<(), Stop> {
        self.restore(cluster, &(Box::new(Saved::new()) as Checkpoint))
            .await
    }

    async fn count(&self, cluster: &ClusterName) -> Result<usize, Stop> {
        let saved = self.save(cluster).await?;
        let saved = saved.downcast_ref::<Saved>();
        Ok(saved
            .into_iter()
            .flatten()
            .map(|(_, rows)| rows.len())
            .sum())
    }

    async fn save(&self, cluster: &ClusterName) -> Result<Checkpoint, Stop> {
        let mut shell = self.shell()?;
        let tx = shell.transaction()?;
        let mut saved = Saved::new();
        for table in TABLES {
            let mut all = tx.prepare(&format!("SELECT * FROM {table} WHERE cluster = ?1"))?;
            let columns = all.column_count();
            let rows = all.query_map([cluster.store_key()], |row| {
                (0..columns).map(|i| row.get(i)).collect()
            })?;
            saved.push((table, rows.collect::<Result<_, _>>()?));
        }
        Ok(Box::new(saved))
    }

    async fn restore(&self, cluster: &ClusterName, saved: &Checkpoint) -> Result<(), Stop> {
        let saved = saved
            .downcast_ref::<Saved>()
            .ok_or_else(|| Stop::failed("another backend's checkpoint"))?;
        let mut shell = self.shell()?;
        let tx = shell.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        for table in TABLES {
            tx.execute(
                &format!("DELETE FROM {table} WHERE cluster = ?1"),
                [cluster.store_key()],
            )?;
        }
        for (table, rows) in saved {
            for row in rows {
                let marks = vec!["?"; row.len()].join(",");
                tx.execute(
                    &format!("INSERT INTO {table} VALUES ({marks})"),
                    rusqlite::params_from_iter(row),
                )?;
            }
        }
        Ok(tx.commit()?)
    }

    fn child(&self, cluster: &ClusterName) -> Result<Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command.env(PATH, self.path());
        Ok(command)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conformance() {
    let report = Suite::new(Sqlite {
        dir: tempfile::tempdir().unwrap(),
    })
    .run()
    .await;
    assert!(report.passed(), "{report}");
}

/// Does nothing unless this process is the one that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Some(path)) = (child::cluster(), std::env::var_os(PATH)) {
        child::run(&*open(path.into(), &cluster).await.unwrap()).await;
    }
}
