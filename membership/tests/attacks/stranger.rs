//! Peers that are no members: a stranger, who speaks TLS with a key of its own, and a newcomer, who
//! has read the table, but has no row.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use membership::protocol::{Destination, Header, MIN_PROTOCOL_VERSION, Message, PROTOCOL_VERSION};
use membership::transport::{
    Encoder, Hello, Inbound, MessageInbox, Messages, TcpConfig, TcpTransport, Transport, encode,
};
use membership::{ClusterKeys, ClusterProof, ClusterView, InstanceId, SiloAddress, TableId};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, PeerIncompatible,
    SignatureScheme, version,
};
use tokio::time::timeout;

use crate::common::{PATIENCE, cluster, loopback};

/// What silos say within TLS.
pub const ALPN: &[u8] = b"membership-silo/1";
/// The first bytes of a connection after that.
pub const MARK: &[u8; 8] = b"\x93silo\r\n\x01";
/// What ties a proof to one connection.
pub type Binding = [u8; 32];
const BINDING: &[u8] = b"EXPORTER-membership-hello";
/// How long to wait before a question is sent again.
const RETRY: Duration = Duration::from_millis(200);
const HELLO: u8 = 0;
const MESSAGE: u8 = 2;

/// A key of its own, and nothing else.
pub struct Stranger {
    key: Arc<CertifiedKey>,
    pub instance: InstanceId,
}

/// What a silo answered: within TLS, and in all bytes as they came.
#[derive(Debug)]
pub struct Answer {
    pub said: Vec<u8>,
    pub wire: Vec<u8>,
}

impl Stranger {
    pub fn new() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref())).unwrap();
        let public = CertificateDer::from(key.public_key().unwrap().to_vec());
        let hash = digest(&SHA256, &public);
        let first = hash.as_ref().first_chunk().unwrap();
        Self {
            key: Arc::new(CertifiedKey::new(vec![public], key)),
            instance: InstanceId::new(u128::from_be_bytes(*first)),
        }
    }

    /// Connects, makes the TLS handshake with this name of a protocol, says it all without waiting
    /// for anything, and reads until the other side closes or has answered. What is said may depend
    /// on the connection.
    pub async fn talk(
        &self,
        to: SocketAddr,
        alpn: &[u8],
        says: impl FnOnce(Binding) -> Vec<u8> + Send + 'static,
    ) -> Answer {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let keys = AlwaysResolvesClientRawPublicKeys::new(self.key.clone());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_client_cert_resolver(Arc::new(keys));
        config.alpn_protocols = vec![alpn.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        let name = ServerName::IpAddress(to.ip().into());
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let talk = tokio::task::spawn_blocking(move || {
            let mut wire = Recorded::connect(to);
            let mut said = Vec::new();
            // The other side may close at any time; what came before counts.
            if tls.complete_io(&mut wire).is_ok() {
                let binding = tls.export_keying_material(Binding::default(), BINDING, None);
                let mut stream = rustls::Stream::new(&mut tls, &mut wire);
                let says = says(binding.unwrap());
                let _ = stream.write_all(&says).and_then(|()| stream.flush());
                said = answer(&mut stream);
            }
            Answer {
                said,
                wire: wire.read,
            }
        });
        timeout(PATIENCE, talk).await.expect("closed").unwrap()
    }
}

/// Without TLS.
pub async fn talk_plainly(to: SocketAddr, says: Vec<u8>) -> Vec<u8> {
    let talk = tokio::task::spawn_blocking(move || {
        let mut wire = Recorded::connect(to);
        let _ = wire.write_all(&says);
        answer(&mut wire);
        wire.read
    });
    timeout(PATIENCE, talk).await.expect("closed").unwrap()
}

/// What comes until the other side closes, or the mark, after which it waits for messages.
fn answer(from: &mut impl Read) -> Vec<u8> {
    let (mut said, mut part) = (Vec::new(), [0; 256]);
    while !said.starts_with(MARK) {
        match from.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(n) => said.extend_from_slice(&part[..n]),
        }
    }
    said
}

