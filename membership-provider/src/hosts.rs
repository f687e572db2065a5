//! Several hosts, of which some are silent. Clause T13.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::timeout;

/// How long a host is waited for before the next one is asked, too: twice the pause between attempts
/// of RFC 8305, because a host that comes first may be preferred for a reason.
const HEAD_START: Duration = Duration::from_millis(500);

/// The first answer of several hosts, in the order in which they should be asked; none if there are
/// no hosts. A host that fails or is silent for half a second leaves the next one its turn,
/// and may still answer first. Attempts that are no longer needed are dropped: they must change
/// nothing. Cancel safe. Inside of an `async_trait`, collect the futures into a `Vec` first: an
/// iterator with a closure over references is not general enough there.
///
/// # Errors
/// The last one, or at once one that `ends` the search.
pub async fn first_of<T, E>(
    hosts: impl IntoIterator<Item: Future<Output = Result<T, E>>>,
    ends: impl Fn(&E) -> bool,
) -> Option<Result<T, E>> {
    let mut hosts = hosts.into_iter().fuse();
    let (mut asked, mut why) = (FuturesUnordered::new(), None);
    loop {
        let next = hosts.next();
        let patience = next.is_some().then_some(HEAD_START);
        asked.extend(next);
        let answer = timeout(patience.unwrap_or(Duration::MAX), asked.next());
        match answer.await {
            Ok(Some(Err(e))) if !ends(&e) => why = Some(Err(e)),
            Ok(Some(answer)) => return Some(answer),
            Ok(None) => return why,
            Err(_) => {}
        }
    }
}

/// The hosts that a client may connect to, numbered from 0, and which one served it last.
#[derive(Debug)]
pub struct Hosts {
    count: usize,
    last: AtomicUsize,
}

impl Hosts {
    /// So many, at least one; the first one is asked first.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self {
            count: count.max(1),
            last: AtomicUsize::new(0),
        }
    }

    /// The host that served last.
    #[must_use]
    pub fn last(&self) -> usize {
        self.last.load(Ordering::Relaxed)
    }

    /// How long a host may be silent, in an operation that may take `limit`, before another one is
    /// asked: for ever if there is no other.
    #[must_use]
    pub fn share(&self, limit: Duration) -> Duration {
        match u32::try_from(self.count) {
            Ok(1) => Duration::MAX,
            count => limit / count.unwrap_or(u32::MAX).saturating_add(1),
        }
    }

    /// Connects to the first host that can serve: `connect` gets a host, and how long it may take,
    /// at most `limit`. The hosts are asked in order, beginning with the one that served last; one
    /// that is silent makes the next one wait only a moment. With `another` the last one is in
    /// doubt: it gets its turn after the others have failed, or been silent for their share of the
    /// time. Cancel safe if `connect` is.
    ///
    /// # Errors
    /// The last one of `connect`.
    pub async fn find<T, E, F: Future<Output = Result<T, E>>>(
        &self,
        another: bool,
        limit: Duration,
        connect: impl Fn(usize, Duration) -> F,
    ) -> Result<T, E> {
        let (count, last) = (self.count, self.last());
        let ask = |host, limit| {
            let connecting = connect(host, limit);
            async move { connecting.await.map(|connected| (host, connected)) }
        };
        let mut hosts: Vec<_> = (last..last + count).map(|n| n % count).collect();
        let others = hosts.split_off(1);
        let share = self.share(limit);
        let found = match another {
            true => first_of(others.into_iter().map(|host| ask(host, share)), |_| false).await,
            false => {
                hosts.extend(others);
                first_of(hosts.into_iter().map(|host| ask(host, limit)), |_| false).await
            }
        };
        let (host, connected) = match found {
            Some(Ok(found)) => found,
            Some(Err(e)) if !another => return Err(e),
            _ => ask(last, limit).await?,
        };
        self.last.store(host, Ordering::Relaxed);
        Ok(connected)
    }
}
