//! The key pair of a process, and the instance id that names it.

use std::fmt;
use std::sync::Arc;

use membership_core::InstanceId;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use crate::transport::TransportError;

/// A key pair of one process (Ed25519), whose hash is the instance id in the row of its silo. It is
/// made anew by each process and never stored.
///
/// A silo makes its own. An application makes one if it has a port of its own, for example for
/// clients, at which it wants to prove that it is the silo of that row:
///
/// ```no_run
/// use membership::transport::{SiloKey, client_config};
/// # async fn example(table: membership::MemoryTable, gateways: membership::GatewayList) -> Result<(), Box<dyn std::error::Error>> {
/// // The server: one key for the silo and for the port of its clients.
/// let key = SiloKey::generate()?;
/// let for_clients = key.server_config(&[b"orders/1"])?;
/// let silo = membership::Silo::builder(table).key(key).gateway_port(30_000).start().await?;
///
/// // A client: the table says which key listens there.
/// let gateway = gateways.next().ok_or("no gateway yet")?;
/// let config = client_config(gateway.instance, &[b"orders/1"])?;
/// # drop((for_clients, silo, config));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SiloKey {
    pub(super) instance: InstanceId,
    /// As rustls wants it: the public key stands where a certificate would.
    pub(super) certified: Arc<CertifiedKey>,
}

impl SiloKey {
    /// Makes a key pair.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn generate() -> Result<Self, TransportError> {
        let other = |why: String| TransportError::Other(why.into());
        let random = SystemRandom::new();
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random)
            .map_err(|_| other("the system gives no random numbers".to_owned()))?;
        let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref()))
            .map_err(|error| other(error.to_string()))?;
        let public = key
            .public_key()
            .ok_or_else(|| other("the key has no public part".to_owned()))?;
        let public = CertificateDer::from(public.to_vec());
        Ok(Self {
            instance: instance_of(&public),
            certified: Arc::new(CertifiedKey::new(vec![public], key)),
        })
    }

    /// The instance id that this key proves.
    #[must_use]
    pub const fn instance(&self) -> InstanceId {
        self.instance
    }
}

impl fmt::Debug for SiloKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiloKey")
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// The instance of a public key: the first 128 bits of the SHA-256 of its SubjectPublicKeyInfo.
pub(super) fn instance_of(public_key: &[u8]) -> InstanceId {
    let hash = digest(&SHA256, public_key);
    let mut first = [0; 16];
    first.copy_from_slice(&hash.as_ref()[..16]);
    InstanceId::new(u128::from_be_bytes(first))
}
