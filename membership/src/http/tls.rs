//! TLS of the HTTP server: a certificate and its key, read again when the files change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};

use super::HttpError;
use crate::transport::{files, provider};

/// A change of the files counts within this time.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// A certificate for the HTTP server (PEM, with those between it and its authority) and its private
/// key, as a browser or a Prometheus expects them. TLS 1.3 alone. A change of the files counts
/// within 30 s; files that cannot be used change nothing, and a warning says so.
#[derive(Clone)]
pub struct ServerTls(Arc<Files>);

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    now: Mutex<Now>,
}

struct Now {
    certified: Arc<CertifiedKey>,
    seen: [Option<SystemTime>; 2],
    looked_at: Instant,
}

impl ServerTls {
    /// Reads both files.
    ///
    /// # Errors
    /// [`HttpError::Tls`]: one cannot be read, or they do not belong together. Shows no key.
    pub fn files(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, HttpError> {
        let (certificate, key) = (certificate.into(), key.into());
        let seen = stamps(&certificate, &key);
        let certified = Arc::new(read(&certificate, &key).map_err(HttpError::Tls)?);
        files::warn_of_mode(&key);
        Ok(Self(Arc::new(Files {
            certificate,
            key,
            now: Mutex::new(Now {
                certified,
                seen,
                looked_at: Instant::now(),
            }),
        })))
    }

    pub(super) fn config(&self) -> Result<ServerConfig, HttpError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|e| HttpError::Tls(e.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(self.0.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl Files {
    fn newest(&self) -> Arc<CertifiedKey> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.looked_at.elapsed() >= LOOK_EVERY {
            now.looked_at = Instant::now();
            let seen = stamps(&self.certificate, &self.key);
            if seen != now.seen {
                now.seen = seen;
                match read(&self.certificate, &self.key) {
                    Ok(certified) => now.certified = Arc::new(certified),
                    Err(reason) => {
                        tracing::warn!(
                            reason,
                            "the changed certificate for HTTP cannot be used; the one of before stays"
                        );
                    }
                }
            }
        }
        now.certified.clone()
    }
}

impl ResolvesServerCert for Files {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.newest())
    }
}

fn stamps(certificate: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [certificate, key].map(|path| path.metadata().and_then(|m| m.modified()).ok())
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, String> {
    let name = |path: &Path| {
        let hidden = "a certificate or key (its name is not shown, because it may be the key itself: give the path of a file)";
        files::shown(path).unwrap_or_else(|| hidden.to_owned())
    };
    let unread = |path: &Path, error: &pem::Error| match error {
        pem::Error::Io(error) => format!("{}: {}", name(path), files::unread(error)),
        _ => format!("{}: it is not PEM, or has nothing of its kind", name(path)),
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| unread(certificate, &e))?;
    if chain.is_empty() {
        return Err(format!("{}: it has no certificate", name(certificate)));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| unread(key, &e))?;
    let private = provider()
        .key_provider
        .load_private_key(private)
        .map_err(|e| format!("{}: the private key cannot be used: {e}", name(key)))?;
    let certified = CertifiedKey::new(chain, private);
    certified.keys_match().map_err(|e| {
        format!(
            "{} and {} do not belong together: {e}",
            name(certificate),
            name(key)
        )
    })?;
    Ok(certified)
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}
