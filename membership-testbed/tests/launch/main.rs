//! Each real server is started, killed, started again with its data, paused, wiped, and removed
//! without a trace.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

mod client;
mod tls;

use client::{client, has_client, read, write};
use membership_testbed::{How, Kind, LaunchError, Options, Server, ServerSet};

/// A long timeout for a busy machine; only a failing test waits for it.
const DEADLINE: Duration = Duration::from_secs(60);

/// One test per kind.
macro_rules! is_controlled {
    ($($name:ident: $kind:expr;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                is_controlled($kind).await;
            }
        )+
    };
}

is_controlled! {
    redis_is_killed_and_started_again: Kind::Redis;
    valkey_is_killed_and_started_again: Kind::Valkey;
    postgres_is_killed_and_started_again: Kind::Postgres;
    mariadb_is_killed_and_started_again: Kind::MariaDb;
    azurite_is_killed_and_started_again: Kind::Azurite;
    mongodb_is_killed_and_started_again: Kind::MongoDb;
    dynamodb_is_killed_and_started_again: Kind::DynamoDb;
    consul_is_killed_and_started_again: Kind::Consul;
    etcd_is_killed_and_started_again: Kind::Etcd;
    cassandra_is_killed_and_started_again: Kind::Cassandra;
    zookeeper_is_killed_and_started_again: Kind::ZooKeeper;
    nats_is_killed_and_started_again: Kind::Nats;
}

#[tokio::test]
async fn nodes_of_cassandra_serve_without_one() {
    let url = |hosts| format!("cassandra://{hosts}/membership");
    another_leads(Kind::Cassandra, None, url).await;
}

#[tokio::test]
async fn a_replica_set_elects_another_primary() {
    let url = |hosts| format!("mongodb://{hosts}/membership?replicaSet=rs0");
    another_leads(Kind::MongoDb, None, url).await;
}

#[tokio::test]
async fn members_of_etcd_elect_another_leader() {
    another_leads(Kind::Etcd, None, |hosts| format!("etcd://{hosts}")).await;
}

#[tokio::test]
async fn servers_of_zookeeper_elect_another_leader() {
    let url = |hosts| format!("zk://membership:secret@{hosts}");
    another_leads(Kind::ZooKeeper, Some("secret"), url).await;
}

#[tokio::test]
async fn servers_of_consul_elect_another_leader() {
    const TOKEN: &str = "0c0ffee0-5ec2-4e75-8a11-5add1e5ba77e";
    let url = |hosts| format!("consul://:{TOKEN}@{hosts}");
    another_leads(Kind::Consul, Some(TOKEN), url).await;
}

#[tokio::test]
async fn servers_of_nats_elect_another_leader() {
    let url = |hosts| format!("nats://membership:secret@{hosts}?sync=always&replicas=3");
    another_leads(Kind::Nats, Some("secret"), url).await;
}

/// Starts three servers and kills the leader: another one leads, and the killed one comes back.
async fn another_leads(kind: Kind, password: Option<&str>, url: impl Fn(String) -> String) {
    let set = match ServerSet::start(kind, 3, password).await {
        Err(LaunchError::External { .. }) => return,
        other => other.expect("starts"),
    };
    let killed = set.kill_leader().await.expect("there is a leader");
    assert_eq!(
        set.servers()[killed].process_id().expect("local"),
        None,
        "it still runs"
    );
    let next = set
        .leader_but(Some(killed))
        .await
        .expect("another server takes over");
    assert_ne!(next, killed);
    set.start_again(killed).await.expect("it takes part again");
    let hosts: Vec<String> = set
        .servers()
        .iter()
        .map(|server| server.address().to_string())
        .collect();
    assert_eq!(set.url(), url(hosts.join(",")));
}

async fn is_controlled(kind: Kind) {
    let server = match Server::start(
        kind,
        Options {
            durable: true,
            ..Options::default()
        },
    )
    .await
    {
        Ok(server) if server.how() == How::External => return cannot_be_controlled(&server).await,
        other => other.expect("starts"),
    };
    let is_local = server.how() == How::Local;
    let folder = server.folder().ok();
    assert_eq!(
        folder.is_some(),
        is_local,
        "only a process of this machine has a folder here"
    );
    let address = server.address();

    // Without a client this test only controls the server; the conformance suites check its data.
    let with_data = has_client(&server);
    let write = |value| {
        if with_data {
            write(&server, value);
        }
    };
    let holds = |value: &str| {
        assert!(
            !with_data || read(&server) == value,
            "it holds {:?}",
            read(&server)
        )
    };
    write("first");
    server.kill().await.expect("killed");
    assert!(
        TcpStream::connect(address).is_err(),
        "the port is closed after a kill"
    );
    assert!(!is_local || server.process_id().expect("ours").is_none());
    server.start_again().await.expect("starts again");
    holds("first");
    assert_eq!(server.address(), address);

    write("second");
    server.stop().await.expect("stops");
    server.start_again().await.expect("starts again");
    server.start_again().await.expect("is started already");
    holds("second");

    server.pause().await.expect("pauses");
    let mut stream = TcpStream::connect(address).expect("the system still takes connections");
    stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .expect("set");
    stream.write_all(b"PING\r\n").expect("sent");
    let answer = stream.read(&mut [0; 64]);
    assert!(
        answer.is_err(),
        "a paused server answers nothing: {answer:?}"
    );
    server.resume().await.expect("resumes");
    drop(stream);
    holds("second");

    server.pause().await.expect("pauses");
    server.kill().await.expect("a paused server can be killed");
    server.start_again().await.expect("starts again");
    holds("second");

    server.wipe().await.expect("wiped");
    holds("");
    assert_eq!(server.address(), address);

    drop(server);
    assert!(
        TcpStream::connect(address).is_err(),
        "the port is closed after the drop"
    );
    if let Some(folder) = folder {
        gone(&folder);
    }
}

