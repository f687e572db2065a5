//! A provider as the facade sees it: schemes, connect, schema.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{ClusterName, MembershipTable, TableError};

/// A store that connection strings can name. Most providers are a [`StoreProvider`].
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The schemes of its connection strings, in lower case, without `:`.
    fn schemes(&self) -> &'static [&'static str];

    /// Opens the table of a cluster.
    ///
    /// # Errors
    /// `Configuration` for a URL that cannot work, and whatever the store answers. Never shows a
    /// secret. Cancel safe.
    async fn connect(
        &self,
        url: &str,
        cluster: ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError>;

    /// What an operator runs once, in the store's own language, where silos may not create tables.
    /// `None` for a store that needs nothing. Connects to nothing.
    ///
    /// # Errors
    /// `Configuration` for a URL that cannot work.
    fn schema(&self, url: &str) -> Result<Option<String>, TableError> {
        let _ = url;
        Ok(None)
    }
}

/// A [`Provider`] made of what each store has anyway: a configuration `C` that is read from a
/// connection string, and a function that opens a table with it.
///
/// ```
/// use membership_core::{ClusterName, ConnectionString, MemoryTable, TableError};
/// use membership_provider::{Provider, StoreProvider};
///
/// const SCHEMES: &[&str] = &["mystore"];
///
/// struct MyConfig(ConnectionString);
///
/// impl MyConfig {
///     fn from_url(url: &str) -> Result<Self, TableError> {
///         ConnectionString::parse("mystore", SCHEMES, url).map(Self)
///     }
/// }
///
/// async fn connect(_config: MyConfig, cluster: ClusterName) -> Result<MemoryTable, TableError> {
///     Ok(MemoryTable::new(cluster))
/// }
///
/// let provider = StoreProvider::new(SCHEMES, MyConfig::from_url, connect);
/// assert_eq!(provider.schema("mystore://host")?, None);
/// let provider = provider.with_schema(|_config| "CREATE TABLE silos;".to_owned());
/// assert!(provider.schema("mystore://host")?.is_some());
/// assert!(provider.schema("otherstore://host").is_err());
/// # Ok::<(), TableError>(())
/// ```
pub struct StoreProvider<C, F> {
    schemes: &'static [&'static str],
    configure: fn(&str) -> Result<C, TableError>,
    connect: fn(C, ClusterName) -> F,
    schema: Option<fn(&C) -> String>,
}

impl<C, F> StoreProvider<C, F> {
    /// Opens connection strings with these schemes: `configure` reads one, `connect` opens the
    /// table. The store needs no schema.
    #[must_use]
    pub const fn new(
        schemes: &'static [&'static str],
        configure: fn(&str) -> Result<C, TableError>,
        connect: fn(C, ClusterName) -> F,
    ) -> Self {
        Self {
            schemes,
            configure,
            connect,
            schema: None,
        }
    }

    /// The store needs what this function returns: see [`Provider::schema`].
    #[must_use]
    pub const fn with_schema(mut self, schema: fn(&C) -> String) -> Self {
        self.schema = Some(schema);
        self
    }
}

#[async_trait]
impl<C, F, T> Provider for StoreProvider<C, F>
where
    C: 'static,
    F: Future<Output = Result<T, TableError>> + Send + 'static,
    T: MembershipTable,
{
    fn schemes(&self) -> &'static [&'static str] {
        self.schemes
    }

    async fn connect(
        &self,
        url: &str,
        cluster: ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        let config = (self.configure)(url)?;
        let opening = (self.connect)(config, cluster);
        Ok(Arc::new(opening.await?))
    }

    fn schema(&self, url: &str) -> Result<Option<String>, TableError> {
        let text = |schema: fn(&C) -> String| Ok(schema(&(self.configure)(url)?));
        self.schema.map(text).transpose()
    }
}

impl<C, F> fmt::Debug for StoreProvider<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreProvider").field(&self.schemes).finish()
    }
}
