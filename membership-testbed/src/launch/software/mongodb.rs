//! MongoDB: a replica set of one member, because only members of a set guarantee writes.
//!
//! A test that names a set (`--replSet=NAME`) creates it, with as many members as it starts; with
//! `--replSet=` the server is in none.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::clustered::{Clustered, Peers};
use super::ground::{Ground, file, in_url, own};
use super::special::Software;
use super::wire;
use super::wire::mongodb::{Document, call};
use crate::launch::error::LaunchError;
use crate::launch::options::Options;
use crate::launch::tls::Tls;

/// The database in the URL.
const DATABASE: &str = "membership";
const SET: &str = "rs0";
/// The argument that names the set.
const NAMED: &str = "--replSet=";
/// The program's default port, also within a container.
const PORT: u16 = 27_017;
/// The client option that connects to this server alone, whatever its name in the set.
const DIRECT: &str = "directConnection=true";
/// The key with which members of one set authenticate each other. All of them belong to one test.
const MEMBERS_KEY: &str = "bWVtYmVyc2hpcC10ZXN0cw==";

pub(super) struct MongoDb;

impl Software for MongoDb {
    fn create(&self, ground: &Ground) -> Result<(), LaunchError> {
        let key = ground.run().join("key");
        file(&key, MEMBERS_KEY)?;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))
            .map_err(LaunchError::io("cannot protect", &key))?;
        own(ground, &key)
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let mut command = ground.command("mongod")?;
        command.arg("--dbpath").arg(ground.data()).args([
            "--bind_ip",
            "127.0.0.1",
            "--port",
            &ground.port.to_string(),
            "--nounixsocket",
        ]);
        command.args(settings(&ground.options));
        if ground.options.password.is_some() {
            command.arg("--keyFile").arg(ground.run().join("key"));
        }
        if ground.options.tls {
            // The server needs certificate and key in one file.
            let both = ground.run().join("server.pem");
            let files = Tls::within(&ground.root);
            let read = |part: &Path| {
                std::fs::read_to_string(part).map_err(LaunchError::io("cannot read", part))
            };
            let text = read(&files.certificate)? + &read(&files.key)?;
            file(&both, &text)?;
            own(ground, &both)?;
            command
                .args([
                    "--tlsMode",
                    "preferTLS",
                    "--tlsAllowConnectionsWithoutCertificates",
                    "--tlsCertificateKeyFile",
                ])
                .arg(&both);
            command.arg("--tlsCAFile").arg(&files.ca);
        }
        command.args(ground.extra().filter(|argument| argument != NAMED));
        Ok(command)
    }

    /// Creates the set and the user, once.
    fn ask_inside(&self, ground: &Ground) -> io::Result<()> {
        let address = SocketAddr::from(([127, 0, 0, 1], ground.port));
        if makes_its_set(&ground.options) {
            serves(address, &address.to_string())?;
        }
        match &ground.options.password {
            // A member of a set that does not exist yet accepts no user; the test that creates the
            // set creates the user.
            Some(password) if makes_its_set(&ground.options) => user(address, password),
            _ => Ok(()),
        }
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        if makes_its_set(options) && options.password.is_none() {
            // Within a container it knows itself by its port there.
            return serves(address, &format!("127.0.0.1:{PORT}"));
        }
        let hello = hello(address)?;
        match makes_its_set(options) && hello.flag("isWritablePrimary") != Some(true) {
            true => Err(wire::wrong("it is not the primary yet")),
            false => Ok(()),
        }
    }

    fn image(&self) -> &'static str {
        "mongo:6.0"
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let mut command = vec!["mongod".to_owned(), "--bind_ip_all".to_owned()];
        command.extend(settings(options));
        if options.password.is_none() {
            return command;
        }
        // From outside the set cannot be created before the user, nor the user before the set, so
        // the container does both.
        let make = format!(
            "rs.initiate({{_id: '{SET}', members: [{{_id: 0, host: '127.0.0.1:{PORT}'}}]}})"
        );
        let shell =
            "mongosh --quiet -u \"$MONGO_INITDB_ROOT_USERNAME\" -p \"$MONGO_INITDB_ROOT_PASSWORD\"";
        let script = format!(
            "echo {MEMBERS_KEY} > /tmp/key && chmod 600 /tmp/key && chown mongodb /tmp/key\n\
             until {shell} --eval \"{make}\"; do sleep 0.2; done > /dev/null 2>&1 &\n\
             exec docker-entrypoint.sh {} --keyFile /tmp/key",
            command.join(" ")
        );
        vec!["bash".to_owned(), "-c".to_owned(), script]
    }

    fn container_environment(&self, options: &Options) -> Vec<(&'static str, String)> {
        match &options.password {
            Some(password) => {
                vec![
                    ("MONGO_INITDB_ROOT_USERNAME", "root".to_owned()),
                    ("MONGO_INITDB_ROOT_PASSWORD", password.clone()),
                ]
            }
            None => Vec::new(),
        }
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        // Its own name in the set may differ from the address that clients use.
        match &options.password {
            Some(password) => format!(
                "mongodb://root:{}@{address}/{DATABASE}?authSource=admin&{DIRECT}",
                in_url(password)
            ),
            None => format!("mongodb://{address}/{DATABASE}?{DIRECT}"),
        }
    }

    fn usual_port(&self) -> u16 {
        PORT
    }
}

