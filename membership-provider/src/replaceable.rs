//! A client that is replaced while requests are under way.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A client of the store that is replaced by one with new connections when the last answer is in
/// doubt: see [`ReadRequest::new_connection`](membership_core::ReadRequest::new_connection).
/// Clones of `T` share its connections, so requests under way keep those of the client that they
/// began with, and it ends with the last of them.
///
/// ```
/// use std::sync::Arc;
/// use membership_provider::Replaceable;
///
/// let client = Replaceable::new(Arc::new("its connections"));
/// let under_way = client.current();
/// client.replace(Arc::new("new ones"));
/// assert_eq!((*under_way, *client.current()), ("its connections", "new ones"));
/// assert_eq!(Arc::strong_count(&under_way), 1);
/// ```
#[derive(Debug)]
pub struct Replaceable<T>(Mutex<T>);

impl<T: Clone> Replaceable<T> {
    /// Begins with this client.
    #[must_use]
    pub const fn new(client: T) -> Self {
        Self(Mutex::new(client))
    }

    /// The client for one request.
    #[must_use]
    pub fn current(&self) -> T {
        self.lock().clone()
    }

    /// Requests that begin from now on use this client.
    pub fn replace(&self, client: T) {
        // The old one is dropped after the lock.
        let _old = std::mem::replace(&mut *self.lock(), client);
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
