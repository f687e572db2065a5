//! NATS with JetStream: one server, or several that the arguments name
//! ([`ServerSet`](crate::ServerSet)), each with a port for the others and one that tells who leads.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::Command;

use super::clustered::{Clustered, Peers};
use super::ground::{Ground, file, in_url};
use super::special::Software;
use super::wire;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;
use crate::launch::tls::Tls;

/// The user of a password.
const USER: &str = "membership";
/// Within a container.
const PORT: u16 = 4222;
/// The stream of the bucket that the provider uses unless its options name another.
const STREAM: &str = "KV_membership";

pub(super) struct Nats;

impl Software for Nats {
    /// Durability, users and TLS are in the configuration file only.
    fn create(&self, ground: &Ground) -> Result<(), LaunchError> {
        let folder = ground.data().join("jetstream");
        let sync = match ground.options.durable {
            true => "\n  sync_interval: always",
            false => "",
        };
        let mut text = format!("jetstream {{\n  store_dir: {folder:?}{sync}\n}}\n");
        if let Some(password) = &ground.options.password {
            let user = format!("user: {USER}, password: {}", quoted(password));
            text.push_str(&format!("authorization {{ {user} }}\n"));
        }
        if ground.options.tls {
            let files = Tls::within(&ground.root);
            let (certificate, key) = (&files.certificate, &files.key);
            text.push_str(&format!(
                "tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n"
            ));
        }
        file(&ground.data().join("nats.conf"), &text)
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let mut command = ground.command("nats-server")?;
        command.arg("-c").arg(ground.data().join("nats.conf"));
        command.args(["-a", "127.0.0.1", "-p", &ground.port.to_string()]);
        command.args(ground.extra());
        Ok(command)
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        if options.tls {
            // The first line is not encrypted, and JetStream is up when the server listens.
            let info = info(&mut BufReader::new(wire::tcp(address)?))?;
            let up = info["jetstream"] == true;
            return up.then_some(()).ok_or_else(|| wire::wrong("no JetStream"));
        }
        serves(wire::tcp(address)?, options.password.as_deref())
    }

    fn image(&self) -> &'static str {
        "nats:2.12"
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let mut command = vec!["nats-server".to_owned(), "-js".to_owned()];
        if let Some(password) = &options.password {
            command.extend(["--user", USER, "--pass", password].map(str::to_owned));
        }
        command
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        // Only whoever started the server knows that it flushes before it acknowledges.
        let (user, sync) = (&options.password, options.durable);
        let user = user.as_ref().map(|it| format!("{USER}:{}@", in_url(it)));
        let sync = if sync { "?sync=always" } else { "" };
        let tls = match (options.tls, sync) {
            (false, _) => "",
            (true, "") => "?tls=true",
            (true, _) => "&tls=true",
        };
        format!("nats://{}{address}{sync}{tls}", user.unwrap_or_default())
    }

    fn usual_port(&self) -> u16 {
        PORT
    }
}

impl Clustered for Nats {
    /// One port for the other servers, and one to ask who leads.
    fn ports(&self) -> usize {
        2
    }

    fn arguments(&self, server: usize, peers: &Peers) -> Vec<String> {
        let at = |port: u16| format!("nats://127.0.0.1:{port}");
        let routes: Vec<String> = peers.each(0).map(at).collect();
        let own = at(peers.port(server, 0));
        vec![
            format!("--server_name={}", name(server)),
            "--cluster_name=membership".to_owned(),
            format!("--cluster={own}"),
            format!("--routes={}", routes.join(",")),
            format!("--http_port={}", peers.port(server, 1)),
        ]
    }

    /// The leader of the bucket's stream; before there is a bucket, that of the servers.
    fn leads(&self, server: usize, _: SocketAddr, peers: &Peers) -> io::Result<bool> {
        let address = SocketAddr::from(([127, 0, 0, 1], peers.port(server, 1)));
        let state = wire::http_get(wire::tcp(address)?, "/jsz?accounts=true&streams=true")?;
        let state: serde_json::Value = serde_json::from_str(&state)?;
        let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
        let accounts = list(&state["account_details"]);
        let mut streams = accounts.iter().flat_map(|it| list(&it["stream_detail"]));
        let leader = match streams.find(|it| it["name"] == STREAM) {
            Some(stream) => stream["cluster"]["leader"].clone(),
            None => state["meta_cluster"]["leader"].clone(),
        };
        Ok(leader == name(server))
    }

    /// It knows the addresses of other servers.
    fn takes_part(&self, address: SocketAddr) -> io::Result<bool> {
        let info = info(&mut BufReader::new(wire::tcp(address)?))?;
        let known = info["connect_urls"].as_array().map_or(0, Vec::len);
        Ok(known > 1)
    }

    /// The acknowledgements of a cluster are flushed as those of one server.
    fn url(&self, url: String) -> String {
        format!("{url}?sync=always&replicas=3")
    }
}

fn name(server: usize) -> String {
    format!("n{server}")
}

/// A text in the configuration file.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// What the server says of itself before anything else.
fn info(stream: &mut impl io::BufRead) -> io::Result<serde_json::Value> {
    let mut line = String::new();
    stream.take(1 << 16).read_line(&mut line)?;
    let text = line.strip_prefix("INFO ");
    let text = text.ok_or_else(|| wire::wrong("a greeting that is not of NATS"))?;
    Ok(serde_json::from_str(text)?)
}

/// Logs in and asks JetStream for the state of the account.
fn serves(stream: impl Read + Write, password: Option<&str>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    info(&mut stream)?;
    let mut login = serde_json::json!({"verbose": false, "pedantic": false, "echo": true});
    if let Some(password) = password {
        login["user"] = USER.into();
        login["pass"] = password.into();
    }
    let request = format!("CONNECT {login}\r\nSUB it 1\r\nPUB $JS.API.INFO it 0\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes())?;
    loop {
        let mut line = String::new();
        if stream.by_ref().take(1 << 16).read_line(&mut line)? == 0 {
            return Err(wire::wrong("the server closed the connection"));
        }
        match line.trim_end() {
            line if line.starts_with("-ERR") => return Err(wire::wrong(line)),
            line if line.contains("account_info_response") => {
                let refused = line.contains(r#""error":"#);
                return (!refused).then_some(()).ok_or_else(|| wire::wrong(line));
            }
            _ => {}
        }
    }
}
