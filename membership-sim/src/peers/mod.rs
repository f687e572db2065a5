//! Other systems over the same simulated network.

pub mod chitchat;
pub mod foca;
pub mod world;
