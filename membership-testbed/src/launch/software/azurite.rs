//! Azurite, the emulator of Azure storage: only its table service.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;

use super::ground::Ground;
use super::special::Software;
use super::wire;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;

/// The account of every emulator of Azure storage, and its key: both are in its public
/// documentation, and no secret.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

pub(super) struct Azurite;

impl Software for Azurite {
    fn create(&self, _: &Ground) -> Result<(), LaunchError> {
        Ok(())
    }

    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let mut command = ground.command("azurite-table")?;
        command.args([
            "--tableHost",
            "127.0.0.1",
            "--tablePort",
            &ground.port.to_string(),
        ]);
        if ground.options.durable {
            command.arg("--location").arg(ground.data());
        } else {
            command.arg("--inMemoryPersistence");
        }
        command.args(SETTINGS);
        command.envs(accounts(&ground.options));
        command.env("NODE_OPTIONS", PATIENCE);
        command.args(ground.extra());
        Ok(command)
    }

    fn ask(&self, address: SocketAddr, _: &Options) -> io::Result<()> {
        wire::azurite(wire::tcp(address)?, ACCOUNT)
    }

    fn image(&self) -> &'static str {
        "mcr.microsoft.com/azure-storage/azurite:3.35.0"
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let mut command = [
            "azurite-table",
            "--tableHost",
            "0.0.0.0",
            "--tablePort",
            "10002",
        ]
        .to_vec();
        command.extend(if options.durable {
            ["--location", "/data"].as_slice()
        } else {
            &["--inMemoryPersistence"]
        });
        command.extend(SETTINGS);
        command.into_iter().map(str::to_owned).collect()
    }

    fn container_environment(&self, options: &Options) -> Vec<(&'static str, String)> {
        accounts(options).into_iter().collect()
    }

    /// It writes its data every five seconds and on SIGINT; it ignores SIGTERM.
    fn stop_signal(&self) -> Signal {
        Signal::INT
    }

    fn offers_tls(&self) -> bool {
        false
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        let key = options.password.as_deref().unwrap_or(KEY);
        format!(
            "azure-table://{ACCOUNT}/membership?endpoint=http://{address}/{ACCOUNT}&account_key={key}"
        )
    }

    /// The host of a URL is the name of an account. The address follows from it, or is in an
    /// option.
    fn place(&self, url: &str) -> Option<String> {
        let (place, options) = url.split_once('?').unwrap_or((url, ""));
        let endpoint = options
            .split('&')
            .find_map(|option| option.strip_prefix("endpoint="));
        if let Some((scheme, rest)) = endpoint.and_then(|endpoint| endpoint.split_once("://")) {
            let host = rest.split('/').next()?;
            let has_port = host
                .rsplit_once(':')
                .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            return Some(if has_port || scheme == "http" {
                host.to_owned()
            } else {
                format!("{host}:443")
            });
        }
        let account = place
            .split_once("://")?
            .1
            .split('/')
            .next()?
            .rsplit('@')
            .next()?;
        Some(format!("{account}.table.core.windows.net:443"))
    }

    fn usual_port(&self) -> u16 {
        10_002
    }
}

const SETTINGS: [&str; 3] = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"];

/// Keeps idle connections open. Node.js closes them after five seconds of its own clock. On a busy
/// machine, where the server stood still for so long, that includes connections whose next request
/// has arrived. Its option `--tableKeepAliveTimeout` does nothing in this version.
const PATIENCE: &str = "--import=data:text/javascript,import{Server}from'node:http';const%20listen=Server.prototype.listen;\
                        Server.prototype.listen=function(...to){this.keepAliveTimeout=0;return%20listen.apply(this,to)}";

/// The account, if it has another key.
fn accounts(options: &Options) -> Option<(&'static str, String)> {
    options
        .password
        .as_ref()
        .map(|key| ("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{key}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_to_the_endpoint_or_to_the_account() {
        for (url, place) in [
            (
                "azure-table://devstoreaccount1/t?endpoint=http://127.0.0.1:7/devstoreaccount1&account_key=a==",
                "127.0.0.1:7",
            ),
            ("azure-table://a/t?account_key=x&endpoint=http://h/a", "h"),
            ("azure-table://a/t?endpoint=https://h/a", "h:443"),
            (
                "azure-table://a/t?account_key=x",
                "a.table.core.windows.net:443",
            ),
        ] {
            assert_eq!(Azurite.place(url).as_deref(), Some(place), "{url}");
        }
    }
}
