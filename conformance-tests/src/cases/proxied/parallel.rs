//! Runs one piece of work for each of many faults, several at the same time: most of the time a
//! test waits for a client to settle an outcome or to reconnect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::task::JoinSet;

use super::route::Route;
use crate::Stop;
use crate::case::{Cx, Verdict};

/// The most routes that run at the same time.
const MOST_ROUTES: usize = 5;
/// How long no request is made, so that only a client's monitoring sends.
const WINDOW: Duration = Duration::from_millis(300);

/// Opens routes whose faults do not affect each other: up to `of_use` if each client has its own
/// proxy, or one if all clients share a proxy.
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

/// Learns which connections of each route are the client's own monitoring.
pub(super) async fn learn(routes: &[Route]) {
    let mut tasks = JoinSet::new();
    for route in routes {
        let proxy = route.proxy.clone();
        tasks.spawn(async move { proxy.learn_monitoring(WINDOW).await });
    }
    tasks.join_all().await;
}

/// Does the work for each item, on a route that is free. Ends with the first failure.
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
        ended.map_err(|error| Stop::failed(format!("the work panicked: {error}")))??;
    }
    Ok(())
}
