//! Certificates that a peer shows, and files of an operator.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use membership::transport::fuzzing;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    SanType, date_time_ymd,
};

use super::{Outcome, Target, check_line};

/// Some day of 2026, in seconds since 1970.
const NOW: u64 = 1_790_000_000;
const DIALLED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Certificates of one authority. They are the same in every run, because kept inputs have them.
struct Samples {
    authority: Vec<u8>,
    /// Chains that are believed.
    good: Vec<Vec<Vec<u8>>>,
    /// Chains that are not.
    bad: Vec<Vec<Vec<u8>>>,
    pem: String,
}

/// An Ed25519 key of these bytes, as PKCS #8 (RFC 8410).
fn key(byte: u8) -> KeyPair {
    let head = [
        0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04,
        0x20,
    ];
    let pkcs8 = [&head[..], &[byte; 32]].concat();
    KeyPair::try_from(pkcs8.as_slice()).expect("a key")
}

fn of_authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn names(uri: &str, ip: IpAddr) -> CertificateParams {
    let mut params = CertificateParams::default();
    let uri = SanType::URI(uri.try_into().expect("ASCII"));
    params.subject_alt_names = vec![uri, SanType::IpAddress(ip)];
    params.distinguished_name = DistinguishedName::new();
    params
}

static SAMPLES: LazyLock<Samples> = LazyLock::new(|| {
    let root = CertifiedIssuer::self_signed(of_authority("root"), key(1)).expect("a root");
    let middle = CertifiedIssuer::signed_by(of_authority("middle"), key(2), &root);
    let middle = middle.expect("one between");
    let here = "membership://billing/blue";
    let mut ended = names(here, DIALLED);
    ended.not_after = date_time_ymd(2020, 1, 1);
    let leaf = |params: CertificateParams, number| {
        let signed = params
            .signed_by(&key(number), &root)
            .expect("a certificate");
        signed.der().to_vec()
    };
    let by_middle = names(here, DIALLED).signed_by(&key(4), &middle);
    let by_middle = by_middle.expect("a certificate");
    let between = middle.der().to_vec();
    let first = names(here, DIALLED)
        .signed_by(&key(3), &root)
        .expect("a certificate");
    Samples {
        authority: root.der().to_vec(),
        good: vec![
            vec![first.der().to_vec()],
            vec![by_middle.der().to_vec(), between.clone()],
        ],
        bad: vec![
            vec![leaf(names("membership://billing/green", DIALLED), 5)],
            vec![leaf(names(here, Ipv4Addr::new(10, 0, 0, 3).into()), 6)],
            vec![leaf(ended, 7)],
            vec![by_middle.der().to_vec()],
            vec![between.clone(), between],
        ],
        pem: [first.pem(), key(3).serialize_pem()].concat(),
    }
});

/// Each certificate after its length.
fn put(chain: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for one in chain {
        let length = u16::try_from(one.len()).expect("a short certificate");
        bytes.extend(length.to_be_bytes());
        bytes.extend(one);
    }
    bytes
}

fn take(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut chain = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (one, rest) = rest.split_at(length);
        chain.push(one);
        bytes = rest;
    }
    chain
}

pub(super) const CERTIFICATES: Target = Target {
    name: "certificates",
    about: "certificates that a peer shows, before it is believed",
    seeds: || {
        let all = SAMPLES.good.iter().chain(&SAMPLES.bad);
        all.map(|chain| put(chain)).collect()
    },
    words: &[
        "membership://billing/blue",
        "\u{6}\u{3}U\u{1d}\u{11}",
        "0\u{5}\u{6}\u{3}+ep",
    ],
    longest: 4_000,
    read: |bytes| {
        let chain = take(bytes);
        let cluster = "billing/blue".parse().expect("a valid name");
        let authority = [SAMPLES.authority.as_slice()];
        match fuzzing::certificates(&authority, &chain, &cluster, DIALLED, NOW) {
            Ok(()) => {
                let is_good = SAMPLES.good.iter().any(|good| good[0] == chain[0]);
                assert!(is_good, "the authority has not signed it");
                Outcome::sized("believed", chain.len())
            }
            Err(line) => {
                check_line(&line);
                Outcome::of("refused", &line)
            }
        }
    },
};

pub(super) const PEM: Target = Target {
    name: "pem",
    about: "files of certificates and private keys",
    seeds: || {
        let key = key(3).serialize_pem();
        vec![SAMPLES.pem.clone().into_bytes(), key.into_bytes()]
    },
    words: &[
        "-----BEGIN CERTIFICATE-----",
        "-----END PRIVATE KEY-----",
        "\r\n",
        "\u{feff}",
    ],
    longest: 4_000,
    read: |bytes| match fuzzing::pem(bytes) {
        Ok((certificates, has_key)) => {
            Outcome::sized(if has_key { "key" } else { "no key" }, certificates)
        }
        Err(line) => {
            check_line(&line);
            assert!(line.len() < 120, "it may quote a key: {line}");
            Outcome::of("refused", &line)
        }
    },
};
