//! MongoDB: a replica set of one member, because only a member of a set can promise anything about a write.
//!
//! Who names a set (`--replSet=NAME`) makes it by themselves, of as many members as they start; `--replSet=` is a server that is in none.

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

/// The database that the address names.
const DATABASE: &str = "membership";
const SET: &str = "rs0";
/// An argument that says which set.
const NAMED: &str = "--replSet=";
/// Where the program listens within a container, and when nobody says otherwise.
const PORT: u16 = 27_017;
/// The option of a client that asks this server alone, whatever it is called in its set.
const DIRECT: &str = "directConnection=true";
/// What members of one set show each other. They are of one test.
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
            // It wants certificate and key in one file.
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

    /// Makes the set and the user, once; then it is like any other.
    fn ask_inside(&self, ground: &Ground) -> io::Result<()> {
        let address = SocketAddr::from(([127, 0, 0, 1], ground.port));
        if makes_its_set(&ground.options) {
            serves(address, &address.to_string())?;
        }
        match &ground.options.password {
            // A member of a set that is not made yet takes no user; who makes the set makes the user.
            Some(password) if makes_its_set(&ground.options) => user(address, password),
            _ => Ok(()),
        }
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        if makes_its_set(options) && options.password.is_none() {
            // Within a container it knows itself by the port that it listens on there.
            return serves(address, &format!("127.0.0.1:{PORT}"));
        }
        let hello = hello(address)?;
        match makes_its_set(options) && hello.flag("isWritablePrimary") != Some(true) {
            true => Err(wire::wrong("it is not the primary yet")),
            false => Ok(()),
        }
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let mut command = vec!["mongod".to_owned(), "--bind_ip_all".to_owned()];
        command.extend(settings(options));
        if options.password.is_none() {
            return command;
        }
        // From outside nobody could make the set before there is a user, nor a user before there is the set.
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
        // Its own name for itself need not be the one by which it is reached.
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

/// What the options come to.
fn settings(options: &Options) -> Vec<String> {
    let mut settings = vec![
        "--wiredTigerCacheSizeGB",
        "0.25",
        "--setParameter",
        "diagnosticDataCollectionEnabled=false",
    ];
    // A linearizable read waits until the journal is written the next time. Alone in its set, nobody else hurries that.
    settings.extend(["--journalCommitInterval", "2"]);
    if makes_its_set(options) {
        settings.extend(["--oplogSize", "64", "--replSet", SET]);
    }
    settings.into_iter().map(str::to_owned).collect()
}

/// Whether the launcher makes a set of this one server.
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
        Err(wire::wrong("it does not say hello"))
    }
}

/// Whether it is the primary; makes a set of it where it is in none.
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

/// Makes a set of members that are known to each other as these. They miss a primary within seconds.
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
        code => Err(wire::wrong(format!("it makes no set (code {code:?})"))),
    }
}

/// The first user may be made by whoever is on the same machine. Later on that is refused, and the user is there.
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
        code => Err(wire::wrong(format!("it makes no user (code {code:?})"))),
    }
}
