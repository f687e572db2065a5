//! What a flood of handshakes from one host does to a cluster:
//! `cargo bench -p membership-cli --bench flood`, and `-- --for 10m` for a long one.
//!
//! Five processes of the program (`membership silo`, optimised) on 127.0.0.1 to 127.0.0.5 share a
//! SQLite file. One thread at 127.0.0.66 opens connections to the first of them, 2,000 per second
//! (`--rate`): half of them make a TLS handshake with a key of their own and say a hello without a
//! proof, half send random bytes. In the middle a sixth silo joins and leaves.
//!
//! A short flood comes first, so that what the silo needs once is not counted. Fails if a silo
//! dies, if the sixth one needs more than 2 s, if the memory of the first is not within 10 % of
//! what it was 30 s after the flood, or if the flood has less than half its rate. Needs Linux.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, SignatureScheme, version,
};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsConnector;

const SILOS: u8 = 5;
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
const JOIN_LIMIT: Duration = Duration::from_secs(2);
/// How much the memory of the attacked silo may have grown for good, in percent.
const GROWTH_LIMIT: f64 = 10.0;
const WARM_UP: Duration = Duration::from_secs(10);
/// How long after a flood memory is measured.
const QUIET: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections of the attacker at a time; the time that it gives each.
const OPEN: usize = 2_048;
const GIVE_UP: Duration = Duration::from_secs(3);
const FILES: u64 = 4_096;
const TICK: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    // `cargo test --all-targets` runs benchmarks without this argument.
    if !std::env::args().any(|a| a == "--bench") {
        println!("not measured: run it with `cargo bench`");
        return ExitCode::SUCCESS;
    }
    let length = option("--for").map_or(Duration::from_secs(60), |text| {
        humantime::parse_duration(&text).expect("a time, for example 10m")
    });
    let rate = option("--rate").map_or(2_000, |text| text.parse().expect("a number"));
    support::open_files(FILES);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let found = runtime.block_on(measure(length, rate));
    if found.print() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The value of an option of this program.
fn option(name: &str) -> Option<String> {
    let mut args = std::env::args().skip_while(|a| a != name).skip(1);
    args.next()
}

struct Found {
    rate: u64,
    length: Duration,
    counts: Counts,
    join_before: Duration,
    join_during: Duration,
    memory: [u64; 3],
    deaths: Vec<String>,
}

impl Found {
    /// Whether all is well.
    fn print(&self) -> bool {
        println!("{:<52} {:>12} {:>10}  ok", "name", "value", "limit");
        let mut all = true;
        let mut line = |name: &str, value: String, limit: Option<(&str, bool)>| {
            let (limit, verdict) = match limit {
                None => ("", ""),
                Some((limit, true)) => (limit, "yes"),
                Some((limit, false)) => {
                    all = false;
                    (limit, "NO")
                }
            };
            println!("{name:<52} {value:>12} {limit:>10}  {verdict}");
        };
        let per_second = |n: u64| n as f64 / self.length.as_secs_f64();
        let achieved = per_second(self.counts.begun);
        line(
            &format!("handshakes begun per second, of {}", self.rate),
            format!("{achieved:.0}"),
            Some(("half", achieved * 2.0 >= self.rate as f64)),
        );
        for (name, n) in [
            (
                "  of them TLS with a key of its own, completed",
                self.counts.tls,
            ),
            ("  closed before TLS was complete", self.counts.cut),
            ("  random bytes, closed by the silo", self.counts.garbage),
            ("  without an end within 3 s", self.counts.hung),
        ] {
            line(name, format!("{:.0}", per_second(n)), None);
        }
        line(
            "silos that died",
            self.deaths.len().to_string(),
            Some(("0", self.deaths.is_empty())),
        );
        for death in &self.deaths {
            println!("  {death}");
        }
        let ms = |d: Duration| format!("{} ms", d.as_millis());
        line("a sixth silo joins: before", ms(self.join_before), None);
        let in_time = self.join_during <= JOIN_LIMIT;
        let limit = Some(("2000 ms", in_time));
        line(
            "a sixth silo joins: in the middle",
            ms(self.join_during),
            limit,
        );
        let [before, during, after] = self.memory;
        let kib = |n: u64| format!("{n} KiB");
        line("resident memory of the attacked: before", kib(before), None);
        line("resident memory: at its most during it", kib(during), None);
        let growth = (after as f64 / before as f64 - 1.0) * 100.0;
        line(
            &format!("resident memory: 30 s after it ({growth:+.1} %)"),
            kib(after),
            Some(("10 %", growth <= GROWTH_LIMIT)),
        );
        all
    }
}

