//! What the clients of a history share: the clock, the count of commits, and their last errors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use membership_core::{NextStep, SiloAddress, TableError};

use crate::case::Cx;

/// What all clients share.
pub(super) struct Common {
    pub cx: Cx,
    pub clock: AtomicU64,
    pub commits: AtomicU64,
    pub target: u64,
    /// How many requests were due to be cut on their way, and how many were cut.
    pub to_cut: AtomicU64,
    pub cut: AtomicU64,
    /// The server will be killed again, so no client stops yet.
    pub kills_to_come: AtomicBool,
    /// An error came after which no client can go on. The history ends here, and the check reports
    /// the error.
    pub hopeless: AtomicBool,
    /// How often the commits of each client were answered with an outcome.
    pub served: Vec<AtomicU64>,
    pub complaints: Mutex<Vec<Option<TableError>>>,
    /// The silos of the clients, whose rows are never removed.
    pub silos: Vec<SiloAddress>,
}
impl Common {
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub fn done(&self) -> bool {
        self.is_hopeless()
            || (self.commits() >= self.target && !self.kills_to_come.load(Ordering::SeqCst))
    }

    pub fn is_hopeless(&self) -> bool {
        self.hopeless.load(Ordering::SeqCst)
    }

    /// Acknowledged commits so far.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Acknowledged commits after which all clients stop.
    pub fn target(&self) -> u64 {
        self.target
    }

    /// How often each client was served so far.
    pub fn served(&self) -> Vec<u64> {
        self.served
            .iter()
            .map(|count| count.load(Ordering::SeqCst))
            .collect()
    }

    /// The last error of a client.
    pub fn complaint(&self, client: usize) -> String {
        let complaints = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        complaints
            .get(client)
            .and_then(Option::as_ref)
            .map_or_else(|| "nothing".to_owned(), ToString::to_string)
    }

    /// Records an error of a client.
    pub fn complain(&self, client: usize, error: &TableError) {
        if error.next_step() == NextStep::GiveUp {
            self.hopeless.store(true, Ordering::SeqCst);
        }
        if let Some(last) = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(client)
        {
            *last = Some(error.clone());
        }
    }
}
