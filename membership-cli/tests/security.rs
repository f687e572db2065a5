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
use std::process::Command;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, IsCa, KeyPair, SanType,
};
use rustix::process::Signal;
use support::silos::{Cluster, Line, Process, port};
use support::{Place, Ran, secs};

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

#[test]
fn a_certificate_that_other_silos_would_refuse_is_refused_at_the_start() {
    let (place, files) = (Place::new(), tempfile::tempdir().unwrap());
    let folder = files.path();
    let own = [127, 0, 0, 1];
    for (uri, ip) in [
        ("membership://billing/blue", own),
        ("membership://default", own),
        (URI, [10, 0, 0, 7]),
    ] {
        write_certificate(folder, uri, ip);
        let ran = refused(&place, &borrowed(&tls(folder)));
        let wanted = format!("`URI:{URI},IP:127.0.0.1`");
        assert!(ran.err.contains(&wanted), "{ran:?}");
        assert!(!ran.err.contains("firewall"), "{ran:?}");
    }
    // Without the address it will do where that is said.
    let args = [tls(folder), vec!["--tls-bind=cluster".to_owned()]].concat();
    Process::start(&place, port(), "local", &borrowed(&args)).address(secs(15));
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

/// Whoever writes the key where its file belongs must not find it in a log.
#[test]
fn a_key_in_place_of_its_file_is_not_shown() {
    let (place, files) = (Place::new(), tempfile::tempdir().unwrap());
    let key = "0123456789abcdef".repeat(4);
    let config = files.path().join("config.toml");
    std::fs::write(&config, format!("[security]\nsecret_file = \"{key}\"")).unwrap();
    let config = format!("--config={}", config.display());
    for option in [format!("--secret-file={key}"), config] {
        let ran = refused(&place, &[&option]);
        assert!(!ran.err.contains(&key[..16]), "{ran:?}");
        assert!(ran.err.contains("write the key into a file"), "{ran:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_what_to_do() {
    let (place, files) = (Place::new(), tempfile::tempdir().unwrap());
    let folder = files.path().display().to_string();
    for (option, file, advice) in [
        ("secret-file", "/no/such/file", "check the path"),
        ("secret-file", folder.as_str(), "name a file"),
        ("config", "/no/such/file", "check the path"),
        ("config", folder.as_str(), "name a file"),
    ] {
        let ran = refused(&place, &[&format!("--{option}={file}")]);
        assert!(
            ran.err.contains(file) && ran.err.contains(advice),
            "{ran:?}"
        );
    }
    let file = files.path().join("guessed");
    std::fs::write(&file, "a".repeat(64)).unwrap();
    let ran = refused(&place, &[&format!("--secret-file={}", file.display())]);
    assert!(ran.err.contains("openssl rand"), "{ran:?}");
}

#[test]
fn a_secret_is_the_same_whatever_an_editor_puts_around_it() {
    let mut cluster = Cluster {
        place: Place::new(),
        preset: "local",
        silos: Vec::new(),
    };
    let files = tempfile::tempdir().unwrap();
    let key = "0123456789abcdef".repeat(4);
    for (name, text) in [
        ("plain", key.clone()),
        ("windows", format!("\u{feff}# ours\r\n  {key} \t\r\n\r\n")),
    ] {
        let file = files.path().join(name);
        std::fs::write(&file, text).unwrap();
        let option = format!("--secret-file={}", file.display());
        let silo = Process::start(&cluster.place, port(), "local", &[&option]);
        cluster.silos.push(silo);
    }
    cluster.all_active(secs(15));
    cluster.is_whole();
}

#[test]
fn a_silo_that_is_set_up_otherwise_harms_none_and_is_told_what_to_compare() {
    let cluster = Cluster::started(3, "local");
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("secret");
    std::fs::write(&file, "0123456789abcdef".repeat(4)).unwrap();
    let secret = format!("--secret-file={}", file.display());
    for option in [secret.as_str(), "--insecure"] {
        let mut other = Process::start(&cluster.place, port(), "local", &[option]);
        let (code, err) = other.ends(secs(20));
        assert_eq!(code, Some(4), "{err}");
        for part in ["--secret-file", "--insecure", "membership why"] {
            assert!(err.contains(part), "{part}: {err}");
        }
    }
    for silo in &cluster.silos {
        silo.sees_active(3, secs(5));
    }
}

#[test]
fn a_rotation_of_the_cluster_key_is_seen_until_it_ends() {
    let place = Place::new();
    drop(place.initialize());
    let keys = |expected: u64| {
        for command in ["settings", "status"] {
            let json = place.run(&[command, "--json"]).expect(0).json();
            assert_eq!(json["cluster_keys"], expected, "{json}");
            assert_eq!(json["rotation_unfinished"], expected > 1, "{json}");
            let text = place.run(&[command]).expect(0).out;
            let unfinished = text.contains("a rotation is unfinished");
            assert_eq!(unfinished, expected > 1, "{text}");
        }
    };
    keys(1);
    for added in 2..=4 {
        place.run(&["settings", "rotate-key"]).expect(0);
        keys(added);
    }
    // The oldest is not dropped for a fifth one.
    let ran = place.run(&["settings", "rotate-key"]).expect(2);
    assert!(ran.err.contains("--finish"), "{ran:?}");
    keys(4);
    place.run(&["settings", "rotate-key", "--finish"]).expect(0);
    keys(1);
}

/// Once each, at the start; a file that its owner alone may read is not named.
#[test]
fn a_silo_warns_of_files_with_secrets_that_others_may_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let (place, files) = (Place::new(), tempfile::tempdir().unwrap());
    write_certificate(files.path(), URI, [127, 0, 0, 1]);
    let secret = files.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef".repeat(4)).unwrap();
    drop(place.initialize());
    let mut args = tls(files.path());
    args.push(format!("--secret-file={}", secret.display()));
    let named = [secret, files.path().join("key.pem"), place.file()];
    for (mode, expected) in [(0o644, 1), (0o600, 0)] {
        for file in &named {
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut silo = Process::start(&place, port(), "local", &borrowed(&args));
        silo.address(secs(15));
        silo.signal(Signal::TERM);
        let (_, err) = silo.ends(secs(20));
        for file in &named {
            let name = file.display().to_string();
            let advice = format!("chmod 600 {name}");
            let lines = err.lines().filter(|l| l.contains(&advice));
            let lines: Vec<&str> = lines.filter(|l| l.contains("0644")).collect();
            assert_eq!(lines.len(), expected, "{name} {mode:o}: {err}");
        }
    }
}

/// The silo that refuses it must say so: of a process without a row, or of a silo of the view if its
/// row was read first, once each.
#[test]
fn a_silo_warns_of_a_newcomer_with_another_secret() {
    let (place, files) = (Place::new(), tempfile::tempdir().unwrap());
    let keys = ["0123456789abcdef", "fedcba9876543210"].map(|part| part.repeat(4));
    let mut started = keys.iter().enumerate().map(|(number, key)| {
        let file = files.path().join(number.to_string());
        std::fs::write(&file, key).unwrap();
        let option = format!("--secret-file={}", file.display());
        Process::start(&place, port(), "local", &[&option])
    });
    let mut member = started.next().unwrap();
    member.address(secs(15));
    let newcomer = started.next().unwrap();
    drop(started);
    newcomer.wait("that it is refused", secs(20), |lines| {
        let refused = |l: &Line| l.event["unreached"][0]["i_reach_it"] == false;
        lines.iter().any(refused).then_some(())
    });
    member.signal(Signal::TERM);
    let (_, err) = member.ends(secs(20));
    let at = format!("127.0.0.1:{}", newcomer.port);
    let warned = |who: &str| {
        let lines = err
            .lines()
            .filter(|l| l.contains("WARN") && l.contains(who));
        let lines = lines.filter(|l| l.contains(&at) && l.contains("secret"));
        lines.count()
    };
    let (newcomer, member) = (warned("a newcomer"), warned("a silo of the view has not"));
    assert!(newcomer <= 1 && member <= 1, "{err}");
    assert!(newcomer + member >= 1, "{err}");
    assert!(keys.iter().all(|key| !err.contains(&key[..16])), "{err}");
}

/// The commands of docs/security.md, typed as they are there but for cluster and address.
#[test]
fn the_documented_openssl_commands_make_a_certificate_that_is_accepted() {
    if Command::new("openssl").arg("version").output().is_err() {
        return;
    }
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let document = std::fs::read_to_string(document).unwrap();
    let blocks = document.split("```sh\n").skip(1);
    let mut blocks = blocks.map(|rest| rest.split("```").next().unwrap());
    let block = blocks.find(|block| block.contains("openssl req")).unwrap();
    let script = block
        .replace("10.0.0.7", "127.0.0.1")
        .replace("billing/blue", "default/default");
    assert_ne!(script, block);
    let files = tempfile::tempdir().unwrap();
    let run = Command::new("sh")
        .args(["-e", "-c", &script])
        .current_dir(files.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let mut cluster = Cluster {
        place: Place::new(),
        preset: "local",
        silos: Vec::new(),
    };
    let args = tls(files.path());
    for _ in 0..2 {
        let silo = Process::start(&cluster.place, port(), "local", &borrowed(&args));
        cluster.silos.push(silo);
    }
    cluster.all_active(secs(15));
    cluster.is_whole();
}
