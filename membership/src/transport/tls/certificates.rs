//! X.509 certificates besides the keys of processes: files of an authority that an operator runs.
//!
//! A process still makes its own key pair, which its row in the table names. Its certificate says
//! that the authority lets it take part in this cluster. TLS then proves the certificate, and the
//! hello within proves the key.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use membership_core::ClusterName;
use ring::digest::{SHA256, digest};
use rustls::client::Resumption;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, ServerConfig, version};
use tokio::sync::watch;
use webpki::EndEntityCert;
#[cfg(feature = "fuzzing")]
use webpki::KeyUsage;

#[cfg(feature = "fuzzing")]
use super::authority::end_of;
use super::authority::{Authority, NO_CERTIFICATE, anchors, lifetime_of, reason};
use super::{ALPN, Validity, files, provider};

const BAD_KEY: &str = "the private key cannot be used: make one that is Ed25519, ECDSA (P-256 or P-384), or RSA with 2048 bits or more";

/// Certificates (X.509) that every silo of a cluster needs besides the table: where an authority
/// decides which machines may take part.
///
/// A silo's certificate must be signed by the authority (up to three between may be in its file),
/// name the cluster as the URI `membership://service/cluster` among its subject alternative names,
/// and the address that others dial as an IP address, unless [any address](Self::at_any_address)
/// will do.
/// Where it lists extended key usages, `serverAuth` and `clientAuth` must be among them.
///
/// The files are PEM. A running silo looks at them every 30 s: new connections use what it finds,
/// and older ones end within 68 minutes.
#[derive(Clone)]
pub struct Certificates {
    files: Arc<Files>,
    at_any_address: bool,
    optional: bool,
    material: Arc<RwLock<Arc<Material>>>,
    changes: watch::Sender<()>,
}

#[derive(Debug, PartialEq, Eq)]
struct Files {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// What is made of the files.
pub(super) struct Material {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    /// This silo's certificate.
    own: CertificateDer<'static>,
    /// Those of the authority, and this silo's own with those between.
    files: [Vec<CertificateDer<'static>>; 2],
    /// When the first certificate of this silo's chain ends, in seconds since 1970.
    ends: u64,
}

/// Why certificates cannot be used. Shows no key.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", name(.path))]
pub struct CertificatesError {
    path: PathBuf,
    reason: String,
}

fn name(path: &Path) -> String {
    let shown = files::shown(path);
    shown.unwrap_or_else(|| {
        "a certificate or key (its name is not shown, because it may be the key itself: give the path of a file)".to_owned()
    })
}

impl Certificates {
    /// Reads the certificates of the authority, this silo's certificate with those between, and its
    /// private key.
    ///
    /// # Errors
    /// [`CertificatesError`]: a file cannot be read or has nothing of its kind, or the three do not
    /// belong together.
    pub fn files(
        authority: impl Into<PathBuf>,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, CertificatesError> {
        let files = Files {
            authority: authority.into(),
            certificate: certificate.into(),
            key: key.into(),
        };
        let material = files.read()?;
        let it = Self {
            files: Arc::new(files),
            at_any_address: false,
            optional: false,
            material: Arc::new(RwLock::new(Arc::new(material))),
            changes: watch::Sender::new(()),
        };
        it.warn_of_its_end();
        Ok(it)
    }

    /// The certificates of others need not name their addresses: for silos whose addresses nobody
    /// knows beforehand. Whoever has the key of one certificate may then be at any address.
    #[must_use]
    pub const fn at_any_address(mut self) -> Self {
        self.at_any_address = true;
        self
    }

    /// Silos without a certificate are believed too: for a cluster that is on its way to
    /// certificates. Start each silo anew with this, and then each without it.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Reads the files again. If that fails, everything stays as it is.
    ///
    /// # Errors
    /// As [`files`](Self::files).
    pub fn reload(&self) -> Result<(), CertificatesError> {
        self.take(self.files.read()?);
        Ok(())
    }

    /// The same for a silo: a certificate that other silos would refuse changes nothing either, if
    /// the one before names the cluster and the address. Whether the certificates are other ones than
    /// before.
    pub(super) fn reload_for(
        &self,
        cluster: &ClusterName,
        address: IpAddr,
    ) -> Result<bool, CertificatesError> {
        let new = self.files.read()?;
        if let Err(error) = self.names(&new, cluster, address)
            && self.check_own(cluster, address).is_ok()
        {
            return Err(error);
        }
        Ok(self.take(new))
    }

    /// Gives whether the certificates are other ones than before.
    fn take(&self, material: Material) -> bool {
        let has_changed = material.files != self.material().files;
        let now = self.material.write();
        *now.unwrap_or_else(PoisonError::into_inner) = Arc::new(material);
        if has_changed {
            self.changes.send_replace(());
        }
        has_changed
    }

    pub(in crate::transport) fn warn_of_mode(&self) {
        files::warn_of_mode(&self.files.key);
    }

    /// Changes of the certificates.
    pub(in crate::transport) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Whether other silos, which dial this one at `address`, accept what its certificate names.
    pub(crate) fn check_own(
        &self,
        cluster: &ClusterName,
        address: IpAddr,
    ) -> Result<(), CertificatesError> {
        self.names(&self.material(), cluster, address)
    }

    fn names(
        &self,
        material: &Material,
        cluster: &ClusterName,
        address: IpAddr,
    ) -> Result<(), CertificatesError> {
        let checked = self.check_names(&material.own, cluster, Some(address));
        checked.map_err(|_| {
            let mut wanted = format!("URI:{}", uri(cluster));
            if !self.at_any_address {
                wanted.push_str(&format!(",IP:{}", address.to_canonical()));
            }
            CertificatesError {
                path: self.files.certificate.clone(),
                reason: format!(
                    "other silos would refuse the certificate: among its subject alternative names it needs `{wanted}`"
                ),
            }
        })
    }

    /// How long this silo's certificate, those between it and the authority, and the authority's
    /// are still valid.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        let now = UnixTime::now().as_secs();
        Duration::from_secs(self.material().ends.saturating_sub(now))
    }