/// A test must not stop an external server.
async fn cannot_be_controlled(server: &Server) {
    assert!(matches!(
        server.kill().await,
        Err(LaunchError::External { .. })
    ));
    assert!(matches!(
        server.wipe().await,
        Err(LaunchError::External { .. })
    ));
}

#[tokio::test]
async fn a_password_is_required() {
    for kind in [
        Kind::Redis,
        Kind::Postgres,
        Kind::MariaDb,
        Kind::Consul,
        Kind::Etcd,
    ] {
        let options = Options {
            password: Some("pass'w ö/@".to_owned()),
            ..Options::default()
        };
        let server = match Server::start(kind, options).await {
            Err(LaunchError::External { .. }) => continue,
            other => other.expect("starts"),
        };
        if !has_client(&server) {
            continue;
        }
        assert!(
            server.url().contains(":pass%27w%20%C3%B6%2F%40@127.0.0.1:"),
            "{}",
            server.url()
        );
        write(&server, "known");
        assert_eq!(read(&server), "known");
        let refused = client(&server, Some("wrong"), "SELECT 1", &["GET", "it"]);
        assert!(!refused.0, "{kind} accepts a wrong password: {}", refused.1);
    }
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let options = Options {
        args: vec!["--no-such-option".to_owned(), "1".to_owned()],
        ..Options::default()
    };
    match Server::start(Kind::Redis, options).await {
        Err(LaunchError::External { .. }) => {}
        Err(error @ LaunchError::Start { .. }) => {
            assert!(error.to_string().contains("no-such-option"), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_program_that_is_killed_leaves_no_server_behind() {
    if std::env::var_os(DIES).is_some() {
        return;
    }
    let program = std::env::current_exe().expect("known");
    let arguments = [
        "the_program_that_is_killed",
        "--exact",
        "--nocapture",
        "--test-threads=1",
    ];
    let mut child = Command::new(program)
        .args(arguments)
        .env(DIES, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut said = String::new();
    let mut out = child.stdout.take().expect("piped");
    // Reads until the whole line has come, or the program has ended.
    while !said.contains(" is complete\n") {
        let mut some = [0; 256];
        let length = out.read(&mut some).expect("readable");
        if length == 0 {
            break;
        }
        said.push_str(&String::from_utf8_lossy(&some[..length]));
    }
    child.kill().expect("killed");
    child.wait().expect("gone");
    if said.contains("skipped is complete") {
        return;
    }
    let line = said
        .lines()
        .find(|line| line.ends_with(" is complete"))
        .expect("it printed the folder of its server");
    let mut words = line.rsplit(' ').skip(2);
    let (folder, pids) = (
        PathBuf::from(words.next().expect("a folder")),
        words.next().expect("processes"),
    );
    gone(&folder);
    for pid in pids.split(',') {
        until("the server's processes are gone", || {
            !Path::new("/proc").join(pid).join("exe").exists()
        });
    }
}

/// No test by itself: the program of the test above.
#[tokio::test]
async fn the_program_that_is_killed() {
    if std::env::var_os(DIES).is_none() {
        return;
    }
    let server = Server::start(Kind::Postgres, Options::default())
        .await
        .expect("starts");
    if server.how() != How::Local {
        println!("skipped is complete");
        return;
    }
    let pid = server.process_id().expect("ours").expect("runs");
    let mut pids = vec![pid.to_string()];
    let children =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    pids.extend(children.split_whitespace().map(str::to_owned));
    // Paused processes do not notice that their parent died.
    server.pause().await.expect("pauses");
    println!(
        "\nprocesses {} {} is complete",
        pids.join(","),
        server.folder().expect("ours").display()
    );
    std::thread::sleep(DEADLINE);
}

const DIES: &str = "MEMBERSHIP_TEST_LAUNCH_DIES";

fn gone(folder: &Path) {
    until("the server's folder is gone", || !folder.exists());
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
