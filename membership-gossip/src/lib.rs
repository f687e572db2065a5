//! Cluster membership without a store.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod config;
pub mod convergence;
pub mod downing;
pub mod leader;
pub mod protocol;
pub mod state;

pub use config::{Config, Founding, Preset, Spreading};
