//! What the providers of the membership table share.
//!
//! A provider implements [`MembershipTable`](membership_core::MembershipTable) for one store. This
//! crate has the parts of it that do not depend on the store: the task behind hints, the snapshot
//! cache, timeouts, TLS files, endpoints, credentials and errors. What needs neither a runtime nor
//! files is in `membership-core`.
//!
//! ```
//! use membership_core::ConnectionString;
//! use membership_provider::{Endpoint, Timeouts};
//!
//! let url = ConnectionString::parse("mystore", &["mystore"], "mystore://a,[::1]:9000?operation_timeout=3s")?;
//! assert_eq!(Endpoint::join(&Endpoint::list(&url.hosts, 7000)), "a:7000,[::1]:9000");
//! let mut timeouts = Timeouts::default();
//! for option in &url.options {
//!     if !timeouts.set(option)? {
//!         return Err(option.unknown("operation_timeout and connect_timeout"));
//!     }
//! }
//! assert_eq!(timeouts.operation().as_secs(), 3);
//! # Ok::<(), membership_core::TableError>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod baseline;
mod cache;
mod credentials;
mod endpoint;
mod error;
mod heartbeat;
mod hints;
mod hosts;
#[cfg(feature = "http")]
pub mod http;
mod options;
mod provider;
mod replaceable;
mod rows;
mod secrets;
mod table;
mod timeouts;
mod tls;
mod version;

pub use cache::{FullRead, SnapshotCache};
pub use credentials::{Credentials, environment};
pub use endpoint::Endpoint;
pub use error::{causes, gone_since, innermost, one_line, unanswered};
pub use heartbeat::LastWritten;
pub use hints::{HintSource, Hints, Notifier};
pub use hosts::{Hosts, first_of};
pub use provider::{Provider, StoreProvider};
pub use replaceable::Replaceable;
pub use rows::{StoredHeartbeats, decode_row, merge_rows, shown_heartbeats, stored_heartbeat};
pub use secrets::{Secret, Secrets, hidden};
pub use timeouts::{Timeouts, check_timeout};
pub use tls::{TlsFiles, read_file};
#[cfg(feature = "tls")]
pub use tls::{install_crypto_provider, native_roots};
pub use version::{
    VersionRowParts, check_last_commit, counted_next_token, counted_token, json, recent_slot,
    row_count_of,
};

/// For the macros of this crate.
#[doc(hidden)]
pub use membership_core as core;

/// The code in the document compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
