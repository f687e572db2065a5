//! The suite's backend over servers. It stages once what every networked store stages in the same
//! way.
//!
//! A provider's tests implement [`Store`] (how to connect, and how to access data past the
//! contract) and name the [`Servers`]. [`ServerBackend`] makes a [`Backend`](crate::Backend) of
//! both. The crate `membership-testbed` starts real servers.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use conformance_tests::servers::{DocumentAccess, ServerBackend, Servers, Store};
//! # use conformance_tests::{Stop, Suite};
//! # use membership_core::{ClusterName, DocumentStore, DocumentTable, MembershipTable, MemoryDocuments, TableError};
//! # struct MyServer;
//! # #[async_trait::async_trait]
//! # impl Servers for MyServer {
//! #     fn url(&self) -> String { String::new() }
//! #     fn addresses(&self) -> Vec<std::net::SocketAddr> { Vec::new() }
//! #     fn is_external(&self) -> bool { false }
//! #     async fn set_running(&self, _: bool) -> Result<(), Stop> { Ok(()) }
//! # }
//! # fn documents(_: &str, cluster: &ClusterName) -> impl DocumentStore { MemoryDocuments::default().document(cluster) }
//! struct MyStore;
//!
//! #[async_trait::async_trait]
//! impl Store for MyStore {
//!     type Raw = DocumentAccess;
//!
//!     async fn connect(&self, url: &str, cluster: &ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
//!         Ok(Arc::new(DocumentTable::new(cluster.clone(), documents(url, cluster))))
//!     }
//!
//!     async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<DocumentAccess, Stop> {
//!         Ok(DocumentAccess::new(documents(&backend.url(), cluster)))
//!     }
//! }
//!
//! # async fn test(my_server: MyServer) {
//! let report = Suite::new(ServerBackend::new("mystore", MyStore, my_server)).run().await;
//! assert!(report.passed(), "{report}");
//! # }
//! ```

mod backend;
mod local;
mod store;
mod url;
mod version_row;

pub use crate::documents::{DocumentAccess, SavedDocument};
pub use crate::raw::RawAccess;
pub(crate) use backend::have_one_port;
pub use backend::{ServerBackend, crash_child};
pub use local::{LocalServer, StartCommand};
pub use store::{Servers, Store};
pub use url::{with_options, with_user};
pub use version_row::VersionRowFields;