    pub(super) fn warn_of_its_end(&self) {
        let lifetime = lifetime_of(&self.material().own).unwrap_or_default();
        let validity = Validity::new(self.valid_for(), lifetime);
        let file = self.files.certificate.display().to_string();
        if validity.left.is_zero() {
            tracing::error!(
                file,
                "the certificate of this silo has ended: other silos refuse its new connections; renew it"
            );
        } else if validity.ends_soon() {
            tracing::warn!(file, left = %validity, "the certificate of this silo ends soon");
        }
    }

    pub(super) fn material(&self) -> Arc<Material> {
        let now = self.material.read();
        now.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::transport) const fn are_optional(&self) -> bool {
        self.optional
    }

    /// Checks what the certificate of a peer names: this cluster and, where it was dialled, its
    /// address.
    pub(super) fn check_names(
        &self,
        certificate: &CertificateDer<'_>,
        cluster: &ClusterName,
        dialled: Option<IpAddr>,
    ) -> Result<(), &'static str> {
        check_names(
            certificate,
            cluster,
            dialled.filter(|_| !self.at_any_address),
        )
    }
}

fn check_names(
    certificate: &CertificateDer<'_>,
    cluster: &ClusterName,
    dialled: Option<IpAddr>,
) -> Result<(), &'static str> {
    let certificate =
        EndEntityCert::try_from(certificate).map_err(|_| "its certificate is damaged")?;
    let (plain, hashed) = (uri(cluster), hashed_uri(cluster));
    let mut names = certificate.valid_uri_names();
    if !names.any(|name| name == plain || name == hashed) {
        return Err("its certificate does not name this cluster");
    }
    match dialled {
        Some(ip) => certificate
            .verify_is_valid_for_subject_name(&ServerName::IpAddress(ip.to_canonical().into()))
            .map_err(|_| "its certificate does not name the address that was dialled"),
        None => Ok(()),
    }
}

/// How a certificate names a cluster: ASCII, as it must be there.
fn uri(cluster: &ClusterName) -> String {
    let mut uri = "membership://".to_owned();
    for byte in cluster.to_string().bytes() {
        match byte {
            b'/' | b'%' | b'-' | b'.' | b'_' | b'~' => uri.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => uri.push(byte.into()),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// The same without telling it to those who do not know it: a silo shows its certificate to whoever
/// connects.
fn hashed_uri(cluster: &ClusterName) -> String {
    let hash = digest(&SHA256, cluster.to_string().as_bytes());
    let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("membership-sha256://{}", digits.collect::<String>())
}

impl Files {
    fn read(&self) -> Result<Material, CertificatesError> {
        let of = |path: &Path, reason: String| CertificatesError {
            path: path.to_owned(),
            reason,
        };
        let authority = certificates(&self.authority)?;
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| of(&self.key, unread(&error, "private key without a password")))?;
        let provider = Arc::new(provider());
        let bad_key = |_| of(&self.key, BAD_KEY.to_owned());
        let key = provider.key_provider.load_private_key(key);
        let own = CertifiedKey::new(chain.clone(), key.map_err(bad_key)?);
        own.keys_match().map_err(|error| match error {
            Error::InconsistentKeys(_) => {
                let of_whom = self.certificate.display();
                let why = format!("it is not the key of the certificate in {of_whom}");
                of(&self.key, why)
            }
            // Not compared: the certificate cannot be read.
            _ => {
                let why = EndEntityCert::try_from(&chain[0]).err();
                let why = why.map_or_else(|| error.to_string(), |error| reason(&error));
                of(&self.certificate, format!("the certificate {why}"))
            }
        })?;

        let signed_by = Arc::new(Authority {
            anchors: anchors(&authority).map_err(|why| of(&self.authority, why))?,
            algorithms: provider.signature_verification_algorithms,
        });
        if signed_by.anchors_at(UnixTime::now()).is_empty() {
            let why = "every certificate of the authority has ended";
            return Err(of(&self.authority, why.to_owned()));
        }
        let own_chain = |why: String| of(&self.certificate, why);
        let ends = signed_by.ends(&chain).map_err(own_chain)?;

        let leaf = chain.first().cloned();
        let leaf = leaf.ok_or_else(|| of(&self.certificate, NO_CERTIFICATE.to_owned()))?;
        let own = Arc::new(SingleCertAndKey::from(own));
        let other = |error: Error| of(&self.certificate, error.to_string());
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])
            .map_err(other)?
            .dangerous()
            .with_custom_certificate_verifier(signed_by.clone())
            .with_client_cert_resolver(own.clone());
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(other)?
            .with_client_cert_verifier(signed_by)
            .with_cert_resolver(own);
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let (client, server) = (client.into(), server.into());
        Ok(Material {
            client,
            server,
            own: leaf,
            files: [authority, chain],
            ends,
        })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificatesError> {
    let error = |reason: String| CertificatesError {
        path: path.to_owned(),
        reason,
    };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(list) if list.is_empty() => Err(error(NO_CERTIFICATE.to_owned())),
        Ok(list) => Ok(list),
        Err(why) => Err(error(unread(&why, "certificate"))),
    }
}

/// Quotes nothing of the file: it may be a private key.
fn unread(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::Io(error) => files::unread(error),
        pem::Error::NoItemsFound => format!("it has no {what} in PEM"),
        _ => "damaged PEM: a line is missing, cut, or joined with the next one".to_owned(),
    }
}

