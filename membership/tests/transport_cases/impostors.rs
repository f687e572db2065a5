//! Who has another authority, a certificate for something else, or somebody else's words.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership::InstanceId;
use membership::protocol::{Destination, MIN_PROTOCOL_VERSION, Message, PROTOCOL_VERSION};
use membership::transport::{Certificates, Security, TcpConfig, Transport};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, SanType, date_time_ymd,
};
use ring::digest::{Context, SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName as Subject, Error, ServerConfig,
    SignatureScheme, version,
};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::certificates::{Authority, CLUSTER, Says, peer, read, signed, signed_and_trusting};
use super::strangers::reaches;
use super::support::{Peer, any_port};

const ALPN: &[u8] = b"membership-silo/1";
pub const MARK: &[u8; 8] = b"\x93silo\r\n\x01";
pub const BINDING: &[u8] = b"EXPORTER-membership-hello";
pub type Binding = [u8; 32];

/// A certificate with those between it and an authority, and its key.
pub struct Shown {
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

/// What a silo told somebody who dialled it.
#[derive(Debug)]
struct Told {
    certificates: Vec<CertificateDer<'static>>,
    handshake: Result<(), String>,
    said: Vec<u8>,
    took: Duration,
}

pub fn params(ip: &str, cluster: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![
        SanType::URI(cluster.try_into().unwrap()),
        SanType::IpAddress(ip.parse().unwrap()),
    ];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

impl Shown {
    pub fn by(authority: &Authority, params: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params.clone().signed_by(&key, &authority.0).unwrap();
        Self {
            chain: vec![certificate.der().clone()],
            key: key.serialize_der(),
        }
    }

    fn client(&self) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivatePkcs8KeyDer::from(self.key.clone());
        let key = provider.key_provider.load_private_key(key.into()).unwrap();
        let shown = SingleCertAndKey::from(CertifiedKey::new(self.chain.clone(), key));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_client_cert_resolver(Arc::new(shown));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.enable_sni = false;
        config
    }

    fn server(&self) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivatePkcs8KeyDer::from(self.key.clone());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .with_client_cert_verifier(Arc::new(Anybody))
            .with_single_cert(self.chain.clone(), key.into())
            .unwrap();
        config.alpn_protocols = vec![ALPN.to_vec()];
        config
    }

    pub async fn dial(&self, to: SocketAddr) -> Result<client::TlsStream<TcpStream>, String> {
        let stream = TcpStream::connect(to).await.unwrap();
        let name = ServerName::IpAddress(to.ip().into());
        let connector = TlsConnector::from(Arc::new(self.client()));
        connector
            .connect(name, stream)
            .await
            .map_err(|e| e.to_string())
    }

    /// Dials, says it, and reads until the mark or the end.
    async fn talk(&self, to: SocketAddr, says: impl FnOnce(Binding) -> Vec<u8>) -> Told {
        let begun = Instant::now();
        let mut told = Told {
            certificates: Vec::new(),
            handshake: Ok(()),
            said: Vec::new(),
            took: Duration::ZERO,
        };
        match self.dial(to).await {
            Err(why) => told.handshake = Err(why),
            Ok(mut stream) => {
                let (_, tls) = stream.get_ref();
                let certificates = tls.peer_certificates().unwrap_or_default();
                told.certificates = certificates
                    .iter()
                    .cloned()
                    .map(|c| c.into_owned())
                    .collect();
                let binding = tls.export_keying_material(Binding::default(), BINDING, None);
                let _ = stream.write_all(&says(binding.unwrap())).await;
                let _ = stream.flush().await;
                let mut part = [0; 256];
                while !told.said.starts_with(MARK) {
                    match stream.read(&mut part).await {
                        Ok(0) => break,
                        Ok(n) => told.said.extend_from_slice(&part[..n]),
                        Err(why) => {
                            told.handshake = Err(why.to_string());
                            break;
                        }
                    }
                }
            }
        }
        told.took = begun.elapsed();
        told
    }

