//! The key pair of a process, and the instance id that names it.

use std::fmt;
use std::sync::Arc;

use membership_core::InstanceId;
use ring::digest::{Context, SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ED25519 as ED25519_SIGNATURES, Ed25519KeyPair, UnparsedPublicKey};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

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

/// The proof of a key pair within a connection that another key has secured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::transport) struct KeyProof {
    /// The public key (SubjectPublicKeyInfo).
    public: Vec<u8>,
    signature: Vec<u8>,
}

/// Where the 32 bytes of an Ed25519 key begin in its SubjectPublicKeyInfo (RFC 8410, 4).
const ED25519: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

impl SiloKey {
    /// Signs what is said.
    pub(in crate::transport) fn prove(&self, said: &[&[u8]]) -> Option<KeyProof> {
        let signer = self
            .certified
            .key
            .choose_scheme(&[SignatureScheme::ED25519])?;
        Some(KeyProof {
            public: self.certified.cert.first()?.to_vec(),
            signature: signer.sign(&hashed(said)).ok()?,
        })
    }
}

impl KeyProof {
    /// The instance whose key has signed this.
    pub(in crate::transport) fn instance(&self, said: &[&[u8]]) -> Option<InstanceId> {
        let key = self.public.strip_prefix(&ED25519)?;
        UnparsedPublicKey::new(&ED25519_SIGNATURES, key)
            .verify(&hashed(said), &self.signature)
            .ok()
            .map(|()| instance_of(&self.public))
    }
}

/// What is signed: every part with its length, so that no other parts give the same.
fn hashed(said: &[&[u8]]) -> Vec<u8> {
    let mut context = Context::new(&SHA256);
    context.update(b"membership key of a process\0");
    for part in said {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.finish().as_ref().to_vec()
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
