//! What the parts of one proxy share: the bookkeeping, the standing faults, and a bell that rings when they change.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::exchanges::Flights;
use crate::fault::{Away, Way};

#[derive(Debug, Default)]
pub(crate) struct State {
    pub flights: Flights,
    pub away: Option<Away>,
    /// The servers are frozen, and their links with them.
    pub frozen: bool,
    /// Added to whatever passes between clients and servers: requests, answers.
    pub delays: (Duration, Duration),
    /// Tells the client's own monitoring by the first words on a connection.
    pub monitoring: Option<fn(&[u8]) -> bool>,
    /// Whether the servers say something unasked after a handshake, once it is known.
    pub tickets: Option<bool>,
    /// How many pieces of flights are held now.
    pub held: usize,
    /// How often the connections of clients were cut, and how often all there were.
    pub cuts: u64,
    pub outages: u64,
}

impl State {
    /// Connections of an older one are cut.
    pub fn epoch(&self, link: bool) -> u64 {
        if link {
            self.outages
        } else {
            self.outages + self.cuts
        }
    }

    /// Nothing is held any more.
    pub fn let_go(&mut self) {
        self.frozen = false;
        (self.flights.hold_requests, self.flights.hold_answers) = (false, false);
    }
}

/// A piece of a flight that waits.
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
    bell: watch::Sender<()>,
}

impl Shared {
    pub fn new() -> Self {
        Self {
            state: Mutex::default(),
            bell: watch::Sender::new(()),
        }
    }

    pub fn look(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something, and tells everybody who waits.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.look());
        self.bell.send_replace(());
        result
    }

    pub fn bell(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    /// Waits until something holds.
    pub async fn until(&self, mut holds: impl FnMut(&State) -> bool) {
        let mut bell = self.bell();
        loop {
            if holds(&self.look()) {
                return;
            }
            if bell.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits as long as the bytes of this line are to wait on this way.
    pub async fn gate(&self, line: u64, link: bool, way: Way) {
        let delay = {
            let state = self.look();
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
                Way::Requests => state.flights.hold_requests,
                Way::Answers => state.flights.hold_answers,
            };
            !state.frozen && (link || !held)
        };
        let (passes, watched) = {
            let state = self.look();
            (open(&state), state.flights.is_watched(line))
        };
        if !passes {
            let _held = watched.then(|| Held::new(self));
            self.until(open).await;
        }
    }
}