    /// Is dialled.
    async fn answer(&self, listener: &TcpListener) -> server::TlsStream<TcpStream> {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(self.server()));
        acceptor.accept(stream).await.unwrap()
    }
}

/// A key of a process, as the silo's own.
pub struct Key(Ed25519KeyPair);

#[derive(Serialize)]
struct KeyProof {
    public: Vec<u8>,
    signature: Vec<u8>,
}

impl Key {
    pub fn new() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    fn public(&self) -> Vec<u8> {
        let prefix = [
            0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
        ];
        [&prefix[..], self.0.public_key().as_ref()].concat()
    }

    pub fn instance(&self) -> InstanceId {
        let hash = digest(&SHA256, &self.public());
        InstanceId::new(u128::from_be_bytes(*hash.as_ref().first_chunk().unwrap()))
    }

    fn prove(&self, parts: &[&[u8]]) -> KeyProof {
        let mut context = Context::new(&SHA256);
        context.update(b"membership key of a process\0");
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        KeyProof {
            public: self.public(),
            signature: self.0.sign(context.finish().as_ref()).as_ref().to_vec(),
        }
    }
}

/// A hello within X.509, of `says` to be that instance, signed by this key for this cluster.
pub fn hello(
    key: &Key,
    instance: InstanceId,
    (side, cluster): (u8, &str),
    at: SocketAddr,
    binding: Binding,
) -> Vec<u8> {
    let name = cluster.to_owned();
    let said = |about: &'static [u8]| -> Vec<Vec<u8>> {
        vec![
            about.to_vec(),
            binding.to_vec(),
            vec![side],
            name.as_bytes().to_vec(),
            at.to_string().into_bytes(),
            instance.get().to_be_bytes().to_vec(),
        ]
    };
    let parts = said(b"table");
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let keys = membership::ClusterKeys::from(membership::ClusterKey::new([7; 32]));
    let proofs = keys.prove(&parts);
    let parts = said(b"key");
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let content = (
        (MIN_PROTOCOL_VERSION, PROTOCOL_VERSION),
        at,
        instance,
        None::<membership::SiloAddress>,
        None::<u64>,
        proofs,
        None::<[u8; 32]>,
        None::<membership::TableId>,
        key.prove(&parts),
    );
    let content = postcard::to_stdvec(&content).unwrap();
    let length = u32::try_from(content.len() + 1).unwrap().to_be_bytes();
    [&MARK[..], &length[..], &[0], &content].concat()
}

/// An attacker does not care who answers.
#[derive(Debug)]
struct Anybody;

fn schemes() -> Vec<SignatureScheme> {
    let provider = rustls::crypto::ring::default_provider();
    provider
        .signature_verification_algorithms
        .supported_schemes()
}

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
        unreachable!("TLS 1.3 alone")
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
        schemes()
    }
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[Subject] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!("TLS 1.3 alone")
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
        schemes()
    }
}

/// Certificates of nobody's authority, of which each of one layer may have signed each of the one
/// before, and no way leads to an end.
fn maze(layers: usize, each: usize) -> Shown {
    let mut chain = Vec::new();
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let layer = |n: usize| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = named(&n.to_string());
        params.key_identifier_method = KeyIdMethod::PreSpecified(vec![1]);
        params
    };
    let leaf = params("127.0.0.1", CLUSTER);
    let certificate = leaf.signed_by(&key, &Issuer::new(layer(0), &key)).unwrap();
    chain.push(certificate.der().clone());
    for n in 0..layers {
        let above = Issuer::new(layer(n + 1), &key);
        for _ in 0..each {
            let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
            let certificate = layer(n).signed_by(&other, &above).unwrap();
            chain.push(certificate.der().clone());
        }
    }
    let key = key.serialize_der();
    Shown { chain, key }
}

