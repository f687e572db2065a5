//! The transport of every silo in these tests: TCP that notes each probe of its silo and the answer
//! to it, and that sends what the test asks for, with the silo's own proven instance. With it an
//! application can make its silo lie.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use membership::protocol::{Destination, Header, LinkId, Message};
use membership::transport::{
    DeliverError, EncodedMessage, Encoder, Hello, Inbox, Lane, PeerIdentity, SendFailure,
    TcpConfig, TcpTransport, Transport, TransportError, TransportStats, decode, encode,
};
use membership::{ClusterView, InstanceId, SiloAddress};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::common::loopback;

/// Longer messages are not decoded a second time.
const SHORT: usize = 64 * 1024;
/// How long to wait for an answer.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// How long to wait before a question is sent again.
const RETRY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct TappedTransport {
    tcp: Arc<TcpTransport>,
    notes: Arc<Notes>,
}

#[derive(Debug)]
struct Notes {
    hello: Mutex<Option<Hello>>,
    /// The silo's address and its newest confirmed view.
    known: Mutex<Option<(SiloAddress, ClusterView)>>,
    probes: Mutex<Probes>,
    /// Short messages that arrived.
    heard: broadcast::Sender<(Header, Message)>,
    /// The answers to a request for a delta, instead of the silo's own.
    answers: Mutex<Vec<Message>>,
    inbox: Mutex<Option<Arc<dyn Inbox>>>,
    /// This silo seems to answer.
    covered: Mutex<Option<SiloAddress>>,
}

/// How the probes of a silo fared.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    pub answered: usize,
    /// The longest round trip.
    pub longest: Duration,
    waiting: HashMap<u64, (SocketAddr, Instant)>,
}

impl Probes {
    /// How many probes have had no answer for longer than `limit`.
    pub fn unanswered(&self, limit: Duration) -> usize {
        let late = |(_, sent): &&(SocketAddr, Instant)| sent.elapsed() > limit;
        self.waiting.values().filter(late).count()
    }
}

impl TappedTransport {
    pub async fn bind(config: TcpConfig) -> Self {
        let tcp = TcpTransport::bind_with(loopback(), config).await.unwrap();
        Self {
            tcp: Arc::new(tcp),
            notes: Arc::new(Notes {
                hello: Mutex::default(),
                known: Mutex::default(),
                probes: Mutex::default(),
                heard: broadcast::channel(1024).0,
                answers: Mutex::default(),
                inbox: Mutex::default(),
                covered: Mutex::default(),
            }),
        }
    }

    /// The silo of this transport.
    pub fn me(&self) -> SiloAddress {
        self.known().0
    }

    /// Its newest confirmed view.
    pub fn view(&self) -> ClusterView {
        self.known().1
    }

    fn known(&self) -> (SiloAddress, ClusterView) {
        self.notes.known.lock().unwrap().clone().unwrap()
    }

    /// How the probes fared since the last call of [`forget_probes`](Self::forget_probes).
    pub fn probes(&self) -> Probes {
        self.notes.probes.lock().unwrap().clone()
    }

    pub fn forget_probes(&self) {
        *self.notes.probes.lock().unwrap() = Probes::default();
    }

    /// The header of an honest message to this silo.
    pub fn header(&self, to: SiloAddress) -> Header {
        let cluster = self.notes.hello.lock().unwrap().clone().unwrap().cluster;
        let (me, view) = self.known();
        let mut header = Header::new(cluster.fingerprint(), me, self.instance().unwrap());
        header.to = Some(to);
        header.table_id = Some(view.table_id());
        header.version = view.version();
        header.digest = view.short_digest();
        header
    }

    /// Sends a message that the protocol of this silo does not send.
    pub fn say(&self, to: SiloAddress, body: Message) {
        self.say_with(&self.header(to), to.endpoint(), body);
    }

    /// The same with another header, or to another endpoint.
    pub fn say_with(&self, header: &Header, to: SocketAddr, body: Message) {
        let message = Encoder::default().encode(header, &Arc::new(body)).unwrap();
        self.tcp.send(Destination::Endpoint(to), message);
    }

    /// The same with a body of any bytes, on the usual connection or on a new one.
    pub fn say_bytes(&self, to: SiloAddress, over: Destination, body: Bytes) {
        let probe = Arc::new(Message::Probe { nonce: 0 });
        let message = Encoder::default().encode(&self.header(to), &probe).unwrap();
        let message = EncodedMessage::new(Lane::Bulk, message.head().clone(), body);
        self.tcp.send(over, message);
    }

    /// From now on these are the answers to every request for a delta.
    pub fn answer_with(&self, answers: Vec<Message>) {
        *self.notes.answers.lock().unwrap() = answers;
    }

    /// From now on the silo of this transport does not notice that another one is gone: each of its
    /// probes is answered.
    pub fn cover_for(&self, silo: SiloAddress) {
        *self.notes.covered.lock().unwrap() = Some(silo);
    }

    /// Answers a probe instead of the silo that it is for.
    fn answer_for(&self, silo: SiloAddress, nonce: u64) {
        let (me, view) = self.known();
        let mut header = self.header(me);
        header.from = silo;
        header.instance = view.get(&silo).unwrap().instance_id;
        let peer = PeerIdentity::Proven(header.instance);
        let answer = encode(&header, &Message::ProbeAck { nonce }).unwrap();
        let inbox = self.notes.inbox.lock().unwrap().clone().unwrap();
        tokio::spawn(async move {
            let link = LinkId(u64::MAX);
            let _ = inbox.deliver(link, peer, answer.into()).await;
        });
    }

