//! What the parts of one proxy share: the exchanges, the standing faults, and a channel that
//! reports each change of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::exchanges::Exchanges;
use crate::fault::{Away, Way};

#[derive(Debug, Default)]
pub(crate) struct State {
    pub exchanges: Exchanges,
    pub away: Option<Away>,
    /// The servers are frozen, and their links with them.
    pub frozen: bool,
    /// The connections of clients up to this one are frozen; later ones are not.
    pub frozen_up_to: u64,
    /// Delay of each piece between clients and servers: requests, answers.
    pub delays: (Duration, Duration),
    /// Recognizes the client's own monitoring by the first bytes of a connection.
    pub monitoring: Option<fn(&[u8]) -> bool>,
    /// Whether the connections of other processes are clients', too.
    pub other_processes: bool,
    /// Whether the servers send records unrequested after a handshake, once it is known.
    pub tickets: Option<bool>,
    /// How many pieces of exchanges are held now.
    pub held: usize,
    /// How often the connections of clients were cut, and how often all connections were.
    pub cuts: u64,
    pub outages: u64,
}

impl State {
    /// The epoch of new connections. Connections of an older epoch are cut.
    pub fn epoch(&self, link: bool) -> u64 {
        if link {
            self.outages
        } else {
            self.outages + self.cuts
        }
    }

    /// Nothing is held any more.
    pub fn release(&mut self) {
        (self.frozen, self.frozen_up_to) = (false, 0);
        (self.exchanges.hold_requests, self.exchanges.hold_answers) = (false, false);
    }
}

/// A piece of an exchange that is held.
struct Held<'s>(&'s Shared);

impl<'s> Held<'s> {
    fn new(shared: &'s Shared) -> Self {
        shared.change(|state| state.held += 1);
        Self(shared)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.held -= 1);
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changes: watch::Sender<()>,
}

impl Shared {
    pub fn new() -> Self {
        Self {
            state: Mutex::default(),
            changes: watch::Sender::new(()),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes everybody who waits for it.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changes.send_replace(());
        result
    }

    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Waits until a condition holds.
    pub async fn until(&self, mut holds: impl FnMut(&State) -> bool) {
        let mut changes = self.changes();
        loop {
            if holds(&self.state()) {
                return;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits while the bytes of this connection are delayed or held in this direction.
    pub async fn gate(&self, connection: u64, link: bool, way: Way) {
        let delay = {
            let state = self.state();
            match way {
                _ if link => Duration::ZERO,
                Way::Requests => state.delays.0,
                Way::Answers => state.delays.1,
            }
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let open = |state: &State| {
            let held = match way {
                Way::Requests => state.exchanges.hold_requests,
                Way::Answers => state.exchanges.hold_answers,
            };
            !state.frozen && (link || !held && connection > state.frozen_up_to)
        };
        let (passes, watched) = {
            let state = self.state();
            (open(&state), state.exchanges.is_watched(connection))
        };
        if !passes {
            let _held = watched.then(|| Held::new(self));
            self.until(open).await;
        }
    }
}