#[tokio::test]
async fn a_maze_of_certificates_costs_little() {
    let authority = Authority::new();
    let mut a = peer(1, signed(&authority, Says::default())).await;
    let mut b = peer(2, signed(&authority, Says::default())).await;
    for (layers, each) in [(1, 3), (1, 8), (2, 20), (3, 20), (4, 20)] {
        let shown = maze(layers, each);
        let bytes: usize = shown.chain.iter().map(|c| c.len()).sum();
        let count = shown.chain.len();
        let told = shown.talk(a.endpoint(), |_| Vec::new()).await;
        println!(
            "{count} certificates, {bytes} bytes: {:?}, {:?}",
            told.took, told.handshake
        );
        assert!(told.said.is_empty());
        assert!(told.took < Duration::from_millis(500), "{:?}", told.took);
    }
    reaches(&mut b, &mut a).await;
}

#[tokio::test]
async fn a_stranger_need_not_learn_the_name_of_the_cluster() {
    // `printf %s default/test | sha256sum`
    let hashed = Says {
        cluster: "membership-sha256://d1a910fb5bf2f1def83a32eb910f761d269a6ad4573503a4500f8ccf718216e8",
        ..Says::default()
    };
    let authority = Authority::new();
    let mut a = peer(1, signed(&authority, hashed)).await;
    let mut b = peer(2, signed(&authority, Says::default())).await;
    reaches(&mut a, &mut b).await;
    reaches(&mut b, &mut a).await;
    let own = Shown::by(&Authority::new(), &CertificateParams::default());
    let told = own.talk(a.endpoint(), |_| Vec::new()).await;
    let all: Vec<u8> = told.certificates.iter().flat_map(|c| c.to_vec()).collect();
    assert!(!all.is_empty());
    for name in ["default", "test", CLUSTER] {
        let tells = all.windows(name.len()).any(|w| w == name.as_bytes());
        assert!(!tells, "its certificate names {name}");
    }
}

#[test]
fn a_certificate_ends_with_the_first_of_its_chain() {
    let authority = Authority::new();
    let between_key = KeyPair::generate().unwrap();
    let mut between = CertificateParams::default();
    between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    between.distinguished_name = named("between");
    between.not_after = date_time_ymd(2030, 1, 1);
    let signed = between
        .clone()
        .signed_by(&between_key, &authority.0)
        .unwrap();
    let issuer = Issuer::new(between, &between_key);
    let key = KeyPair::generate().unwrap();
    let mut leaf = params("127.0.0.1", CLUSTER);
    leaf.not_after = date_time_ymd(2100, 1, 1);
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    write("ca.pem", authority.0.pem());
    write("cert.pem", [leaf.pem(), signed.pem()].concat());
    write("key.pem", key.serialize_pem());
    let left = read(folder.path()).valid_for();
    let years = left.as_secs() / (365 * 24 * 3600);
    assert!(
        years < 10,
        "the one between ends in 2030, not in {years} years"
    );
}

