//! The key pair of a process, and the instance id that names it.

use std::sync::Arc;

use membership_core::InstanceId;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// A key pair that lives as long as the process.
pub(super) struct SiloKey {
    pub(super) instance: InstanceId,
    /// As rustls wants it: the public key stands where a certificate would.
    pub(super) certified: Arc<CertifiedKey>,
}

impl SiloKey {
    /// Makes an Ed25519 key pair. The error is for people.
    pub(super) fn generate() -> Result<Self, String> {
        let random = SystemRandom::new();
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random)
            .map_err(|_| "the system gives no random numbers".to_owned())?;
        let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref()))
            .map_err(|error| error.to_string())?;
        let public = key
            .public_key()
            .ok_or_else(|| "the key has no public part".to_owned())?;
        let public = CertificateDer::from(public.to_vec());
        Ok(Self {
            instance: instance_of(&public),
            certified: Arc::new(CertifiedKey::new(vec![public], key)),
        })
    }
}

/// The instance of a public key: the first 128 bits of the SHA-256 of its SubjectPublicKeyInfo.
pub(super) fn instance_of(public_key: &[u8]) -> InstanceId {
    let hash = digest(&SHA256, public_key);
    let mut first = [0; 16];
    first.copy_from_slice(&hash.as_ref()[..16]);
    InstanceId::new(u128::from_be_bytes(first))
}
