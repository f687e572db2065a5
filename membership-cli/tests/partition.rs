//! A partial partition of real silos: who does not reach whom is in their events, in `membership
//! doctor` and in `membership status --ask`, and nobody dies.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use async_trait::async_trait;
use membership::protocol::{Destination, LinkId, PeerIdentity};
use membership::transport::{
    DeliverError, EncodedMessage, Hello, Inbox, SendFailure, TcpTransport, Transport,
    TransportError, TransportStats, decode,
};
use membership::{ClusterView, Config, InstanceId, Preset, Silo, SiloAddress};
use membership_core::{Evidence, RollCount, Suspicion, SuspicionReason};
use membership_sql::{SqliteConfig, SqliteTable};
use serde_json::Value;
use support::silos::{Cluster, Process, loopback, port};
use support::{Place, active, now, secs, silo};

/// The addresses to and from which nothing gets.
type Cut = Arc<Mutex<BTreeSet<SocketAddr>>>;

/// TCP, of which some links can be cut.
#[derive(Debug)]
struct CutTransport {
    inner: TcpTransport,
    cut: Cut,
}

#[async_trait]
impl Transport for CutTransport {
    fn local_endpoint(&self) -> SocketAddr {
        self.inner.local_endpoint()
    }

    async fn start(&self, hello: Hello, inbox: Arc<dyn Inbox>) -> Result<(), TransportError> {
        let cut = self.cut.clone();
        let inbox = Arc::new(CutInbox { inner: inbox, cut });
        self.inner.start(hello, inbox).await
    }

    fn send(&self, to: Destination, message: EncodedMessage) {
        let lost = match to {
            Destination::Endpoint(to) | Destination::Fresh(to) => {
                self.cut.lock().unwrap().contains(&to)
            }
            _ => false,
        };
        if !lost {
            self.inner.send(to, message);
        }
    }

    fn instance(&self) -> Option<InstanceId> {
        self.inner.instance()
    }

    fn update(&self, silo: Option<SiloAddress>, view: &ClusterView) {
        self.inner.update(silo, view);
    }

    async fn shutdown(&self) {
        self.inner.shutdown().await;
    }

    fn stats(&self) -> TransportStats {
        self.inner.stats()
    }
}

#[derive(Debug)]
struct CutInbox {
    inner: Arc<dyn Inbox>,
    cut: Cut,
}

#[async_trait]
impl Inbox for CutInbox {
    async fn deliver(
        &self,
        link: LinkId,
        peer: PeerIdentity,
        message: bytes::Bytes,
    ) -> Result<(), DeliverError> {
        let from = decode(&message).map(|(header, _)| header.from.endpoint());
        if from.is_ok_and(|from| self.cut.lock().unwrap().contains(&from)) {
            return Ok(());
        }
        self.inner.deliver(link, peer, message).await
    }

    fn send_failed(&self, to: SocketAddr, failure: SendFailure) {
        self.inner.send_failed(to, failure);
    }

    fn disconnected(&self, peer: SocketAddr) {
        self.inner.disconnected(peer);
    }
}