/// The other side believes for ever; this one has had another authority for a while.
#[tokio::test]
async fn a_connection_ends_although_its_peer_keeps_it() {
    let (old, new) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    old.write(folder.path(), Says::default());
    let mut config = TcpConfig::default();
    let certificates = read(folder.path());
    config.security = Security::table().with_certificates(certificates.clone());
    config.max_age = Duration::from_millis(500);
    let mut a = Peer::with(1, any_port(), "test", config).await;
    let mut b = peer(2, signed(&old, Says::default())).await;
    a.probe(b.endpoint(), 1);
    super::support::answer(&mut b).await;
    a.message().await;
    new.write(folder.path(), Says::default());
    certificates.reload().unwrap();
    let begun = Instant::now();
    let mut heard = Duration::ZERO;
    for nonce in 2..40 {
        a.probe(b.endpoint(), nonce);
        let next = tokio::time::timeout(Duration::from_millis(100), b.inbox.recv()).await;
        if let Ok(Some(membership::transport::Inbound::Message { .. })) = next {
            heard = begun.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let stats = a.transport.stats();
    println!(
        "still heard after {heard:?}, {} dials failed",
        stats.dials_failed
    );
    assert!(heard < Duration::from_secs(2), "{heard:?}");
}

#[tokio::test]
async fn a_certificate_for_something_else_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let a = peer(1, signed(&authority, Says::default())).await;
    let good = params("127.0.0.1", CLUSTER);
    let mut all = Vec::new();
    // The proofs below are well made: this one is heard.
    let key = Key::new();
    let says = |cluster: &'static str| {
        let (instance, key) = (key.instance(), &key);
        move |b| hello(key, instance, (0, cluster), any_port(), b)
    };
    let told = Shown::by(&authority, &good)
        .talk(a.endpoint(), says("default/test"))
        .await;
    assert!(told.said.starts_with(MARK), "{told:?}");

    all.push(("foreign", Shown::by(&other, &good)));
    for cluster in [
        "membership://default/other",
        "membership://default/test/",
        "membership://default/tes%74",
        "MEMBERSHIP://default/test",
        "membership://test",
        "membership://default/test%00",
        "membership://default/test?",
    ] {
        all.push((
            cluster,
            Shown::by(&authority, &params("127.0.0.1", cluster)),
        ));
    }
    let mut server = good.clone();
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    all.push(("serverAuth alone", Shown::by(&authority, &server)));
    let mut ended = good.clone();
    ended.not_after = date_time_ymd(2020, 1, 1);
    all.push(("ended", Shown::by(&authority, &ended)));
    let mut early = good.clone();
    early.not_before = date_time_ymd(2190, 1, 1);
    all.push(("early", Shown::by(&authority, &early)));
    let mut ca = good.clone();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    all.push(("an authority", Shown::by(&authority, &ca)));
    // One that a silo's certificate has signed.
    let key_of_silo = KeyPair::generate().unwrap();
    let silo = good.clone().signed_by(&key_of_silo, &authority.0).unwrap();
    let own = KeyPair::generate().unwrap();
    let issuer = Issuer::new(good.clone(), &key_of_silo);
    let mine = good.clone().signed_by(&own, &issuer).unwrap();
    all.push((
        "signed by a silo",
        Shown {
            chain: vec![mine.der().clone(), silo.der().clone()],
            key: own.serialize_der(),
        },
    ));
    // The certificate of another, without its key.
    all.push((
        "another's",
        Shown {
            chain: vec![silo.der().clone()],
            key: own.serialize_der(),
        },
    ));
    let before = a.transport.stats();
    let n = all.len() as u64;
    for (what, shown) in all {
        let told = shown.talk(a.endpoint(), says("default/test")).await;
        println!("{what}: {:?} {:?}", told.handshake, told.said);
        assert!(told.said.is_empty(), "{what}: {told:?}");
    }
    let after = a
        .until(|s| {
            s.refused_certificate + s.refused_handshake
                >= before.refused_certificate + before.refused_handshake + n
        })
        .await;
    println!("{after:?}");
    assert_eq!(after.accepted, before.accepted);
}

