//! {{Title}}: one server.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use super::ground::{Ground, in_url};
use super::special::Software;
use super::wire;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;

/// To be written: the server's program, as its recipe in `src/kind.rs` installs it: the first of the
/// recipe's tools.
const PROGRAM: &str = "{{name}}-server";
/// The usual port, which is also that of a container.
const PORT: u16 = {{port}};

pub(super) struct {{Title}};

impl Software for {{Title}} {
    /// To be written, if it needs any: the files of an empty server in `ground.data()`, for example
    /// its settings, with `ground.options.password`.
    fn create(&self, _: &Ground) -> Result<(), LaunchError> {
        Ok(())
    }

    /// To be written: the arguments. It stays in the foreground, listens on 127.0.0.1 alone, has its
    /// files in `ground.data()`, and flushes before it acknowledges if `ground.options.durable`.
    fn command(&self, ground: &Ground) -> Result<Command, LaunchError> {
        let mut command = ground.command(PROGRAM)?;
        command.args(["--bind", "127.0.0.1", "--port", &ground.port.to_string()]);
        command.arg("--data").arg(ground.data());
        command.args(ground.extra());
        Ok(command)
    }

    /// To be written: the smallest request that only a serving server answers. A port may be open
    /// before. `wire::http_get(stream, "/path")` is one over HTTP.
    fn ask(&self, address: SocketAddr, _: &Options) -> io::Result<()> {
        wire::tcp(address).map(drop)
    }

    /// To be written, if there is an image: the program in it, and its arguments.
    fn container_command(&self, _: &Options) -> Vec<String> {
        vec![PROGRAM.to_owned()]
    }

    /// To be written, if there is one; a name that no registry has says that there is none.
    fn image(&self) -> &'static str {
        "{{name}}:latest"
    }

    fn offers_tls(&self) -> bool {
        false
    }

    fn url(&self, address: SocketAddr, options: &Options) -> String {
        match &options.password {
            Some(password) => format!("{{name}}://:{}@{address}", in_url(password)),
            None => format!("{{name}}://{address}"),
        }
    }

    fn usual_port(&self) -> u16 {
        PORT
    }
}
