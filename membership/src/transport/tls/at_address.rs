//! What a process proves that listens at an address, for whoever is no silo: nothing is said about
//! the table, and the silo refuses the connection afterwards as a stranger's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::InstanceId;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, version};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::verify::tls12;
use super::{ALPN, Proven, Tls, Validity, authority, provider};

/// Asks which process listens at an address: the instance whose key it proves, or none if what
/// answers there proves nothing within `limit` (it is no silo, it hangs, or its security is `none`).
/// Says nothing about the table, and is refused by the silo afterwards as a stranger.
///
/// # Errors
/// There is no connection. [`io::ErrorKind::ConnectionRefused`]: nothing listens there.
/// [`io::ErrorKind::TimedOut`]: no answer within `limit`.
///
/// Cancel safe.
pub async fn instance_at(address: SocketAddr, limit: Duration) -> io::Result<Option<InstanceId>> {
    let stream = timeout(limit, TcpStream::connect(address)).await??;
    let tls = Tls::new().map_err(io::Error::other)?;
    let secured = timeout(limit, tls.dial(stream, address, None)).await;
    Ok(match secured.ok().and_then(Result::ok).map(|s| s.peer) {
        Some(Proven::Key(instance)) => Some(instance),
        _ => None,
    })
}

/// Asks how long the certificate of a silo is still valid: zero once it has ended. None if what
/// answers there shows no certificate within `limit`. Nothing else of the certificate is checked,
/// those between it and the authority neither.
///
/// # Errors
/// As [`instance_at`].
///
/// Cancel safe.
pub async fn certificate_at(address: SocketAddr, limit: Duration) -> io::Result<Option<Validity>> {
    let stream = timeout(limit, TcpStream::connect(address)).await??;
    let provider = Arc::new(provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    let name = ServerName::IpAddress(address.ip().into());
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let Ok(Ok(stream)) = timeout(limit, connecting).await else {
        return Ok(None);
    };
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let validity = |certificate| {
        let ends = authority::end_of(certificate)?;
        let left = ends.saturating_sub(UnixTime::now().as_secs());
        let lifetime = authority::lifetime_of(certificate)?;
        Some(Validity::new(Duration::from_secs(left), lifetime))
    };
    Ok(shown.first().and_then(validity))
}

/// Accepts any certificate, to look at it, whose key the other side proves.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
