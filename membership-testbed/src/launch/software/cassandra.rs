//! Apache Cassandra: one node that is a cluster by itself, or several that the arguments name
//! ([`ServerSet`](crate::ServerSet)), each at an address of its own and with the same ports.
//!
//! Without a password it answers every client; with one, only its superuser `cassandra` and the
//! users that it creates. A new server's superuser has a published password, which is changed
//! before the server counts as ready.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use super::clustered::{Clustered, Peers};
use super::ground::{Ground, file, in_url, own, tls_arguments};
use super::special::Software;
use super::wire::{self, CASSANDRA_ALL, CASSANDRA_ONE, CASSANDRA_QUORUM};
use crate::launch::error::LaunchError;
use crate::launch::options::Options;
use crate::launch::port::free_port;

pub(super) struct Cassandra;

/// The options that version 5.0 requires of Java 17 (its own `jvm17-server.options`).
const EXPORTS: &[&str] = &[
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.unsupported/sun.misc",
];
const OPENS: &[&str] = &[
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.util",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.compiler/com.sun.tools.javac",
    "jdk.management/com.sun.management.internal",
];

/// A test's server is small and starts fast; the optimising compiler would take processor time from
/// the tests.
const JAVA: &[&str] = &[
    "-Xms128m",
    "-Xmx512m",
    "-Xss512k",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dcassandra-foreground=yes",
];

/// There are no other nodes to wait for, and the password is checked with each connection.
const ALONE: &[&str] = &[
    "-Dcassandra.ring_delay_ms=0",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4",
];

const LOGBACK: &str = r#"<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="STDOUT"/></root>
</configuration>
"#;

impl Software for Cassandra {
    fn create(&self, ground: &Ground) -> Result<(), LaunchError> {
        if !ground.options.tls {
            return Ok(());
        }
        // Cassandra needs key and certificate in one file.
        let mut text = String::new();
        let mut wrong = Ok(());
        tls_arguments(ground, |certificate, key, _| {
            for path in [key, certificate] {
                match fs::read_to_string(path) {
                    Ok(part) => text.push_str(&part),
                    Err(error) => wrong = Err(LaunchError::io("cannot read", path)(error)),
                }
            }
        });
        wrong?;
        let path = ground.root.join("tls/both.pem");
        file(&path, &text)?;
        own(ground, &path)
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let data = ground.data();
        let (config, log) = (
            ground.run().join("cassandra.yaml"),
            ground.run().join("logback.xml"),
        );
        let seeds = match peers(ground) {
            Some(peers) => peers,
            None => format!("{}:{}", ground.host(), storage_port(ground)?),
        };
        file(&config, &yaml(ground, &seeds))?;
        file(&log, LOGBACK)?;
        let mut command = Command::new("java");
        ground.environment(&mut command);
        command.args(JAVA).args(ALONE);
        for (option, packages) in [("--add-exports", EXPORTS), ("--add-opens", OPENS)] {
            command.args(
                packages
                    .iter()
                    .map(|package| format!("{option}={package}=ALL-UNNAMED")),
            );
        }
        command.arg(format!("-Dcassandra.config=file://{}", config.display()));
        command.arg(format!("-Dcassandra.storagedir={}", data.display()));
        command.arg(format!(
            "-Dlogback.configurationFile=file://{}",
            log.display()
        ));
        command.arg(format!("-Djava.io.tmpdir={}", ground.run().display()));
        command.args(ground.extra().filter(|argument| is_java(argument)));
        command
            .arg("-cp")
            .arg(ground.tree.root.join("lib/*"))
            .arg("org.apache.cassandra.service.CassandraDaemon");
        Ok(command)
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        let Some(password) = options.password.as_deref() else {
            return wire::cassandra(wire::tcp(address)?, None, QUESTION, CASSANDRA_ONE);
        };
        let ask = |password: &str, question: &str| {
            let user = Some((USER, password));
            wire::cassandra(wire::tcp(address)?, user, question, CASSANDRA_ONE)
        };
        let asked = ask(password, QUESTION);
        if asked.is_err() && password != USER {
            let change = format!(
                "ALTER ROLE {USER} WITH PASSWORD = '{}'",
                password.replace('\'', "''")
            );
            ask(USER, &change)?;
        }
        asked
    }

    fn image(&self) -> &'static str {
        "cassandra:5.0"
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let mut edits = Vec::new();
        if options.password.is_some() {
            edits.push("s/AllowAllAuthenticator/PasswordAuthenticator/; s/AllowAllAuthorizer/CassandraAuthorizer/");
        }
        if options.durable {
            edits.push("s/^commitlog_sync:.*/commitlog_sync: batch/; /^commitlog_sync_period/d");
        }
        let script = format!(
            "sed -i '{}' /etc/cassandra/cassandra.yaml && exec docker-entrypoint.sh cassandra -f",
            edits.join("; ")
        );
        vec!["bash".to_owned(), "-c".to_owned(), script]
    }

    fn container_environment(&self, _: &Options) -> Vec<(&'static str, String)> {
        vec![
            ("MAX_HEAP_SIZE", "512M".to_owned()),
            ("HEAP_NEWSIZE", "128M".to_owned()),
            ("JVM_EXTRA_OPTS", ALONE.join(" ")),
        ]
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        let (scheme, user) = match &options.password {
            Some(password) => ("cassandra", format!("{USER}:{}@", in_url(password))),
            None => ("cassandra", String::new()),
        };
        format!("{scheme}://{user}{address}/membership")
    }

    fn usual_port(&self) -> u16 {
        9042
    }
}