/// How a peer introduces itself.
#[derive(Clone)]
pub struct Introduction {
    pub at: SocketAddr,
    pub instance: InstanceId,
    pub silo: Option<SiloAddress>,
    pub fingerprint: Option<u64>,
    pub proofs: Vec<ClusterProof>,
    pub secret: Option<ClusterProof>,
    pub table_id: Option<TableId>,
}

impl Introduction {
    /// One without any proof.
    pub fn of(instance: InstanceId) -> Self {
        Self {
            at: loopback(),
            instance,
            silo: None,
            fingerprint: None,
            proofs: Vec::new(),
            secret: None,
            table_id: None,
        }
    }

    /// With proofs of these keys, as the side that dials or another one has them.
    pub fn prove(mut self, keys: &ClusterKeys, cluster: &str, side: u8, binding: Binding) -> Self {
        self.proofs = keys.prove(&[
            b"table",
            &binding,
            &[side],
            cluster.as_bytes(),
            self.at.to_string().as_bytes(),
            &self.instance.get().to_be_bytes(),
        ]);
        self
    }

    /// The first bytes of a connection.
    pub fn to_bytes(&self) -> Vec<u8> {
        let content = (
            (MIN_PROTOCOL_VERSION, PROTOCOL_VERSION),
            self.at,
            self.instance,
            self.silo,
            self.fingerprint,
            &self.proofs,
            self.secret,
            self.table_id,
        );
        let mut bytes = MARK.to_vec();
        bytes.extend(frame(HELLO, &postcard::to_stdvec(&content).unwrap()));
        bytes
    }
}

/// A message in one frame.
pub fn framed(header: &Header, body: &Message) -> Vec<u8> {
    frame(MESSAGE, &encode(header, body).unwrap())
}

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 1).unwrap().to_be_bytes();
    [&length[..], &[kind], content].concat()
}

/// A connection that keeps what it read.
struct Recorded {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Recorded {
    fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }
}

impl Read for Recorded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(into)?;
        self.read.extend_from_slice(&into[..n]);
        Ok(n)
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
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

/// A transport of a process that has no row.
pub struct Newcomer {
    pub transport: TcpTransport,
    pub me: SiloAddress,
    pub instance: InstanceId,
    inbox: Messages,
}

impl Newcomer {
    /// One that knows this view; with it, the keys of the cluster.
    pub async fn knowing(view: &ClusterView) -> Self {
        let transport = TcpTransport::bind_with(loopback(), TcpConfig::default());
        let transport = transport.await.unwrap();
        let (instance, at) = (transport.instance().unwrap(), transport.local_addr());
        let (inbox, messages) = MessageInbox::channel(1024);
        let hello = Hello::new(cluster(), at, instance);
        transport.start(hello, inbox).await.unwrap();
        let me = SiloAddress::at(at, 1);
        transport.update(Some(me), view);
        Self {
            transport,
            me,
            instance,
            inbox: messages,
        }
    }

    /// The header of a message to this silo, with a view that says the same as the sender's.
    pub fn header(&self, view: &ClusterView, to: SiloAddress) -> Header {
        let mut header = Header::new(cluster().fingerprint(), self.me, self.instance);
        header.to = Some(to);
        header.table_id = Some(view.table_id());
        header.version = view.version();
        header.digest = view.short_digest();
        header
    }

    pub fn say(&self, header: &Header, body: Message) {
        let to = header.to.unwrap().endpoint();
        let message = Encoder::default().encode(header, &Arc::new(body)).unwrap();
        self.transport.send(Destination::Endpoint(to), message);
    }

    /// Waits for the answer to a probe.
    pub async fn answered(&mut self, header: &Header) {
        let nonce = 0xa11;
        let answer = async {
            loop {
                self.say(header, Message::Probe { nonce });
                if timeout(RETRY, self.hears(nonce)).await.is_ok() {
                    return;
                }
            }
        };
        timeout(PATIENCE, answer).await.expect("an answer");
    }

    async fn hears(&mut self, wanted: u64) {
        while let Some(inbound) = self.inbox.recv().await {
            if let Inbound::Message { body, .. } = inbound
                && *body == (Message::ProbeAck { nonce: wanted })
            {
                return;
            }
        }
    }
}
