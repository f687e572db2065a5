//! Several hosts, of which some are silent or fail. Clause T13.
#![allow(missing_docs)]

use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use membership_provider::first_of;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_silent_host_makes_the_next_one_wait_a_moment() {
    let began = Instant::now();
    let silent = || pending::<Result<u8, &str>>().boxed();
    let hosts = [silent(), silent(), ready(Ok(3)).boxed()];
    assert_eq!(first_of(hosts, |_| false).await, Some(Ok(3)));
    let waited = began.elapsed();
    assert!(waited > SECOND / 2 && waited < 2 * SECOND, "{waited:?}");
    // One that is slow, and no other one answers, is waited for.
    let slow = sleep(20 * SECOND).map(|()| Ok(1));
    let hosts = [slow.boxed(), silent(), ready(Err("refused")).boxed()];
    assert_eq!(first_of(hosts, |_| false).await, Some(Ok(1)));
}

#[tokio::test(start_paused = true)]
async fn hosts_that_fail_are_not_waited_for() {
    let (began, asked) = (Instant::now(), AtomicUsize::new(0));
    let ask = |answer: Result<u8, &'static str>| {
        let asked = &asked;
        async move {
            asked.fetch_add(1, Ordering::Relaxed);
            answer
        }
    };
    let all = [Err("a"), Err("b"), Err("c")];
    assert_eq!(first_of(all.map(ask), |_| false).await, Some(Err("c")));
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    // The second one ends the search.
    assert_eq!(first_of(all.map(ask), |e| *e == "b").await, Some(Err("b")));
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    let first = [Ok(1), Ok(2)];
    assert_eq!(first_of(first.map(ask), |_| false).await, Some(Ok(1)));
    assert_eq!(asked.load(Ordering::Relaxed), 6);
    assert_eq!(began.elapsed(), Duration::ZERO);
    let none: [std::future::Ready<Result<u8, &str>>; 0] = [];
    assert_eq!(first_of(none, |_| false).await, None);
}
