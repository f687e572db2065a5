//! What is special about a server, as a trait.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;

use super::ground::Ground;
use crate::launch::error::LaunchError;
use crate::launch::options::Options;

/// What is special about a server.
pub(in crate::launch) trait Software: Send + Sync {
    /// Makes the files of an empty server in the data folder.
    fn create(&self, ground: &Ground) -> Result<(), LaunchError>;
    /// The command that runs it in the foreground.
    fn command(&self, ground: &Ground) -> Result<Command, LaunchError>;
    /// One real call over the network: whether it serves.
    fn ask(&self, address: SocketAddr, options: &Options) -> io::Result<()>;
    /// The same over what a process of ours offers beside, where the network alone does not tell.
    fn ask_inside(&self, _: &Ground) -> io::Result<()> {
        Ok(())
    }
    /// What a container of the official image is told: its program and our arguments.
    #[cfg_attr(not(feature = "containers"), allow(dead_code))]
    fn container_command(&self, options: &Options) -> Vec<String>;
    /// And its environment.
    #[cfg_attr(not(feature = "containers"), allow(dead_code))]
    fn container_environment(&self, _: &Options) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// Asks it to stop in order.
    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }
    /// Whether it refuses to run as root, or should not.
    fn refuses_root(&self) -> bool {
        false
    }
    /// Whether its files are kept in memory, where that is possible, because it waits for the disk far more often than once for what it
    /// acknowledges. Tests end processes, not machines.
    fn flushes_too_much(&self) -> bool {
        false
    }
    /// Whether it answers a write before it has done it, as the first of everything that it does next. Then a test's kill waits for an answer
    /// first: what was acknowledged before that is there afterwards.
    fn acknowledges_early(&self) -> bool {
        false
    }
    /// Whether the installed server was built with TLS.
    fn offers_tls(&self) -> bool {
        true
    }
    /// The address as its provider takes it.
    fn url(&self, address: SocketAddr, options: &Options) -> String;
    /// Where a URL of somebody else's server leads: `host` or `host:port`. Without it, to the first host of the URL.
    fn place(&self, _url: &str) -> Option<String> {
        None
    }
    /// Where it listens when nobody says otherwise.
    fn usual_port(&self) -> u16;
}
