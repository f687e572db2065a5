//! Who may ask: by the name in the request, by a token, by TLS.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;

use super::client::{Answer, PATIENCE, address, ask, get, request};
use super::support::silos::{Process, port};
use super::support::{Place, active};

const TOKEN: &str = "abcdefgh-ijklmnop-1";

fn silo(place: &Place, more: &[&str]) -> (Process, SocketAddr) {
    let silo = Process::start(place, port(), "local", more);
    silo.address(PATIENCE);
    let at = address(&silo);
    (silo, at)
}

/// A file that its owner alone may read: of another one the silo warns.
fn write_private(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn with(at: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask(at, &request("GET", path, headers, ""))
}

#[test]
fn a_name_that_the_server_does_not_have_is_refused() {
    let place = Place::new();
    let (_silo, at) = silo(
        &place,
        &["--http", "127.0.0.1:0", "--http-name", "silo.example"],
    );
    for path in [
        "/api/v1/view",
        "/api/v1/events",
        "/metrics",
        "/api/v1/openapi.json",
    ] {
        for host in [
            "evil.example",
            "evil.example:9700",
            "127.0.0.1.evil.example",
        ] {
            let answer = with(at, path, &[("Host", host)]);
            assert_eq!(
                answer.json(421)["error"],
                "host_not_allowed",
                "{path} {host}"
            );
        }
    }
    for host in ["silo.example", "localhost:9700", "127.0.0.1", "[::1]:9700"] {
        assert_eq!(
            with(at, "/api/v1/view", &[("Host", host)]).status,
            200,
            "{host}"
        );
    }
    // What a supervisor asks tells nothing.
    for path in ["/livez", "/readyz"] {
        assert_eq!(
            with(at, path, &[("Host", "evil.example")]).status,
            200,
            "{path}"
        );
    }
    let two = "GET /api/v1/view HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(ask(at, two).status, 400);
    let line = "GET http://evil.example/api/v1/view HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(ask(at, line).status, 421);
}

#[test]
fn a_token_is_needed_and_a_browser_logs_in_with_it() {
    let place = Place::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    write_private(&file, TOKEN);
    let file_name = file.to_str().unwrap();
    let (_silo, at) = silo(
        &place,
        &["--http", "127.0.0.1:0", "--http-token-file", file_name],
    );
    assert_eq!(
        (get(at, "/livez").status, get(at, "/readyz").status),
        (200, 200)
    );
    for path in ["/api/v1/view", "/api/v1/events", "/metrics"] {
        let answer = get(at, path);
        assert_eq!(answer.json(401)["error"], "unauthorized", "{path}");
        assert_eq!(answer.header("www-authenticate"), Some("bearer"));
        let wrong = [("Authorization", "Bearer abcdefgh-ijklmnop-2")];
        assert_eq!(with(at, path, &wrong).status, 401, "{path}");
    }
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(
        with(at, "/api/v1/view", &[("Authorization", &bearer)]).status,
        200
    );

    let page = get(at, "/");
    assert_eq!(
        (page.status, page.header("location")),
        (303, Some("/login"))
    );
    let form = get(at, "/login");
    assert!(
        form.status == 200 && form.body.contains("name=\"token\""),
        "{form:?}"
    );
    let refused = ask(
        at,
        &request("POST", "/login", &[], "token=abcdefgh-ijklmnop-2"),
    );
    assert!(refused.status == 401 && refused.header("set-cookie").is_none());
    let elsewhere = [("Host", "evil.example")];
    let elsewhere = request("POST", "/login", &elsewhere, &format!("token={TOKEN}"));
    assert_eq!(ask(at, &elsewhere).status, 421);
    let login = ask(
        at,
        &request("POST", "/login", &[], &format!("token={TOKEN}")),
    );
    assert_eq!(login.status, 303);
    let cookie = login.header("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("; httponly; samesite=strict"), "{cookie}");
    assert!(!cookie.contains(TOKEN), "{cookie}");
    let session = cookie.split(';').next().unwrap().to_owned();
    assert_eq!(
        with(at, "/api/v1/view", &[("Cookie", &session)]).status,
        200
    );
    let forged = format!("{}0", &session[..session.len() - 1]);
    let forged = if forged == session {
        format!("{}1", &session[..session.len() - 1])
    } else {
        forged
    };
    assert_eq!(with(at, "/api/v1/view", &[("Cookie", &forged)]).status, 401);

    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let follow = [("Authorization", bearer.as_str())];
    let follow = request("GET", "/api/v1/events", &follow, "");
    stream.write_all(follow.as_bytes()).unwrap();
    assert!(stream.read(&mut [0; 64]).unwrap() > 0);

    // Another token replaces it, while the silo runs.
    fs::write(&file, "another-token-of-today\n").unwrap();
    let until = Instant::now() + PATIENCE;
    while with(at, "/api/v1/view", &[("Authorization", &bearer)]).status == 200 {
        assert!(Instant::now() < until, "the old token still works");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(
        with(at, "/api/v1/view", &[("Cookie", &session)]).status,
        401
    );
    let new = [("Authorization", "Bearer another-token-of-today")];
    assert_eq!(with(at, "/api/v1/view", &new).status, 200);
    // Whoever follows with the old one is cut: without events, at the next comment.
    let until = Instant::now() + PATIENCE;
    while stream.read(&mut [0; 4096]).unwrap() > 0 {
        assert!(Instant::now() < until, "the stream goes on");
    }
}

#[test]
fn a_browser_stays_logged_in_at_two_ports_of_a_host() {
    let (place, folder) = (Place::new(), tempfile::tempdir().unwrap());
    let file = folder.path().join("tokens");
    write_private(&file, TOKEN);
    let file = file.to_str().unwrap();
    let args = ["--http", "127.0.0.1:0", "--http-token-file", file];
    let silos = [silo(&place, &args), silo(&place, &args)];
    // As a browser keeps them: one of each name, for all ports.
    let mut cookies = std::collections::BTreeMap::new();
    for (_, at) in &silos {
        let host = at.to_string();
        let login = request(
            "POST",
            "/login",
            &[("Host", &host)],
            &format!("token={TOKEN}"),
        );
        let login = ask(*at, &login);
        let cookie = login.header("set-cookie").unwrap().split(';').next();
        let (name, value) = cookie.unwrap().split_once('=').unwrap();
        cookies.insert(name.to_owned(), value.to_owned());
    }
    let all: Vec<String> = cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
    for (_, at) in &silos {
        let host = at.to_string();
        let headers = [("Host", host.as_str()), ("Cookie", &all.join("; "))];
        assert_eq!(with(*at, "/api/v1/view", &headers).status, 200, "{all:?}");
    }
}

#[test]
fn elsewhere_than_on_loopback_it_needs_tls_and_a_token_or_consent() {
    let place = Place::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    write_private(&file, TOKEN);
    let file = file.to_str().unwrap();
    let listen = ["silo", "--listen", "127.0.0.1:0", "--preset", "local"];
    for more in [
        vec!["--http", "0.0.0.0:0"],
        vec!["--http", "0.0.0.0:0", "--http-token-file", file],
        vec![
            "--http",
            "127.0.0.1:0",
            "--http-token-file",
            "/no/such/file",
        ],
        vec![
            "--http",
            "127.0.0.1:0",
            "--http-tls-cert",
            "/no/such",
            "--http-tls-key",
            file,
        ],
        vec!["--http-tls-cert", file],
        vec!["--http-token-file", file],
    ] {
        let args: Vec<&str> = listen.iter().chain(&more).copied().collect();
        let ran = place.run(&args).expect(2);
        assert!(ran.err.contains("--http"), "{more:?}: {}", ran.err);
    }
    for consent in ["--http-insecure", "--insecure"] {
        let (_silo, at) = silo(&place, &["--http", "0.0.0.0:0", consent]);
        let at = SocketAddr::from(([127, 0, 0, 1], at.port()));
        assert_eq!(get(at, "/api/v1/view").status, 200, "{consent}");
    }
    // A port that another process has is said so.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let args: Vec<&str> = listen.iter().copied().chain(["--http", &taken]).collect();
    let ran = place.run(&args).expect(4);
    assert!(ran.err.contains("--http"), "{}", ran.err);
}

/// A certificate for `silo.example`, its key, and a file with the token.
fn files_for_tls(folder: &Path) -> [String; 3] {
    let made = rcgen::generate_simple_self_signed(["silo.example".to_owned()]).unwrap();
    let write = |name: &str, text: &str| {
        write_private(&folder.join(name), text);
        folder.join(name).to_str().unwrap().to_owned()
    };
    [
        write("cert.pem", &made.cert.pem()),
        write("key.pem", &made.signing_key.serialize_pem()),
        write("tokens", TOKEN),
    ]
}

#[test]
fn with_tls_and_a_token_it_answers_anywhere() {
    let place = Place::new();
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key, tokens] = files_for_tls(folder.path());
    let (_silo, at) = silo(
        &place,
        &[
            "--http",
            "0.0.0.0:0",
            "--http-tls-cert",
            &certificate,
            "--http-tls-key",
            &key,
            "--http-token-file",
            &tokens,
            "--http-name",
            "silo.example",
        ],
    );
    let at = SocketAddr::from(([127, 0, 0, 1], at.port()));
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Host", "silo.example"), ("Authorization", bearer.as_str())];
    let text = over_tls(
        at,
        Path::new(&certificate),
        &request("GET", "/api/v1/view", &headers, ""),
    );
    assert_eq!(Answer::parse(&text).status, 200, "{text}");
    let login = request(
        "POST",
        "/login",
        &[("Host", "silo.example")],
        &format!("token={TOKEN}"),
    );
    let login = Answer::parse(&over_tls(at, Path::new(&certificate), &login));
    assert!(
        login.header("set-cookie").unwrap().ends_with("; secure"),
        "{login:?}"
    );
    // Plain text is no handshake, and is not answered.
    let mut plain = TcpStream::connect(at).unwrap();
    plain
        .write_all(request("GET", "/livez", &[], "").as_bytes())
        .unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
}

#[test]
fn a_dashboard_over_tls_wants_the_token_and_keeps_its_cookies_to_tls() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101)]);
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key, tokens] = files_for_tls(folder.path());
    let mut command = place.command(&["dashboard", "--json", "--allow-changes"]);
    // As a unit or a container has them.
    for (name, value) in [
        ("HTTP", "0.0.0.0:0"),
        ("HTTP_TLS_CERT", &certificate),
        ("HTTP_TLS_KEY", &key),
        ("HTTP_TOKEN_FILE", &tokens),
        ("HTTP_NAME", "silo.example"),
    ] {
        command.env(format!("MEMBERSHIP_{name}"), value);
    }
    let dashboard = Process::spawn(command, 0);
    let at = SocketAddr::from(([127, 0, 0, 1], address(&dashboard).port()));
    let bearer = format!("Bearer {TOKEN}");
    let host = ("Host", "silo.example");
    let asked = |path: &str, headers: &[(&str, &str)]| {
        let text = request("GET", path, headers, "");
        Answer::parse(&over_tls(at, Path::new(&certificate), &text))
    };
    assert_eq!(asked("/api/v1/status", &[host]).status, 401);
    let with = [host, ("Authorization", bearer.as_str())];
    let state = asked("/api/v1/status?wait=0", &with);
    assert_eq!(state.status, 200, "{state:?}");
    assert!(state.body.contains(&silo_address(7101)), "{state:?}");
    let page = asked("/", &with);
    let cookie = page.header("set-cookie").unwrap();
    assert!(
        cookie.starts_with("membership-page=") && cookie.ends_with("; secure"),
        "{cookie}"
    );
}

fn silo_address(port: u16) -> String {
    super::support::silo(port).to_string()
}

fn over_tls(at: SocketAddr, certificate: &Path, request: &str) -> String {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(certificate).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("silo.example").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, TcpStream::connect(at).unwrap());
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn addresses_and_names_that_cannot_be_are_answered_with_right_ones() {
    let place = Place::new();
    for (option, wrong, said) in [
        ("--http", "9700", "for example 127.0.0.1:"),
        ("--http", "localhost:9700", "names are not resolved"),
        ("--http-name", "silo.example:9700", "a host name alone"),
        ("--http-name", "https://silo.example", "a host name alone"),
    ] {
        let rest = ["dashboard", "--http", "127.0.0.1:0"];
        let args = if option == "--http" {
            &rest[..1]
        } else {
            &rest[..]
        };
        let told = place
            .run(&[args, &[option, wrong]].concat())
            .expect_lines(2);
        assert!(told.err.contains(said), "{told:?}");
    }
}
