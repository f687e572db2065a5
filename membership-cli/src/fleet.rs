//! Silos, or members without a table, as child processes of this program: starts them, reads their
//! events, kills them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::exit::{Exit, Failure};

/// A line of `silo --json`, as far as the demo needs it.
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

/// A silo in the view of another one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Member {
    pub silo: String,
    pub status: String,
    pub cause: Option<String>,
}

/// Output of a child.
pub(crate) enum Output<E> {
    Event(usize, E),
    /// The child ended; its last line on standard error.
    Ended(usize, String),
}

/// The children, which write lines that mean events.
pub(crate) struct Fleet<E> {
    children: BTreeMap<usize, Child>,
    sender: mpsc::UnboundedSender<Output<E>>,
    pub output: mpsc::UnboundedReceiver<Output<E>>,
}

impl<E: DeserializeOwned + Send + 'static> Fleet<E> {
    pub fn new() -> Self {
        let (sender, output) = mpsc::unbounded_channel();
        Self {
            children: BTreeMap::new(),
            sender,
            output,
        }
    }

    /// Starts a command of this program with `--json`. It ends when this process ends, however that
    /// happens, because its standard input closes.
    pub fn start(
        &mut self,
        index: usize,
        command: &str,
        args: &[&str],
        folder: &Path,
    ) -> Result<(), Failure> {
        let cannot =
            |e: std::io::Error| Failure::new(Exit::Failed, format!("cannot start a silo: {e}"));
        let name = command;
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command
            .args([name, "--json", "--exit-with-stdin"])
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // Ctrl-C reaches only the parent, which then ends its children.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(cannot)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Failure::new(Exit::Failed, "cannot start a silo: no pipes"));
        };
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let last = tokio::spawn(last_line(stderr));
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(event) = serde_json::from_str(&line) {
                    let _ = sender.send(Output::Event(index, event));
                }
            }
            let _ = sender.send(Output::Ended(index, last.await.unwrap_or_default()));
        });
        self.children.insert(index, child);
        Ok(())
    }

    /// Sends SIGKILL and waits until the child is gone.
    pub async fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.children.remove(&index) {
            let _ = child.kill().await;
        }
    }

    /// Kills all of these at the same time.
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

async fn last_line(stderr: tokio::process::ChildStderr) -> String {
    let mut last = String::new();
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        last = line;
    }
    last
}
