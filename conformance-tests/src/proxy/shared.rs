//! What the parts of one proxy share: the bookkeeping, the standing faults, and a bell that rings when they change.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::fault::{Away, Way};
use super::flights::Flights;

#[derive(Debug, Default)]
pub(super) struct State {
    pub flights: Flights,
    pub away: Option<Away>,
    /// Added to whatever passes: requests, answers.
    pub delays: (Duration, Duration),
    /// Connections of an older one are cut.
    pub epoch: u64,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    bell: watch::Sender<()>,
}

impl Shared {
    pub fn new() -> Self {
        Self { state: Mutex::default(), bell: watch::Sender::new(()) }
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

    /// Waits as long as the bytes of this way are to wait.
    pub async fn gate(&self, way: Way) {
        let delay = {
            let state = self.look();
            match way {
                Way::Requests => state.delays.0,
                Way::Answers => state.delays.1,
            }
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.until(|state| match way {
            Way::Requests => !state.flights.hold_requests,
            Way::Answers => !state.flights.hold_answers,
        })
        .await;
    }
}
