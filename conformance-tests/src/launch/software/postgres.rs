//! PostgreSQL.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;

use super::{Ground, LaunchError, Options, Software, file, finish, in_url, wire};

pub(super) struct Postgres;

impl Software for Postgres {
    fn create(&self, ground: &Ground) -> Result<(), LaunchError> {
        let mut command = ground.command("initdb")?;
        command.arg("-D").arg(ground.data()).args(["-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]);
        // Over the socket in its own folder nobody is asked, which is how readiness is asked for.
        command.arg("--auth-local=trust");
        if let Some(password) = &ground.options.password {
            let secret = ground.run().join("password");
            file(&secret, &format!("{password}\n"))?;
            super::own(ground, &secret)?;
            command.arg("--auth-host=scram-sha-256").arg("--pwfile").arg(secret);
        } else {
            command.arg("--auth-host=trust");
        }
        finish(ground, command, "initdb")
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let mut command = ground.command("postgres")?;
        command.arg("-D").arg(ground.data()).args(["-p", &ground.port.to_string()]);
        let mut set = |name: &str, value: &str| {
            command.arg("-c").arg(format!("{name}={value}"));
        };
        set("listen_addresses", "127.0.0.1");
        set("unix_socket_directories", &ground.run().to_string_lossy());
        // What the machine has no time zone files for is still known.
        set("timezone", "GMT");
        set("log_timezone", "GMT");
        // Small, and without the compiler that the package would like to load.
        set("shared_buffers", "32MB");
        set("jit", "off");
        let durable = if ground.options.durable { "on" } else { "off" };
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            set(name, durable);
        }
        if ground.options.tls {
            set("ssl", "on");
            super::tls_arguments(ground, |certificate, key, ca| {
                set("ssl_cert_file", &certificate.to_string_lossy());
                set("ssl_key_file", &key.to_string_lossy());
                set("ssl_ca_file", &ca.to_string_lossy());
            });
        }
        command.args(ground.extra());
        Ok(command)
    }

    fn ask(&self, ground: &Ground) -> io::Result<()> {
        let address = SocketAddr::from(([127, 0, 0, 1], ground.port));
        wire::postgres(wire::unix(&ground.run().join(format!(".s.PGSQL.{}", ground.port)))?, false)?;
        wire::postgres(wire::tcp(address)?, ground.options.password.is_some())
    }

    /// Its fast way: clients are cut off, nothing is lost. On SIGTERM it would wait for them.
    fn stop_signal(&self) -> Signal {
        Signal::INT
    }

    fn refuses_root(&self) -> bool {
        true
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        match &options.password {
            Some(password) => format!("postgres://postgres:{}@{address}/postgres", in_url(password)),
            None => format!("postgres://postgres@{address}/postgres"),
        }
    }

    fn usual_port(&self) -> u16 {
        5432
    }
}
