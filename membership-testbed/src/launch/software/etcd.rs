//! etcd: a cluster of one member. The launcher uses its JSON gateway.
//!
//! Several members ([`ServerSet`](crate::ServerSet)) are named in the arguments of each (`--name=`,
//! `--initial-cluster=`, `--listen-peer-urls=`, …), which override the launcher's. They are started
//! at the same time: a member answers only when a majority runs.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use super::clustered::{Clustered, Peers};
use super::ground::{Ground, in_url};
use super::special::Software;
use super::wire;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;
use crate::launch::tls::Tls;

/// The user of a password. etcd requires a user of this name before it enables authentication.
const ROOT: &str = "root";
/// The sockets for clients and for members, in the server's own folder: etcd requires a host and a
/// port in their names too.
const SOCKET: &str = "localhost:1";
const PEERS: &str = "localhost:2";
/// Within a container.
const PORT: u16 = 2379;

pub(super) struct Etcd;

impl Software for Etcd {
    fn create(&self, _: &Ground) -> Result<(), LaunchError> {
        Ok(())
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        // A killed server leaves its sockets behind, and could not listen on them again.
        for socket in [SOCKET, PEERS] {
            let _ = std::fs::remove_file(ground.run().join(socket));
        }
        let mut command = ground.command("etcd")?;
        let address = SocketAddr::from(([127, 0, 0, 1], ground.port));
        let scheme = if ground.options.tls { "https" } else { "http" };
        command.arg("--data-dir").arg(ground.data().join("member"));
        command.arg(format!(
            "--listen-client-urls={scheme}://{address},unix://{SOCKET}"
        ));
        command.arg(format!("--advertise-client-urls={scheme}://{address}"));
        // No other member exists.
        command
            .arg(format!("--listen-peer-urls=unix://{PEERS}"))
            .arg(format!("--initial-advertise-peer-urls=http://{PEERS}"));
        command
            .args([
                "--name=default",
                &format!("--initial-cluster=default=http://{PEERS}"),
            ])
            .args(SETTINGS);
        if ground.options.tls {
            let files = Tls::within(&ground.root);
            // With an authority as well, it would refuse clients without a certificate.
            command
                .arg("--cert-file")
                .arg(&files.certificate)
                .arg("--key-file")
                .arg(&files.key);
        }
        command.args(ground.extra());
        Ok(command)
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        // With TLS the check only connects to the port; the real call goes over the socket.
        if options.tls {
            wire::tcp(address).map(drop)
        } else {
            serves(|| wire::tcp(address), options)
        }
    }

    fn ask_inside(&self, ground: &Ground) -> io::Result<()> {
        serves(|| wire::unix(&ground.run().join(SOCKET)), &ground.options)
    }

    fn image(&self) -> &'static str {
        "quay.io/coreos/etcd:v3.5.17"
    }

    fn container_command(&self, _: &Options) -> Vec<String> {
        let mut command = vec![
            "etcd".to_owned(),
            format!("--listen-client-urls=http://0.0.0.0:{PORT}"),
        ];
        command.push(format!("--advertise-client-urls=http://127.0.0.1:{PORT}"));
        command.extend(SETTINGS.map(str::to_owned));
        command
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        let scheme = if options.tls { "etcd+https" } else { "etcd" };
        match &options.password {
            Some(password) => format!("{scheme}://{ROOT}:{}@{address}", in_url(password)),
            None => format!("{scheme}://{address}"),
        }
    }

    fn usual_port(&self) -> u16 {
        PORT
    }
}

impl Clustered for Etcd {
    fn ports(&self) -> usize {
        1
    }

    fn arguments(&self, server: usize, peers: &Peers) -> Vec<String> {
        let at = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<String> = (0..)
            .zip(peers.each(0))
            .map(|(member, port): (usize, u16)| format!("m{member}={}", at(port)))
            .collect();
        let own = at(peers.port(server, 0));
        let mut arguments = vec![
            format!("--name=m{server}"),
            format!("--initial-cluster={}", all.join(",")),
            format!("--listen-peer-urls={own}"),
            format!("--initial-advertise-peer-urls={own}"),
        ];
        arguments.extend(SLOW_ELECTIONS.map(str::to_owned));
        arguments
    }

    fn leads(&self, _: usize, address: SocketAddr, _: &Peers) -> io::Result<bool> {
        let status = wire::etcd(wire::tcp(address)?, "/v3/maintenance/status", "{}")?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        Ok(status["leader"].is_string() && status["leader"] == status["header"]["member_id"])
    }

    fn takes_part(&self, address: SocketAddr) -> io::Result<bool> {
        let status = wire::etcd(wire::tcp(address)?, "/v3/maintenance/status", "{}")?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        Ok(status["leader"].is_string())
    }
}

/// How many milliseconds without contact to the leader until members elect another. etcd's default
/// of one second is too short for a busy machine.
const SLOW_ELECTIONS: [&str; 3] = [
    "--pre-vote",
    "--heartbeat-interval=200",
    "--election-timeout=2000",
];

/// The least cost: passwords of tests need no more protection.
const SETTINGS: [&str; 1] = ["--bcrypt-cost=4"];

/// Checks that a majority answers. Creates the user and enables authentication, if there is a
/// password and that was not done yet.
fn serves<S: io::Read + io::Write>(
    connect: impl Fn() -> io::Result<S>,
    options: &Options,
) -> io::Result<()> {
    let call = |path: &str, body: &str| wire::etcd(connect()?, path, body);
    match call("/v3/kv/range", r#"{"key":"AA=="}"#) {
        Ok(_) => {}
        // It requires a user, so it serves.
        Err(error) if error.to_string().contains("user name is empty") => return Ok(()),
        Err(error) => return Err(error),
    }
    let Some(password) = &options.password else {
        return Ok(());
    };
    let text: String = password
        .chars()
        .flat_map(|c| {
            if matches!(c, '"' | '\\') {
                vec!['\\', c]
            } else {
                vec![c]
            }
        })
        .collect();
    // Another member of the cluster, or an interrupted attempt, may have done each of these.
    for (path, body) in [
        (
            "/v3/auth/user/add",
            format!(r#"{{"name":"{ROOT}","password":"{text}"}}"#),
        ),
        ("/v3/auth/role/add", format!(r#"{{"name":"{ROOT}"}}"#)),
        (
            "/v3/auth/user/grant",
            format!(r#"{{"user":"{ROOT}","role":"{ROOT}"}}"#),
        ),
    ] {
        match call(path, &body) {
            Err(error) if !error.to_string().contains("already exists") => return Err(error),
            _ => {}
        }
    }
    call("/v3/auth/enable", "{}").map(drop)
}
