//! Systems without a table over the same simulated network.

pub mod chitchat;
pub mod foca;
mod formed;
pub mod gossip;
pub mod world;
