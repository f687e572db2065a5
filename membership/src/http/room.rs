//! How much a server takes upon itself: connections, and how many of them may be streams of events
//! or wait.
//!
//! A connection is an open file. The silo needs open files too, for its connections with other silos
//! and for its table, so clients of HTTP get half of what the process may have at most.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::Problem;

/// At most so many streams of events; more are refused with 503.
const MAX_STREAMS: usize = 1024;
/// At most so many requests that wait for something newer; more are refused with 503.
const MAX_WAITS: usize = 1024;
/// At most so many connections. One more takes the place of that which has been quiet for longest;
/// if all are busy, it is closed at once.
const MAX_CONNECTIONS: usize = MAX_STREAMS + MAX_WAITS + 512;
/// With fewer nobody could follow a cluster.
const MIN_CONNECTIONS: usize = 20;

/// Places of one kind.
#[derive(Clone, Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    most: usize,
    what: &'static str,
}

impl Places {
    fn new(most: usize, what: &'static str) -> Self {
        let free = Arc::new(Semaphore::new(most));
        Self { free, most, what }
    }

    /// A place until the permit is dropped.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let permit = self.free.clone().try_acquire_owned();
        permit.map_err(|_| Problem::too_many(self.what, self.most))
    }

    /// Whether somebody has one.
    pub(super) fn are_used(&self) -> bool {
        self.free.available_permits() < self.most
    }
}

#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) connections: usize,
    pub(super) streams: Places,
    pub(super) waits: Places,
}

impl Room {
    /// For a process that may have so many open files; none = as many as it likes.
    pub(super) fn within(open_files: Option<u64>) -> Self {
        let half = open_files.map_or(usize::MAX, |most| {
            usize::try_from(most / 2).unwrap_or(usize::MAX)
        });
        let connections = half.clamp(MIN_CONNECTIONS, MAX_CONNECTIONS);
        // A fifth is left for requests that are answered at once.
        let part = |most: usize| most.min(connections * 2 / 5);
        Self {
            connections,
            streams: Places::new(part(MAX_STREAMS), "streams of events"),
            waits: Places::new(part(MAX_WAITS), "waiting requests"),
        }
    }

    /// For this process as it is now.
    pub(super) fn of_process() -> Self {
        Self::within(open_files())
    }
}

#[cfg(unix)]
fn open_files() -> Option<u64> {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current
}

#[cfg(not(unix))]
const fn open_files() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_half_of_the_open_files_and_streams_two_fifths_of_that() {
        for (files, connections, streams) in [
            (None, 2560, 1024),
            (Some(1 << 20), 2560, 1024),
            (Some(1024), 512, 204),
            (Some(0), MIN_CONNECTIONS, 8),
        ] {
            let room = Room::within(files);
            assert_eq!(
                (room.connections, room.streams.most, room.waits.most),
                (connections, streams, streams)
            );
        }
        let room = Room::within(Some(0));
        let taken: Vec<_> = (0..8).map(|_| room.waits.take().unwrap()).collect();
        assert!(room.waits.take().is_err() && room.waits.are_used() && !room.streams.are_used());
        drop(taken);
        assert!(room.waits.take().is_ok());
    }
}
