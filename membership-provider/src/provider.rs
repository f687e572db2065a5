//! A provider as the facade sees it: schemes, connect, schema.

use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{ClusterName, MembershipTable, TableError};

/// A store that connection strings can name.
///
/// ```
/// use std::sync::Arc;
///
/// use membership_core::{ClusterName, MembershipTable, MemoryTable, TableError};
/// use membership_provider::Provider;
///
/// struct MyProvider;
///
/// #[async_trait::async_trait]
/// impl Provider for MyProvider {
///     fn schemes(&self) -> &'static [&'static str] {
///         &["mystore"]
///     }
///
///     async fn connect(&self, _url: &str, cluster: ClusterName) -> Result<Arc<dyn MembershipTable>, TableError> {
///         Ok(Arc::new(MemoryTable::new(cluster)))
///     }
/// }
///
/// assert_eq!(MyProvider.schema("mystore://host")?, None);
/// # Ok::<(), TableError>(())
/// ```
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The schemes of its connection strings, in lower case, without `:`.
    fn schemes(&self) -> &'static [&'static str];

    /// Opens the table of a cluster.
    ///
    /// # Errors
    /// `Configuration` for a URL that cannot work, and whatever the store answers. Never shows a secret. Cancel safe.
    async fn connect(
        &self,
        url: &str,
        cluster: ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError>;

    /// What an operator runs once, in the store's own language, where silos may not create tables. `None` for a store that needs
    /// nothing. Connects to nothing.
    ///
    /// # Errors
    /// `Configuration` for a URL that cannot work.
    fn schema(&self, url: &str) -> Result<Option<String>, TableError> {
        let _ = url;
        Ok(None)
    }
}
