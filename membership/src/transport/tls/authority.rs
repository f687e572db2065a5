//! Judges chains of certificates by those of an authority. What a certificate names is not decided
//! here.

use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::verify::tls12;

/// A time in the year 9999, in seconds since 1970: no certificate lasts longer.
const FAR: u64 = 253_370_764_800;
/// The most certificates between one and its authority. A search of a way through many takes
/// seconds, and a stranger would choose them.
const MOST_BETWEEN: usize = 3;
pub(super) const NO_CERTIFICATE: &str = "it has no certificate in PEM";

/// A certificate of the authority.
#[derive(Debug)]
pub(super) struct Anchor {
    anchor: TrustAnchor<'static>,
    /// In seconds since 1970. The anchor does not say it.
    ends: u64,
}

pub(super) fn anchors(authority: &[CertificateDer<'_>]) -> Result<Vec<Anchor>, String> {
    let anchor = |certificate| {
        let anchor = anchor_from_trusted_cert(certificate)
            .map_err(|error| format!("a certificate of the authority cannot be used: {error}"))?;
        Ok(Anchor {
            anchor: anchor.to_owned(),
            ends: end_of(certificate).unwrap_or(FAR),
        })
    };
    authority.iter().map(anchor).collect()
}

/// Whether two certificates have one name. Each may then have signed the other, so that every
/// signature is tried with every key.
fn have_one_name(between: &[CertificateDer<'_>]) -> bool {
    let anchors = between.iter().map(anchor_from_trusted_cert);
    let names: Vec<_> = anchors.flatten().map(|anchor| anchor.subject).collect();
    (1..names.len()).any(|at| names[..at].contains(&names[at]))
}

/// Accepts certificates of an authority. What they name is not decided here.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) anchors: Vec<Anchor>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl Authority {
    /// The certificates of the authority that have not ended.
    pub(super) fn anchors_at(&self, now: UnixTime) -> Vec<TrustAnchor<'static>> {
        let valid = self.anchors.iter().filter(|one| now.as_secs() < one.ends);
        valid.map(|one| one.anchor.clone()).collect()
    }

    /// The end of the authority's certificate at the end of the way.
    fn verify(
        &self,
        anchors: &[TrustAnchor<'static>],
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<u64, webpki::Error> {
        if between.len() > MOST_BETWEEN || have_one_name(between) {
            return Err(webpki::Error::MaximumPathDepthExceeded);
        }
        let certificate = EndEntityCert::try_from(certificate)?;
        let algorithms = self.algorithms.all;
        let way =
            certificate.verify_for_usage(algorithms, anchors, between, now, usage, None, None)?;
        let mut ends = self
            .anchors
            .iter()
            .filter(|one| one.anchor == *way.anchor());
        Ok(ends.next().map_or(FAR, |one| one.ends))
    }

    /// The same for a peer. The text is for this silo's log; the peer learns only that the handshake
    /// failed.
    pub(super) fn check(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), Error> {
        self.verify(&self.anchors_at(now), certificate, between, now, usage)
            .map(drop)
            .map_err(|error| Error::General(format!("its certificate {}", reason(&error))))
    }

    /// Checks this silo's own chain. When the first certificate of it ends.
    pub(super) fn ends(&self, chain: &[CertificateDer<'_>]) -> Result<u64, String> {
        let (own, between) = chain.split_first().ok_or(NO_CERTIFICATE)?;
        let anchors = self.anchors_at(UnixTime::now());
        let verify = |time, usage| self.verify(&anchors, own, between, time, usage);
        let mut ends = FAR;
        for usage in [KeyUsage::server_auth(), KeyUsage::client_auth()] {
            let authority = verify(UnixTime::now(), usage)
                .map_err(|error| format!("the certificate {}", reason(&error)))?;
            ends = ends.min(authority);
        }
        // Each look tells the end of one that has ended by then, not of the first one.
        loop {
            let then = UnixTime::since_unix_epoch(Duration::from_secs(ends));
            match verify(then, KeyUsage::server_auth()) {
                Err(webpki::Error::CertExpired { not_after, .. }) if not_after.as_secs() < ends => {
                    ends = not_after.as_secs();
                }
                _ => return Ok(ends),
            }
        }
    }
}

/// When a certificate ends, in seconds since 1970; nothing else of it is checked.
pub(super) fn end_of(certificate: &CertificateDer<'_>) -> Option<u64> {
    let far = UnixTime::since_unix_epoch(Duration::from_secs(FAR));
    let usage = KeyUsage::server_auth();
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    // Times are checked before signatures are.
    match certificate.verify_for_usage(&[], &[], &[], far, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => Some(not_after.as_secs()),
        _ => Some(FAR),
    }
}

/// How long a certificate is valid in all, from its beginning to its end.
pub(super) fn lifetime_of(certificate: &CertificateDer<'_>) -> Option<Duration> {
    let usage = KeyUsage::server_auth();
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let first = UnixTime::since_unix_epoch(Duration::ZERO);
    let begins = match parsed.verify_for_usage(&[], &[], &[], first, usage, None, None) {
        Err(webpki::Error::CertNotValidYet { not_before, .. }) => not_before.as_secs(),
        _ => 0,
    };
    let ends = end_of(certificate)?;
    Some(Duration::from_secs(ends.saturating_sub(begins)))
}

pub(super) fn reason(error: &webpki::Error) -> String {
    match error {
        webpki::Error::CertExpired { .. } => "has ended: renew it".to_owned(),
        webpki::Error::CertNotValidYet { .. } => "is not valid yet: compare the clocks".to_owned(),
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
            "is not signed by this silo's authority".to_owned()
        }
        webpki::Error::RequiredEkuNotFoundContext(_) => {
            "must be for serverAuth and clientAuth".to_owned()
        }
        webpki::Error::MaximumPathDepthExceeded => {
            format!(
                "comes with more than {MOST_BETWEEN} others between it and the authority, or with two of one name"
            )
        }
        webpki::Error::UnsupportedCertVersion => {
            "names nothing: sign it with its subject alternative names (`openssl x509 -extfile`)"
                .to_owned()
        }
        webpki::Error::CaUsedAsEndEntity => {
            "is that of an authority: a silo needs one that the authority has signed".to_owned()
        }
        error => format!("cannot be used: {error}"),
    }
}

impl ServerCertVerifier for Authority {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate, between, now, KeyUsage::server_auth())
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Authority {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate, between, now, KeyUsage::client_auth())
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
