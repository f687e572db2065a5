//! Starts and controls servers.

#[cfg(feature = "containers")]
mod container;
mod control;
mod error;
mod external;
mod local;
mod options;
mod port;
mod process;
mod progress;
mod server;
mod server_set;
mod software;
mod tls;

pub use error::LaunchError;
pub use options::{How, Options};
pub use port::free_port;
pub use server::Server;
pub use server_set::ServerSet;
#[cfg(feature = "suite")]
pub(crate) use software::redis_call;
pub use tls::Tls;
