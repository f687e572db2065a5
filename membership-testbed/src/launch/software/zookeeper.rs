//! ZooKeeper: one server, or one of several whose addresses the test gives to each.
//!
//! It has no users of its own: a client that presents a name and a password is that user, and
//! znodes list who may use them.

use std::fs;
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

/// The archives of a server without its administration pages, in this order, because two of the
/// packages contain several loggers.
const JARS: &[&str] = &[
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-simple",
    "metrics-core",
    "snappy-java",
    "netty-buffer",
    "netty-codec",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-native-epoll",
    "netty-transport-native-unix-common",
];

/// A short tick allows short sessions (1 to 10 s) and fast elections. Clients of all tests come
/// from one address.
const SETTINGS: &str = "tickTime=500\ninitLimit=20\nsyncLimit=10\nadmin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n";

pub(super) struct ZooKeeper;

impl Software for ZooKeeper {
    fn create(&self, _: &Ground) -> Result<(), LaunchError> {
        Ok(())
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let mut config = format!(
            "{SETTINGS}dataDir={}\nclientPortAddress=127.0.0.1\n",
            ground.data().display()
        );
        if ground.options.tls {
            let plain = free_port().map_err(LaunchError::io("cannot listen on", "127.0.0.1"))?;
            file(&ground.root.join("plain"), &plain.to_string())?;
            config.push_str(&format!(
                "clientPort={plain}\nsecureClientPortAddress=127.0.0.1\nsecureClientPort={}\n",
                ground.port
            ));
            config.push_str(&certificates(ground)?);
        } else {
            config.push_str(&format!("clientPort={}\n", ground.port));
        }
        for line in ground.extra() {
            match line.strip_prefix("myid=") {
                Some(number) => file(&ground.data().join("myid"), number)?,
                None => config.push_str(&format!("{line}\n")),
            }
        }
        let path = ground.run().join("zoo.cfg");
        file(&path, &config)?;
        let root = &ground.tree.root;
        let jar = |jar: &&str| root.join(format!("usr/share/java/{jar}.jar"));
        let mut jars: Vec<String> = JARS
            .iter()
            .map(|name| jar(name).display().to_string())
            .collect();
        // From Maven all archives are in one folder.
        let own = root.join("lib");
        if own.is_dir() {
            jars = vec![own.join("*").display().to_string()];
        }
        let mut command = Command::new("java");
        ground.environment(&mut command);
        // A test's server is small and starts fast; the optimising compiler would take processor
        // time from the tests.
        command.args([
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
        ]);
        command.arg(format!("-Djava.io.tmpdir={}", ground.run().display()));
        command.args([
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dzookeeper.preAllocSize=1024",
        ]);
        if !ground.options.durable {
            command.arg("-Dzookeeper.forceSync=no");
        }
        if ground.options.tls {
            command.arg(
                "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            );
        }
        command
            .arg("-cp")
            .arg(jars.join(":"))
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(path);
        Ok(command)
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        let stream = wire::tcp(address)?;
        // With TLS the check only connects to the port; the real call goes over the plain port.
        if options.tls {
            Ok(())
        } else {
            wire::zookeeper(stream)
        }
    }

    fn ask_inside(&self, ground: &Ground) -> io::Result<()> {
        if !ground.options.tls {
            return Ok(());
        }
        let port: u16 = fs::read_to_string(ground.root.join("plain"))?
            .parse()
            .map_err(|_| wire::wrong("the file with its port is missing"))?;
        wire::zookeeper(wire::tcp(([127, 0, 0, 1], port).into())?)
    }

    fn image(&self) -> &'static str {
        "zookeeper:3.8.4"
    }

    fn container_command(&self, _: &Options) -> Vec<String> {
        // The image's own command, which its entry point expects.
        ["zkServer.sh", "start-foreground"]
            .map(str::to_owned)
            .into()
    }

    fn container_environment(&self, _: &Options) -> Vec<(&'static str, String)> {
        [
            ("ZOO_TICK_TIME", "500"),
            ("ZOO_INIT_LIMIT", "20"),
            ("ZOO_SYNC_LIMIT", "10"),
            ("ZOO_MAX_CLIENT_CNXNS", "0"),
            ("ZOO_ADMINSERVER_ENABLED", "false"),
            ("ZOO_4LW_COMMANDS_WHITELIST", "*"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into()
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        match &options.password {
            Some(password) => format!("zk://membership:{}@{address}", in_url(password)),
            None => format!("zk://{address}"),
        }
    }

    fn usual_port(&self) -> u16 {
        2181
    }
}

impl Clustered for ZooKeeper {
    /// One port for followers, and one for elections.
    fn ports(&self) -> usize {
        2
    }

    fn arguments(&self, server: usize, peers: &Peers) -> Vec<String> {
        let mut lines: Vec<String> = (0..peers.ports.len())
            .map(|each| {
                let (follow, elect) = (peers.port(each, 0), peers.port(each, 1));
                format!("server.{}=127.0.0.1:{follow}:{elect}", each + 1)
            })
            .collect();
        lines.push(format!("myid={}", server + 1));
        lines
    }

    fn leads(&self, _: usize, address: SocketAddr, _: &Peers) -> io::Result<bool> {
        Ok(wire::srvr(wire::tcp(address)?)?.contains("Mode: leader"))
    }

    fn takes_part(&self, address: SocketAddr) -> io::Result<bool> {
        Ok(wire::srvr(wire::tcp(address)?)?.contains("Mode: "))
    }
}

/// Java needs certificate and key in one file.
fn certificates(ground: &Ground) -> Result<String, LaunchError> {
    let both = ground.run().join("server.pem");
    let mut lines = format!(
        "ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.type=PEM\n",
        both.display()
    );
    let mut parts = Vec::new();
    tls_arguments(ground, |certificate, key, ca| {
        lines.push_str(&format!("ssl.trustStore.location={}\n", ca.display()));
        parts.extend([key.to_path_buf(), certificate.to_path_buf()]);
    });
    // Clients present a certificate only if the test requires that.
    if !ground
        .options
        .args
        .iter()
        .any(|line| line.starts_with("ssl.clientAuth="))
    {
        lines.push_str("ssl.clientAuth=none\n");
    }
    let mut text = String::new();
    for part in parts {
        text.push_str(&fs::read_to_string(&part).map_err(LaunchError::io("cannot read", &part))?);
    }
    file(&both, &text)?;
    Ok(lines)
}