#[tokio::test]
async fn the_words_of_another_are_not_believed() {
    let authority = Authority::new();
    let anywhere = || signed(&authority, Says::default()).at_any_address();
    let mut a = peer(1, anywhere()).await;
    let b = peer(2, anywhere()).await;
    let table = super::support::table_with(
        &[[7; 32]],
        [&a, &b].map(|p| (p.me, p.instance, membership::SiloStatus::Active)),
    );
    for p in [&a, &b] {
        p.transport.update(Some(p.me), &table);
    }
    let shown = Shown::by(&authority, &params("127.0.0.1", CLUSTER));
    let (key, me) = (Key::new(), any_port());
    // Another's instance, with a key of its own.
    let (instance, at) = (b.instance, b.endpoint());
    let told = shown.talk(a.endpoint(), |binding| {
        hello(&key, instance, (0, "default/test"), at, binding)
    });
    assert!(told.await.said.is_empty());
    // The proof of the other side, of another connection, and for another cluster.
    let mine = key.instance();
    for (side, cluster, other) in [
        (1, "default/test", false),
        (0, "default/test", true),
        (0, "default/other", false),
    ] {
        let told = shown
            .talk(a.endpoint(), |binding| {
                let binding = if other { [0; 32] } else { binding };
                hello(&key, mine, (side, cluster), me, binding)
            })
            .await;
        assert!(told.said.is_empty(), "{told:?}");
    }
    // In the middle, with a certificate: a dials it, and its words go on to b and back to a.
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let at = listener.local_addr().unwrap();
    for reflected in [true, false] {
        a.send(Destination::Fresh(at), Message::Probe { nonce: 1 });
        let mut near = shown.answer(&listener).await;
        let mut said = vec![0; 12];
        near.read_exact(&mut said).await.unwrap();
        let length = u32::from_be_bytes(said[8..].try_into().unwrap()) as usize;
        let mut rest = vec![0; length];
        near.read_exact(&mut rest).await.unwrap();
        said.extend(rest);
        if reflected {
            near.write_all(&said).await.unwrap();
        } else {
            let told = shown.talk(b.endpoint(), move |_| said).await;
            assert!(told.said.is_empty(), "{told:?}");
        }
        drop(near);
        let (_, why) = a.failure().await;
        println!("{why}");
    }
    let stats = b.until(|s| s.refused_unproven == 1).await;
    assert_eq!(stats.accepted, 0);
}

#[tokio::test]
async fn names_of_clusters_do_not_mix() {
    let authority = Authority::new();
    let names = [
        "a%2Fb/c",
        "a/b%2Fc",
        "a%252Fb/c",
        "a b/c",
        "a%2520b/c",
        "ü/c",
    ];
    let uris = [
        "membership://a%2Fb/c",
        "membership://a/b%2Fc",
        "membership://a%252Fb/c",
        "membership://a%20b/c",
        "membership://a%2520b/c",
        "membership://%C3%BC/c",
    ];
    for (i, name) in names.iter().enumerate() {
        let mut config = TcpConfig::default();
        config.security = Security::table().with_certificates(signed(&authority, Says::default()));
        let a = Peer::with(1, any_port(), name, config).await;
        let cluster = a.cluster.to_string();
        for (j, uri) in uris.iter().enumerate() {
            let shown = Shown::by(&authority, &params("127.0.0.1", uri));
            let key = Key::new();
            let told = shown
                .talk(a.endpoint(), |binding| {
                    hello(&key, key.instance(), (0, &cluster), any_port(), binding)
                })
                .await;
            assert_eq!(
                told.said.starts_with(MARK),
                i == j,
                "{name} {uri}: {told:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_authority_that_has_ended_signs_nothing_more() {
    let mut old = CertificateParams::default();
    old.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    old.distinguished_name = named("old");
    old.not_after = date_time_ymd(2021, 1, 1);
    let issuer = rcgen::CertifiedIssuer::self_signed(old, KeyPair::generate().unwrap()).unwrap();
    let authority = Authority(issuer);
    let folder = tempfile::tempdir().unwrap();
    authority.write(folder.path(), Says::default());
    let file = |name| folder.path().join(name);
    let result = Certificates::files(file("ca.pem"), file("cert.pem"), file("key.pem"));
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("every certificate of the authority has ended"),
        "{error}"
    );
    // Beside another one it is not believed either.
    let new = Authority::new();
    let both = signed_and_trusting(&new, &authority, Says::default());
    let mut a = peer(1, both).await;
    for (by, is_believed) in [(&new, true), (&authority, false)] {
        let shown = Shown::by(by, &params("127.0.0.1", CLUSTER));
        let told = shown.talk(a.endpoint(), |_| Vec::new()).await;
        let refused = told.handshake.as_ref().err();
        let refused = refused.is_some_and(|why| why.contains("fatal alert"));
        assert_eq!(refused, !is_believed, "{:?}", told.handshake);
    }
    let mut b = peer(2, signed(&new, Says::default())).await;
    reaches(&mut b, &mut a).await;
}