/// The superuser, and its password on a new server.
const USER: &str = "cassandra";
const QUESTION: &str = "SELECT key FROM system.local";

/// Several nodes that serve alike, each with a third of the ring, and with a copy of every row of a
/// keyspace with three copies.
impl Clustered for Cassandra {
    /// One port for the other nodes.
    fn ports(&self) -> usize {
        1
    }

    /// Nodes know each other, and clients know them, by address alone.
    fn host(&self, server: usize) -> Ipv4Addr {
        let last = u8::try_from(server + 1).unwrap_or(u8::MAX);
        Ipv4Addr::new(127, 0, 0, last)
    }

    fn arguments(&self, server: usize, peers: &Peers) -> Vec<String> {
        let nodes = peers.each(0).enumerate();
        let nodes = nodes.map(|(node, port)| format!("{}:{port}", self.host(node)));
        // Nobody waits for the others' data: there is none when they start.
        let share = i64::MAX / i64::try_from(peers.ports.len().max(1)).unwrap_or(1);
        let token = share * i64::try_from(server).unwrap_or_default();
        vec![
            format!("{PEERS}{}", nodes.collect::<Vec<_>>().join(",")),
            format!("initial_token: {token}"),
            "auto_bootstrap: false".to_owned(),
        ]
    }

    fn has_leader(&self) -> bool {
        false
    }

    /// It finds a majority.
    fn leads(&self, _: usize, address: SocketAddr, _: &Peers) -> io::Result<bool> {
        wire::cassandra(wire::tcp(address)?, None, OF_THREE, CASSANDRA_QUORUM).map(|()| true)
    }

    /// It finds every node.
    fn takes_part(&self, address: SocketAddr) -> io::Result<bool> {
        wire::cassandra(wire::tcp(address)?, None, OF_THREE, CASSANDRA_ALL).map(|()| true)
    }
}

/// The argument that names the nodes of a cluster.
const PEERS: &str = "peers=";
/// A row of a keyspace that has three copies from the beginning.
const OF_THREE: &str = "SELECT view_name FROM system_distributed.view_build_status \
                        WHERE keyspace_name = '' AND view_name = ''";

/// The nodes of the cluster, if there are others.
fn peers(ground: &Ground) -> Option<String> {
    let mut arguments = ground.extra();
    arguments.find_map(|argument| Some(argument.strip_prefix(PEERS)?.to_owned()))
}

/// Whether an argument is one of Java. The others are lines of the settings.
fn is_java(argument: &str) -> bool {
    argument.starts_with('-')
}

/// The settings: everything at one address, in the data folder, with memory for small tests.
fn yaml(ground: &Ground, seeds: &str) -> String {
    let (data, port, host) = (ground.data(), ground.port, ground.host());
    let storage = seeds.rsplit(':').next().unwrap_or_default();
    let folder = |name: &str| data.join(name).display().to_string();
    let mut yaml = format!(
        "cluster_name: membership\nnum_tokens: 1\npartitioner: org.apache.cassandra.dht.Murmur3Partitioner\nendpoint_snitch: SimpleSnitch\n\
         listen_address: {host}\nstorage_port: {storage}\nrpc_address: {host}\nstart_native_transport: true\n\
         native_transport_port: {port}\nseed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    parameters:\n      \
         - seeds: \"{seeds}\"\n\
         data_file_directories: [ {:?} ]\ncommitlog_directory: {:?}\nsaved_caches_directory: {:?}\nhints_directory: {:?}\n\
         cdc_raw_directory: {:?}\ncommitlog_segment_size: 16MiB\ncommitlog_total_space: 256MiB\ndisk_failure_policy: die\n\
         commit_failure_policy: die\nauto_snapshot: false\nmemtable_heap_space: 96MiB\nmemtable_offheap_space: 64MiB\nkey_cache_size: 4MiB\n\
         file_cache_size: 32MiB\nnetworking_cache_size: 16MiB\nconcurrent_reads: 8\nconcurrent_writes: 16\nconcurrent_compactors: 1\n",
        folder("data"),
        folder("commitlog"),
        folder("saved_caches"),
        folder("hints"),
        folder("cdc_raw"),
    );
    yaml.push_str(if ground.options.durable {
        "commitlog_sync: batch\n"
    } else {
        "commitlog_sync: periodic\ncommitlog_sync_period: 1000ms\n"
    });
    if ground.options.password.is_some() {
        yaml.push_str("authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\nrole_manager: CassandraRoleManager\n");
    }
    if ground.options.tls {
        tls_arguments(ground, |_, _, ca| {
            let both = ground.root.join("tls/both.pem");
            yaml.push_str(&format!(
                "client_encryption_options:\n  enabled: true\n  optional: true\n  ssl_context_factory:\n    class_name: \
                 org.apache.cassandra.security.PEMBasedSslContextFactory\n  keystore: {both:?}\n  truststore: {ca:?}\n",
            ));
        });
    }
    let is_line = |argument: &String| !is_java(argument) && !argument.starts_with(PEERS);
    for line in ground.extra().filter(is_line) {
        yaml.push_str(&line);
        yaml.push('\n');
    }
    yaml
}

/// The port for other nodes, of which there are none. It does not change once the server has
/// served, because the data contains it.
fn storage_port(ground: &Ground) -> Result<u16, LaunchError> {
    let path: &Path = &ground.root.join("storage-port");
    let known = fs::read_to_string(path)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    if let Some(port) = known.filter(|_| ground.root.join("served").exists()) {
        return Ok(port);
    }
    let port = free_port().map_err(LaunchError::io("cannot listen on", "127.0.0.1"))?;
    file(path, &port.to_string())?;
    Ok(port)
}
