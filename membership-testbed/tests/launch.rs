//! Each real server: started, killed, started again with its data, paused, emptied, and gone without a trace.
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

use membership_testbed::{How, Kind, LaunchError, Options, Server, ServerSet};

/// Long enough for a busy machine; only a failing test waits for it.
const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn redis_lives_dies_and_lives_again() {
    life(Kind::Redis).await;
}

#[tokio::test]
async fn valkey_lives_dies_and_lives_again() {
    life(Kind::Valkey).await;
}

#[tokio::test]
async fn postgres_lives_dies_and_lives_again() {
    life(Kind::Postgres).await;
}

#[tokio::test]
async fn mariadb_lives_dies_and_lives_again() {
    life(Kind::MariaDb).await;
}

#[tokio::test]
async fn azurite_lives_dies_and_lives_again() {
    life(Kind::Azurite).await;
}

#[tokio::test]
async fn mongodb_lives_dies_and_lives_again() {
    life(Kind::MongoDb).await;
}

#[tokio::test]
async fn dynamodb_lives_dies_and_lives_again() {
    life(Kind::DynamoDb).await;
}

#[tokio::test]
async fn consul_lives_dies_and_lives_again() {
    life(Kind::Consul).await;
}

#[tokio::test]
async fn etcd_lives_dies_and_lives_again() {
    life(Kind::Etcd).await;
}

#[tokio::test]
async fn cassandra_lives_dies_and_lives_again() {
    life(Kind::Cassandra).await;
}

#[tokio::test]
async fn a_replica_set_has_another_primary_when_the_first_is_killed() {
    let url = |hosts| format!("mongodb://{hosts}/membership?replicaSet=rs0");
    another_leads(Kind::MongoDb, None, url).await;
}

#[tokio::test]
async fn members_of_etcd_have_another_leader_when_the_first_is_killed() {
    another_leads(Kind::Etcd, None, |hosts| format!("etcd://{hosts}")).await;
}

#[tokio::test]
async fn zookeeper_lives_dies_and_lives_again() {
    life(Kind::ZooKeeper).await;
}

#[tokio::test]
async fn servers_of_zookeeper_have_another_leader_when_the_first_is_killed() {
    let url = |hosts| format!("zk://membership:secret@{hosts}");
    another_leads(Kind::ZooKeeper, Some("secret"), url).await;
}

