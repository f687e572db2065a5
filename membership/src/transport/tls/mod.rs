//! TLS 1.3 between silos, with raw public keys (RFC 7250): every process makes a key pair when it
//! starts, its instance id is a hash of the public key, and the instance id stands in its row of
//! the table. So the table says which key belongs to which silo, and nothing needs to be
//! configured.

mod clients;
mod material;
mod reload;
mod secret;
mod verify;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use membership_core::InstanceId;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::{ClientConfig, CommonState, ServerConfig, version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

pub use self::clients::client_config;
pub use self::material::SiloKey;
pub(super) use self::reload::keep_fresh;
#[cfg(feature = "fuzzing")]
pub(super) use self::secret::parse as parse_secret;
pub use self::secret::{Secret, SecretError};

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
    instance: InstanceId,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// A TLS connection whose peer has proven its key.
pub(super) struct Secured<S> {
    pub(super) stream: TlsStream<S>,
    /// The process at the other end.
    pub(super) peer: InstanceId,
    pub(super) binding: Binding,
}

impl Tls {
    /// With a key pair of its own.
    pub(super) fn new() -> Result<Self, TransportError> {
        Self::with(SiloKey::generate()?)
    }

    pub(super) fn with(key: SiloKey) -> Result<Self, TransportError> {
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
                key.certified,
            )));
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self {
            instance: key.instance,
            client: client.into(),
            server: server.into(),
        })
    }

    /// The id that the key pair proves.
    pub(super) const fn instance(&self) -> InstanceId {
        self.instance
    }

    /// The side that dialled `to`.
    pub(super) async fn dial<S>(&self, stream: S, to: SocketAddr) -> io::Result<Secured<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::IpAddress(to.ip().into());
        let stream = TlsConnector::from(self.client.clone())
            .connect(name, stream)
            .await?;
        let (_, connection) = stream.get_ref();
        let binding = connection.export_keying_material(Binding::default(), BINDING, None);
        let peer = proven(connection)?;
        Ok(Secured {
            peer,
            binding: binding.map_err(io::Error::other)?,
            stream: stream.into(),
        })
    }

    /// The side that was dialled.
    pub(super) async fn accept<S>(&self, stream: S) -> io::Result<Secured<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsAcceptor::from(self.server.clone())
            .accept(stream)
            .await?;
        let (_, connection) = stream.get_ref();
        let binding = connection.export_keying_material(Binding::default(), BINDING, None);
        let peer = proven(connection)?;
        Ok(Secured {
            peer,
            binding: binding.map_err(io::Error::other)?,
            stream: stream.into(),
        })
    }
}

/// The cryptography of this crate, whatever the application has made its default: TLS 1.3 alone.
fn provider() -> CryptoProvider {
    let suites = ring::DEFAULT_CIPHER_SUITES.iter().copied();
    CryptoProvider {
        cipher_suites: suites.filter(|suite| suite.tls13().is_some()).collect(),
        ..ring::default_provider()
    }
}

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
    let secured = timeout(limit, tls.dial(stream, address)).await;
    Ok(secured.ok().and_then(Result::ok).map(|s| s.peer))
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// The instance whose key the peer has just proven to hold.
fn proven(connection: &CommonState) -> io::Result<InstanceId> {
    if connection.alpn_protocol() != Some(ALPN) {
        return Err(io::Error::other("it speaks another protocol within TLS"));
    }
    match connection.peer_certificates() {
        Some([key]) => Ok(material::instance_of(key)),
        _ => Err(io::Error::other("it has shown no key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_sides_learn_the_other_ones_instance_and_one_binding() {
        let (one, two) = (Tls::new().unwrap(), Tls::new().unwrap());
        assert_ne!(one.instance(), two.instance());
        let mut bindings = Vec::new();
        for _ in 0..2 {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let to = "127.0.0.1:1".parse().unwrap();
            let (dialled, accepted) = tokio::join!(one.dial(near, to), two.accept(far));
            let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap());
            assert_eq!(dialled.peer, two.instance());
            assert_eq!(accepted.peer, one.instance());
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
        let (near, far) = tokio::io::duplex(64 * 1024);
        let name = ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into());
        let connector = TlsConnector::from(Arc::new(keyless));
        let (_, accepted) = tokio::join!(connector.connect(name, near), silo.accept(far));
        assert!(accepted.is_err());
    }
}
