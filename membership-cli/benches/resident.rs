//! How much memory one silo needs that knows 1,000 members:
//! `cargo bench -p membership-cli --bench resident`.
//!
//! This process simulates 999 silos, each on a loopback listener of its own with the real
//! transport: they make handshakes, answer probes, dial back, and write heartbeats; ten of them
//! probe. The program itself (`membership silo`, optimised) joins over a SQLite file, twice: once
//! when all of them are there, so that it dials all of them and all of them dial it, and once when
//! ten are there and the others come later, so that it knows them and is connected to those alone
//! that it probes and that probe it. Then two changes are committed without a message to the
//! program, so that it finds each by a refresh of its own. After the second refresh its resident
//! memory is read from `/proc` while its connections are open.
//!
//! Fails above 60 MiB with all connections, and above 24 MiB with the few. Needs Linux, and about
//! 4,000 open files (it raises the limit of its own processes as far as it is allowed to).

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod support;

use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use membership::transport::{
    Encoder, Hello, Inbound, MessageInbox, Messages, TcpConfig, TcpTransport, Transport,
};
use membership_core::protocol::{Destination, Header, LinkId, Message};
use membership_core::{
    ClusterKey, ClusterName, ClusterView, CommitId, CommitOutcome, CommitRequest, Config,
    Heartbeat, HeartbeatWrite, InitializeRequest, InstanceId, MembershipEntry, MembershipTable,
    Preset, SiloAddress, SiloStatus, TableExt, TableId, WallTime,
};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

const OTHERS: u16 = 999;
/// What is measured: how many silos are there when the program joins, and the limit in KiB.
const CASES: [(&str, usize, u64); 2] = [
    ("connected to all 999", OTHERS as usize, 60 * 1024),
    ("connected to those of its rings", PROBERS, 24 * 1024),
];
const FILES: u64 = 4_096;
/// What the configuration advises for more than 200 silos.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(30);
/// How many silos probe the program, as in a cluster where each silo probes ten.
const PROBERS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    // `cargo test --all-targets` runs benchmarks without this argument.
    if !std::env::args().any(|a| a == "--bench") {
        println!("not measured: run it with `cargo bench`");
        return ExitCode::SUCCESS;
    }
    support::open_files(FILES);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    println!(
        "{:<46} {:>9} {:>9} {:>6}  ok",
        "a silo that knows 1,000", "KiB", "limit", "ratio"
    );
    let mut ok = true;
    for (name, there, limit) in CASES {
        let memory = runtime.block_on(measure(there));
        let holds = memory.resident <= limit;
        let ratio = memory.resident as f64 / limit as f64;
        let verdict = if holds { "yes" } else { "NO" };
        println!(
            "{name:<46} {:>9} {limit:>9} {ratio:>6.2}  {verdict}",
            memory.resident
        );
        println!(
            "{:<46} {:>9}",
            "  of it anonymous (heap and stacks)", memory.anonymous
        );
        println!("{:<46} {:>9}", "  at its most since the start", memory.most);
        println!("{:<46} {:>9}", "  open files", memory.files);
        ok &= holds;
    }
    if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Of the silos, `there` are in the table when the program joins.
async fn measure(there: usize) -> Memory {
    let place = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite:{}", place.path().join("membership.db").display());
    let cluster: ClusterName = "resident".parse().expect("a name");
    let table = membership::connect(&url, cluster.clone())
        .await
        .expect("a table");
    let others = play(&cluster).await;
    initialize(&*table).await;
    let (first, later) = others.split_at(there);
    fill(&*table, first, &others).await;
    let beats = tokio::spawn(beat(table.clone(), others.iter().map(|o| o.silo).collect()));

    let config = place.path().join("silo.toml");
    std::fs::write(
        &config,
        format!(
            "table_refresh_period = \"2s\"\ni_am_alive_period = \"{}s\"\n",
            HEARTBEAT_PERIOD.as_secs()
        ),
    )
    .expect("a file");
    let mut silo = Silo::start(&[
        "silo",
        "--json",
        "--table",
        &url,
        "--cluster",
        "resident",
        "--listen",
        "127.0.0.1:0",
        "--config",
        config.to_str().expect("a readable path"),
    ]);
    let active = silo.wait(|e| e["event"] == "active").await;
    let address: SiloAddress = active["silo"]
        .as_str()
        .expect("its address")
        .parse()
        .expect("an address");
    fill(&*table, later, &others).await;
    let mut probes = JoinSet::new();
    for other in others.iter().take(PROBERS) {
        probes.spawn(other.clone().probe(address));
    }
    for round in 1..=2 {
        let version = change(&*table, others[0].silo, round).await;
        let view = silo
            .wait(|e| e["event"] == "view" && e["version"].as_u64() >= Some(version))
            .await;
        let members = view["members"].as_array().map_or(0, Vec::len);
        assert_eq!(
            members,
            usize::from(OTHERS) + 1,
            "members in the view of version {version}"
        );
    }
    // The program still prints the view, which is part of the work: wait until it is done.
    sleep(Duration::from_millis(500)).await;
    let memory = silo.memory();
    beats.abort();
    drop(probes);
    silo.child.kill().await.expect("it ends");
    memory
}

