//! One piece of work for each of many things that may go wrong, side by side: nearly all of the time somebody waits for a client that finds
//! out, or finds its way back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::task::JoinSet;

use super::route::Route;
use crate::Stop;
use crate::case::{Cx, Verdict};

/// How many at once, at most.
const MOST_ROUTES: usize = 5;
/// For how long nothing is asked of a client, so that only its monitoring speaks.
const WINDOW: Duration = Duration::from_millis(300);

/// Routes whose faults do not touch each other: as many as are of use where each client has a proxy of its own, and one where all clients
/// take the same way.
pub(super) async fn open(cx: &Cx, of_use: usize) -> Result<Vec<Route>, Stop> {
    let mut routes = vec![Route::open(cx).await?];
    while routes.len() < of_use.min(MOST_ROUTES) {
        let next = Route::open(cx).await?;
        if next.proxy.is(&routes[0].proxy) {
            break;
        }
        routes.push(next);
    }
    Ok(routes)
}

/// Learns what on each of them is the client's own monitoring.
pub(super) async fn learn(routes: &[Route]) {
    let mut tasks = JoinSet::new();
    for route in routes {
        let proxy = route.proxy.clone();
        tasks.spawn(async move { proxy.learn_monitoring(WINDOW).await });
    }
    tasks.join_all().await;
}

/// Does the work for each item, on whichever route is free. Ends with the first failure.
pub(super) async fn each<T>(
    routes: Vec<Route>,
    items: Vec<T>,
    work: for<'a> fn(&'a Route, T) -> BoxFuture<'a, Verdict>,
) -> Verdict
where
    T: Copy + Send + Sync + 'static,
{
    let waiting = Arc::new((AtomicUsize::new(0), items));
    let mut tasks: JoinSet<Verdict> = JoinSet::new();
    for route in routes {
        let waiting = waiting.clone();
        tasks.spawn(async move {
            let (next, items) = &*waiting;
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                work(&route, *item).await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Stop::failed(format!("it did not end: {error}")))??;
    }
    Ok(())
}
