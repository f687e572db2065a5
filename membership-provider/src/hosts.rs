//! Several hosts, of which some are silent. Clause T13.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::timeout;

/// How long a host is waited for before the next one is asked, too: twice the pause between attempts
/// of RFC 8305, because a host that comes first may be preferred for a reason.
const HEAD_START: Duration = Duration::from_millis(500);

/// The first answer of several hosts, in the order in which they should be asked; none if there are
/// no hosts. A host that fails or is silent for half a second leaves the next one its turn,
/// and may still answer first. Attempts that are no longer needed are dropped: they must change
/// nothing. Cancel safe.
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
