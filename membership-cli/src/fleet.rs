//! Silos as child processes of this program: started, heard, killed, and never left behind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::config_file::PresetName;
use crate::exit::{Exit, Failure};

/// A line of a silo's `--json`, as far as the demo needs it.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event {
    Active {
        silo: String,
    },
    View {
        version: u64,
        digest: String,
        members: Vec<Member>,
    },
    Terminated {
        cause: String,
    },
    #[serde(other)]
    Other,
}

/// A silo as another one's view has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Member {
    pub silo: String,
    pub status: String,
    pub cause: Option<String>,
}

/// Something that a child did.
pub(crate) enum Heard {
    Said(usize, Event),
    /// Its output ended; its last words on standard error.
    Ended(usize, String),
}

/// The children.
pub(crate) struct Fleet {
    children: BTreeMap<usize, Child>,
    tell: mpsc::UnboundedSender<Heard>,
    pub heard: mpsc::UnboundedReceiver<Heard>,
}

impl Fleet {
    pub fn new() -> Self {
        let (tell, heard) = mpsc::unbounded_channel();
        Self {
            children: BTreeMap::new(),
            tell,
            heard,
        }
    }

    /// Starts a silo on any free port. It goes with this process, however that ends: its standard input closes.
    pub fn start(
        &mut self,
        index: usize,
        table: &str,
        folder: &Path,
        preset: PresetName,
    ) -> Result<(), Failure> {
        let cannot =
            |e: std::io::Error| Failure::new(Exit::Failed, format!("cannot start a silo: {e}"));
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command
            .args([
                "silo",
                "--json",
                "--exit-with-stdin",
                "--cluster",
                "demo",
                "--listen",
                "127.0.0.1:0",
                "--table",
                table,
            ])
            .args([
                "--preset",
                preset.word(),
                "--name",
                &format!("silo-{}", index + 1),
            ])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // Ctrl-C on the terminal is for the parent alone, which then ends its children.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(cannot)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Failure::new(Exit::Failed, "cannot start a silo: no pipes"));
        };
        let tell = self.tell.clone();
        tokio::spawn(async move {
            let words = tokio::spawn(last_words(stderr));
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(event) = serde_json::from_str(&line) {
                    let _ = tell.send(Heard::Said(index, event));
                }
            }
            let _ = tell.send(Heard::Ended(index, words.await.unwrap_or_default()));
        });
        self.children.insert(index, child);
        Ok(())
    }

    /// SIGKILL, and the child is gone when this returns.
    pub async fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.children.remove(&index) {
            let _ = child.kill().await;
        }
    }

    /// All of them at one moment.
    pub async fn kill_many(&mut self, indices: &[usize]) {
        for index in indices {
            if let Some(child) = self.children.get_mut(index) {
                let _ = child.start_kill();
            }
        }
        for index in indices {
            self.kill(*index).await;
        }
    }

    pub async fn kill_all(&mut self) {
        let all: Vec<usize> = self.children.keys().copied().collect();
        self.kill_many(&all).await;
    }
}

async fn last_words(stderr: tokio::process::ChildStderr) -> String {
    let mut last = String::new();
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        last = line;
    }
    last
}
