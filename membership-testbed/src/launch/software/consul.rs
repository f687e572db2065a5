//! Consul: a server agent that elects itself, without services, names, gossip over the wide area
//! and mesh.
//!
//! Everything that it acknowledges is on the disk: it flushes its log with each write.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use super::clustered::{Clustered, Peers};
use super::ground::{Ground, file, in_url, tls_arguments};
use super::special::Software;
use super::wire;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;
use crate::launch::port::free_port;

pub(super) struct Consul;

/// Clients of all tests come from one address, and each may keep several connections. A larger
/// number does not fit into the 1,024 files that most systems give a process, and then the agent
/// does not start.
const CONNECTIONS: u32 = 900;

impl Software for Consul {
    fn create(&self, _: &Ground) -> Result<(), LaunchError> {
        Ok(())
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let [server, gossip, plain] = chosen_ports(ground)?;
        let own = ground.port.to_string();
        let (http, https) = if ground.options.tls {
            (plain.to_string(), own)
        } else {
            (own, "-1".to_owned())
        };
        let mut config = format!(
            "data_dir = {:?}\nports {{\n  http = {http}\n  https = {https}\n  server = {server}\n  serf_lan = {gossip}\n  serf_wan = -1\n  \
             dns = -1\n  grpc = -1\n}}\nlimits {{ http_max_conns_per_client = {CONNECTIONS} }}\n",
            ground.data(),
        );
        config.push_str(&rights(&ground.options, "master"));
        if ground.options.tls {
            tls_arguments(ground, |certificate, key, ca| {
                config.push_str(&format!(
                    "cert_file = {certificate:?}\nkey_file = {key:?}\nca_file = {ca:?}\n"
                ));
            });
        }
        let path = ground.run().join("consul.hcl");
        file(&path, &config)?;
        let mut command = ground.command("consul")?;
        command
            .args(["agent", "-config-file"])
            .arg(&path)
            .args(["-bind=127.0.0.1", "-client=127.0.0.1"]);
        command
            .arg(format!("-node=node-{}", ground.port))
            .arg("-log-level=warn")
            .args(ALWAYS);
        command.args(ground.extra());
        Ok(command)
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        let stream = wire::tcp(address)?;
        // With TLS the check only connects to the port; the real call goes over the plain port.
        if options.tls {
            Ok(())
        } else {
            wire::consul(stream, options.password.as_deref())
        }
    }

    fn ask_inside(&self, ground: &Ground) -> io::Result<()> {
        if !ground.options.tls {
            return Ok(());
        }
        let [_, _, plain] =
            ports(ground).ok_or_else(|| wire::wrong("the file with its ports is missing"))?;
        wire::consul(
            wire::tcp(([127, 0, 0, 1], plain).into())?,
            ground.options.password.as_deref(),
        )
    }

    fn image(&self) -> &'static str {
        "hashicorp/consul:1.20"
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let limits = format!("-hcl=limits {{ http_max_conns_per_client = {CONNECTIONS} }}");
        // The container's own address changes with a restart; no other server has to reach it.
        let mut command: Vec<String> = ["agent", "-bind=127.0.0.1", "-client=0.0.0.0"]
            .map(str::to_owned)
            .into();
        command.extend(ALWAYS.iter().map(|argument| (*argument).to_owned()));
        command.push(limits);
        let rights = rights(options, "initial_management");
        command.extend((!rights.is_empty()).then(|| format!("-hcl={rights}")));
        command
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        let scheme = if options.tls {
            "consul+https"
        } else {
            "consul"
        };
        match &options.password {
            Some(token) => format!("{scheme}://:{}@{address}", in_url(token)),
            None => format!("{scheme}://{address}"),
        }
    }

    fn usual_port(&self) -> u16 {
        8500
    }
}

impl Clustered for Consul {
    /// One port for calls between servers, and one for gossip.
    fn ports(&self) -> usize {
        2
    }

    fn arguments(&self, server: usize, peers: &Peers) -> Vec<String> {
        let mut arguments = vec![
            format!("-bootstrap-expect={}", peers.ports.len()),
            "-retry-interval=1s".to_owned(),
            SLOW_ELECTIONS.to_owned(),
            format!("-server-port={}", peers.port(server, 0)),
            format!("-serf-lan-port={}", peers.port(server, 1)),
        ];
        arguments.extend(
            peers
                .each(1)
                .map(|port| format!("-retry-join=127.0.0.1:{port}")),
        );
        arguments
    }

    /// The servers identify the leader by its first port.
    fn leads(&self, server: usize, address: SocketAddr, peers: &Peers) -> io::Result<bool> {
        let leader = wire::consul_leader(wire::tcp(address)?)?;
        let port = leader
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse::<u16>().ok());
        Ok(port == Some(peers.port(server, 0)))
    }

    fn takes_part(&self, address: SocketAddr) -> io::Result<bool> {
        Ok(wire::consul_leader(wire::tcp(address)?)?.contains(':'))
    }
}

/// A leader steps down after 1.5 s without contact to the others, and they hold an election after 3
/// s without contact to it: three times the values that Consul recommends for servers with a
/// machine each.
const SLOW_ELECTIONS: &str = "-hcl=performance { raft_multiplier = 3 }";

/// A cluster of one server, which contacts nobody.
const ALWAYS: &[&str] = &[
    "-server",
    "-bootstrap-expect=1",
    "-disable-keyring-file",
    "-hcl=disable_update_check = true",
    "-hcl=connect { enabled = false }",
    "-hcl=performance { raft_multiplier = 1 }",
];

/// With a password, only a client that has it as its token has rights. The name of that token's
/// setting differs between versions.
fn rights(options: &Options, setting: &str) -> String {
    let Some(token) = &options.password else {
        return String::new();
    };
    format!(
        "acl {{\n  enabled = true\n  default_policy = \"deny\"\n  tokens {{\n    {setting} = {token:?}\n    agent = {token:?}\n  }}\n}}\n"
    )
}

/// The ports in addition to the one for clients: for other servers, for gossip, and without TLS.
fn ports(ground: &Ground) -> Option<[u16; 3]> {
    let text = std::fs::read_to_string(ground.root.join("ports")).ok()?;
    let ports: Vec<u16> = text
        .split_whitespace()
        .filter_map(|port| port.parse().ok())
        .collect();
    ports.try_into().ok()
}

/// They do not change once the server has served, because its peers and its own log know them.
/// Before that each start chooses new ones, because one may be taken.
fn chosen_ports(ground: &Ground) -> Result<[u16; 3], LaunchError> {
    if let Some(ports) = ports(ground).filter(|_| ground.root.join("served").exists()) {
        return Ok(ports);
    }
    let port = || free_port().map_err(LaunchError::io("cannot listen on", "127.0.0.1"));
    let ports = [port()?, port()?, port()?];
    file(
        &ground.root.join("ports"),
        &ports.map(|port| port.to_string()).join(" "),
    )?;
    Ok(ports)
}
