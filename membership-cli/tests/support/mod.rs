//! What the tests share: a folder with a table in it, and the program run on it.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

pub mod crowd;
pub mod silos;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use membership_core::{
    CauseOfDeath, ClusterKey, CommitId, CommitOutcome, CommitRequest, Config, Death, Evidence,
    Heartbeat, HeartbeatWrite, InitializeRequest, InstanceId, MembershipEntry, MembershipTable,
    Preset, RollCount, SiloAddress, SiloStatus, Suspicion, SuspicionReason, TableExt, TableId,
    WallTime,
};
use membership_sql::{SqliteConfig, SqliteTable};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_membership");

pub fn now() -> WallTime {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    WallTime::from_millis(u64::try_from(since.as_millis()).unwrap())
}

pub fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Where the table of one cluster is: in a file of a folder that is removed when the test ends, or
/// in an external store.
pub struct Place {
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    url: String,
    cluster: String,
}

/// The result of a run of the program.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The standard output as one JSON value.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.err.contains("panicked"), "{self:#?}");
        // A failure is one line; only a wrong command line is answered with usage.
        assert!(
            code == 0
                || self.err.lines().count() == 1
                || self.err.contains("Usage:")
                || self.err.contains("--help"),
            "{self:#?}"
        );
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Place {
    /// A file that does not exist yet.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("membership.db").display());
        Self {
            url,
            ..Self::within(folder, "default")
        }
    }

    /// A cluster in a store.
    pub fn at(url: impl Into<String>, cluster: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ..Self::within(tempfile::tempdir().unwrap(), cluster)
        }
    }

    fn within(folder: tempfile::TempDir, cluster: impl Into<String>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Self {
            folder,
            runtime,
            url: String::new(),
            cluster: cluster.into(),
        }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("membership.db")
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The program, without any environment variable of the caller that it would read.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(args)
            .env("MEMBERSHIP_CLUSTER", &self.cluster)
            // An address stages less than the suite's own run over a store, whose record must stay.
            .env_remove("MEMBERSHIP_CONFORMANCE_RECORDS")
            .env_remove("NO_COLOR")
            .env("MEMBERSHIP_TABLE", &self.url);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program on the table until it ends.
    pub fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    pub fn table(&self) -> SqliteTable {
        self.table_of(&self.cluster)
    }

    fn table_of(&self, cluster: &str) -> SqliteTable {
        let config = SqliteConfig::new(self.file());
        self.runtime
            .block_on(SqliteTable::connect(config, cluster.parse().unwrap()))
            .unwrap()
    }

    pub fn initialize(&self) -> SqliteTable {
        self.initialize_another(&self.cluster)
    }

    /// A table of another cluster in the same file.
    pub fn initialize_another(&self, cluster: &str) -> SqliteTable {
        let table = self.table_of(cluster);
        let request = InitializeRequest::new(
            TableId::new(7),
            Config::preset(Preset::Local).shared(),
            ClusterKey::new([7; 32]),
        );
        self.runtime.block_on(table.initialize(&request)).unwrap();
        table
    }

    /// Inserts rows, by one commit.
    pub fn insert(&self, table: &SqliteTable, entries: Vec<MembershipEntry>) {
        self.runtime.block_on(async {
            let (now, _) = table.read_all().await.unwrap();
            let request = CommitRequest::new(
                now.token,
                CommitId::new(u128::from(now.version_row.version) + 1),
                None,
                entries,
                [],
                [],
            );
            assert!(matches!(
                table.commit(&request).await.unwrap(),
                CommitOutcome::Committed(_)
            ));
        });
    }

    pub fn beat(&self, table: &SqliteTable, silo: SiloAddress, counter: u64, at: WallTime) {
        let write = HeartbeatWrite::Silo {
            silo,
            heartbeat: Heartbeat { counter, at },
        };
        self.runtime
            .block_on(table.update_i_am_alive(&write))
            .unwrap();
    }

    pub fn entry(&self, table: &SqliteTable, silo: SiloAddress) -> Option<MembershipEntry> {
        let (snapshot, _) = self.runtime.block_on(table.read_all()).unwrap();
        snapshot.rows.get(&silo).cloned()
    }
}

pub fn silo(port: u16) -> SiloAddress {
    let epoch = 1_763_000_000_000 + u64::from(port);
    SiloAddress::new([127, 0, 0, 1].into(), port, epoch)
}

/// An Active silo that started ten minutes ago.
pub fn active(port: u16) -> MembershipEntry {
    let mut entry = MembershipEntry::new(
        silo(port),
        InstanceId::new(u128::from(port)),
        now().minus(secs(600)),
    );
    entry.status = SiloStatus::Active;
    entry.active_since = Some(1);
    entry.info.silo_name = format!("silo-{port}");
    entry
}

/// A silo that two others voted out a minute ago.
pub fn voted_out(port: u16, accusers: [u16; 2]) -> MembershipEntry {
    let mut entry = active(port);
    let at = now().minus(secs(60));
    let mut evidence = Evidence::missed(3, 500);
    evidence.last_answer = Some(at.minus(secs(2)));
    evidence.roll_call = Some(RollCount {
        asked: 40,
        failed: 38,
        reached: 1,
        silent: 1,
    });
    entry.status = SiloStatus::Dead;
    entry.suspicions = accusers
        .map(|accuser| Suspicion::new(silo(accuser), at, SuspicionReason::Silent, evidence.clone()))
        .into();
    let by = Some(silo(accusers[0]));
    entry.death = Some(Death::new(CauseOfDeath::Voted, at, by, 1));
    entry
}

impl Ran {
    /// The same, but a question precedes the error.
    #[track_caller]
    pub fn expect_lines(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.err.contains("panicked"), "{self:#?}");
        self
    }
}