/// The arguments for the options.
fn settings(options: &Options) -> Vec<String> {
    let mut settings = vec![
        "--wiredTigerCacheSizeGB",
        "0.25",
        "--setParameter",
        "diagnosticDataCollectionEnabled=false",
    ];
    if makes_its_set(options) {
        settings.extend(["--oplogSize", "64", "--replSet", SET]);
    }
    settings.into_iter().map(str::to_owned).collect()
}

/// Whether the launcher creates a set of this one server.
fn makes_its_set(options: &Options) -> bool {
    !options
        .args
        .iter()
        .any(|argument| argument.starts_with(NAMED))
}

fn hello(address: SocketAddr) -> io::Result<Document> {
    let answer = call(
        wire::tcp(address)?,
        "admin",
        Document::new().number("hello", 1),
    )?;
    if answer.is_ok() {
        Ok(answer)
    } else {
        Err(wire::wrong("no answer to hello"))
    }
}

/// Checks that it is the primary. Creates a set if it is in none.
fn serves(address: SocketAddr, itself: &str) -> io::Result<()> {
    let hello = hello(address)?;
    if hello.flag("isWritablePrimary") == Some(true) {
        return Ok(());
    }
    if hello.flag("isreplicaset") == Some(true) {
        let member = Document::new().number("_id", 0).text("host", itself);
        let config = Document::new().text("_id", SET).list("members", [member]);
        call(
            wire::tcp(address)?,
            "admin",
            Document::new().document("replSetInitiate", config),
        )?;
    }
    Err(wire::wrong("it is not the primary yet"))
}

impl Clustered for MongoDb {
    fn ports(&self) -> usize {
        0
    }

    fn arguments(&self, _: usize, _: &Peers) -> Vec<String> {
        vec![format!("{NAMED}{SET}")]
    }

    fn unite(&self, servers: &[SocketAddr], names: &[SocketAddr]) -> io::Result<()> {
        match servers.first() {
            Some(first) => make_set(*first, SET, names),
            None => Ok(()),
        }
    }

    fn secure(&self, leader: SocketAddr, password: &str) -> io::Result<()> {
        user(leader, password)
    }

    fn leads(&self, _: usize, address: SocketAddr, _: &Peers) -> io::Result<bool> {
        Ok(hello(address)?.flag("isWritablePrimary") == Some(true))
    }

    fn takes_part(&self, address: SocketAddr) -> io::Result<bool> {
        let hello = hello(address)?;
        Ok(["secondary", "isWritablePrimary"]
            .map(|is| hello.flag(is))
            .contains(&Some(true)))
    }

    fn url(&self, url: String) -> String {
        url.replace(DIRECT, &format!("replicaSet={SET}"))
    }
}

/// Creates a set of members with these addresses. They notice the loss of a primary within seconds.
fn make_set(first: SocketAddr, name: &str, members: &[SocketAddr]) -> io::Result<()> {
    const ALREADY: i64 = 23;
    let member = |(id, address): (i32, &SocketAddr)| {
        Document::new()
            .number("_id", id)
            .text("host", &address.to_string())
    };
    let settings = Document::new()
        .number("electionTimeoutMillis", 2000)
        .number("heartbeatIntervalMillis", 500);
    let config = Document::new()
        .text("_id", name)
        .list("members", (0..).zip(members).map(member))
        .document("settings", settings);
    let answer = call(
        wire::tcp(first)?,
        "admin",
        Document::new().document("replSetInitiate", config),
    )?;
    match answer.whole("code") {
        _ if answer.is_ok() => Ok(()),
        Some(ALREADY) => Ok(()),
        code => Err(wire::wrong(format!("it creates no set (code {code:?})"))),
    }
}

/// A client on the same machine may create the first user. Later that is refused, because the user
/// exists.
fn user(address: SocketAddr, password: &str) -> io::Result<()> {
    const UNAUTHORIZED: i64 = 13;
    let role = Document::new().text("role", "root").text("db", "admin");
    let command = Document::new()
        .text("createUser", "root")
        .text("pwd", password)
        .list("roles", [role]);
    let answer = call(wire::tcp(address)?, "admin", command)?;
    match answer.whole("code") {
        _ if answer.is_ok() => Ok(()),
        Some(UNAUTHORIZED) => Ok(()),
        code => Err(wire::wrong(format!("it creates no user (code {code:?})"))),
    }
}
