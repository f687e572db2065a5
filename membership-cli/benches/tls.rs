//! What TLS costs between two silos: `cargo bench -p membership-cli --bench tls`.
//!
//! Two transports on loopback, each with a thread of its own, once with TLS (`Security::table`) and once without
//! (`Security::none`). One sends probes, the other answers them: one probe at a time for the round
//! trip, and 64 at a time for messages per second. Both pairs take turns, and the medians of the
//! turns are compared. Fails if TLS needs more than 1.3 times the time.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership::transport::{
    Encoder, Hello, Inbound, MessageInbox, Messages, Security, TcpConfig, TcpTransport, Transport,
};
use membership_core::protocol::{Destination, Header, Message};
use membership_core::{
    ClusterName, ClusterView, InstanceId, MembershipEntry, Row, SharedSettings, SiloAddress,
    SiloStatus, Snapshot, TableId, VersionRow, WallTime,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

const LIMIT: f64 = 1.3;
const TURNS: usize = 25;
const PROBES: u64 = 4_000;
/// How many probes are under way at a time.
const CASES: [(&str, u64); 2] = [("round trip of a probe", 1), ("64 probes at a time", 64)];
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    // `cargo test --all-targets` runs benchmarks without this argument.
    if !std::env::args().any(|a| a == "--bench") {
        println!("not measured: run it with `cargo bench`");
        return ExitCode::SUCCESS;
    }
    if runtime().block_on(measure()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Of one thread, as the program has it.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

async fn measure() -> bool {
    let mut plain = Pair::new(Security::none()).await;
    let mut secured = Pair::new(Security::table()).await;
    println!(
        "{:<26} {:>12} {:>12} {:>12} {:>6}  ok",
        "name", "messages/s", "without", "with TLS", "ratio"
    );
    let mut ok = true;
    for (name, window) in CASES {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..TURNS {
            for (pair, times) in [&mut plain, &mut secured].into_iter().zip(&mut times) {
                times.push(pair.exchange(window).await);
            }
        }
        let [without, with] = times.map(|mut times| {
            times.sort_unstable();
            times[TURNS / 2]
        });
        let each = |time: Duration| time.as_nanos() as f64 / PROBES as f64 / 1_000.0;
        let ratio = with.as_secs_f64() / without.as_secs_f64();
        let holds = ratio <= LIMIT;
        println!(
            "{name:<26} {:>12.0} {:>9.2} us {:>9.2} us {ratio:>6.2}  {}",
            2.0 * PROBES as f64 / with.as_secs_f64(),
            each(without),
            each(with),
            if holds { "yes" } else { "NO" },
        );
        ok &= holds;
    }
    ok
}

/// Two silos that know each other.
struct Pair {
    asks: End,
    messages: Messages,
    answers: SiloAddress,
    nonce: u64,
}

#[derive(Clone)]
struct End {
    silo: SiloAddress,
    instance: InstanceId,
    cluster: ClusterName,
    transport: Arc<TcpTransport>,
}

impl Pair {
    async fn new(security: Security) -> Self {
        let (asks, messages) = End::new(security.clone()).await;
        let (there, here) = (oneshot::channel(), oneshot::channel());
        // The other silo has a thread of its own.
        std::thread::spawn(move || {
            runtime().block_on(async {
                let (answers, asked) = End::new(security).await;
                let known = (answers.silo, answers.instance);
                there.0.send(known).expect("it is awaited");
                let view = here.1.await.expect("it is sent");
                answers.transport.update(Some(answers.silo), &view);
                answers.answer(asked).await;
            });
        });
        let answers = there.1.await.expect("a silo");
        let rows = [(asks.silo, asks.instance), answers].map(|(silo, instance)| {
            let mut row = MembershipEntry::new(silo, instance, WallTime::default());
            row.status = SiloStatus::Active;
            Row::encode(row)
        });
        let version = VersionRow::initial(TableId::new(1), SharedSettings::default());
        let token = version.token(&[]);
        let snapshot = Snapshot::new(token, version, rows.into_iter().collect());
        let view = ClusterView::confirmed(snapshot, None);
        asks.transport.update(Some(asks.silo), &view);
        here.0.send(view).expect("it is awaited");
        let mut pair = Self {
            asks,
            messages,
            answers: answers.0,
            nonce: 0,
        };
        // Connects, and warms up.
        pair.exchange(1).await;
        pair
    }

    /// How long it takes until all probes are answered, `window` of which are under way at a time.
    async fn exchange(&mut self, window: u64) -> Duration {
        let began = Instant::now();
        let (mut sent, mut answered) = (0, 0);
        while answered < PROBES {
            while sent < PROBES && sent - answered < window {
                sent += 1;
                self.nonce += 1;
                let nonce = self.nonce;
                let to = Destination::Endpoint(self.answers.endpoint());
                self.asks.send(to, self.answers, Message::Probe { nonce });
            }
            let next = timeout(PATIENCE, self.messages.recv());
            match next.await.expect("an answer in time").expect("a transport") {
                Inbound::Message { body, .. } => {
                    assert!(matches!(*body, Message::ProbeAck { .. }), "{body:?}");
                    answered += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        began.elapsed()
    }
}

impl End {
    async fn new(security: Security) -> (Self, Messages) {
        let mut config = TcpConfig::default();
        config.security = security;
        let any = "127.0.0.1:0".parse().expect("an address");
        let transport = TcpTransport::bind_with(any, config).await;
        let transport = Arc::new(transport.expect("a listener"));
        let cluster: ClusterName = "tls".parse().expect("a name");
        let silo = SiloAddress::at(transport.local_addr(), 1);
        let instance = transport.instance().unwrap_or(InstanceId::new(7));
        let hello = Hello::new(cluster.clone(), silo.endpoint(), instance);
        let (inbox, messages) = MessageInbox::channel(256);
        transport.start(hello, inbox).await.expect("a transport");
        let end = Self {
            silo,
            instance,
            cluster,
            transport,
        };
        (end, messages)
    }

    async fn answer(self, mut messages: Messages) {
        while let Some(inbound) = messages.recv().await {
            if let Inbound::Message {
                link, header, body, ..
            } = inbound
                && let Message::Probe { nonce } = *body
            {
                let to = Destination::Link(link);
                self.send(to, header.from, Message::ProbeAck { nonce });
            }
        }
    }

    fn send(&self, to: Destination, silo: SiloAddress, body: Message) {
        let mut header = Header::new(self.cluster.fingerprint(), self.silo, self.instance);
        header.to = Some(silo);
        let message = Encoder::default().encode(&header, &Arc::new(body));
        self.transport.send(to, message.expect("a message"));
    }
}
