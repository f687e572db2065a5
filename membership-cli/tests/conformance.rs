//! The suite, run by the program: its output, and that it leaves nothing in the store.
#![cfg(feature = "conformance")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex};

use membership_cli::{Connectors, Exit};
use membership_core::{MembershipTable, MemoryTable};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Place, active};

fn nothing_left(place: &Place) {
    let connection = rusqlite::Connection::open(place.file()).unwrap();
    for table in ["version", "silo", "heartbeat", "cell"] {
        let sql = format!("SELECT count(*) FROM membership_{table}");
        assert_eq!(
            connection
                .query_row(&sql, [], |row| row.get::<_, u32>(0))
                .unwrap(),
            0,
            "{table}"
        );
    }
}

#[test]
fn a_store_that_keeps_the_contract() {
    let place = Place::new();
    let ran = place
        .run(&[
            "conformance",
            "--effort",
            "quick",
            "--seed",
            "7",
            "--json",
            "--cluster",
            "try",
        ])
        .expect(0);
    let lines: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (summary, cases) = lines.split_last().unwrap();
    assert!(cases.len() > 40);
    assert_eq!(
        (&summary["failed"], &summary["seed"], &summary["store"]),
        (&0.into(), &7.into(), &"sqlite".into())
    );
    let outcome = |name: &str| &cases.iter().find(|case| case["name"] == name).unwrap()["outcome"];
    assert_eq!(outcome("clusters_with_nasty_names_are_isolated"), "passed");
    assert_eq!(
        outcome("a_killed_client_leaves_a_whole_table"),
        "passed",
        "the program is its own child"
    );
    assert_eq!(
        outcome("a_wiped_table_is_reported"),
        "not_applicable",
        "an address alone does not allow a wipe"
    );
    nothing_left(&place);
}

#[test]
fn cases_can_be_chosen() {
    let place = Place::new();
    let ran = place
        .run(&["conformance", "--clause", "t7", "--case", "heartbeat"])
        .expect(0);
    assert!(
        ran.out.lines().count() > 2
            && ran
                .out
                .lines()
                .rev()
                .skip(1)
                .all(|line| line.contains("T7")),
        "{}",
        ran.out
    );
    let listed = place
        .run(&["conformance", "--list", "--clause", "T7"])
        .expect(0)
        .out;
    assert!(
        listed.lines().all(|line| line.contains("T7"))
            && listed.contains("a_heartbeat_changes_only_the_heartbeat"),
        "{listed}"
    );
    assert!(
        place
            .run(&["conformance", "--case", "no_such_case"])
            .expect(2)
            .err
            .contains("--list")
    );
    place.run(&["conformance", "--clause", "T99"]).expect(2);
}

/// A name that begins like those of the suite itself nevertheless means one cluster for all
/// clients.
#[test]
fn clusters_may_have_the_names_of_the_suite() {
    for name in [
        "conformance-7",
        "conformance-7abc",
        "conformance",
        "x/conformance-7",
    ] {
        let place = Place::new();
        let cases = [
            "--case",
            "initialize_never_resets",
            "--case",
            "nasty_names",
            "--case",
            "a_killed_client",
        ];
        place
            .run(
                &[
                    &[
                        "conformance",
                        "--effort",
                        "quick",
                        "--seed",
                        "7",
                        "--cluster",
                        name,
                    ],
                    cases.as_slice(),
                ]
                .concat(),
            )
            .expect(0);
        nothing_left(&place);
    }
}

#[test]
fn a_cluster_that_exists_is_left_alone() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(1)]);
    let ran = place
        .run(&["conformance", "--cluster", "default"])
        .expect(2);
    assert!(ran.err.contains("exists"), "{ran:?}");
    assert!(ran.out.is_empty(), "{ran:?}");
    assert!(place.entry(&table, support::silo(1)).is_some());
}

#[test]
fn a_store_that_cannot_be_reached_is_no_failed_case() {
    let place = Place::new();
    let ran = place.run(&["conformance", "--table", "sqlite:/nowhere/at/all.db"]);
    assert!(
        matches!(ran.code, Some(2 | 5)) && ran.out.is_empty(),
        "{ran:?}"
    );
}

/// Captures the output of the program in this process.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Paper {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn a_store_that_breaks_the_contract() {
    let mut connectors = Connectors::empty();
    // Every client has a table of its own, so that no client sees the commits of others.
    connectors
        .register("lonely", |_, cluster| {
            Box::pin(
                async move { Ok(Arc::new(MemoryTable::new(cluster)) as Arc<dyn MembershipTable>) },
            )
        })
        .unwrap();
    let (out, err) = (Paper::default(), Paper::default());
    let line = [
        "membership",
        "conformance",
        "--table",
        "lonely:",
        "--case",
        "conflicts_change_nothing",
        "--seed",
        "5",
    ];
    assert_eq!(
        membership_cli::run(connectors, line.map(Into::into), out.clone(), err.clone()),
        Exit::Failed
    );
    let (out, err) = (out.text(), err.text());
    assert!(
        out.contains("FAILED") && out.contains("T3: a conflict is"),
        "{out}"
    );
    assert!(
        out.contains("--seed 5 --case "),
        "how to see it again: {out}"
    );
    assert!(err.contains("does not keep the contract"), "{err}");
}

