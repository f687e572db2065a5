//! Links between servers: connections whose other end another process owns.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{Client, SOON, start};
use membership_fault_proxy::{Away, Fault, Stage, Way};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// The environment variable with the proxy's address, for the process that plays a server.
const FOREIGN: &str = "MEMBERSHIP_PROXY_TEST_ADDRESS";

/// Another process with a link through the proxy, as a replica has one to its master.
struct Foreign {
    _process: tokio::process::Child,
    send: tokio::process::ChildStdin,
    receive: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Foreign {
    async fn start(address: SocketAddr) -> Self {
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "links::another_process",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(FOREIGN, address.to_string());
        command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let (send, receive) = (
            process.stdin.take().unwrap(),
            process.stdout.take().unwrap(),
        );
        Self {
            _process: process,
            send,
            receive: BufReader::new(receive).lines(),
        }
    }

    async fn send(&mut self, line: &str) {
        self.send
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// The next line that it received; none when its link is broken.
    async fn received(&mut self) -> Option<String> {
        loop {
            let line = tokio::time::timeout(SOON, self.receive.next_line())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            if let Some((_, received)) = line.split_once("received: ") {
                return Some(received.to_owned());
            }
            if line.contains("broken") {
                return None;
            }
        }
    }

    async fn is_whole(&mut self, what: &str) {
        self.send(what).await;
        assert_eq!(self.received().await.as_deref(), Some(what));
    }
}

/// Does nothing unless it runs as that process: forwards its input to the proxy, and prints the
/// answers.
#[test]
#[allow(
    clippy::print_stdout,
    reason = "the parent process reads its answers from there"
)]
fn another_process() {
    use std::io::{BufRead, Write};
    let Ok(address) = std::env::var(FOREIGN) else {
        return;
    };
    let stream = std::net::TcpStream::connect(address).unwrap();
    let (mut write, mut read) = (stream.try_clone().unwrap(), std::io::BufReader::new(stream));
    for line in std::io::stdin().lock().lines() {
        let mut answer = String::new();
        let asked = write
            .write_all(format!("{}\n", line.unwrap()).as_bytes())
            .and_then(|()| read.read_line(&mut answer));
        match asked {
            Ok(n) if n > 0 => println!("received: {}", answer.trim_end()),
            _ => println!("broken"),
        }
    }
}

#[tokio::test]
async fn a_link_between_servers_stays_whole() {
    let cuts = Stage::ALL.map(Fault::Cut);
    for fault in cuts
        .into_iter()
        .chain([Fault::LoseAnswer, Fault::HoldRequest, Fault::HoldAnswer])
    {
        let (_echo, proxy, mut client) = start().await;
        let mut server = Foreign::start(proxy.address()).await;
        server.is_whole("linked").await;
        client.ask("one").await.unwrap();
        assert_eq!((proxy.connections(), proxy.links()), (1, 1));
        let count = proxy.count();
        proxy.set_fault(fault);
        for line in ["a", "b", "c"] {
            server.is_whole(line).await;
        }
        assert_eq!(
            (count.so_far(), proxy.has_fired(), proxy.under_way()),
            (0, false, false),
            "{fault}"
        );
        client.send("two").await.unwrap();
        if fault == Fault::Cut(Stage::AfterAnswer) {
            client.receive().await.unwrap();
        }
        // The fault hits the client, and the link stays whole meanwhile.
        assert!(proxy.fired(SOON).await, "{fault}");
        server.is_whole("d").await;
        proxy.heal();
        assert!(count.so_far() <= 1, "{fault}");
        server.is_whole("e").await;
    }
}

#[tokio::test]
async fn faults_of_clients_do_not_reach_links() {
    let (_echo, proxy, mut client) = start().await;
    let mut server = Foreign::start(proxy.address()).await;
    server.is_whole("linked").await;
    client.ask("one").await.unwrap();
    // A connection that sends while nothing is requested of the client is monitoring. A link never
    // counts as monitoring.
    let (found, ()) = tokio::join!(
        proxy.learn_monitoring(Duration::from_millis(100)),
        server.is_whole("ping")
    );
    assert_eq!(found, 0);
    for way in [Way::Requests, Way::Answers] {
        proxy.freeze_way(way);
        client.send("two").await.unwrap();
        assert!(proxy.holds(SOON).await);
        server.is_whole("held").await;
        proxy.thaw();
        client.receive().await.unwrap();
    }
    proxy.set_delay(SOON, SOON);
    server.is_whole("delayed").await;
    proxy.heal();
    assert_eq!(proxy.cut_connections(), 1);
    assert!(client.ask("three").await.is_err());
    server.is_whole("cut").await;
}

#[tokio::test]
async fn frozen_or_unreachable_servers_are_so_for_each_other() {
    let (echo, proxy, mut client) = start().await;
    let mut server = Foreign::start(proxy.address()).await;
    server.is_whole("linked").await;
    proxy.freeze();
    server.send("frozen").await;
    client.send("frozen").await.unwrap();
    client.receives_nothing().await;
    echo.has_received(1).await;
    proxy.thaw();
    assert_eq!(server.received().await.as_deref(), Some("frozen"));
    client.receive().await.unwrap();
    for away in [Away::Refused, Away::Cut] {
        let mut server = Foreign::start(proxy.address()).await;
        server.is_whole("linked").await;
        proxy.set_away(away);
        server.send("away").await;
        assert_eq!(server.received().await, None, "{away:?}");
        proxy.heal();
        let back = async {
            while Client::connect(proxy.address()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, back).await.unwrap();
    }
}
