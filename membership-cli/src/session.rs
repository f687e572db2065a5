//! What every command works with: the stores it can open, standard output, standard error.

use std::io::Write;
use std::sync::Arc;

use clap::Args;
use membership::{ClusterName, Connectors, MembershipTable};

use serde_json::Value;

use crate::events;
use crate::exit::Failure;
use crate::out::{Out, Paint};

/// Which store.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// Where the membership table is, for example sqlite:membership.db
    #[arg(
        long,
        env = "MEMBERSHIP_TABLE",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub table: String,
}

/// Which table: a store and a cluster in it.
#[derive(Clone, Debug, Args)]
pub(crate) struct TableArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Which cluster: [service/]cluster
    #[arg(
        long,
        env = "MEMBERSHIP_CLUSTER",
        value_name = "ID",
        default_value = "default"
    )]
    pub cluster: ClusterName,
}

/// What a command works with.
pub(crate) struct Session {
    connectors: Connectors,
    pub out: Out,
    pub err: Out,
    /// Whether the command writes JSON instead of text.
    pub json: bool,
}

impl Session {
    /// On this process's standard output and standard error.
    pub fn standard(connectors: Connectors) -> Self {
        Self {
            connectors,
            out: Out::stdout(),
            err: Out::stderr(),
            json: false,
        }
    }

    /// With output that goes to any writers, without colours.
    pub fn plain(
        connectors: Connectors,
        out: impl Write + Send + 'static,
        err: impl Write + Send + 'static,
    ) -> Self {
        Self {
            connectors,
            out: Out::plain(Box::new(out)),
            err: Out::plain(Box::new(err)),
            json: false,
        }
    }

    /// Opens the table.
    pub async fn open(&self, args: &TableArgs) -> Result<Arc<dyn MembershipTable>, Failure> {
        self.connect(&args.store.table, &args.cluster).await
    }

    pub async fn connect(
        &self,
        url: &str,
        cluster: &ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, Failure> {
        Ok(self.connectors.connect(url, cluster.clone()).await?)
    }

    /// The stores of this program, for commands that open tables by themselves.
    pub fn connectors(&self) -> Connectors {
        self.connectors.clone()
    }

    /// Whether this program can open tables of a scheme.
    pub fn has(&self, scheme: &str) -> bool {
        self.connectors.schemes().any(|s| s == scheme)
    }

    /// Writes what was done: an object as a line, or text.
    pub fn told(&mut self, event: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        match self.json {
            true => self.out.line(events::timed(event())),
            false => self.out.line(text()),
        }
    }

    /// Writes a warning, if there is one.
    pub fn warn(&mut self, warning: Option<String>) {
        if let Some(warning) = warning {
            let warning = self.err.paint(Paint::Yellow, warning);
            self.err.line(warning);
        }
    }

    /// Asks the user; true if the answer is `yes`. Fails when standard input is closed: then
    /// `--yes` is missing.
    pub fn ask(&mut self, question: &str, yes: &str) -> Result<bool, Failure> {
        self.err.raw(format_args!("{question} "));
        let mut answer = String::new();
        match std::io::stdin().read_line(&mut answer) {
            Ok(n) if n > 0 => Ok(answer.trim().eq_ignore_ascii_case(yes)),
            _ => {
                self.err.line("");
                Err(Failure::usage(
                    "no answer on standard input, so nothing was done; add --yes to skip the question",
                ))
            }
        }
    }
}