async fn measure(length: Duration, rate: u64) -> Found {
    let place = tempfile::tempdir().expect("a temporary folder");
    let table = place.path().join("membership.db");
    let mut silos = Vec::new();
    for n in 1..=SILOS {
        silos.push(Silo::start(&table, n));
    }
    for silo in &silos {
        silo.sees_active(SILOS.into()).await;
    }
    let victim = &silos[0];
    let to = victim.endpoint();
    let join_before = join(&table).await;

    println!("warming up for {WARM_UP:?}, then quiet for {QUIET:?}");
    let flood = Flood::begin(to, rate);
    sleep(WARM_UP).await;
    flood.end();
    sleep(QUIET).await;
    let before = victim.resident();

    println!("{rate} handshakes per second for {length:?}");
    let flood = Flood::begin(to, rate);
    let (middle, end) = (Instant::now() + length / 2, Instant::now() + length);
    let (mut during, mut join_during) = (before, None);
    while Instant::now() < end {
        if join_during.is_none() && Instant::now() >= middle {
            join_during = Some(join(&table).await);
        }
        during = during.max(victim.resident());
        sleep(Duration::from_millis(250).min(end.saturating_duration_since(Instant::now()))).await;
    }
    let counts = flood.end();

    println!("quiet for {QUIET:?}");
    sleep(QUIET).await;
    let after = victim.resident();
    let deaths = silos.iter_mut().flat_map(Silo::deaths).collect();
    Found {
        rate,
        length,
        counts,
        join_before,
        join_during: join_during.expect("the flood has a middle"),
        memory: [before, during, after],
        deaths,
    }
}

/// A silo joins and leaves; the time from its start until it is Active.
async fn join(table: &Path) -> Duration {
    let begun = Instant::now();
    let mut silo = Silo::start(table, SILOS + 1);
    silo.wait("it is Active", |line| line["event"] == "active")
        .await;
    let took = begun.elapsed();
    // It leaves when its standard input is closed.
    drop(silo.stdin.take());
    timeout(PATIENCE, silo.child.wait())
        .await
        .expect("it leaves")
        .expect("its exit code");
    took
}

/// A process of the program.
struct Silo {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Silo {
    fn start(table: &Path, n: u8) -> Self {
        let mut url = PathBuf::from("sqlite:").into_os_string();
        url.push(table);
        let mut child = Command::new(env!("CARGO_BIN_EXE_membership"))
            .args(["silo", "--json", "--exit-with-stdin", "--cluster", "flood"])
            .args(["--listen", &format!("127.0.0.{n}:0"), "--table"])
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("its output")).lines();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let told = lines.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = out.next_line().await {
                let line = serde_json::from_str(&line).expect("JSON");
                told.lock().unwrap().push(line);
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
        }
    }

    async fn wait(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let search = async {
            loop {
                if let Some(found) = self.lines.lock().unwrap().iter().find(|line| done(line)) {
                    return found.clone();
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, search).await.expect(what)
    }

    async fn sees_active(&self, count: usize) {
        let active = |line: &Value| {
            let members = line["members"].as_array().into_iter().flatten();
            members.filter(|m| m["status"] == "Active").count() == count
        };
        self.wait("it sees all others", active).await;
    }

    fn endpoint(&self) -> SocketAddr {
        let lines = self.lines.lock().unwrap();
        let active = lines.iter().find(|line| line["event"] == "active");
        let silo = active.expect("it is Active")["silo"].as_str().unwrap();
        let (endpoint, _epoch) = silo.split_once('@').unwrap();
        endpoint.parse().unwrap()
    }

    /// Its resident memory in KiB.
    fn resident(&self) -> u64 {
        let process = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        let status = status.expect("its status");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kib = line.expect("its memory").trim().trim_end_matches(" kB");
        kib.parse().expect("a number")
    }

    /// Silos that it has seen die, itself included; those that left are not among them.
    fn deaths(&mut self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        let views = lines.iter().filter(|line| line["event"] == "view");
        let members = views.flat_map(|view| view["members"].as_array().into_iter().flatten());
        let dead = members.filter(|m| m["status"] == "Dead" && m["cause"] != "left");
        let mut deaths: Vec<String> = dead.map(Value::to_string).collect();
        deaths.dedup();
        if let Some(status) = self.child.try_wait().expect("its state") {
            deaths.push(format!("it ended: {status}, {:?}", lines.last()));
        }
        deaths
    }
}

/// What became of the attacker's connections.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    begun: u64,
    tls: u64,
    cut: u64,
    garbage: u64,
    hung: u64,
}

#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    tls: AtomicU64,
    cut: AtomicU64,
    garbage: AtomicU64,
    hung: AtomicU64,
}