/// A silo of this process, on a thread of its own.
struct Within {
    address: String,
    cut: Cut,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

async fn live(
    file: PathBuf,
    cut: Cut,
    started: mpsc::Sender<String>,
    stop: tokio::sync::oneshot::Receiver<()>,
) {
    let table = SqliteTable::connect(SqliteConfig::new(file), "default".parse().unwrap());
    let inner = TcpTransport::bind(loopback(port())).await.unwrap();
    let silo = Silo::builder(table.await.unwrap())
        .transport(Arc::new(CutTransport { inner, cut }))
        .config(Config::preset(Preset::Local))
        .start()
        .await
        .unwrap();
    started.send(silo.me().to_string()).unwrap();
    let _ = stop.await;
    silo.begin_leave().await.finish().await;
}

impl Within {
    fn start(place: &Place) -> Self {
        let (cut, file) = (Cut::default(), place.file());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (started, address) = mpsc::channel();
        let links = cut.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(live(file, links, started, stopped));
        });
        Self {
            address: address.recv_timeout(secs(40)).unwrap(),
            cut,
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until the last line about partial partitions names exactly these silos.
#[track_caller]
fn tells(silo: &Process, unreached: &[&str]) -> Value {
    silo.wait(&format!("{unreached:?} not reached"), secs(60), |lines| {
        let of = |e: &Value| e["event"] == "partial_partition";
        let last = lines.iter().rfind(|l| of(&l.event))?;
        let named = last.event["unreached"].as_array().unwrap().iter();
        let named: Vec<&str> = named.map(|u| u["silo"].as_str().unwrap()).collect();
        (named == unreached).then(|| last.event.clone())
    })
}

/// Asks a dashboard until its `reach` is like this.
#[track_caller]
fn on_the_page(at: SocketAddr, is_so: impl Fn(&Value) -> bool) -> Value {
    let until = std::time::Instant::now() + secs(60);
    loop {
        let mut stream = TcpStream::connect(at).unwrap();
        let request = "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let state: Value = serde_json::from_str(body).unwrap();
        if !state["reach"].is_null() && is_so(&state["reach"]) {
            return state["reach"].clone();
        }
        assert!(std::time::Instant::now() < until, "{:#}", state["reach"]);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn who_does_not_reach_whom_is_told_and_nobody_dies() {
    let mut cluster = Cluster::started(2, "local");
    let within = Within::start(&cluster.place);
    for silo in &cluster.silos {
        silo.sees_active(3, secs(40));
    }
    let asked = cluster.place.run(&["status", "--ask"]).expect(0);
    let well = "reach: 3 of 3 Active silos answered; each reaches all that others reach";
    assert!(asked.out.contains(well), "{asked:?}");
    let ran = cluster.place.run(&["doctor"]).expect(0);
    assert!(ran.out.contains("each reaches all"), "{ran:?}");

    let (one, other) = (cluster.address(0), within.address.clone());
    let endpoint = loopback(cluster.silos[0].port);
    within.cut.lock().unwrap().insert(endpoint);
    let told = tells(&cluster.silos[0], &[&other]);
    assert_eq!(told["unreached"][0]["reached"], 1, "{told}");
    let wanted = [
        "a partial partition: 3 of 3 Active silos answered, and 2 of them do not reach".to_owned(),
        format!("{one} does not reach {other} (1 of 2 do)"),
        format!("{other} does not reach {one} (1 of 2 do)"),
    ];
    // The other side learns of it in its own time.
    let until = std::time::Instant::now() + secs(30);
    loop {
        let ran = cluster.place.run(&["doctor"]);
        if wanted.iter().all(|part| ran.out.contains(part)) {
            ran.expect(1);
            break;
        }
        assert!(std::time::Instant::now() < until, "{wanted:?}: {ran:?}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let asked = cluster.place.run(&["status", "--ask", "--json"]).expect(0);
    let partial = asked.json()["reach"]["partial"].clone();
    assert_eq!(partial.as_array().unwrap().len(), 2, "{partial}");
    let asked = cluster.place.run(&["status", "--ask"]).expect(0);
    assert!(
        wanted.iter().all(|part| asked.out.contains(part)),
        "{asked:?}"
    );
    // The page of the table has it, because it asks as well.
    let args = ["dashboard", "--ask", "--json", "--http", "127.0.0.1:0"];
    let dashboard = Process::spawn(cluster.place.command(&args), 0);
    let page = dashboard.wait("its address", secs(30), |lines| {
        let line = lines.iter().find(|l| l.event["event"] == "http")?;
        line.event["address"].as_str()?.parse().ok()
    });
    let partial = on_the_page(page, |reach| {
        !reach["partial"].as_array().unwrap().is_empty()
    });
    assert_eq!(partial["answered"], 3, "{partial}");
    let pairs = [
        serde_json::json!({"silo": one, "unreached": [other]}),
        serde_json::json!({"silo": other, "unreached": [one]}),
    ];
    let named = partial["partial"].as_array().unwrap();
    assert!(pairs.iter().all(|pair| named.contains(pair)), "{partial}");
    for silo in &mut cluster.silos {
        assert!(silo.is_running());
        silo.sees_nobody_dead();
    }

    within.cut.lock().unwrap().clear();
    tells(&cluster.silos[0], &[]);
    let ran = cluster.place.run(&["doctor"]).expect(0);
    assert!(ran.out.contains("each reaches all"), "{ran:?}");
    let silent = cluster.silos[1].lines();
    on_the_page(page, |reach| reach["partial"] == serde_json::json!([]));
    let told = |e: &Value| e["event"] == "partial_partition";
    assert!(!silent.iter().any(|l| told(&l.event)), "{silent:?}");
}

#[test]
fn silos_with_a_secret_answer_who_has_it() {
    let place = Place::new();
    let secret = place.file().with_file_name("secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let with = ["--secret-file", secret.to_str().unwrap()];
    let silos: Vec<Process> = (0..3)
        .map(|_| Process::start(&place, port(), "local", &with))
        .collect();
    for silo in &silos {
        silo.sees_active(3, secs(40));
    }
    let ran = place.run(&["status", "--ask"]).expect(0);
    assert!(ran.out.contains("reach: not known: no silo"), "{ran:?}");
    let ran = place
        .run(&[&["status", "--ask"][..], &with[..]].concat())
        .expect(0);
    assert!(ran.out.contains("3 of 3 Active silos answered"), "{ran:?}");
}

#[test]
fn silos_without_tls_answer_too() {
    let place = Place::new();
    let silos: Vec<Process> = (0..3)
        .map(|_| Process::start(&place, port(), "local", &["--insecure"]))
        .collect();
    for silo in &silos {
        silo.sees_active(3, secs(40));
    }
    let ran = place.run(&["status", "--ask", "--insecure"]).expect(0);
    assert!(ran.out.contains("3 of 3 Active silos answered"), "{ran:?}");
    let ran = place.run(&["status", "--json"]).expect(0);
    assert!(ran.json()["reach"].is_null(), "{ran:?}");
}

#[test]
fn status_shows_what_the_others_said_of_a_suspect() {
    let place = Place::new();
    let table = place.initialize();
    let mut suspect = active(1);
    let mut evidence = Evidence::missed(2, 500);
    evidence.roll_call = Some(RollCount {
        asked: 6,
        failed: 2,
        reached: 3,
        silent: 1,
    });
    suspect.suspicions = vec![Suspicion::new(
        silo(2),
        now(),
        SuspicionReason::Silent,
        evidence,
    )];
    place.insert(&table, vec![suspect, active(2)]);
    let ran = place.run(&["status"]).expect(0);
    let said = "is suspected: 6 silos asked: 2 failed to reach it, 3 reached it; 1 did not answer";
    assert!(
        ran.out.contains(said) && ran.out.contains("membership doctor"),
        "{ran:?}"
    );
}
