//! Five silos with certificates, and a stranger that shows some of nobody's authority.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership::ClusterView;
use membership::transport::{Certificates, Security, TcpConfig};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, SanType,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, version};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::cluster::Cluster;
use super::watch::Watch;
use crate::common::{PATIENCE, is_dead};

fn says() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![
        SanType::URI("membership://default/scenario".try_into().unwrap()),
        SanType::IpAddress("127.0.0.1".parse().unwrap()),
    ];
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_identifier_method = KeyIdMethod::PreSpecified(vec![1]);
    params
}

fn maze(layers: usize, each: usize) -> ClientConfig {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let layer = |n: usize| authority(&n.to_string());
    let leaf = says().signed_by(&key, &Issuer::new(layer(0), &key));
    let mut chain = vec![leaf.unwrap().der().clone()];
    for n in 0..layers {
        let above = Issuer::new(layer(n + 1), &key);
        for _ in 0..each {
            let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
            chain.push(layer(n).signed_by(&other, &above).unwrap().der().clone());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_client_auth_cert(chain, key.into())
        .unwrap();
    config.alpn_protocols = vec![b"membership-silo/1".to_vec()];
    config.enable_sni = false;
    config
}

async fn show(config: Arc<ClientConfig>, to: SocketAddr) {
    loop {
        let stream = TcpStream::connect(to).await.unwrap();
        let name = ServerName::IpAddress(to.ip().into());
        if let Ok(mut stream) = TlsConnector::from(config.clone())
            .connect(name, stream)
            .await
        {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    }
}

/// Five silos with certificates of one authority.
async fn certified() -> Cluster {
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let by = CertifiedIssuer::self_signed(authority("us"), KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = says().signed_by(&key, &by).unwrap();
    std::fs::write(file("ca.pem"), by.pem()).unwrap();
    std::fs::write(file("cert.pem"), own.pem()).unwrap();
    std::fs::write(file("key.pem"), key.serialize_pem()).unwrap();
    Cluster::with(|_| {
        let mut config = TcpConfig::default();
        let own = Certificates::files(file("ca.pem"), file("cert.pem"), file("key.pem"));
        config.security = Security::table().with_certificates(own.unwrap());
        config
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maze_of_certificates_stops_no_silo() {
    let cluster = certified().await;
    let victim = &cluster.honest()[0];
    cluster.forget_probes();
    let watch = Watch::over(&cluster.table, cluster.honest());
    let before = victim.stats().refused_certificate;
    let attack = tokio::spawn(show(Arc::new(maze(4, 30)), victim.me().endpoint()));
    cluster.probes_go_on().await;
    attack.abort();
    let refused = victim.stats().refused_certificate - before;
    let (longest, unanswered) = cluster.probes();
    println!("{refused} mazes refused, probes {longest:?}");
    assert!(refused > 0);
    assert_eq!(unanswered, 0);
    let seen = watch.end().await;
    assert!(seen.accused.is_empty(), "{:?}", seen.accused);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_certificates_an_end_is_known_at_once() {
    let cluster = certified().await;
    let [silo, leaver, evicted, ..] = cluster.honest() else {
        panic!("more than three silos")
    };
    leaver.leave().await;
    let left = |view: &ClusterView| is_dead(view, &leaver.me());
    silo.wait_for(left, PATIENCE).await.unwrap();
    silo.evict(evicted.me(), "a test").await.unwrap();
    let ended = async {
        while evicted.health().ready {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("it is told");
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
        let provider = rustls::crypto::ring::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