/// The attacker's thread.
struct Flood {
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    thread: JoinHandle<()>,
}

impl Flood {
    fn begin(to: SocketAddr, rate: u64) -> Self {
        let (stop, counters) = (Arc::new(AtomicBool::new(false)), Arc::<Counters>::default());
        let (stopped, counted) = (stop.clone(), counters.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(flood(to, rate, &stopped, &counted));
        });
        Self {
            stop,
            counters,
            thread,
        }
    }

    fn end(self) -> Counts {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("the attacker's thread");
        let counters = &self.counters;
        Counts {
            begun: counters.begun.load(Relaxed),
            tls: counters.tls.load(Relaxed),
            cut: counters.cut.load(Relaxed),
            garbage: counters.garbage.load(Relaxed),
            hung: counters.hung.load(Relaxed),
        }
    }
}

async fn flood(to: SocketAddr, rate: u64, stop: &AtomicBool, counters: &Arc<Counters>) {
    let (mut ticks, begun) = (interval(TICK), Instant::now());
    let room = Arc::new(Semaphore::new(OPEN));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut started: u64 = 0;
    while !stop.load(Relaxed) {
        ticks.tick().await;
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        while started < due {
            started += 1;
            let Ok(room) = room.clone().try_acquire_owned() else {
                continue;
            };
            let (counters, provider) = (counters.clone(), provider.clone());
            let is_tls = started.is_multiple_of(2);
            tokio::spawn(async move {
                let _room = room;
                let attempt = async {
                    let stream = connect(to).await?;
                    counters.begun.fetch_add(1, Relaxed);
                    let counter = if !is_tls {
                        babble(stream).await;
                        &counters.garbage
                    } else if speak(stream, to, provider).await {
                        &counters.tls
                    } else {
                        &counters.cut
                    };
                    counter.fetch_add(1, Relaxed);
                    Some(())
                };
                if timeout(GIVE_UP, attempt).await.is_err() {
                    counters.hung.fetch_add(1, Relaxed);
                }
            });
        }
    }
}

async fn connect(to: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    // Ports of closed connections are free at once.
    socket.set_zero_linger().ok()?;
    socket.bind(SocketAddr::new(IpAddr::V4(ATTACKER), 0)).ok()?;
    socket.connect(to).await.ok()
}

/// Random bytes, until the other side has had enough.
async fn babble(mut stream: TcpStream) {
    let mut bytes = [0; 256];
    SystemRandom::new().fill(&mut bytes).expect("random bytes");
    let _ = stream.write_all(&bytes).await;
    let _ = stream.read(&mut bytes).await;
}

/// A TLS handshake with a new key, and a hello that proves nothing. Whether TLS was complete.
async fn speak(stream: TcpStream, to: SocketAddr, provider: Arc<CryptoProvider>) -> bool {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref())).expect("a key");
    let public = CertificateDer::from(key.public_key().expect("a public key").to_vec());
    let key = Arc::new(CertifiedKey::new(vec![public], key));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
    config.alpn_protocols = vec![b"membership-silo/1".to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    let name = ServerName::IpAddress(to.ip().into());
    let connector = TlsConnector::from(Arc::new(config));
    let Ok(mut stream) = connector.connect(name, stream).await else {
        return false;
    };
    let hello = b"\x93silo\r\n\x01\x00\x00\x00\x04\x00\x01\x01\x00";
    let _ = stream.write_all(hello).await;
    let _ = stream.read(&mut [0; 64]).await;
    true
}

/// An attacker does not care who answers.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
