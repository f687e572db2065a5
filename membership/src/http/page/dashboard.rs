//! A page of tables, without any silo.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use membership_core::MembershipTable;

use super::super::room::Places;
use super::act::Changes;
use super::source::Source;
use super::{Page, asking, reader};
use crate::TimedTable;
use crate::transport::Security;

/// Calls of the table end after this time.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often the tables are read.
const EVERY: Duration = Duration::from_secs(1);

/// Tables to show without any silo: see [`Server::show_dashboard`](super::super::Server::show_dashboard).
///
/// Each table is read once a second, which costs a store little as long as nothing changes.
#[derive(Clone)]
#[must_use]
pub struct Dashboard {
    tables: Vec<Arc<dyn MembershipTable>>,
    every: Duration,
    ask: Option<Security>,
    by: Option<String>,
}

impl Dashboard {
    /// Shows the cluster of this table.
    pub fn new(table: impl MembershipTable) -> Self {
        Self {
            tables: vec![Arc::new(table)],
            every: EVERY,
            ask: None,
            by: None,
        }
    }

    /// Shows the cluster of this table, too: the page changes between them.
    pub fn and(mut self, table: impl MembershipTable) -> Self {
        self.tables.push(Arc::new(table));
        self
    }

    /// How often the tables are read: usually once a second; 50 ms at least.
    pub fn every(mut self, period: Duration) -> Self {
        self.every = period.max(Duration::from_millis(50));
        self
    }

    /// Asks the silos, too, who of them does not reach whom: the table does not know. `security` is
    /// what the silos have; see [`ask_reach`](crate::transport::ask_reach).
    pub fn ask(mut self, security: Security) -> Self {
        self.ask = Some(security);
        self
    }

    /// Lets people evict silos and clean up from the page, after a confirmation. `by` is written into
    /// the table as who did it: `user@host`. A request that another page made a browser send is
    /// refused; whoever may read the page may change the table.
    pub fn allow_changes(mut self, by: impl Into<String>) -> Self {
        self.by = Some(by.into());
        self
    }

    /// Needs a tokio runtime, on which a task reads each table.
    pub(in super::super) fn page(self, secure: bool, waits: Places) -> Arc<Page> {
        let every = self.every;
        let timed = self.tables.into_iter().map(|table| {
            let table = TimedTable::new(table, TIMEOUT);
            Arc::new(table) as Arc<dyn MembershipTable>
        });
        let tables: Vec<_> = timed.collect();
        let sources = tables.iter().map(|table| {
            let source = Source::new(table.cluster().clone(), None, Some(table.store()));
            let shown = || Arc::downgrade(&source);
            tokio::spawn(reader::read_on(shown(), Arc::clone(table), every));
            if let Some(security) = &self.ask {
                tokio::spawn(asking::ask_on(shown(), security.clone()));
            }
            source
        });
        Arc::new(Page {
            sources: sources.collect(),
            live: None,
            waits,
            changes: self.by.and_then(|by| Changes::new(by, tables)),
            secure,
        })
    }
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clusters: Vec<String> = self
            .tables
            .iter()
            .map(|t| t.cluster().to_string())
            .collect();
        f.debug_struct("Dashboard")
            .field("clusters", &clusters)
            .field("every", &self.every)
            .finish()
    }
}