/// The memory of a process as the system reports it, in KiB.
struct Memory {
    resident: u64,
    anonymous: u64,
    most: u64,
    files: usize,
}

struct Silo {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Silo {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_membership"));
        let mut child = command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, lines }
    }

    async fn wait(&mut self, mut done: impl FnMut(&Value) -> bool) -> Value {
        let search = async {
            while let Some(line) = self
                .lines
                .next_line()
                .await
                .expect("its output can be read")
            {
                let event: Value = serde_json::from_str(&line).expect("JSON");
                if done(&event) {
                    return event;
                }
            }
            panic!("the silo ended");
        };
        timeout(PATIENCE, search)
            .await
            .expect("the silo says it in time")
    }

    fn memory(&self) -> Memory {
        let process = format!("/proc/{}", self.child.id().expect("it runs"));
        let status = std::fs::read_to_string(format!("{process}/status")).expect("its status");
        let field = |name: &str| {
            let line = status
                .lines()
                .find_map(|l| l.strip_prefix(name))
                .expect("a field of the status");
            line.trim_start_matches(':')
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .expect("a number")
        };
        let files = std::fs::read_dir(format!("{process}/fd"))
            .expect("its files")
            .count();
        Memory {
            resident: field("VmRSS"),
            anonymous: field("RssAnon"),
            most: field("VmHWM"),
            files,
        }
    }
}

/// A silo that this process simulates.
#[derive(Clone)]
struct Other {
    silo: SiloAddress,
    instance: InstanceId,
    cluster: u64,
    transport: Arc<TcpTransport>,
}

async fn play(cluster: &ClusterName) -> Vec<Other> {
    let mut others = Vec::new();
    for _ in 0..OTHERS {
        let transport = TcpTransport::bind_with(
            "127.0.0.1:0".parse().expect("an address"),
            TcpConfig::default(),
        );
        let transport = Arc::new(transport.await.expect("a listener"));
        let silo = SiloAddress::at(transport.local_addr(), 1_763_000_000_000);
        let instance = transport.instance().expect("a key");
        let hello = Hello::new(cluster.clone(), silo.endpoint(), instance);
        let (inbox, messages) = MessageInbox::channel(16);
        transport.start(hello, inbox).await.expect("a transport");
        let other = Other {
            silo,
            instance,
            cluster: cluster.fingerprint(),
            transport,
        };
        tokio::spawn(other.clone().answer(messages));
        others.push(other);
    }
    others
}

impl Other {
    /// Answers the requests of a joining silo; knows every silo that the joining silo knows.
    async fn answer(self, mut messages: Messages) {
        while let Some(inbound) = messages.recv().await {
            let Inbound::Message {
                link, header, body, ..
            } = inbound
            else {
                continue;
            };
            match *body {
                Message::Probe { nonce } => self.reply(link, &header, Message::ProbeAck { nonce }),
                Message::DialMe { nonce, endpoint } => self.send(
                    Destination::Fresh(endpoint),
                    &header,
                    Message::DialBack { nonce },
                ),
                Message::Identify { nonce } => {
                    let (silo, instance) = (Some(self.silo), self.instance);
                    self.reply(
                        link,
                        &header,
                        Message::Identity {
                            nonce,
                            silo,
                            instance,
                            host: "fixture".to_owned(),
                        },
                    );
                }
                _ => {}
            }
        }
    }

    fn reply(&self, link: LinkId, asked: &Header, body: Message) {
        self.send(Destination::Link(link), asked, body);
    }

