//! A document store as small as one can be, for the example of a provider: a [`Server`] with a log, and a [`Client`].
//!
//! ```
//! use toy_store::{Client, Document, Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let server = Server::open(dir.path(), None)?;
//! let address = server.spawn("127.0.0.1:0".parse()?)?;
//! let client = Client::new(address.to_string(), None);
//! let revision = client.put("greeting", None, "hello").await?;
//! assert!(revision.is_some());
//! assert_eq!(client.put("greeting", None, "who was first?").await?, None);
//! let (document, _) = client.get("greeting", revision, false).await?;
//! assert_eq!(document, Document::Unchanged);
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod client;
mod message;
mod server;

pub use client::{Client, Error};
pub use message::{Cells, Document};
pub use server::Server;