/// Judges a chain that a peer shows, at a time in seconds since 1970: for `membership-fuzz`.
#[cfg(feature = "fuzzing")]
pub(in crate::transport) fn judge(
    authority: &[CertificateDer<'_>],
    chain: &[CertificateDer<'_>],
    cluster: &ClusterName,
    dialled: IpAddr,
    now: u64,
) -> Result<(), String> {
    let authority = Authority {
        anchors: anchors(authority)?,
        algorithms: provider().signature_verification_algorithms,
    };
    let (own, between) = chain.split_first().ok_or("it shows none")?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    for usage in [KeyUsage::server_auth(), KeyUsage::client_auth()] {
        let checked = authority.check(own, between, now, usage);
        checked.map_err(|error| error.to_string())?;
    }
    end_of(own).ok_or("its end is not known")?;
    check_names(own, cluster, Some(dialled)).map_err(str::to_owned)
}

/// How many certificates are in the text of a file, and whether a private key is: for
/// `membership-fuzz`.
#[cfg(feature = "fuzzing")]
pub(in crate::transport) fn read_pem(text: &[u8]) -> Result<(usize, bool), String> {
    let read = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    let certificates = read.map_err(|error| unread(&error, "certificate"))?.len();
    match PrivateKeyDer::from_pem_slice(text) {
        Ok(_) => Ok((certificates, true)),
        Err(_) if certificates > 0 => Ok((certificates, false)),
        Err(error) => Err(unread(&error, "certificate or private key")),
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("files", &self.files)
            .field("at_any_address", &self.at_any_address)
            .field("optional", &self.optional)
            .finish_non_exhaustive()
    }
}

/// Whether both are of the same files and settings.
impl PartialEq for Certificates {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
            && self.at_any_address == other.at_any_address
            && self.optional == other.optional
    }
}
impl Eq for Certificates {}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, IsCa, KeyPair,
        SanType,
    };

    use super::*;

    /// Writes the three files, with a certificate that has these names.
    fn write(folder: &Path, uri: &str, ip: IpAddr) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        let key = KeyPair::generate().unwrap();
        let authority = CertifiedIssuer::self_signed(params, key).unwrap();
        let mut params = CertificateParams::default();
        let uri = SanType::URI(uri.try_into().unwrap());
        params.subject_alt_names = vec![uri, SanType::IpAddress(ip)];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let write = |name, text: String| std::fs::write(folder.join(name), text).unwrap();
        write("ca", authority.pem());
        write("cert", certificate.pem());
        write("key", key.serialize_pem());
    }

    #[test]
    fn a_renewed_certificate_that_others_would_refuse_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path(), |name| folder.path().join(name));
        let [here, there] = [1, 2].map(|last| IpAddr::from([127, 0, 0, last]));
        let cluster = ClusterName::new("billing", "blue").unwrap();
        write(path, "membership://billing/blue", here);
        let certificates = Certificates::files(file("ca"), file("cert"), file("key")).unwrap();
        for (uri, ip) in [
            ("membership://billing/green", here),
            ("membership://billing/blue", there),
        ] {
            write(path, uri, ip);
            let before = certificates.material().own.clone();
            let error = certificates.reload_for(&cluster, here).unwrap_err();
            let wanted = "`URI:membership://billing/blue,IP:127.0.0.1`";
            assert!(error.to_string().contains(wanted), "{error}");
            assert_eq!(certificates.material().own, before);
        }
        let anywhere = certificates.clone().at_any_address();
        anywhere.reload_for(&cluster, here).unwrap();
        // One that is no worse than the one before is taken.
        write(path, "membership://billing/blue", there);
        certificates.reload_for(&cluster, here).unwrap();
        write(path, "membership://billing/blue", here);
        certificates.reload_for(&cluster, here).unwrap();
        certificates.check_own(&cluster, here).unwrap();
    }
}
