//! A silo with a transport and an inbox, and nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership::protocol::{Destination, Header, LinkId, Message};
use membership::transport::{
    Encoder, Hello, Inbound, MessageInbox, Messages, Security, TcpConfig, TcpTransport, Transport,
    TransportStats,
};
use membership::{
    ClusterKey, ClusterName, ClusterView, CommitId, CommitRequest, CoreCell, InitializeRequest,
    InstanceId, MembershipEntry, Rows, SharedSettings, SiloAddress, SiloStatus, Snapshot, TableId,
    WallTime,
};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

pub const DEADLINE: Duration = Duration::from_secs(10);

pub struct Peer {
    pub transport: TcpTransport,
    pub encoder: Encoder,
    pub inbox: Messages,
    pub me: SiloAddress,
    pub instance: InstanceId,
    pub cluster: ClusterName,
}

/// The bounds of the default, without TLS.
pub fn plain() -> TcpConfig {
    let mut config = TcpConfig::default();
    config.security = Security::none();
    config
}

/// A table without silos: who has read it has this cluster key.
pub fn empty_table(cluster_key: [u8; 32]) -> ClusterView {
    let settings = SharedSettings::default();
    let key = ClusterKey::new(cluster_key);
    let row = InitializeRequest::new(TableId::new(7), settings, key).version_row();
    ClusterView::confirmed(Snapshot::new(row.token(&[]), row, Rows::new()), None)
}

/// A later version of that table, with these keys and rows.
pub fn table_with(
    keys: &[[u8; 32]],
    rows: impl IntoIterator<Item = (SiloAddress, InstanceId, SiloStatus)>,
) -> ClusterView {
    let keys = keys.iter().map(|key| ClusterKey::new(*key)).collect();
    let empty = empty_table([0; 32]).snapshot().clone();
    let rows = rows.into_iter().map(|(silo, instance, status)| {
        let mut row = MembershipEntry::new(silo, instance, WallTime::from_millis(silo.epoch()));
        row.status = status;
        row
    });
    let commit = CommitRequest::new(empty.token.clone(), CommitId::new(1), None, rows, [], [])
        .with_core(CoreCell::new(&keys));
    let next = commit.apply_to(&empty, commit.next_token(&[]));
    ClusterView::confirmed(next, None)
}

/// Each of them reads a table in which all are alive.
pub fn acquaint(peers: &[&Peer]) {
    let rows = peers.iter().map(|p| (p.me, p.instance, SiloStatus::Active));
    let table = table_with(&[[7; 32]], rows);
    for peer in peers {
        peer.transport.update(Some(peer.me), &table);
    }
}

pub fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

impl Peer {
    pub async fn new(instance: u128) -> Self {
        Self::with(instance, any_port(), "test", TcpConfig::default()).await
    }

    /// One without TLS, whose frames a test can write and read.
    pub async fn plain(instance: u128) -> Self {
        Self::with(instance, any_port(), "test", plain()).await
    }

    pub async fn with(
        instance: u128,
        address: SocketAddr,
        cluster: &str,
        config: TcpConfig,
    ) -> Self {
        let peer = Self::bound(instance, address, cluster, config).await;
        peer.transport.update(Some(peer.me), &empty_table([7; 32]));
        peer
    }

    /// One that has not read the table.
    pub async fn unread(instance: u128) -> Self {
        Self::bound(instance, any_port(), "test", TcpConfig::default()).await
    }

    async fn bound(instance: u128, address: SocketAddr, cluster: &str, config: TcpConfig) -> Self {
        let transport = TcpTransport::bind_with(address, config).await.unwrap();
        let (inbox, receiver) = MessageInbox::channel(64);
        let me = SiloAddress::at(transport.local_endpoint(), 1);
        let instance = InstanceId::new(instance);
        let instance = transport.instance().unwrap_or(instance);
        let cluster: ClusterName = cluster.parse().unwrap();
        let hello = Hello::new(cluster.clone(), transport.local_addr(), instance);
        transport.start(hello, inbox).await.unwrap();
        Self {
            transport,
            encoder: Encoder::default(),
            inbox: receiver,
            me,
            instance,
            cluster,
        }
    }

    pub fn endpoint(&self) -> SocketAddr {
        self.me.endpoint()
    }

    pub fn header(&self) -> Header {
        Header::new(self.cluster.fingerprint(), self.me, self.instance)
    }

    pub fn send(&self, to: Destination, body: Message) {
        self.send_shared(to, &Arc::new(body));
    }

    /// Sends a body that other receivers get too.
    pub fn send_shared(&self, to: Destination, body: &Arc<Message>) {
        let message = self.encoder.encode(&self.header(), body).unwrap();
        self.transport.send(to, message);
    }

    pub fn probe(&self, to: SocketAddr, nonce: u64) {
        self.send(Destination::Endpoint(to), Message::Probe { nonce });
    }

    async fn next(&mut self) -> Inbound {
        timeout(DEADLINE, self.inbox.recv())
            .await
            .expect("nothing arrived")
            .expect("the inbox is open")
    }

    pub async fn message(&mut self) -> (LinkId, Header, Message) {
        match self.next().await {
            Inbound::Message {
                link, header, body, ..
            } => (link, header, (*body).clone()),
            other => panic!("{other:?} instead of a message"),
        }
    }

    pub async fn failure(&mut self) -> (SocketAddr, String) {
        let (to, _, reason) = self.any_failure().await;
        (to, reason)
    }

    /// Where no process listens, by the system there.
    pub async fn refusal(&mut self) -> SocketAddr {
        let (to, refused, reason) = self.any_failure().await;
        assert!(refused, "{to}: {reason}");
        to
    }

    pub async fn any_failure(&mut self) -> (SocketAddr, bool, String) {
        match self.next().await {
            Inbound::SendFailed {
                to,
                refused,
                reason,
            } => (to, refused, reason),
            other => panic!("{other:?} instead of a failure"),
        }
    }

    /// The address of a silo with which a connection was lost.
    pub async fn loss(&mut self) -> SocketAddr {
        match self.next().await {
            Inbound::Disconnected { peer } => peer,
            other => panic!("{other:?} instead of a loss"),
        }
    }

    /// Waits until the counters satisfy a condition.
    pub async fn until(&self, what: impl Fn(&TransportStats) -> bool) -> TransportStats {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let stats = self.transport.stats();
            if what(&stats) {
                return stats;
            }
            assert!(Instant::now() < deadline, "in vain: {stats:?}");
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Answers a probe on the connection it came by, as the protocol does.
pub async fn answer(peer: &mut Peer) -> LinkId {
    let (link, _, body) = peer.message().await;
    let Message::Probe { nonce } = body else {
        panic!("{body:?} instead of a probe")
    };
    peer.send(Destination::Link(link), Message::ProbeAck { nonce });
    link
}

/// A hello of the test cluster, recorded from a real silo.
pub async fn recorded_hello() -> Vec<u8> {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let a = Peer::plain(99).await;
    a.probe(listener.local_addr().unwrap(), 1);
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    let mut rest = vec![0; u32::from_be_bytes(head[8..].try_into().unwrap()) as usize];
    stream.read_exact(&mut rest).await.unwrap();
    [head.to_vec(), rest].concat()
}
