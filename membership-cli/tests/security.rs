//! What an operator gets wrong about secrets and certificates: the silo says what is wrong and what
//! to do, shows no key, and harms no cluster.
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
use support::{Place, Ran};

const URI: &str = "membership://default/default";

/// Writes `ca.pem`, `cert.pem` with these names, and `key.pem` into a folder.
fn write_certificate(folder: &Path, uri: &str, ip: [u8; 4]) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate().unwrap();
    let authority = CertifiedIssuer::self_signed(params, key).unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![
        SanType::URI(uri.try_into().unwrap()),
        SanType::IpAddress(ip.into()),
    ];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let write = |name, text: String| std::fs::write(folder.join(name), text).unwrap();
    write("ca.pem", authority.pem());
    write("cert.pem", certificate.pem());
    write("key.pem", key.serialize_pem());
}

/// The options that name these three files.
fn tls(folder: &Path) -> Vec<String> {
    [("ca", "ca.pem"), ("cert", "cert.pem"), ("key", "key.pem")]
        .map(|(option, name)| format!("--tls-{option}={}", folder.join(name).display()))
        .into()
}

fn borrowed(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// A silo that does not start.
fn refused(place: &Place, more: &[&str]) -> Ran {
    let args = [&["silo", "--listen", "127.0.0.1:0"], more].concat();
    place.run(&args).expect(2)
}

/// Line breaks get lost where files travel through variables.
#[test]
fn nothing_of_a_private_key_is_shown_when_its_file_is_damaged() {
    let (place, files) = (Place::new(), tempfile::tempdir().unwrap());
    let folder = files.path();
    write_certificate(folder, URI, [127, 0, 0, 1]);
    let key = std::fs::read_to_string(folder.join("key.pem")).unwrap();
    let secret = key.lines().nth(1).unwrap().to_owned();
    let bytes = format!("{:?}", secret.as_bytes());
    let bytes = bytes.trim_matches(['[', ']']);
    let spaces = key.replace(['\r', '\n'], " ");
    let joined = key.replace(['\r', '\n'], "");
    let cut = key.replace("-----END", "");
    for text in [spaces, joined, cut] {
        std::fs::write(folder.join("key.pem"), text).unwrap();
        let ran = refused(&place, &borrowed(&tls(folder)));
        assert!(ran.err.contains("key.pem"), "{ran:?}");
        let shown = [&secret[..16], &bytes[..40]].map(|part| ran.err.contains(part));
        assert_eq!(shown, [false, false], "{ran:?}");
    }
}