/// One server with a password, which is what users have. The cases that need a proxy between the
/// program and the server run as well.
#[cfg(feature = "redis")]
mod server {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use membership_testbed::{Kind, LaunchError, Options, Server};

    use super::*;

    const SECRET: &str = "correct-horse-battery-staple";

    /// None if the environment names a server, whose contents the test must not inspect.
    fn start() -> Option<(tokio::runtime::Runtime, Server)> {
        start_one(Kind::Redis, Some(SECRET))
    }

    fn start_one(kind: Kind, password: Option<&str>) -> Option<(tokio::runtime::Runtime, Server)> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let options = Options {
            password: password.map(str::to_owned),
            ..Options::default()
        };
        match runtime.block_on(Server::start(kind, options)) {
            Err(LaunchError::External { .. }) => {
                eprintln!("not applicable: the server is external");
                None
            }
            server => Some((runtime, server.unwrap())),
        }
    }

    /// Every key in the server, as the server lists them.
    fn keys(server: &Server) -> String {
        let mut connection = TcpStream::connect(server.address()).unwrap();
        connection
            .write_all(format!("AUTH {SECRET}\r\nKEYS *\r\nQUIT\r\n").as_bytes())
            .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
            .strip_prefix("+OK\r\n")
            .unwrap()
            .strip_suffix("+OK\r\n")
            .unwrap()
            .to_owned()
    }

    const NONE: &str = "*0\r\n";

    #[test]
    fn is_proved_through_a_proxy_and_left_empty() {
        let Some((_runtime, server)) = start() else {
            return;
        };
        let place = Place::at(server.url(), "default");
        let proxied = [
            "commit_cut_at_every_stage",
            "a_lost_answer_is_an_unknown_outcome",
            "an_unreachable_server",
            "round_trips",
        ];
        let others = [
            "secrets_do_not_show",
            "random_operations",
            "a_killed_client",
            "a_restart_loses_nothing",
        ];
        let mut line = vec![
            "conformance",
            "--effort",
            "quick",
            "--seed",
            "7",
            "--json",
            "--cluster",
            "try",
        ];
        line.extend(
            proxied
                .iter()
                .chain(&others)
                .flat_map(|case| ["--case", case]),
        );
        let ran = place.run(&line).expect(0);
        assert!(!format!("{ran:?}").contains(SECRET));
        let lines: Vec<Value> = ran
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let outcome = |part: &str| {
            let found = lines.iter().find(|line| {
                line["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with(part))
            });
            found.unwrap_or_else(|| panic!("no case {part}"))["outcome"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        for case in proxied.iter().chain(&others[..3]) {
            assert_eq!(outcome(case), "passed", "{case}");
        }
        assert_eq!(
            outcome("a_restart_loses_nothing"),
            "not_applicable",
            "an address alone does not allow a stop"
        );
        assert_eq!(keys(&server), NONE);
    }

    /// The suite's longest names are longer than those of this run, whose prefix is another one.
    #[test]
    fn the_longest_names_fit() {
        let Some((_runtime, server)) = start() else {
            return;
        };
        let case = "--case=clusters_with_the_longest_names_are_isolated";
        let ran = Place::at(server.url(), "default").run(&["conformance", case]);
        let ran = ran.expect(0);
        assert!(ran.out.contains("1 passed"), "{ran:?}");
    }

    /// Over this store an address is enough to stage lost answers.
    fn loses_answers(kind: Kind, password: Option<&str>) {
        let Some((_runtime, server)) = start_one(kind, password) else {
            return;
        };
        let place = Place::at(server.url(), "default");
        let cases = [
            "commit_cut_at_every_stage",
            "a_lost_answer_is_an_unknown_outcome",
            "round_trips",
        ];
        let mut line = vec![
            "conformance",
            "--effort",
            "quick",
            "--json",
            "--cluster",
            "try",
        ];
        line.extend(cases.iter().flat_map(|case| ["--case", case]));
        let ran = place.run(&line).expect(0);
        for case in cases {
            let passed = ran.out.lines().any(|line| {
                let line: Value = serde_json::from_str(line).unwrap();
                line["name"] == case && line["outcome"] == "passed"
            });
            assert!(passed, "{case}: {ran:?}");
        }
    }

    /// A certificate is checked, and the name in the URL leads through a proxy.
    #[cfg(feature = "etcd")]
    #[test]
    fn answers_are_lost_over_tls() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let options = Options {
            tls: true,
            local: true,
            password: Some(SECRET.to_owned()),
            ..Options::default()
        };
        let server = runtime
            .block_on(Server::start(Kind::Etcd, options))
            .unwrap();
        let (ca, real) = (
            server.tls().unwrap().ca.display().to_string(),
            server.address(),
        );
        let listen = format!("127.0.0.1:{}", membership_testbed::free_port().unwrap());
        let url = format!("{}?tls_ca={ca}", server.url());
        let through = format!("--proxy={listen}={real}");
        let line = [
            "conformance",
            "--effort=quick",
            "--json",
            "--cluster=try",
            &through,
        ];
        let case = "--case=commit_cut_at_every_stage";
        // The URL leads past the proxy.
        let past = Place::at(&url, "default").run(&[&line[..], &[case]].concat());
        let past = past.expect(2);
        assert!(past.err.contains("/etc/hosts"), "{past:?}");
        let url = url.replace(&real.to_string(), &listen);
        let ran = Place::at(&url, "default").run(&[&line[..], &[case]].concat());
        let ran = ran.expect(0);
        let passed = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["name"] == "commit_cut_at_every_stage" && line["outcome"] == "passed"
        };
        assert!(ran.out.lines().any(passed), "{ran:?}");
    }

    macro_rules! loses_answers {
        ($($test:ident, $feature:literal, $kind:ident, $password:expr;)+) => {
            $(
                #[cfg(feature = $feature)]
                #[test]
                fn $test() {
                    loses_answers(Kind::$kind, $password);
                }
            )+
        };
    }

    loses_answers! {
        answers_are_lost_over_postgres, "postgres", Postgres, Some(SECRET);
        answers_are_lost_over_mariadb, "mysql", MariaDb, Some(SECRET);
        answers_are_lost_over_etcd, "etcd", Etcd, Some(SECRET);
        answers_are_lost_over_nats, "nats", Nats, Some(SECRET);
        answers_are_lost_over_consul, "consul", Consul, Some(SECRET);
        answers_are_lost_over_zookeeper, "zk", ZooKeeper, Some(SECRET);
        answers_are_lost_over_mongodb, "mongodb", MongoDb, Some(SECRET);
        answers_are_lost_over_cassandra, "cassandra", Cassandra, None;
        answers_are_lost_over_dynamodb, "dynamodb", DynamoDb, None;
        answers_are_lost_over_azurite, "azure-table", Azurite, None;
    }

    #[test]
    fn an_interrupted_run_leaves_nothing() {
        let Some((_runtime, server)) = start() else {
            return;
        };
        let place = Place::at(server.url(), "default");
        let mut child = place
            .command(&[
                "conformance",
                "--effort",
                "soak",
                "--case",
                "history_is_explained",
            ])
            .spawn()
            .unwrap();
        let until = std::time::Instant::now() + support::secs(30);
        while keys(&server) == NONE {
            assert!(std::time::Instant::now() < until, "it did not begin");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert_eq!(keys(&server), NONE);
    }

    #[test]
    fn a_cluster_that_exists_is_left_alone() {
        let Some((_runtime, server)) = start() else {
            return;
        };
        let place = Place::at(server.url(), "default");
        // The connection is refused in the same way as that of a table that exists.
        let began = place
            .command(&[
                "silo",
                "--listen",
                "127.0.0.1:0",
                "--preset",
                "local",
                "--json",
            ])
            .spawn();
        let mut silo = began.unwrap();
        let active = BufReader::new(silo.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .any(|line| line.contains("active"));
        let _ = kill_process(Pid::from_child(&silo), Signal::KILL);
        silo.wait().unwrap();
        let before = keys(&server);
        assert!(active && before != NONE);
        let ran = place
            .run(&["conformance", "--cluster", "default"])
            .expect(2);
        assert!(ran.err.contains("exists") && ran.out.is_empty(), "{ran:?}");
        assert_eq!(keys(&server), before);
    }
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let place = Place::new();
    let mut child = place
        .command(&[
            "conformance",
            "--effort",
            "soak",
            "--case",
            "history_is_explained",
        ])
        .spawn()
        .unwrap();
    let until = std::time::Instant::now() + support::secs(30);
    let rows = || -> Option<u32> {
        let connection = rusqlite::Connection::open(place.file()).ok()?;
        connection
            .query_row("SELECT count(*) FROM membership_version", [], |row| {
                row.get(0)
            })
            .ok()
    };
    while !place.file().exists() || rows().is_none_or(|rows| rows == 0) {
        assert!(std::time::Instant::now() < until, "it did not begin");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .collect::<Vec<_>>();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("stopped before the end")),
        "{lines:?}"
    );
    nothing_left(&place);
}
