//! TLS for connections to the server: rustls, and the modes of PostgreSQL's own clients.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use membership_core::{TableError, TableErrorKind};
use membership_provider::{TlsFiles, install_crypto_provider, native_roots};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use super::STORE;
use super::config::{PostgresConfig, PostgresSslMode};
use super::error::error;

/// Makes connectors; cheap to clone. Notes whether there was a handshake.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>, pub(super) Arc<AtomicBool>);

impl Tls {
    /// Reads the root certificates, if the mode needs them.
    ///
    /// # Errors
    /// `Configuration`: a file that cannot be read or holds no certificate, or a system without
    /// any.
    pub(super) fn new(config: &PostgresConfig) -> Result<Self, TableError> {
        install_crypto_provider();
        let wrong = |what: String| error(TableErrorKind::Configuration, what);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let file = config.ssl_root_cert.clone();
        let files = TlsFiles {
            ca: file.filter(|_| !config.trusts_system()),
            ..TlsFiles::default()
        };
        let roots = || match files.ca {
            Some(_) => files.roots(STORE),
            None => native_roots(STORE, "sslrootcert"),
        };
        let checks_authority = match config.ssl_mode {
            PostgresSslMode::Disable | PostgresSslMode::Prefer => false,
            PostgresSslMode::Require => files.ca.is_some(),
            PostgresSslMode::VerifyCa | PostgresSslMode::VerifyFull => true,
        };
        let verifier: Arc<dyn ServerCertVerifier> = match config.ssl_mode {
            PostgresSslMode::VerifyFull => {
                let (roots, provider) = (Arc::new(roots()?), Arc::clone(&provider));
                WebPkiServerVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|e| wrong(format!("the root certificates cannot be used: {e}")))?
            }
            _ => Arc::new(Lenient {
                provider: Arc::clone(&provider),
                roots: checks_authority.then(roots).transpose()?,
            }),
        };
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(format!("TLS cannot be used: {e}")))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self(Arc::new(client), Arc::default()))
    }
}

/// Checks the authority but not the name (`verify-ca`), or neither (`require`), as PostgreSQL's own
/// clients do.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    roots: Option<RootCertStore>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type TlsConnect = Connector;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Connector, Self::Error> {
        // A Unix socket has no name, and no TLS.
        let name = if domain.is_empty() {
            "localhost"
        } else {
            domain
        };
        Ok(Connector {
            tls: self.clone(),
            name: ServerName::try_from(name)?.to_owned(),
        })
    }
}

/// Makes one handshake.
pub(super) struct Connector {
    tls: Tls,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connector {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let Tls(client, made) = self.tls;
            let connector = tokio_rustls::TlsConnector::from(client);
            let stream = connector.connect(self.name, stream).await?;
            made.store(true, Ordering::Relaxed);
            Ok(Stream(stream))
        })
    }
}

/// An encrypted connection. SCRAM is not bound to the channel: use `verify-full` against other
/// servers.
pub(super) struct Stream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