#[tokio::test]
async fn servers_of_consul_have_another_leader_when_the_first_is_killed() {
    const TOKEN: &str = "0c0ffee0-5ec2-4e75-8a11-5add1e5ba77e";
    let url = |hosts| format!("consul://:{TOKEN}@{hosts}");
    another_leads(Kind::Consul, Some(TOKEN), url).await;
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

async fn life(kind: Kind) {
    let server = match Server::start(
        kind,
        Options {
            durable: true,
            ..Options::default()
        },
    )
    .await
    {
        Ok(server) if server.how() == How::External => return is_left_alone(&server).await,
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

    // Without a client the server's life is watched, and its data is left to the conformance suites.
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
        "nobody listens after a kill"
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
        "nobody listens any more"
    );
    if let Some(folder) = folder {
        gone(&folder);
    }
}

/// What the environment names is nobody's here to stop.
async fn is_left_alone(server: &Server) {
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
async fn a_password_is_asked_for() {
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
        assert!(!refused.0, "{kind} lets anybody in: {}", refused.1);
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
    // Until the whole line is there, or the program gave up.
    while !said.contains(" is all\n") {
        let mut some = [0; 256];
        let length = out.read(&mut some).expect("readable");
        if length == 0 {
            break;
        }
        said.push_str(&String::from_utf8_lossy(&some[..length]));
    }
    child.kill().expect("killed");
    child.wait().expect("gone");
    if said.contains("skipped is all") {
        return;
    }
    let line = said
        .lines()
        .find(|line| line.ends_with(" is all"))
        .expect("it said where its server is");
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

/// Not a test by itself: the program of the test above.
#[tokio::test]
async fn the_program_that_is_killed() {
    if std::env::var_os(DIES).is_none() {
        return;
    }
    let server = Server::start(Kind::Postgres, Options::default())
        .await
        .expect("starts");
    if server.how() != How::Local {
        println!("skipped is all");
        return;
    }
    let pid = server.process_id().expect("ours").expect("runs");
    let mut pids = vec![pid.to_string()];
    let children =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    pids.extend(children.split_whitespace().map(str::to_owned));
    // Stopped processes do not notice that their parent died.
    server.pause().await.expect("pauses");
    println!(
        "\nprocesses {} {} is all",
        pids.join(","),
        server.folder().expect("ours").display()
    );
    std::thread::sleep(DEADLINE);
}

const DIES: &str = "MEMBERSHIP_TEST_LAUNCH_DIES";

#[tokio::test]
async fn a_server_with_tls_serves_with_a_certificate_of_its_authority() {
    for kind in Kind::ALL.iter().copied() {
        let server = match Server::start(
            kind,
            Options {
                tls: true,
                ..Options::default()
            },
        )
        .await
        {
            Err(LaunchError::External { .. }) => continue,
            // The one's package was built without, the others are emulators that are given plain connections.
            Err(LaunchError::Unsupported { .. })
                if matches!(kind, Kind::Valkey | Kind::Azurite | Kind::DynamoDb) =>
            {
                continue;
            }
            other => other.expect("starts"),
        };
        let ca = server.tls().expect("certificates").ca.clone();
        let (address, port) = (server.address(), server.address().port().to_string());
        let ca_text = ca.to_string_lossy().into_owned();
        let mut command = match kind {
            Kind::Etcd => {
                let mut command = server.command("etcdctl").expect("installed");
                command.env("ETCDCTL_API", "3").args([
                    &format!("--endpoints=https://{address}"),
                    "--cacert",
                    &ca_text,
                ]);
                command.args(["endpoint", "health"]);
                command
            }
            Kind::Redis => {
                let mut command = server.command("redis-cli").expect("installed");
                command.args(["-p", &port, "--tls", "--cacert", &ca_text, "PING"]);
                command
            }
            Kind::Postgres => {
                let mut command = server.command("psql").expect("installed");
                let text = format!(
                    "host={} port={port} user=postgres sslmode=verify-full sslrootcert={ca_text}",
                    address.ip()
                );
                command.args([
                    "-Atc",
                    "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
                    &text,
                ]);
                command
            }
            Kind::MariaDb => {
                let mut command = server.command("mariadb").expect("installed");
                command.args([
                    "--no-defaults",
                    "-h",
                    "127.0.0.1",
                    "-P",
                    &port,
                    "-u",
                    "root",
                    "--ssl-verify-server-cert",
                ]);
                command
                    .arg(format!("--ssl-ca={ca_text}"))
                    .args(["-Ne", "SHOW STATUS LIKE 'Ssl_cipher'"]);
                command
            }
            // It brings no client program; that it answered over its socket and listens is what the launcher looked at.
            _ => continue,
        };
        let output = command.output().expect("runs");
        // etcdctl says on the other stream how it is.
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{kind}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let proof = if kind == Kind::Redis {
            "PONG"
        } else if kind == Kind::Etcd {
            "is healthy"
        } else if kind == Kind::Postgres {
            "t"
        } else {
            "TLS"
        };
        assert!(said.contains(proof), "{kind} said: {said}");
    }
}

/// Redis, Valkey, DynamoDB and Consul are asked by a few bytes, the others by the client programs that are installed beside a server. Azurite, MongoDB,
/// ZooKeeper and Cassandra have none, and what Azurite was told since it last wrote its data is lost with a kill.
fn has_client(server: &Server) -> bool {
    match server.kind() {
        Kind::Redis | Kind::Valkey | Kind::DynamoDb | Kind::Consul => true,
        Kind::Azurite | Kind::MongoDb | Kind::ZooKeeper | Kind::Cassandra => false,
        _ => server.how() == How::Local,
    }
}

fn write(server: &Server, value: &str) {
    if server.kind() == Kind::DynamoDb {
        // Refused where the table is there already.
        dynamodb_call(
            server,
            "CreateTable",
            r#"{"TableName":"it1","BillingMode":"PAY_PER_REQUEST","KeySchema":[{"AttributeName":"k","KeyType":"HASH"}],
                "AttributeDefinitions":[{"AttributeName":"k","AttributeType":"S"}]}"#,
        );
        let item = format!(
            r#"{{"TableName":"it1","Item":{{"k":{{"S":"it"}},"value":{{"S":"{value}"}}}}}}"#
        );
        let said = dynamodb_call(server, "PutItem", &item);
        assert!(said.starts_with("HTTP/1.1 200"), "not written: {said}");
        return;
    }
    let sql = format!(
        "{}CREATE TABLE IF NOT EXISTS it (value TEXT); DELETE FROM it; INSERT INTO it VALUES ('{value}')",
        if server.kind() == Kind::MariaDb {
            "USE membership; "
        } else {
            ""
        }
    );
    let (done, said) = client(server, None, &sql, &["SET", "it", value]);
    assert!(done, "not written: {said}");
}

/// What was written; empty if nothing was.
fn read(server: &Server) -> String {
    if server.kind() == Kind::DynamoDb {
        let said = dynamodb_call(
            server,
            "GetItem",
            r#"{"TableName":"it1","ConsistentRead":true,"Key":{"k":{"S":"it"}}}"#,
        );
        let value = said
            .split(r#""value":{"S":""#)
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        return value.unwrap_or_default().to_owned();
    }
    let sql = match server.kind() {
        Kind::MariaDb => "USE membership; SELECT value FROM it",
        _ => "SELECT value FROM it",
    };
    let (done, said) = client(server, None, sql, &["GET", "it"]);
    if done {
        said.trim().to_owned()
    } else {
        String::new()
    }
}

/// Asks the server by its own client program; for Redis and Valkey by a few bytes. Whether it did it, and what it said.
fn client(server: &Server, password: Option<&str>, sql: &str, redis: &[&str]) -> (bool, String) {
    let port = server.address().port().to_string();
    let known = server.url().contains('%').then_some("pass'w ö/@");
    let password = password.or(known);
    let mut command = match server.kind() {
        Kind::Postgres => {
            let mut command = server.command("psql").expect("installed");
            command.args([
                "-h",
                "127.0.0.1",
                "-p",
                &port,
                "-U",
                "postgres",
                "-w",
                "-Atqc",
                sql,
            ]);
            command.env("PGPASSWORD", password.unwrap_or_default());
            command
        }
        Kind::MariaDb => {
            let mut command = server.command("mariadb").expect("installed");
            command.args([
                "--no-defaults",
                "-h",
                "127.0.0.1",
                "-P",
                &port,
                "-u",
                "root",
                "-Ne",
                sql,
            ]);
            command.env("MYSQL_PWD", password.unwrap_or_default());
            command
        }
        Kind::Consul => return consul_call(server, password, redis),
        Kind::Etcd => {
            let mut command = server.command("etcdctl").expect("installed");
            let words: Vec<&str> = match redis {
                ["GET", key] => vec!["get", "--print-value-only", key],
                _ => [&["put"], &redis[1..]].concat(),
            };
            command
                .env("ETCDCTL_API", "3")
                .arg(format!("--endpoints=http://{}", server.address()))
                .args(words);
            if let Some(password) = password {
                command.arg(format!("--user=root:{password}"));
            }
            command
        }
        _ => return redis_call(server, password, redis),
    };
    let output = command.output().expect("runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr),
    )
}

fn dynamodb_call(server: &Server, operation: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    let who = "AWS4-HMAC-SHA256 Credential=local/20200101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0";
    let head = format!(
        "Host: localhost\r\nConnection: close\r\nAuthorization: {who}\r\nContent-Type: application/x-amz-json-1.0"
    );
    let target = format!(
        "X-Amz-Target: DynamoDB_20120810.{operation}\r\nContent-Length: {}",
        body.len()
    );
    stream
        .write_all(format!("POST / HTTP/1.1\r\n{head}\r\n{target}\r\n\r\n{body}").as_bytes())
        .expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("answers");
    said
}

/// `SET key value` or `GET key`.
fn consul_call(server: &Server, token: Option<&str>, words: &[&str]) -> (bool, String) {
    let mut stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    let token = token.map_or_else(String::new, |token| format!("X-Consul-Token: {token}\r\n"));
    let value = words.get(2).copied().unwrap_or_default();
    let (method, query) = if words[0] == "SET" {
        ("PUT", "")
    } else {
        ("GET", "?raw&consistent")
    };
    let head = format!(
        "Host: localhost\r\nConnection: close\r\n{token}Content-Length: {}",
        value.len()
    );
    stream
        .write_all(
            format!(
                "{method} /v1/kv/{}{query} HTTP/1.1\r\n{head}\r\n\r\n{value}",
                words[1]
            )
            .as_bytes(),
        )
        .expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("answers");
    let body = said.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (said.starts_with("HTTP/1.1 200"), body.to_owned())
}

fn redis_call(server: &Server, password: Option<&str>, words: &[&str]) -> (bool, String) {
    let mut stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    let mut request = String::new();
    let mut ask = |words: &[&str]| {
        request.push_str(&format!("*{}\r\n", words.len()));
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
    };
    if let Some(password) = password {
        ask(&["AUTH", password]);
    }
    ask(words);
    ask(&["QUIT"]);
    stream.write_all(request.as_bytes()).expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("answers");
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| *line != "+OK" && !line.starts_with('$'))
        .collect();
    (
        !said.contains("-ERR") && !said.contains("-WRONGPASS") && !said.contains("-NOAUTH"),
        lines.join("\n"),
    )
}

fn gone(folder: &Path) {
    until("the server's folder is gone", || !folder.exists());
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
