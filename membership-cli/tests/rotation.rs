//! Five silos as processes whose cluster key, secret and certificates are all changed under them:
//! none restarts, none dies, and a sixth one joins with what is new. Takes two minutes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, IsCa, KeyPair, SanType,
};
use support::silos::{Cluster, Process, port};
use support::{Place, secs};

/// A silo looks at its files every 30 s.
const LOOKED: u64 = 33;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Replaces a file at once, as whoever distributes files should.
fn put(folder: &Path, name: &str, text: &str) {
    let new = folder.join("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, folder.join(name)).unwrap();
}

fn put_certificate(folder: &Path, by: &Authority) {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![
        SanType::URI("membership://default/default".try_into().unwrap()),
        SanType::IpAddress([127, 0, 0, 1].into()),
    ];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    put(folder, "key.pem", &key.serialize_pem());
    put(folder, "cert.pem", &certificate.pem());
}

#[test]
#[ignore = "two minutes: .ci/run nightly runs it"]
fn a_cluster_outlives_everything_that_proves_who_is_in_it() {
    let (old, new) = (authority(), authority());
    let files = tempfile::tempdir().unwrap();
    let folder = files.path();
    let (first, second) = ("12".repeat(20), "34".repeat(20));
    put(folder, "secret", &first);
    put(folder, "ca.pem", &old.pem());
    put_certificate(folder, &old);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let named: Vec<String> = ["secret-file", "tls-ca", "tls-cert", "tls-key"]
        .iter()
        .zip(["secret", "ca.pem", "cert.pem", "key.pem"])
        .map(|(option, name)| format!("--{option}={}", file(name)))
        .collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();

    let place = Place::new();
    let silos = (0..5)
        .map(|_| Process::start(&place, port(), "local", &named))
        .collect();
    let preset = "local";
    let mut cluster = Cluster {
        place,
        preset,
        silos,
    };
    cluster.all_active(secs(40));
    let begun: Vec<String> = (0..5).map(|index| cluster.address(index)).collect();

    // The key of the table, and the first step of both others.
    cluster.place.run(&["settings", "rotate-key"]).expect(0);
    put(folder, "secret", &format!("{first}\n{second}"));
    put(folder, "ca.pem", &[old.pem(), new.pem()].concat());
    std::thread::sleep(secs(LOOKED));
    cluster.is_whole();
    cluster
        .place
        .run(&["settings", "rotate-key", "--finish"])
        .expect(0);
    put(folder, "secret", &format!("{second}\n{first}"));
    put_certificate(folder, &new);
    std::thread::sleep(secs(LOOKED));
    cluster.is_whole();
    put(folder, "secret", &second);
    put(folder, "ca.pem", &new.pem());
    std::thread::sleep(secs(LOOKED));
    cluster.is_whole();

    let sixth = Process::start(&cluster.place, port(), preset, &named);
    cluster.silos.push(sixth);
    cluster.all_active(secs(20));
    cluster.is_whole();
    cluster.agree(secs(10));
    for (index, silo) in begun.iter().enumerate() {
        assert_eq!(cluster.address(index), *silo, "it never restarted");
    }
    let status = cluster.place.run(&["status", "--json"]).expect(0).json();
    let rows = status["members"].as_array().unwrap();
    assert!(rows.len() == 6 && rows.iter().all(|row| row["status"] == "Active"));
}
