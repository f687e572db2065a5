//! A document table over a file that several processes share. One test runs the suite, with kills
//! of the client process. The other writes the file in two halves, and the kills must reveal that.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::{Backend, Capability, Reason, Stop, Suite, child};
use membership_core::{
    ClusterName, DocumentRead, DocumentStore, DocumentTable, Durability, Guarantees, Heartbeat,
    Heartbeats, MembershipTable, Operation, Recency, Revision, SiloAddress, Stored, TableError,
    TableErrorKind, TableLimits,
};

/// The directory for the killed process, and whether it writes in halves.
const PLACE: &str = "MEMBERSHIP_TEST_FILES";
const TORN: &str = "MEMBERSHIP_TEST_TORN";

/// One cluster's document in a file: a line with its revision, then its text.
struct Document {
    dir: PathBuf,
    name: String,
    torn: bool,
}

fn failed(e: std::io::Error) -> TableError {
    TableError::new(
        TableErrorKind::Unavailable,
        Operation::Read,
        "file",
        "the file cannot be used",
    )
    .with_source(e)
}

impl Document {
    fn path(&self, end: &str) -> PathBuf {
        self.dir.join(format!("{}.{end}", self.name))
    }

    /// Locks the file for one process. The lock ends when the file is closed, also by a kill.
    fn lock(&self) -> Result<File, TableError> {
        let lock = File::create(self.path("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(lock)
    }

    fn now(&self) -> Option<(Revision, String)> {
        let text = fs::read_to_string(self.path("document")).ok()?;
        let (revision, text) = text.split_once('\n').unwrap_or(("", ""));
        Some((Revision(revision.as_bytes().to_vec()), text.to_owned()))
    }

    fn replace(&self, end: &str, text: &str) -> Result<(), TableError> {
        if self.torn {
            let mut file = File::create(self.path(end)).map_err(failed)?;
            let (first, second) = text.as_bytes().split_at(text.len() / 2);
            file.write_all(first).map_err(failed)?;
            std::thread::sleep(std::time::Duration::from_millis(1));
            return file.write_all(second).map_err(failed);
        }
        let new = self.path(&format!("{end}-new"));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, self.path(end)))
            .map_err(failed)
    }

    /// Heartbeats: one line each, the cluster's own cell last.
    fn beats(&self) -> Heartbeats {
        let text = fs::read_to_string(self.path("beats")).unwrap_or_default();
        let (lines, cell) = text.split_once("\n\n").unwrap_or((&text, ""));
        let silos = lines
            .lines()
            .filter_map(|l| l.split_once(' '))
            .filter_map(|(s, b)| Some((s.parse().ok()?, b.parse().ok()?)));
        Heartbeats::new(silos.collect(), (!cell.is_empty()).then(|| cell.to_owned()))
    }

    fn change_beats(&self, change: impl FnOnce(&mut Heartbeats)) -> Result<(), TableError> {
        let _lock = self.lock()?;
        let mut beats = self.beats();
        change(&mut beats);
        let lines: Vec<String> = beats
            .silos
            .iter()
            .map(|(silo, beat)| format!("{silo} {beat}"))
            .collect();
        self.replace(
            "beats",
            &format!(
                "{}\n\n{}",
                lines.join("\n"),
                beats.cluster.unwrap_or_default()
            ),
        )
    }
}