    fn send(&self, to: Destination, asked: &Header, body: Message) {
        let mut header = asked.clone();
        header.from = self.silo;
        header.instance = self.instance;
        header.to = Some(asked.from);
        self.send_with(to, &header, body);
    }

    fn send_with(&self, to: Destination, header: &Header, body: Message) {
        let message = Encoder::default().encode(header, &Arc::new(body));
        self.transport.send(to, message.expect("a message"));
    }

    async fn probe(self, silo: SiloAddress) {
        let mut ticks = interval(Duration::from_secs(2));
        for nonce in 0.. {
            ticks.tick().await;
            let mut header = Header::new(self.cluster, self.silo, self.instance);
            header.to = Some(silo);
            self.send_with(
                Destination::Endpoint(silo.endpoint()),
                &header,
                Message::Probe { nonce },
            );
        }
    }
}

async fn initialize(table: &dyn MembershipTable) {
    let mut config = Config::preset(Preset::Lan);
    config.i_am_alive_period = HEARTBEAT_PERIOD;
    let settings = config.shared();
    let request = InitializeRequest::new(TableId::new(1), settings, ClusterKey::new([7; 32]));
    table.initialize(&request).await.expect("initialized");
}

/// The rows of silos, Active, as a server has one; then all know each other.
async fn fill(table: &dyn MembershipTable, new: &[Other], all: &[Other]) {
    let rows: Vec<MembershipEntry> = new.iter().map(row).collect();
    for part in rows.chunks(table.limits().rows_per_commit.min(100)) {
        insert(table, part).await;
    }
    let view = ClusterView::confirmed(table.read_all().await.expect("read").0, None);
    for other in all {
        other.transport.update(Some(other.silo), &view);
    }
    for other in new {
        let heartbeat = Heartbeat {
            counter: 1,
            at: now(),
        };
        table
            .update_i_am_alive(&HeartbeatWrite::Silo {
                silo: other.silo,
                heartbeat,
            })
            .await
            .expect("a heartbeat");
    }
}

async fn insert(table: &dyn MembershipTable, rows: &[MembershipEntry]) {
    loop {
        let token = table.read_all().await.expect("read").0.token;
        let id = CommitId::new(1_000_000 + u128::from(token.version()));
        let commit = CommitRequest::new(token, id, None, rows.to_vec(), [], []);
        if let CommitOutcome::Committed(_) = table.commit(&commit).await.expect("committed") {
            return;
        }
    }
}

fn row(other: &Other) -> MembershipEntry {
    let i = other.silo.port();
    let mut e = MembershipEntry::new(
        other.silo,
        other.instance,
        WallTime::from_millis(other.silo.epoch()),
    );
    e.status = SiloStatus::Active;
    e.active_since = Some(1);
    e.info.gateway_port = 30_000;
    e.info.host_name = format!("node-{i}.rack-{}.example.net", i % 40);
    e.info.silo_name = format!("orders-{i}");
    e.info.role = "orders".to_owned();
    e.info.zone = format!("zone-{}", i % 3);
    e.info.metadata = [
        ("build", format!("2026.11.{}", i % 28)),
        ("shard", (i % 64).to_string()),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into();
    e
}

/// Moves every heartbeat once in a period.
async fn beat(table: Arc<dyn MembershipTable>, silos: Vec<SiloAddress>) {
    for counter in 2.. {
        for silo in &silos {
            sleep(HEARTBEAT_PERIOD / u32::from(OTHERS)).await;
            let heartbeat = Heartbeat { counter, at: now() };
            table
                .update_i_am_alive(&HeartbeatWrite::Silo {
                    silo: *silo,
                    heartbeat,
                })
                .await
                .expect("a heartbeat");
        }
    }
}

/// Changes one row without a message to any silo; returns the version of the change.
async fn change(table: &dyn MembershipTable, silo: SiloAddress, round: u32) -> u64 {
    for attempt in 0.. {
        let snapshot = table.read_all().await.expect("read").0;
        let mut entry = snapshot.rows.get(&silo).expect("its row").clone();
        entry
            .info
            .metadata
            .insert("round".to_owned(), round.to_string());
        let id = CommitId::new(u128::from(1_000 * round + attempt));
        let commit = CommitRequest::new(snapshot.token, id, None, [], [entry], []);
        if let CommitOutcome::Committed(token) = table.commit(&commit).await.expect("committed") {
            return token.version();
        }
    }
    unreachable!("it loops until it returns")
}

fn now() -> WallTime {
    let since = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default();
    WallTime::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
