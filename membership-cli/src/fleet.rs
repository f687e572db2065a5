//! Silos, or members without a table, as child processes of this program: starts them, reads their
//! events, kills them.

use std::collections::{BTreeMap, BTreeSet};
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
enum Output<E> {
    Event(usize, E),
    /// The child ended; its last line on standard error.
    Ended(usize, String),
}

/// The children, which write lines that mean events.
pub(crate) struct Fleet<E> {
    /// What a child is called: `silo` or `member`.
    word: &'static str,
    children: BTreeMap<usize, Child>,
    killed: BTreeSet<usize>,
    sender: mpsc::UnboundedSender<Output<E>>,
    output: mpsc::UnboundedReceiver<Output<E>>,
}

impl<E: DeserializeOwned + Send + 'static> Fleet<E> {
    pub fn new(word: &'static str) -> Self {
        let (sender, output) = mpsc::unbounded_channel();
        Self {
            word,
            children: BTreeMap::new(),
            killed: BTreeSet::new(),
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
        let word = self.word;
        let cannot =
            |e: std::io::Error| Failure::new(Exit::Failed, format!("cannot start a {word}: {e}"));
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
            let what = format!("cannot start a {word}: no pipes");
            return Err(Failure::new(Exit::Failed, what));
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

    /// The name of a child.
    pub fn name(&self, index: usize) -> String {
        format!("{}-{}", self.word, index + 1)
    }

    /// The next event, and whose it is. Cancel safe.
    ///
    /// # Errors
    /// A child ended that was not killed, or none is left.
    pub async fn next(&mut self) -> Result<(usize, E), Failure> {
        loop {
            let why = match self.output.recv().await {
                Some(Output::Event(index, event)) => return Ok((index, event)),
                Some(Output::Ended(index, _)) if self.was_killed(index) => continue,
                Some(Output::Ended(index, line)) => {
                    let line = line.strip_prefix("error: ").unwrap_or(&line);
                    format!("{} ended by itself: {line}", self.name(index))
                }
                None => format!("no {} is left", self.word),
            };
            return Err(Failure::new(Exit::Failed, why));
        }
    }

    pub fn was_killed(&self, index: usize) -> bool {
        self.killed.contains(&index)
    }

    /// Sends SIGKILL and waits until the child is gone.
    async fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.children.remove(&index) {
            let _ = child.kill().await;
        }
    }

    /// Kills all of these at the same time.
    pub async fn kill_many(&mut self, indices: &[usize]) {
        self.killed.extend(indices);
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
