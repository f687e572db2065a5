//! The proxy in front of a server that echoes each line.
#![allow(clippy::unwrap_used, reason = "a test")]

#[cfg(target_os = "linux")]
mod links;
mod support;

use std::time::{Duration, Instant};

use membership_fault_proxy::{Away, Fault, Proxy, Stage, Way};
use support::{Client, Echo, SOON, start};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

#[tokio::test]
async fn counts_what_is_asked_one_after_the_other() {
    let (_echo, proxy, mut client) = start().await;
    assert_eq!(client.ask("one").await.unwrap(), "one");
    let count = proxy.count();
    for n in 0..5 {
        assert_eq!(client.ask(&n.to_string()).await.unwrap(), n.to_string());
    }
    assert_eq!((count.so_far(), proxy.round_trips()), (5, 6));
    // Pipelined: everything sent before the first answer is received.
    client.send("a\nb\nc").await.unwrap();
    for due in ["a", "b", "c"] {
        assert_eq!(client.receive().await.unwrap(), due);
    }
    assert_eq!(count.so_far(), 6);
    // On two connections at once. The answers are held so that the two overlap.
    let mut other = Client::connect(proxy.address()).await.unwrap();
    proxy.freeze_way(Way::Answers);
    client.send("d").await.unwrap();
    other.send("e").await.unwrap();
    _echo.has_received(6 + 3 + 2).await;
    proxy.thaw();
    assert_eq!(
        (
            client.receive().await.unwrap(),
            other.receive().await.unwrap()
        ),
        ("d".to_owned(), "e".to_owned())
    );
    assert!(proxy.settled(SOON).await);
    assert_eq!(count.so_far(), 7);
}

#[tokio::test]
async fn leaves_monitoring_out() {
    let (_echo, proxy, mut client) = start().await;
    let mut monitor = Client::connect(proxy.address()).await.unwrap();
    client.ask("one").await.unwrap();
    let (found, _) = tokio::join!(
        proxy.learn_monitoring(Duration::from_millis(100)),
        monitor.ask("ping")
    );
    assert_eq!(found, 1);
    let count = proxy.count();
    proxy.set_fault(Fault::Cut(Stage::BeforeRequest));
    monitor.ask("ping").await.unwrap();
    assert_eq!((count.so_far(), proxy.has_fired()), (0, false));
    assert!(client.ask("two").await.is_err());
    assert!(proxy.has_fired());
}

#[tokio::test]
async fn cuts_at_each_stage() {
    for stage in Stage::ALL {
        let (echo, proxy, mut client) = start().await;
        client.ask("one").await.unwrap();
        proxy.set_fault_after(1, Fault::Cut(stage));
        client.ask("two").await.unwrap();
        assert!(!proxy.has_fired());
        let answer = client.ask("three").await;
        assert!(proxy.fired(SOON).await, "{stage}");
        assert_eq!(
            answer.is_ok(),
            stage == Stage::AfterAnswer,
            "{stage}: {answer:?}"
        );
        // Requests from before the cut arrived, and nothing else.
        echo.has_received(if stage >= Stage::AfterRequest { 3 } else { 2 })
            .await;
        assert!(client.ask("four").await.is_err(), "{stage}");
        let mut next = Client::connect(proxy.address()).await.unwrap();
        assert_eq!(next.ask("five").await.unwrap(), "five");
    }
}

#[tokio::test]
async fn loses_one_answer_and_mutes_its_connection() {
    let (echo, proxy, mut client) = start().await;
    proxy.set_fault(Fault::LoseAnswer);
    client.send("one").await.unwrap();
    echo.has_received(1).await;
    client.receives_nothing().await;
    proxy.heal();
    client.send("two").await.unwrap();
    echo.has_received(2).await;
    client.receives_nothing().await;
    assert_eq!(
        Client::connect(proxy.address())
            .await
            .unwrap()
            .ask("three")
            .await
            .unwrap(),
        "three"
    );
}

#[tokio::test]
async fn freezes_and_thaws() {
    let (echo, proxy, mut client) = start().await;
    client.ask("one").await.unwrap();
    proxy.freeze();
    client.send("two").await.unwrap();
    let mut other = Client::connect(proxy.address()).await.unwrap();
    other.send("three").await.unwrap();
    client.receives_nothing().await;
    echo.has_received(1).await;
    proxy.thaw();
    assert_eq!(
        (
            client.receive().await.unwrap(),
            other.receive().await.unwrap()
        ),
        ("two".to_owned(), "three".to_owned())
    );
}

#[tokio::test]
async fn freezes_the_connections_there_are_and_no_new_one() {
    let (echo, proxy, mut client) = start().await;
    client.ask("one").await.unwrap();
    proxy.freeze_connections();
    client.send("two").await.unwrap();
    assert!(proxy.holds(SOON).await);
    let mut other = Client::connect(proxy.address()).await.unwrap();
    assert_eq!(other.ask("three").await.unwrap(), "three");
    client.receives_nothing().await;
    echo.has_received(2).await;
    proxy.heal();
    assert_eq!(client.receive().await.unwrap(), "two");
    assert_eq!(client.ask("four").await.unwrap(), "four");
}

#[tokio::test]
async fn holds_one_request_or_one_answer() {
    for (fault, arrives) in [(Fault::HoldRequest, 0), (Fault::HoldAnswer, 1)] {
        let (echo, proxy, mut client) = start().await;
        proxy.set_fault(fault);
        client.send("one").await.unwrap();
        assert!(proxy.fired(SOON).await);
        echo.has_received(arrives).await;
        client.receives_nothing().await;
        echo.has_received(arrives).await;
        // It is delivered although its client is gone.
        drop(client);
        proxy.thaw();
        echo.has_received(1).await;
    }
}

