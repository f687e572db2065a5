//! Certificates of an authority besides the table: who is believed, and what each refusal tells.

use std::path::Path;
use std::time::Duration;

use membership::protocol::{Destination, Message};
use membership::transport::{
    Certificates, Secret, Security, TcpConfig, Transport, certificate_at, instance_at,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType, date_time_ymd,
};

use super::strangers::reaches;
use super::support::{Peer, any_port};

pub const CLUSTER: &str = "membership://default/test";

pub struct Authority(pub CertifiedIssuer<'static, KeyPair>);

/// What a certificate says.
pub struct Says {
    pub cluster: &'static str,
    pub ip: &'static str,
    /// The first and the last year.
    pub years: (i32, i32),
    pub usages: Vec<ExtendedKeyUsagePurpose>,
}

impl Default for Says {
    fn default() -> Self {
        Self {
            cluster: CLUSTER,
            ip: "127.0.0.1",
            years: (2020, 2200),
            usages: Vec::new(),
        }
    }
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes its certificate, and one that it signs, into a folder.
    pub fn write(&self, folder: &Path, says: Says) {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![
            SanType::URI(says.cluster.try_into().unwrap()),
            SanType::IpAddress(says.ip.parse().unwrap()),
        ];
        params.not_before = date_time_ymd(says.years.0, 1, 1);
        params.not_after = date_time_ymd(says.years.1, 1, 1);
        params.extended_key_usages = says.usages;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let write = |name, text: String| std::fs::write(folder.join(name), text).unwrap();
        write("ca.pem", self.0.pem());
        write("cert.pem", certificate.pem());
        write("key.pem", key.serialize_pem());
    }
}

pub fn read(folder: &Path) -> Certificates {
    let file = |name| folder.join(name);
    Certificates::files(file("ca.pem"), file("cert.pem"), file("key.pem")).unwrap()
}

/// The certificates of a silo, in a folder of its own that may go afterwards.
pub fn signed(authority: &Authority, says: Says) -> Certificates {
    signed_and_trusting(authority, authority, says)
}

/// The same for a silo that believes another authority too.
pub fn signed_and_trusting(by: &Authority, other: &Authority, says: Says) -> Certificates {
    let folder = tempfile::tempdir().unwrap();
    by.write(folder.path(), says);
    let both = [by.0.pem(), other.0.pem()].concat();
    std::fs::write(folder.path().join("ca.pem"), both).unwrap();
    read(folder.path())
}

pub async fn peer(number: u128, certificates: Certificates) -> Peer {
    let mut config = TcpConfig::default();
    config.security = Security::table().with_certificates(certificates);
    Peer::with(number, any_port(), "test", config).await
}

/// Dials, and gives the reason why that failed: at this side, and whether the other one counts it.
pub async fn is_refused(a: &mut Peer, b: &Peer) -> String {
    let before = b.transport.stats();
    a.send(
        Destination::Fresh(b.endpoint()),
        Message::Probe { nonce: 1 },
    );
    let (_, reason) = a.failure().await;
    assert_eq!(b.transport.stats().accepted, before.accepted);
    reason
}

#[tokio::test]
async fn silos_of_one_authority_hear_each_other() {
    let authority = Authority::new();
    let all = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let usages = Says {
        usages: all,
        ..Says::default()
    };
    let mut a = peer(1, signed(&authority, usages)).await;
    let mut b = peer(2, signed(&authority, Says::default())).await;
    reaches(&mut a, &mut b).await;
    reaches(&mut b, &mut a).await;
    // Itself, as at its start.
    a.send(
        Destination::Fresh(a.endpoint()),
        Message::Identify { nonce: 4 },
    );
    assert_eq!(a.message().await.2, Message::Identify { nonce: 4 });
    // Its process can still be asked for by anybody, by its key.
    let found = instance_at(a.endpoint(), Duration::from_secs(5)).await;
    assert_eq!(found.unwrap(), Some(a.instance));
    // So can be the end of its certificate.
    let left = certificate_at(a.endpoint(), Duration::from_secs(5)).await;
    let validity = left.unwrap().unwrap();
    let left = validity.left.as_secs();
    assert!(validity.lifetime > Duration::from_secs(left) && !validity.ends_soon());
    let ends = date_time_ymd(2200, 1, 1).unix_timestamp() as u64;
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    assert!((ends - left).abs_diff(now.as_secs()) < 5, "{left}");
    // Which a silo without certificates shows to nobody.
    let plain = Peer::with(3, any_port(), "test", TcpConfig::default()).await;
    let none = certificate_at(plain.endpoint(), Duration::from_secs(5)).await;
    assert_eq!(none.unwrap(), None);
}

#[tokio::test]
async fn each_wrong_certificate_is_refused_with_its_reason() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut good = peer(1, signed(&authority, Says::default())).await;
    let foreign = Says {
        cluster: "membership://default/other",
        ..Says::default()
    };
    let elsewhere = Says {
        ip: "127.0.0.9",
        ..Says::default()
    };
    for (number, by, says, reason, is_heard) in [
        (
            2,
            &other,
            Says::default(),
            "not signed by this silo's authority",
            false,
        ),
        (3, &authority, foreign, "does not name this cluster", false),
        (
            4,
            &authority,
            elsewhere,
            "the address that was dialled",
            true,
        ),
    ] {
        let trusting = signed_and_trusting(by, &authority, says);
        let mut bad = peer(number, trusting).await;
        let text = is_refused(&mut good, &bad).await;
        assert!(text.contains(reason), "{reason}: {text}");
        if is_heard {
            continue;
        }
        let before = good.transport.stats().refused_certificate;
        let told = is_refused(&mut bad, &good).await;
        good.until(|s| s.refused_certificate == before + 1).await;
        assert!(!told.contains("test"), "{told}");
    }
    // None at all.
    let mut none = Peer::new(5).await;
    let told = is_refused(&mut none, &good).await;
    assert!(told.contains("closed the connection"), "{told}");
    good.until(|s| s.refused_certificate == 3).await;
    is_refused(&mut good, &none).await;
}

