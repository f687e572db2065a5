//! The `membership` program as a library: everything it does, for whoever ships it with a store of their own.
//!
//! `main_with` runs it with the stores that are handed in; [`Exit`] is the table of its exit codes. Only `out` writes, only
//! `commands` knows what the commands do, one file each; each opens the table, looks or commits once, and says in one line what is wrong.
//!
//! ```
//! use membership_cli::{Connectors, Exit, run};
//!
//! // One command line, within another program: a table that nobody has initialized yet.
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
mod look;
mod out;
mod printer;
mod program;
mod stop;
mod text;
mod write;

pub use exit::Exit;
pub use membership::Connectors;
pub use program::{main_with, run};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
