//! TLS for ports of the application: a client knows from the table whose key listens there.

use std::sync::Arc;

use membership_core::InstanceId;
use rustls::client::Resumption;
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::{ClientConfig, Error, ServerConfig, version};

use super::material::SiloKey;
use super::provider;
use super::verify::PeerKey;
use crate::transport::TransportError;

fn other(error: Error) -> TransportError {
    TransportError::Other(error.into())
}

fn named(protocols: &[&[u8]]) -> Vec<Vec<u8>> {
    protocols.iter().map(|name| name.to_vec()).collect()
}

impl SiloKey {
    /// A configuration for a port of the application: TLS 1.3, this key as a raw public key
    /// (RFC 7250), no question for the client's. `protocols` are the names for ALPN, which clients
    /// must offer one of; none if empty. Clients connect with [`client_config`].
    ///
    /// # Errors
    /// [`TransportError::Other`], never with the cryptography of this build.
    pub fn server_config(&self, protocols: &[&[u8]]) -> Result<ServerConfig, TransportError> {
        let resolver = AlwaysResolvesServerRawPublicKeys::new(self.certified.clone());
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = named(protocols);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

/// A configuration for a client that connects to the silo with this instance id and to nobody else,
/// whatever name or address it dials. `protocols` as in [`SiloKey::server_config`].
///
/// # Errors
/// [`TransportError::Other`], never with the cryptography of this build.
pub fn client_config(
    instance: InstanceId,
    protocols: &[&[u8]],
) -> Result<ClientConfig, TransportError> {
    let provider = provider();
    let verifier = PeerKey::new(&provider, instance);
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = named(protocols);
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    async fn greets(server: &SiloKey, client: ClientConfig) -> std::io::Result<()> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let config = server.server_config(&[b"orders/1"]).unwrap();
        let serving = async {
            let accepted = TlsAcceptor::from(Arc::new(config)).accept(far).await;
            if let Ok(mut stream) = accepted {
                let _ = stream.write_all(b"hello").await;
                let _ = stream.shutdown().await;
            }
        };
        let dialling = async {
            let name = ServerName::try_from("gateway.example").unwrap();
            let mut stream = TlsConnector::from(Arc::new(client))
                .connect(name, near)
                .await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            assert_eq!(text, "hello");
            Ok(())
        };
        let (result, ()) = tokio::join!(dialling, serving);
        result
    }

    #[tokio::test]
    async fn a_client_meets_the_silo_of_the_row_and_nobody_else() {
        let (silo, other) = (SiloKey::generate().unwrap(), SiloKey::generate().unwrap());
        let client = || client_config(silo.instance(), &[b"orders/1"]).unwrap();
        greets(&silo, client()).await.unwrap();
        greets(&other, client()).await.unwrap_err();
        let another_protocol = client_config(silo.instance(), &[b"stock/1"]).unwrap();
        greets(&silo, another_protocol).await.unwrap_err();
    }
}
