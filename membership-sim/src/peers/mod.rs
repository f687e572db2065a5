//! Other systems in the same world.

pub mod chitchat;
pub mod foca;
pub mod world;