#[tokio::test]
async fn is_away_and_comes_back_at_the_same_address() {
    for away in [Away::Refused, Away::Cut] {
        let (_echo, proxy, mut client) = start().await;
        client.ask("one").await.unwrap();
        proxy.set_away(away);
        assert!(client.ask("two").await.is_err());
        for _ in 0..3 {
            let answer = match Client::connect(proxy.address()).await {
                Ok(mut client) => client.ask("three").await,
                Err(e) => Err(e),
            };
            assert!(answer.is_err(), "{away:?}");
        }
        proxy.heal();
        let deadline = Instant::now() + SOON;
        loop {
            match Client::connect(proxy.address()).await {
                Ok(mut client) => {
                    assert_eq!(client.ask("four").await.unwrap(), "four");
                    break;
                }
                Err(e) => assert!(Instant::now() < deadline, "{away:?}: {e}"),
            }
        }
    }
}

#[tokio::test]
async fn cuts_every_connection_there_is() {
    let (_echo, proxy, mut client) = start().await;
    client.ask("one").await.unwrap();
    assert_eq!(proxy.connections(), 1);
    proxy.cut_connections();
    assert!(client.ask("two").await.is_err());
    assert_eq!(
        Client::connect(proxy.address())
            .await
            .unwrap()
            .ask("three")
            .await
            .unwrap(),
        "three"
    );
}

#[tokio::test]
async fn delays_each_way() {
    let (_echo, proxy, mut client) = start().await;
    client.ask("one").await.unwrap();
    proxy.set_delay(Duration::from_millis(40), Duration::from_millis(40));
    let began = Instant::now();
    client.ask("two").await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(80));
}

#[tokio::test]
async fn several_servers_behind_one_proxy_fail_together() {
    let (one, two) = (Echo::start().await, Echo::start().await);
    let proxy = Proxy::on("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let second = proxy
        .also("127.0.0.1:0".parse().unwrap(), two.address)
        .unwrap();
    assert_eq!(proxy.addresses(), [proxy.address(), second]);
    // Without a server behind the address a connection is cut.
    assert!(
        Client::connect(proxy.address())
            .await
            .unwrap()
            .ask("nobody")
            .await
            .is_err()
    );
    proxy.set_target(one.address);
    assert!(!proxy.set_target_of("127.0.0.1:1".parse().unwrap(), one.address));
    let mut first = Client::connect(proxy.address()).await.unwrap();
    let mut second = Client::connect(second).await.unwrap();
    first.ask("a").await.unwrap();
    second.ask("b").await.unwrap();
    assert_eq!(proxy.round_trips(), 2);
    proxy.set_fault_after(1, Fault::Cut(Stage::AfterRequest));
    first.ask("c").await.unwrap();
    assert!(second.ask("d").await.is_err());
    two.has_received(2).await;
}

#[tokio::test]
async fn ends_with_its_last_clone() {
    let (_echo, proxy, mut client) = start().await;
    client.ask("one").await.unwrap();
    let (clone, address) = (proxy.clone(), proxy.address());
    drop(proxy);
    client.ask("two").await.unwrap();
    drop(clone);
    assert!(client.ask("three").await.is_err());
    assert!(Client::connect(address).await.is_err());
}

#[tokio::test]
async fn reports_whether_it_holds_bytes() {
    let (_echo, proxy, mut client) = start().await;
    let mut monitor = Client::connect(proxy.address()).await.unwrap();
    let (found, _) = tokio::join!(
        proxy.learn_monitoring(Duration::from_millis(100)),
        monitor.ask("ping")
    );
    assert_eq!(found, 1);
    proxy.freeze_way(Way::Answers);
    monitor.send("ping").await.unwrap();
    monitor.receives_nothing().await;
    assert!(
        !proxy.holds(Duration::from_millis(1)).await,
        "monitoring does not count"
    );
    client.send("one").await.unwrap();
    assert!(proxy.holds(SOON).await);
    proxy.thaw();
    assert_eq!(client.receive().await.unwrap(), "one");
    assert!(!proxy.holds(Duration::from_millis(1)).await);
}

/// A delivered request is under way until the server has answered it, even if its client is gone.
#[tokio::test]
async fn settles_when_the_server_has_done_its_work() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::to(listener.local_addr().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await.unwrap();
    let (read, mut write) = listener.accept().await.unwrap().0.into_split();
    let (mut read, mut line) = (BufReader::new(read), String::new());
    proxy.freeze();
    client.send("late").await.unwrap();
    assert!(proxy.holds(SOON).await);
    drop(client);
    proxy.thaw();
    read.read_line(&mut line).await.unwrap();
    assert_eq!(line, "late\n");
    assert!(
        !proxy.settled(Duration::from_millis(60)).await,
        "the server has not answered"
    );
    assert_eq!(proxy.connections(), 0);
    write.write_all(b"done\n").await.unwrap();
    assert!(proxy.settled(SOON).await);
    assert_eq!(proxy.round_trips(), 0, "no client received the answer");
    // Then the server finds its connection closed.
    assert_eq!(
        tokio::time::timeout(SOON, read.read_line(&mut line))
            .await
            .unwrap()
            .unwrap_or(0),
        0
    );
}
#[test]
fn outside_of_a_runtime_it_is_an_error() {
    assert!(Proxy::to("127.0.0.1:1".parse().unwrap()).is_err());
}
