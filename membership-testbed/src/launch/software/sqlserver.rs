//! SQL Server: a container of Microsoft's image, or a server of yours. No package source has it.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use super::ground::{Ground, in_url};
use super::special::Software;
use super::wire;
use crate::kind::Kind;
use crate::launch::error::LaunchError;
use crate::launch::options::{How, Options};

/// The server refuses passwords that are simpler.
const PASSWORD: &str = "Membership-of-1";

pub(super) struct SqlServer;

fn not_local() -> LaunchError {
    LaunchError::Unsupported {
        kind: Kind::SqlServer,
        how: How::Local,
        what: "server: no package source has it",
    }
}

fn password(options: &Options) -> &str {
    options.password.as_deref().unwrap_or(PASSWORD)
}

impl Software for SqlServer {
    fn create(&self, _: &Ground) -> Result<(), LaunchError> {
        Err(not_local())
    }

    fn command(&self, _: &Ground) -> Result<Command, LaunchError> {
        Err(not_local())
    }

    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()> {
        wire::tds::login(wire::tcp(address)?, "sa", password(options))
    }

    fn image(&self) -> &'static str {
        "mcr.microsoft.com/mssql/server:2022-CU14-ubuntu-22.04"
    }

    fn container_command(&self, options: &Options) -> Vec<String> {
        let mut command = vec!["/opt/mssql/bin/sqlservr".to_owned()];
        command.extend(options.args.iter().cloned());
        command
    }

    fn container_environment(&self, options: &Options) -> Vec<(&'static str, String)> {
        vec![
            ("ACCEPT_EULA", "Y".to_owned()),
            ("MSSQL_PID", "Developer".to_owned()),
            ("MSSQL_SA_PASSWORD", password(options).to_owned()),
        ]
    }

    /// Plain, so that a proxy in between sees what is sent.
    fn url(&self, address: SocketAddr, options: &Options) -> String {
        let password = in_url(password(options));
        format!("mssql://sa:{password}@{address}/master?encrypt=never")
    }

    fn usual_port(&self) -> u16 {
        1433
    }
}
