//! TLS 1.3 between silos, with raw public keys (RFC 7250): every process makes a key pair when it
//! starts, its instance id is a hash of the public key, and the instance id stands in its row of
//! the table. So the table says which key belongs to which silo, and nothing needs to be
//! configured.

mod at_address;
mod authority;
mod certificates;
mod clients;
pub(crate) mod files;
mod material;
mod reload;
mod secret;
mod validity;
mod verify;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use membership_core::{ClusterName, InstanceId};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::{
    Acceptor, AlwaysResolvesServerRawPublicKeys, CertificateType, NoServerSessionStorage,
};
use rustls::{ClientConfig, ConnectionCommon, ServerConfig, version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, TlsConnector, TlsStream};

pub use self::at_address::{certificate_at, instance_at};
pub use self::certificates::{Certificates, CertificatesError};
#[cfg(feature = "fuzzing")]
pub(super) use self::certificates::{judge as judge_certificates, read_pem};
pub use self::clients::client_config;
pub(super) use self::material::KeyProof;
pub use self::material::SiloKey;
pub(super) use self::reload::{keep_certificates_fresh, keep_fresh};
#[cfg(feature = "fuzzing")]
pub(super) use self::secret::parse as parse_secret;
pub use self::secret::{Secret, SecretError};
pub use self::validity::Validity;

use self::verify::PeerKey;
use super::TransportError;

/// The protocol that both sides must name (ALPN).
const ALPN: &[u8] = b"membership-silo/1";
/// The label of the keying material that ties a proof to one connection (RFC 8446, 7.5).
const BINDING: &[u8] = b"EXPORTER-membership-hello";

/// What ties a proof to one connection: different on each, and equal at its two ends.
pub(super) type Binding = [u8; 32];

/// The TLS side of one process: its key, and the configurations of both roles.
pub(super) struct Tls {
    key: SiloKey,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    certificates: Option<Certificates>,
}

/// What the handshake of TLS has proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proven {
    /// The key of the process at the other end.
    Key(InstanceId),
    /// A certificate that lets it take part. Which process it is, its hello proves.
    Certificate,
}

/// A TLS connection whose peer has proven its key.
pub(super) struct Secured<S> {
    pub(super) stream: TlsStream<S>,
    pub(super) peer: Proven,
    pub(super) binding: Binding,
}

impl Tls {
    /// With a key pair of its own.
    pub(super) fn new() -> Result<Self, TransportError> {
        Self::with(SiloKey::generate()?, None)
    }

    pub(super) fn with(
        key: SiloKey,
        certificates: Option<Certificates>,
    ) -> Result<Self, TransportError> {
        let provider = Arc::new(provider());
        let keys = Arc::new(PeerKey::new(&provider, None));
        let text = |error: rustls::Error| TransportError::Other(error.into());
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])
            .map_err(text)?
            .dangerous()
            .with_custom_certificate_verifier(keys.clone())
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                key.certified.clone(),
            )));
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(text)?
            .with_client_cert_verifier(keys)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
                key.certified.clone(),
            )));
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self {
            key,
            client: client.into(),
            server: server.into(),
            certificates,
        })
    }

    /// The id that the key pair proves.
    pub(super) const fn instance(&self) -> InstanceId {
        self.key.instance()
    }

    pub(super) const fn key(&self) -> &SiloKey {
        &self.key
    }

    /// The side that dialled `to`: with certificates for this cluster, if one is given and this
    /// process has some.
    pub(super) async fn dial<S>(
        &self,
        stream: S,
        to: SocketAddr,
        cluster: Option<&ClusterName>,
    ) -> io::Result<Secured<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let certificates = self.certificates.as_ref().zip(cluster);
        let config = certificates.map_or_else(
            || self.client.clone(),
            |(certificates, _)| certificates.material().client.clone(),
        );
        let name = ServerName::IpAddress(to.ip().into());
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        let binding = binding_of(stream.get_ref().1);
        let names = certificates.map(|(of, cluster)| (of, cluster, Some(to.ip())));
        Self::secured(stream.into(), binding, names)
    }

    /// The side that was dialled: waits for the first message of the other one, which costs next to
    /// nothing.
    pub(super) async fn hear<S>(stream: S) -> io::Result<StartHandshake<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        LazyConfigAcceptor::new(Acceptor::default(), stream).await
    }

    /// The rest of it. A peer that has certificates to show begins otherwise than one that has none.
    pub(super) async fn accept<S>(
        &self,
        begun: StartHandshake<S>,
        cluster: &ClusterName,
    ) -> io::Result<Secured<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Some(certificates) = &self.certificates else {
            let stream = begun.into_stream(self.server.clone()).await?;
            let binding = binding_of(stream.get_ref().1);
            return Self::secured(stream.into(), binding, None);
        };
        let types = begun.client_hello().server_cert_types().unwrap_or_default();
        let (config, names) = if types.contains(&CertificateType::RawPublicKey) {
            (self.server.clone(), None)
        } else {
            let config = certificates.material().server.clone();
            (config, Some((certificates, cluster, None)))
        };
        let stream = begun.into_stream(config).await?;
        let binding = binding_of(stream.get_ref().1);
        Self::secured(stream.into(), binding, names)
    }

    /// Takes what was proven. `names` says what a certificate must name.
    fn secured<S>(
        stream: TlsStream<S>,
        binding: Result<Binding, rustls::Error>,
        names: Option<(&Certificates, &ClusterName, Option<IpAddr>)>,
    ) -> io::Result<Secured<S>> {
        let (_, connection) = stream.get_ref();
        if connection.alpn_protocol() != Some(ALPN) {
            return Err(io::Error::other("it speaks another protocol within TLS"));
        }
        let shown = connection.peer_certificates().unwrap_or_default();
        let peer = match (names, shown) {
            (None, [key]) => Proven::Key(material::instance_of(key)),
            (Some((certificates, cluster, dialled)), [certificate, ..]) => {
                certificates
                    .check_names(certificate, cluster, dialled)
                    .map_err(|why| io::Error::other(rustls::Error::General(why.to_owned())))?;
                Proven::Certificate
            }
            _ => return Err(io::Error::other("it has shown no key")),
        };
        Ok(Secured {
            peer,
            binding: binding.map_err(io::Error::other)?,
            stream,
        })
    }

    /// Whether a dial that failed with certificates is tried without.
    pub(super) fn may_dial_without(&self) -> bool {
        self.certificates
            .as_ref()
            .is_some_and(Certificates::are_optional)
    }

    pub(super) const fn has_certificates(&self) -> bool {
        self.certificates.is_some()
    }

    /// Whether a peer without a certificate is refused.
    pub(super) fn needs_certificates(&self) -> bool {
        self.certificates.is_some() && !self.may_dial_without()
    }
}

