//! The proxy in front of a server that echoes each line.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use membership_fault_proxy::{Away, Fault, Proxy, Stage, Way};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A generous timeout: every step is fast unless something is broken.
const SOON: Duration = Duration::from_secs(10);

/// Echoes each line and counts the lines.
struct Echo {
    address: SocketAddr,
    received: Arc<AtomicU64>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, received) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let counter = received.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let counter = counter.clone();
                tokio::spawn(async move {
                    let (read, mut write) = client.into_split();
                    let (mut read, mut line) = (BufReader::new(read), String::new());
                    // An incomplete line does not count.
                    while read.read_line(&mut line).await.is_ok() && line.ends_with('\n') {
                        counter.fetch_add(1, Ordering::SeqCst);
                        if write.write_all(line.as_bytes()).await.is_err() {
                            return;
                        }
                        line.clear();
                    }
                });
            }
        });
        Self { address, received }
    }

    /// Waits until it has received so many lines.
    async fn has_received(&self, n: u64) {
        let wait = async {
            while self.received.load(Ordering::SeqCst) < n {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, wait).await.unwrap();
        assert_eq!(self.received.load(Ordering::SeqCst), n);
    }
}

struct Client {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl Client {
    async fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let (read, write) = TcpStream::connect(address).await?.into_split();
        Ok(Self {
            read: BufReader::new(read),
            write,
        })
    }

    async fn send(&mut self, line: &str) -> std::io::Result<()> {
        self.write.write_all(format!("{line}\n").as_bytes()).await
    }

    async fn receive(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        tokio::time::timeout(SOON, self.read.read_line(&mut line)).await??;
        // An incomplete line does not count.
        line.strip_suffix('\n')
            .map(str::to_owned)
            .ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }

    async fn ask(&mut self, line: &str) -> std::io::Result<String> {
        self.send(line).await?;
        self.receive().await
    }

    /// Checks that nothing arrives for a while.
    async fn receives_nothing(&mut self) {
        let mut line = String::new();
        let received =
            tokio::time::timeout(Duration::from_millis(60), self.read.read_line(&mut line)).await;
        assert!(received.is_err(), "received {received:?}");
    }
}

async fn start() -> (Echo, Proxy, Client) {
    let echo = Echo::start().await;
    let proxy = Proxy::to(echo.address).unwrap();
    let client = Client::connect(proxy.address()).await.unwrap();
    (echo, proxy, client)
}

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

/// The environment variable with the proxy's address, for the process that plays a server.
#[cfg(target_os = "linux")]
const FOREIGN: &str = "MEMBERSHIP_PROXY_TEST_ADDRESS";

/// Another process with a link through the proxy, as a replica has one to its master.
#[cfg(target_os = "linux")]
struct Foreign {
    _process: tokio::process::Child,
    send: tokio::process::ChildStdin,
    receive: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

#[cfg(target_os = "linux")]
impl Foreign {
    async fn start(address: SocketAddr) -> Self {
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "another_process",
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
#[cfg(target_os = "linux")]
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

#[cfg(target_os = "linux")]
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

#[cfg(target_os = "linux")]
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

#[cfg(target_os = "linux")]
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

#[test]
fn outside_of_a_runtime_it_is_an_error() {
    assert!(Proxy::to("127.0.0.1:1".parse().unwrap()).is_err());
}
