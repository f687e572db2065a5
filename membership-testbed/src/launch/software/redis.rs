//! Redis and Valkey.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use super::ground::{Ground, in_url, tls_arguments};
use super::special::Software;
use super::wire;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;

pub(super) struct Redis {
    pub(super) program: &'static str,
    pub(super) image: &'static str,
    /// The Valkey of the Python package was built without TLS.
    pub(super) offers_tls: bool,
}

impl Software for Redis {
    fn create(&self, _: &Ground) -> Result<(), LaunchError> {
        Ok(())
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let mut command = ground.command(self.program)?;
        let (own, data, port) = (&ground.options, ground.data(), ground.port.to_string());
        // A configuration file of the test comes first; then the arguments override it.
        let mut extra = ground.extra().peekable();
        if let Some(file) = extra.next_if(|first| !first.starts_with('-')) {
            command.arg(file);
        }
        command
            .args([
                "--bind",
                "127.0.0.1",
                "--daemonize",
                "no",
                "--pidfile",
                "",
                "--save",
                "",
            ])
            .arg("--dir")
            .arg(&data);
        if own.tls {
            command.args(["--port", "0", "--tls-port", &port]);
            command.arg("--unixsocket").arg(ground.run().join("socket"));
            tls_arguments(ground, |certificate, key, ca| {
                command.args([
                    "--tls-auth-clients",
                    "no",
                    "--tls-replication",
                    "yes",
                    "--tls-cluster",
                    "yes",
                ]);
                command
                    .arg("--tls-cert-file")
                    .arg(certificate)
                    .arg("--tls-key-file")
                    .arg(key)
                    .arg("--tls-ca-cert-file")
                    .arg(ca);
            });
        } else {
            command.args(["--port", &port]);
        }
        command.args(settings(own));
        command.args(extra);
        Ok(command)
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        let stream = wire::tcp(address)?;
        // With TLS the check only connects to the port; the real call goes over the socket.
        if options.tls {
            Ok(())
        } else {
            wire::redis(stream, options.password.as_deref())
        }
    }

    fn ask_inside(&self, ground: &Ground) -> io::Result<()> {
        match ground.options.tls {
            true => wire::redis(
                wire::unix(&ground.run().join("socket"))?,
                ground.options.password.as_deref(),
            ),
            false => Ok(()),
        }
    }

    fn image(&self) -> &'static str {
        self.image
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let mut command: Vec<String> = [self.program, "--save", ""].map(str::to_owned).into();
        command.extend(settings(options));
        command
    }

    fn offers_tls(&self) -> bool {
        self.offers_tls
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        let scheme = if options.tls { "rediss" } else { "redis" };
        match &options.password {
            Some(password) => format!("{scheme}://:{}@{address}", in_url(password)),
            None => format!("{scheme}://{address}"),
        }
    }

    fn usual_port(&self) -> u16 {
        6379
    }
}

/// The settings for the options.
fn settings(options: &Options) -> Vec<String> {
    let mut settings: Vec<&str> = if options.durable {
        vec!["--appendonly", "yes", "--appendfsync", "always"]
    } else {
        vec!["--appendonly", "no"]
    };
    if let Some(password) = &options.password {
        settings.extend(["--requirepass", password, "--masterauth", password]);
    }
    settings.into_iter().map(str::to_owned).collect()
}
