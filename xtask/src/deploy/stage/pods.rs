//! The silos of the manifest, of the compose file and of the unit, with their own arguments and
//! variables: the program takes them, becomes ready, guards what it should and leaves on SIGTERM.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::queries::{array, text};
use super::super::read;
use super::super::tools::Tools;
use super::silos::Silo;
use super::{PATIENCE, Stage};
use crate::{Failure, say};

const POD: &str = "deploy/kubernetes/statefulset/statefulset.yaml";
const COMPOSE: &str = "deploy/docker/compose.yml";
const UNIT: &str = "deploy/systemd/example.env";
/// Of the manifest.
const TOKEN: &str = "a-token-of-24-characters";

pub(super) fn run(tools: &Tools, root: &Path, stage: &Stage) -> Result<(), Failure> {
    let (port, http) = (stage.spare[1], stage.spare[2]);
    let token = stage.folder.join("http-token");
    fs::write(&token, TOKEN)?;
    // Everything is on loopback here.
    let here = |text: &str| {
        let text = text.replace("0.0.0.0:9700", &format!("127.0.0.1:{http}"));
        let text = text.replace("0.0.0.0:7100", &format!("127.0.0.1:{port}"));
        let text = text.replace("$(POD_IP):7100", &format!("127.0.0.1:{port}"));
        text.replace("/etc/membership/http-token", &token.to_string_lossy())
    };

    let documents = tools.yaml(&root.join(POD))?;
    let container = documents.first().map_or(Value::Null, |set| {
        set["spec"]["template"]["spec"]["containers"][0].clone()
    });
    let arguments: Vec<String> = array(&container["args"])
        .iter()
        .map(|one| here(&text(one)))
        .collect();
    let silo = Silo::bare(
        &stage.program,
        &stage.folder,
        "pod",
        &arguments,
        &BTreeMap::new(),
    );
    let readiness = text(&container["readinessProbe"]["httpGet"]["path"]);
    let liveness = text(&container["livenessProbe"]["httpGet"]["path"]);
    serves(
        silo.start()?,
        POD,
        http,
        &[(&readiness, "200"), (&liveness, "200"), ("/metrics", "401")],
    )?;

    let documents = tools.yaml(&root.join(COMPOSE))?;
    let services = documents
        .first()
        .and_then(|all| all["services"].as_object());
    for (name, service) in services.into_iter().flatten() {
        let ip = text(&service["networks"]["silos"]["ipv4_address"]);
        if name.starts_with("silo") {
            let arguments = array(&service["command"]).iter().map(text);
            let arguments: Vec<String> = arguments
                .map(|one| here(&one.replace(&format!("{ip}:7100"), "0.0.0.0:7100")))
                .collect();
            let silo = Silo::bare(
                &stage.program,
                &stage.folder,
                name,
                &arguments,
                &BTreeMap::new(),
            );
            serves(
                silo.start()?,
                COMPOSE,
                http,
                &[("/readyz", "200"), ("/metrics", "200")],
            )?;
        }
    }

    let mut variables = BTreeMap::new();
    for line in read(root, UNIT)?
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| Failure::new(format!("{UNIT}: '{line}' is no variable")))?;
        let value = match name {
            "MEMBERSHIP_TABLE" | "MEMBERSHIP_CLUSTER" => continue,
            "MEMBERSHIP_LISTEN" => format!("127.0.0.1:{port}"),
            "MEMBERSHIP_HTTP" => format!("127.0.0.1:{http}"),
            _ => value.to_owned(),
        };
        variables.insert(name.to_owned(), value);
    }
    let silo = Silo::bare(
        &stage.program,
        &stage.folder,
        "unit",
        &["silo".to_owned()],
        &variables,
    );
    serves(
        silo.start()?,
        UNIT,
        http,
        &[("/readyz", "200"), ("/metrics", "200")],
    )?;
    say(
        "the silos of the manifest, the compose file and the unit start, are ready, and leave on SIGTERM",
    );
    Ok(())
}

/// The silo gives these answers, the first of them within some time, and leaves.
fn serves(mut silo: Silo, what: &str, http: u16, answers: &[(&str, &str)]) -> Result<(), Failure> {
    for (path, code) in answers {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = get(http, path).unwrap_or_else(|error| error.to_string());
            if answer.split(' ').nth(1) == Some(code) {
                break;
            }
            if Instant::now() > deadline {
                let log = silo.log();
                return Err(Failure::new(format!(
                    "{what}: {path} answers '{answer}', not {code}\n{log}"
                )));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    silo.leave()
}

/// The first line of the answer.
fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.take(4096).read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}