#[tokio::test]
async fn a_certificate_of_any_address_will_do_where_that_is_said() {
    let authority = Authority::new();
    let elsewhere = || Says {
        ip: "127.0.0.9",
        ..Says::default()
    };
    let mut a = peer(1, signed(&authority, elsewhere()).at_any_address()).await;
    let mut b = peer(2, signed(&authority, elsewhere()).at_any_address()).await;
    reaches(&mut a, &mut b).await;
}

#[tokio::test]
async fn a_cluster_moves_to_certificates_silo_by_silo() {
    let authority = Authority::new();
    let own = || signed(&authority, Says::default());
    let mut raw = Peer::new(1).await;
    let mut both = peer(2, own().optional()).await;
    let mut only = peer(3, own()).await;
    reaches(&mut raw, &mut both).await;
    reaches(&mut both, &mut raw).await;
    reaches(&mut both, &mut only).await;
    reaches(&mut only, &mut both).await;
    is_refused(&mut raw, &only).await;
}

#[tokio::test]
async fn new_files_are_used_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let of = |which: usize| {
        old.write(folders[which].path(), Says::default());
        read(folders[which].path())
    };
    let both = [of(0), of(1)];
    let mut a = peer(1, both[0].clone()).await;
    let mut b = peer(2, both[1].clone()).await;
    reaches(&mut a, &mut b).await;
    // Both authorities first, then certificates of the new one, then that one alone.
    let authorities = [old.0.pem(), new.0.pem()].concat();
    for (folder, certificates) in folders.iter().zip(&both) {
        std::fs::write(folder.path().join("ca.pem"), &authorities).unwrap();
        certificates.reload().unwrap();
        reaches(&mut a, &mut b).await;
    }
    for (folder, certificates) in folders.iter().zip(&both) {
        new.write(folder.path(), Says::default());
        std::fs::write(folder.path().join("ca.pem"), &authorities).unwrap();
        certificates.reload().unwrap();
        reaches(&mut a, &mut b).await;
        reaches(&mut b, &mut a).await;
    }
    for (folder, certificates) in folders.iter().zip(&both) {
        std::fs::write(folder.path().join("ca.pem"), new.0.pem()).unwrap();
        certificates.reload().unwrap();
        reaches(&mut b, &mut a).await;
    }
    // Files that do not fit together change nothing.
    std::fs::write(folders[0].path().join("ca.pem"), old.0.pem()).unwrap();
    let error = both[0].reload().unwrap_err().to_string();
    assert!(
        error.contains("not signed by this silo's authority"),
        "{error}"
    );
    reaches(&mut a, &mut b).await;
}

#[test]
fn files_that_cannot_work_are_refused_at_once() {
    let (authority, other) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let error = || {
        let result = Certificates::files(file("ca.pem"), file("cert.pem"), file("key.pem"));
        result.unwrap_err().to_string()
    };
    assert!(error().contains("No such file"), "{}", error());
    let ended = Says {
        years: (2001, 2002),
        ..Says::default()
    };
    authority.write(folder.path(), ended);
    assert!(error().contains("has ended"), "{}", error());
    let early = Says {
        years: (2190, 2200),
        ..Says::default()
    };
    authority.write(folder.path(), early);
    assert!(error().contains("not valid yet"), "{}", error());
    let server = Says {
        usages: vec![ExtendedKeyUsagePurpose::ServerAuth],
        ..Says::default()
    };
    authority.write(folder.path(), server);
    assert!(error().contains("clientAuth"), "{}", error());
    authority.write(folder.path(), Says::default());
    assert!(read(folder.path()).valid_for() > Duration::from_secs(100 * 365 * 24 * 3600));
    std::fs::write(file("ca.pem"), other.0.pem()).unwrap();
    assert!(error().contains("authority"), "{}", error());
    std::fs::write(
        file("key.pem"),
        KeyPair::generate().unwrap().serialize_pem(),
    )
    .unwrap();
    assert!(error().contains("not the key"), "{}", error());
    std::fs::write(file("key.pem"), "nothing").unwrap();
    assert!(error().contains("no private key"), "{}", error());
}

#[tokio::test]
async fn a_secret_and_certificates_together_are_both_needed() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let with = |number: u128, key: &str| {
        let path = folder.path().join(number.to_string());
        std::fs::write(&path, key).unwrap();
        let mut config = TcpConfig::default();
        config.security = Security::table()
            .with_secret(Secret::file(path).unwrap())
            .with_certificates(signed(&authority, Says::default()));
        Peer::with(number, any_port(), "test", config)
    };
    let (one, two) = ("12".repeat(20), "34".repeat(20));
    let (mut a, mut b, mut c) = (
        with(1, &one).await,
        with(2, &one).await,
        with(3, &two).await,
    );
    reaches(&mut a, &mut b).await;
    is_refused(&mut c, &a).await;
    a.until(|s| s.refused_secret == 1).await;
    let mut without = peer(4, signed(&authority, Says::default())).await;
    is_refused(&mut without, &a).await;
    a.until(|s| s.refused_secret == 2).await;
}