#[async_trait]
impl DocumentStore for Document {
    fn store(&self) -> &'static str {
        "file"
    }

    async fn load(
        &self,
        known: Option<&Revision>,
        heartbeats: bool,
        _barrier: bool,
    ) -> Result<DocumentRead, TableError> {
        let _lock = self.lock()?;
        let document = match self.now() {
            None => Stored::None,
            Some((revision, _)) if known == Some(&revision) => Stored::Unchanged,
            Some((revision, text)) => Stored::Document { revision, text },
        };
        Ok(DocumentRead::new(
            document,
            heartbeats.then(|| self.beats()),
        ))
    }

    async fn store_if_unchanged(
        &self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Option<Revision>, TableError> {
        let _lock = self.lock()?;
        if self.now().map(|(revision, _)| revision).as_ref() != expected {
            return Ok(None);
        }
        // The counter outlives the document, so no revision is used twice.
        let count = fs::read_to_string(self.path("count"))
            .ok()
            .and_then(|t| t.parse::<u64>().ok())
            .unwrap_or(0)
            + 1;
        fs::write(self.path("count-new"), count.to_string()).map_err(failed)?;
        fs::rename(self.path("count-new"), self.path("count")).map_err(failed)?;
        self.replace("document", &format!("{count}\n{text}"))?;
        Ok(Some(Revision(count.to_string().into_bytes())))
    }

    async fn remove_if_unchanged(&self, expected: &Revision) -> Result<bool, TableError> {
        let _lock = self.lock()?;
        match self.now() {
            Some((revision, _)) if revision == *expected => {
                fs::remove_file(self.path("document")).map_err(failed)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn put_heartbeat(
        &self,
        silo: &SiloAddress,
        heartbeat: &Heartbeat,
    ) -> Result<(), TableError> {
        self.change_beats(|beats| {
            beats.silos.insert(*silo, *heartbeat);
        })
    }

    async fn put_cluster_cell(&self, text: &str) -> Result<(), TableError> {
        self.change_beats(|beats| beats.cluster = Some(text.to_owned()))
    }

    async fn remove_heartbeats(&self, silos: Option<&[SiloAddress]>) -> Result<(), TableError> {
        self.change_beats(|beats| match silos {
            None => *beats = Heartbeats::default(),
            Some(silos) => beats.silos.retain(|silo, _| !silos.contains(silo)),
        })
    }

    fn document_bytes(&self) -> usize {
        16 << 20
    }

    fn limits(&self) -> TableLimits {
        TableLimits::new(500, 1 << 16, 1 << 22, 20_000)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(Recency::Linearizable, Durability::Kept)
    }
}

fn table(dir: &Path, cluster: &ClusterName, torn: bool) -> Arc<dyn MembershipTable> {
    let hash = format!("{:016x}", cluster.fingerprint());
    Arc::new(DocumentTable::new(
        cluster.clone(),
        Document {
            dir: dir.to_owned(),
            name: hash,
            torn,
        },
    ))
}

struct Files {
    dir: PathBuf,
    torn: bool,
}

#[async_trait]
impl Backend for Files {
    fn name(&self) -> String {
        "file".to_owned()
    }

    async fn client(&self, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
        Ok(table(&self.dir, cluster, self.torn))
    }

    fn not_applicable(&self) -> &'static [(Capability, Reason)] {
        &[(Capability::Restart, Reason::NoServer)]
    }

    fn child(&self, cluster: &ClusterName) -> Result<std::process::Command, Stop> {
        let mut command = child::this_test("crash_child", cluster)?;
        command
            .env(PLACE, &self.dir)
            .env(TORN, self.torn.to_string());
        Ok(command)
    }
}

/// Does nothing unless it runs in the process that the suite kills.
#[tokio::test]
async fn crash_child() {
    if let (Some(cluster), Ok(dir)) = (child::cluster(), std::env::var(PLACE)) {
        let torn = std::env::var(TORN).is_ok_and(|t| t == "true");
        child::run(&*table(Path::new(&dir), &cluster, torn)).await;
    }
}

async fn kill(torn: bool) -> conformance_tests::Report {
    let dir = tempfile::tempdir().unwrap();
    let suite = Suite::new(Files {
        dir: dir.path().to_owned(),
        torn,
    })
    .named("a_killed_client")
    .on_result(|_| {});
    suite.effort(|effort| effort.kills = 40).run().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_replaced_by_renaming_survives_kills() {
    let report = kill(false).await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_written_in_halves_is_caught_by_kills() {
    let report = kill(true).await;
    assert_eq!(report.failures().count(), 1, "{report}");
    assert!(!report.to_string().contains("not end"), "{report}");
}
