//! Several hosts, of which some are silent or fail. Clause T13.
#![allow(missing_docs)]

use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use membership_provider::{Hosts, first_of};
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

#[tokio::test(start_paused = true)]
async fn the_host_that_served_last_is_asked_first_unless_it_is_in_doubt() {
    let (hosts, limit) = (Hosts::new(3), 8 * SECOND);
    assert_eq!(hosts.share(limit), 2 * SECOND);
    assert_eq!(Hosts::new(1).share(limit), Duration::MAX);
    let asked = std::sync::Mutex::new(Vec::new());
    // Which hosts serve; the others refuse, or are silent for as long as they are waited for.
    let find = async |another, serving: &[usize], silent: &[usize]| {
        asked.lock().unwrap().clear();
        let connect = |host, limit| {
            asked.lock().unwrap().push(host);
            let (serves, silent) = (serving.contains(&host), silent.contains(&host));
            async move {
                if silent {
                    sleep(limit).await;
                }
                if serves { Ok(host) } else { Err(host) }
            }
        };
        let found = hosts.find(another, limit, connect).await;
        (found, asked.lock().unwrap().clone())
    };
    assert_eq!(find(false, &[1, 2], &[]).await, (Ok(1), vec![0, 1]));
    assert_eq!(find(false, &[0, 1, 2], &[]).await, (Ok(1), vec![1]));
    assert_eq!(find(true, &[0, 1], &[]).await, (Ok(0), vec![2, 0]));
    assert_eq!(hosts.last(), 0);
    // The others are silent for their share, and the one in doubt serves after all.
    let began = Instant::now();
    let (found, order) = find(true, &[0], &[1, 2]).await;
    assert_eq!((found, order), (Ok(0), vec![1, 2, 0]));
    assert!(began.elapsed() < 3 * SECOND, "{:?}", began.elapsed());
    assert_eq!(find(false, &[], &[]).await, (Err(2), vec![0, 1, 2]));
    assert_eq!(
        Hosts::new(0)
            .find(true, limit, |host, _| async move { Err::<(), _>(host) })
            .await,
        Err(0)
    );
}