fn binding_of<D>(connection: &ConnectionCommon<D>) -> Result<Binding, rustls::Error> {
    connection.export_keying_material(Binding::default(), BINDING, None)
}

/// What is wrong with the certificate of the other side, if a connection failed for that.
pub(super) fn of_certificate(error: &io::Error) -> Option<&str> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::General(why) => Some(why),
        _ => None,
    }
}

/// The cryptography of this crate, whatever the application has made its default: TLS 1.3 alone.
pub(crate) fn provider() -> CryptoProvider {
    let suites = ring::DEFAULT_CIPHER_SUITES.iter().copied();
    CryptoProvider {
        cipher_suites: suites.filter(|suite| suite.tls13().is_some()).collect(),
        ..ring::default_provider()
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("key", &self.key)
            .field("certificates", &self.certificates)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn accepted<S: AsyncRead + AsyncWrite + Unpin>(
        by: &Tls,
        stream: S,
        cluster: &ClusterName,
    ) -> io::Result<Secured<S>> {
        by.accept(Tls::hear(stream).await?, cluster).await
    }

    #[tokio::test]
    async fn both_sides_learn_the_other_ones_instance_and_one_binding() {
        let (one, two) = (Tls::new().unwrap(), Tls::new().unwrap());
        assert_ne!(one.instance(), two.instance());
        let cluster = ClusterName::new("billing", "blue").unwrap();
        let mut bindings = Vec::new();
        for _ in 0..2 {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let to = "127.0.0.1:1".parse().unwrap();
            let (dialled, accepted) = tokio::join!(
                one.dial(near, to, Some(&cluster)),
                accepted(&two, far, &cluster)
            );
            let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap());
            assert_eq!(dialled.peer, Proven::Key(two.instance()));
            assert_eq!(accepted.peer, Proven::Key(one.instance()));
            assert_eq!(dialled.binding, accepted.binding);
            bindings.push(dialled.binding);
        }
        assert_ne!(bindings[0], bindings[1], "each connection has its own");
    }

    #[tokio::test]
    async fn a_peer_without_a_key_is_refused() {
        let provider = Arc::new(ring::default_provider());
        let mut keyless = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(PeerKey::new(&provider, None)))
            .with_no_client_auth();
        keyless.alpn_protocols = vec![ALPN.to_vec()];
        let silo = Tls::new().unwrap();
        let cluster = ClusterName::new("billing", "blue").unwrap();
        let (near, far) = tokio::io::duplex(64 * 1024);
        let name = ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into());
        let connector = TlsConnector::from(Arc::new(keyless));
        let (_, accepted) = tokio::join!(
            connector.connect(name, near),
            accepted(&silo, far, &cluster)
        );
        assert!(accepted.is_err());
    }
}
