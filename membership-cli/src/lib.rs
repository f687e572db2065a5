//! The `membership` program as a library, for programs that add a store of their own.
//!
//! [`main_with`] runs it with the stores that it is given; [`Exit`] lists the exit codes. In this
//! crate, `commands` has one file per command, `session` is what a command works with, and only
//! `out` writes.
//!
//! ```
//! use membership_cli::{Connectors, Exit, run};
//!
//! // One command line within another program. The table is not initialized yet.
//! let line = ["membership", "status", "--table", "memory:docs", "--cluster", "billing/blue"];
//! let exit = run(Connectors::default(), line.map(Into::into), std::io::sink(), std::io::sink());
//! assert_eq!(exit, Exit::Unreachable);
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod bench;
mod clock;
mod commands;
mod config_file;
#[cfg(feature = "conformance")]
mod conformance;
mod events;
mod exit;
mod find;
mod fleet;
#[cfg(feature = "http")]
mod http;
mod inspect;
mod out;
mod printer;
mod program;
mod reach;
mod rows;
mod security;
mod session;
mod stop;
mod text;

pub use exit::Exit;
pub use membership::Connectors;
pub use program::{main_with, run};

/// What `membership-fuzz` calls. Not part of the public API.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    use membership_core::Config;

    /// What the content of a configuration file means, not validated; or why it is refused.
    ///
    /// # Errors
    /// The text that the program shows after the name of the file.
    pub fn config(text: &str) -> Result<Config, String> {
        let parsed = crate::config_file::parse::<Config>(text, None);
        parsed.map(|(config, _)| config).map_err(|f| f.message)
    }
}

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