    /// Shows a silo a version that it does not have, until it asks for the delta.
    pub async fn make_ask(&self, silo: SiloAddress) {
        let mut header = self.header(silo);
        header.version += 1;
        header.digest ^= 1;
        let bait = || self.say_with(&header, silo.endpoint(), Message::Probe { nonce: 1 });
        self.until_heard(bait, |from, body| {
            from.from == silo && matches!(body, Message::AskDelta { .. })
        })
        .await;
    }

    /// Waits until a silo has handled the views that this one has sent to it: they are handled in
    /// the order in which they arrive, and so is a request for a delta.
    pub async fn caught_up(&self, silo: SiloAddress) {
        let view = self.view();
        let (table_id, have) = (Some(view.table_id()), view.version() - 1);
        let ask = || self.say(silo, Message::AskDelta { table_id, have });
        self.until_heard(ask, |from, body| {
            from.from == silo && matches!(body, Message::Delta(delta) if delta.from == Some(have))
        })
        .await;
    }

    /// Waits until a silo has handled the short messages that this one has sent to it.
    pub async fn answered_by(&self, silo: SiloAddress) {
        let nonce = 0xa11;
        let probe = || self.say(silo, Message::Probe { nonce });
        self.until_heard(probe, |from, body| {
            from.from == silo && *body == Message::ProbeAck { nonce }
        })
        .await;
    }

    /// Repeats a question until a certain message arrives.
    pub async fn until_heard(&self, ask: impl Fn(), wanted: impl Fn(&Header, &Message) -> bool) {
        let mut heard = self.notes.heard.subscribe();
        let search = async {
            loop {
                ask();
                let answer = async {
                    loop {
                        match heard.recv().await {
                            Ok((header, body)) if wanted(&header, &body) => return,
                            Ok(_) | Err(RecvError::Lagged(_)) => {}
                            Err(RecvError::Closed) => unreachable!("this transport sends"),
                        }
                    }
                };
                if timeout(RETRY, answer).await.is_ok() {
                    return;
                }
            }
        };
        timeout(DEADLINE, search)
            .await
            .expect("the message arrives");
    }
}

#[async_trait]
impl Transport for TappedTransport {
    fn local_endpoint(&self) -> SocketAddr {
        self.tcp.local_endpoint()
    }

    async fn start(&self, hello: Hello, inbox: Arc<dyn Inbox>) -> Result<(), TransportError> {
        *self.notes.hello.lock().unwrap() = Some(hello.clone());
        *self.notes.inbox.lock().unwrap() = Some(inbox.clone());
        let inbox = TappedInbox {
            inbox,
            tcp: Arc::downgrade(&self.tcp),
            notes: self.notes.clone(),
        };
        self.tcp.start(hello, Arc::new(inbox)).await
    }

    fn send(&self, to: Destination, message: EncodedMessage) {
        if let Destination::Endpoint(at) = &to
            && message.lane() == Lane::Probe
            && let Ok((_, Message::Probe { nonce })) = decode(&message.to_bytes())
        {
            let covered = *self.notes.covered.lock().unwrap();
            if let Some(silo) = covered.filter(|silo| silo.endpoint() == *at) {
                return self.answer_for(silo, nonce);
            }
            let mut probes = self.notes.probes.lock().unwrap();
            probes.waiting.entry(nonce).or_insert((*at, Instant::now()));
        }
        self.tcp.send(to, message);
    }

    fn instance(&self) -> Option<InstanceId> {
        self.tcp.instance()
    }

    fn update(&self, silo: Option<SiloAddress>, view: &ClusterView) {
        *self.notes.known.lock().unwrap() = silo.map(|silo| (silo, view.clone()));
        self.tcp.update(silo, view);
    }

    async fn shutdown(&self) {
        self.tcp.shutdown().await;
    }

    fn stats(&self) -> TransportStats {
        self.tcp.stats()
    }
}

#[derive(Debug)]
struct TappedInbox {
    inbox: Arc<dyn Inbox>,
    tcp: Weak<TcpTransport>,
    notes: Arc<Notes>,
}

impl TappedInbox {
    /// Whether the message was answered here.
    fn hear(&self, link: LinkId, header: Header, body: Message) -> bool {
        if let Message::ProbeAck { nonce } = body {
            let mut probes = self.notes.probes.lock().unwrap();
            if let Some((_, sent)) = probes.waiting.remove(&nonce) {
                probes.answered += 1;
                probes.longest = probes.longest.max(sent.elapsed());
            }
        }
        let mut answered = false;
        if let (Message::AskDelta { .. }, Some(tcp)) = (&body, self.tcp.upgrade()) {
            let liar = TappedTransport {
                tcp,
                notes: self.notes.clone(),
            };
            for answer in self.notes.answers.lock().unwrap().iter() {
                answered = true;
                let body = Arc::new(answer.clone());
                let message = Encoder::default().encode(&liar.header(header.from), &body);
                liar.tcp.send(Destination::Link(link), message.unwrap());
            }
        }
        // Nobody may be listening.
        let _ = self.notes.heard.send((header, body));
        answered
    }
}

#[async_trait]
impl Inbox for TappedInbox {
    async fn deliver(
        &self,
        link: LinkId,
        peer: PeerIdentity,
        message: Bytes,
    ) -> Result<(), DeliverError> {
        if message.len() <= SHORT
            && let Ok((header, body)) = decode(&message)
            && self.hear(link, header, body)
        {
            return Ok(());
        }
        self.inbox.deliver(link, peer, message).await
    }

    fn send_failed(&self, to: SocketAddr, failure: SendFailure) {
        self.inbox.send_failed(to, failure);
    }

    fn disconnected(&self, peer: SocketAddr) {
        self.inbox.disconnected(peer);
    }
}
