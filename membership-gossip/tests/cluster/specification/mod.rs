//! The Akka Cluster specification row by row, in the preset that keeps it. A test is named by its
//! row.

mod gossip;
mod members;

use membership_gossip::{Config, Preset};

use crate::net::{Expect as _, Net};

fn akka() -> Config {
    Config::preset(Preset::Akka)
}

fn cluster(n: usize) -> Net {
    Net::cluster(11, n, &akka())
}
