//! TLS for connections to the server: rustls with aws-lc-rs, and the modes of PostgreSQL's own clients.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use membership_core::{TableError, TableErrorKind};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use super::config::{PostgresConfig, PostgresSslMode};
use super::error::error;

/// Makes connectors; cheap to clone.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads the root certificates, if the mode looks at any.
    ///
    /// # Errors
    /// `Configuration`: a file that cannot be read or holds no certificate, or a system without any.
    pub(super) fn new(config: &PostgresConfig) -> Result<Self, TableError> {
        let wrong = |what: String| error(TableErrorKind::Configuration, what);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        // Others in the process may ask for it; if they have one already, that one stays.
        drop(provider.as_ref().clone().install_default());
        let roots = |file: Option<&std::path::Path>| -> Result<RootCertStore, TableError> {
            let mut store = RootCertStore::empty();
            match file {
                Some(path) => {
                    let shown = path.display();
                    let all = CertificateDer::pem_file_iter(path)
                        .map_err(|e| wrong(format!("sslrootcert {shown}: {e}")))?;
                    for certificate in all {
                        let certificate =
                            certificate.map_err(|e| wrong(format!("sslrootcert {shown}: {e}")))?;
                        store
                            .add(certificate)
                            .map_err(|e| wrong(format!("sslrootcert {shown}: {e}")))?;
                    }
                    if store.is_empty() {
                        return Err(wrong(format!(
                            "sslrootcert {shown} holds no certificate in PEM"
                        )));
                    }
                }
                None => {
                    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                    if store.is_empty() {
                        return Err(wrong(
                            "this system has no root certificates: give a file with `sslrootcert`"
                                .to_owned(),
                        ));
                    }
                }
            }
            Ok(store)
        };
        // `system` is what PostgreSQL's own clients call the certificates of the operating system.
        let file = config
            .ssl_root_cert
            .as_deref()
            .filter(|p| p.as_os_str() != "system");
        let verifier: Arc<dyn ServerCertVerifier> = match (config.ssl_mode, file) {
            (PostgresSslMode::VerifyFull, file) => WebPkiServerVerifier::builder_with_provider(
                Arc::new(roots(file)?),
                Arc::clone(&provider),
            )
            .build()
            .map_err(|e| wrong(format!("the root certificates cannot be used: {e}")))?,
            (PostgresSslMode::VerifyCa, file) => Arc::new(Lenient {
                provider: Arc::clone(&provider),
                roots: Some(roots(file)?),
            }),
            (PostgresSslMode::Require, Some(file)) => Arc::new(Lenient {
                provider: Arc::clone(&provider),
                roots: Some(roots(Some(file))?),
            }),
            _ => Arc::new(Lenient {
                provider: Arc::clone(&provider),
                roots: None,
            }),
        };
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(format!("TLS cannot be used: {e}")))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self(Arc::new(client)))
    }
}

/// Looks at the authority but not at the name (`verify-ca`), or at neither (`require`): what the modes of PostgreSQL's own clients mean.
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
        // A socket of the file system has no name, and no TLS either.
        let name = if domain.is_empty() {
            "localhost"
        } else {
            domain
        };
        Ok(Connector {
            client: Arc::clone(&self.0),
            name: ServerName::try_from(name)?.to_owned(),
        })
    }
}

/// One handshake to come.
pub(super) struct Connector {
    client: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connector {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            Ok(Stream(
                tokio_rustls::TlsConnector::from(self.client)
                    .connect(self.name, stream)
                    .await?,
            ))
        })
    }
}

/// An encrypted connection. Passwords are proven with SCRAM but not bound to the channel; `verify-full` is what keeps others out.
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
