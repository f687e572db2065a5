//! What differs between servers, as a trait.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;

use super::ground::Ground;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;

/// What differs between servers.
pub(in crate::launch) trait Software: Send + Sync {
    /// Creates the files of an empty server in the data folder.
    fn create(&self, ground: &Ground) -> Result<(), LaunchError>;
    /// The command that runs it in the foreground.
    fn command(&self, ground: &Ground) -> Result<Command, LaunchError>;
    /// Checks by one real call over the network whether it serves.
    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()>;
    /// The same over another way that only a process of this machine offers, if the network alone
    /// does not tell.
    fn ask_inside(&self, _: &Ground) -> io::Result<()> {
        Ok(())
    }
    /// The official image of its containers, with a pinned tag.
    #[cfg_attr(not(feature = "containers"), allow(dead_code))]
    fn image(&self) -> &'static str;
    /// The command of a container of that image: its program and arguments.
    #[cfg_attr(not(feature = "containers"), allow(dead_code))]
    fn container_command(&self, options: &Options) -> Vec<String>;
    /// The environment of such a container.
    #[cfg_attr(not(feature = "containers"), allow(dead_code))]
    fn container_environment(&self, _: &Options) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// The signal that stops it in order.
    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }
    /// Whether it refuses to run as root, or should not run as root.
    fn refuses_root(&self) -> bool {
        false
    }
    /// Whether its files are kept in memory, if that is possible, because it waits for the disk
    /// much more often than once per acknowledgement. Tests end processes, not machines.
    fn flushes_too_much(&self) -> bool {
        false
    }
    /// Whether it answers a write before it has done it, as the first of its next tasks. Then a
    /// test's kill waits for an answer first: all earlier acknowledged writes are done then.
    fn acknowledges_early(&self) -> bool {
        false
    }
    /// Whether the installed server was built with TLS.
    fn offers_tls(&self) -> bool {
        true
    }
    /// The URL for its provider.
    fn url(&self, address: SocketAddr, options: &Options) -> String;
    /// The host of an external server's URL, `host` or `host:port`. By default the first host of
    /// the URL.
    fn place(&self, _url: &str) -> Option<String> {
        None
    }
    /// Its default port.
    fn usual_port(&self) -> u16;
}
