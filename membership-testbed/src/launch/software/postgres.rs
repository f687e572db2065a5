//! PostgreSQL.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;

use super::ground::{Ground, file, finish, in_url, own, tls_arguments};
use super::special::Software;
use super::wire;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;

pub(super) struct Postgres;

impl Software for Postgres {
    fn create(&self, ground: &Ground) -> Result<(), LaunchError> {
        if let Some(primary) = ground.extra().find_map(standby_of) {
            return copy(ground, &primary);
        }
        let mut command = ground.command("initdb")?;
        command.arg("-D").arg(ground.data()).args([
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        // Over the socket in its folder it requires no password; the readiness check uses that.
        command.arg("--auth-local=trust");
        if let Some(password) = &ground.options.password {
            let secret = ground.run().join("password");
            file(&secret, &format!("{password}\n"))?;
            own(ground, &secret)?;
            command
                .arg("--auth-host=scram-sha-256")
                .arg("--pwfile")
                .arg(secret);
        } else {
            command.arg("--auth-host=trust");
        }
        finish(ground, command, "initdb")
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let mut command = ground.command("postgres")?;
        command
            .arg("-D")
            .arg(ground.data())
            .args(["-p", &ground.port.to_string()]);
        let mut set = |name: &str, value: &str| {
            command.arg("-c").arg(format!("{name}={value}"));
        };
        set("listen_addresses", "127.0.0.1");
        set("unix_socket_directories", &ground.run().to_string_lossy());
        // In its folder, not in the system's shared memory, which a kill would leave behind.
        set("dynamic_shared_memory_type", "mmap");
        for (name, value) in settings(&ground.options) {
            set(name, value);
        }
        if ground.options.tls {
            set("ssl", "on");
            tls_arguments(ground, |certificate, key, ca| {
                set("ssl_cert_file", &certificate.to_string_lossy());
                set("ssl_key_file", &key.to_string_lossy());
                set("ssl_ca_file", &ca.to_string_lossy());
            });
        }
        command.args(
            ground
                .extra()
                .filter(|argument| standby_of(argument.clone()).is_none()),
        );
        Ok(command)
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        wire::postgres(wire::tcp(address)?, options.password.is_some())
    }

    fn ask_inside(&self, ground: &Ground) -> io::Result<()> {
        wire::postgres(
            wire::unix(&ground.run().join(format!(".s.PGSQL.{}", ground.port)))?,
            false,
        )
    }

    fn image(&self) -> &'static str {
        "postgres:16"
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let mut command = vec!["postgres".to_owned()];
        for (name, value) in settings(options) {
            command.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        command
    }

    fn container_environment(&self, options: &Options) -> Vec<(&'static str, String)> {
        match &options.password {
            Some(password) => vec![("POSTGRES_PASSWORD", password.clone())],
            None => vec![("POSTGRES_HOST_AUTH_METHOD", "trust".to_owned())],
        }
    }

    /// Fast shutdown: clients are disconnected, nothing is lost. On SIGTERM it would wait for them.
    fn stop_signal(&self) -> Signal {
        Signal::INT
    }

    fn refuses_root(&self) -> bool {
        true
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        match &options.password {
            Some(password) => format!(
                "postgres://postgres:{}@{address}/postgres",
                in_url(password)
            ),
            None => format!("postgres://postgres@{address}/postgres"),
        }
    }

    fn usual_port(&self) -> u16 {
        5432
    }
}

/// The port of the primary that this argument names.
fn standby_of(argument: String) -> Option<String> {
    argument.strip_prefix("standby_of=").map(str::to_owned)
}

/// Copies a running server of this machine, which has the same password: the copy follows it until
/// it is promoted.
fn copy(ground: &Ground, primary: &str) -> Result<(), LaunchError> {
    let mut command = ground.command("pg_basebackup")?;
    command
        .arg("-D")
        .arg(ground.data())
        .args(["-h", "127.0.0.1", "-p", primary, "-U", "postgres"])
        .args(["--checkpoint=fast", "--no-sync", "-R", "-X", "stream"]);
    if let Some(password) = &ground.options.password {
        command.env("PGPASSWORD", password);
    }
    finish(ground, command, "pg_basebackup")
}

/// The settings for the options.
fn settings(options: &Options) -> Vec<(&'static str, &'static str)> {
    let durable = if options.durable { "on" } else { "off" };
    vec![
        // Works on machines without time zone files.
        ("timezone", "GMT"),
        ("log_timezone", "GMT"),
        // Small, and without the just-in-time compiler that the package loads.
        ("shared_buffers", "32MB"),
        ("jit", "off"),
        ("fsync", durable),
        ("synchronous_commit", durable),
        ("full_page_writes", durable),
    ]
}
