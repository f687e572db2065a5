//! The schemes of a build, including those of third parties.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use membership_core::{ClusterName, MembershipTable, TableError};
use membership_provider::Provider;

use super::builtin;
use super::error::ConnectError;
use super::known::known;

/// What a factory gives: the future of a table.
pub type Connecting =
    Pin<Box<dyn Future<Output = Result<Arc<dyn MembershipTable>, TableError>> + Send>>;

/// A function that opens tables, as a provider without a schema.
struct Factory<F>(F);

#[async_trait]
impl<F> Provider for Factory<F>
where
    F: Fn(String, ClusterName) -> Connecting + Send + Sync + 'static,
{
    /// None: the caller of [`Connectors::register`] names the scheme.
    fn schemes(&self) -> &'static [&'static str] {
        &[]
    }

    async fn connect(
        &self,
        url: &str,
        cluster: ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, TableError> {
        (self.0)(url.to_owned(), cluster).await
    }
}

/// The schemes that [`connect`](Self::connect) understands. [`Connectors::default`] has those of
/// this build's features; [`register_provider`](Self::register_provider) adds a provider, and
/// [`register`](Self::register) a function. Cheap to clone.
///
/// ```
/// use membership::{Connectors, MembershipTable, MemoryTable};
/// use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut connectors = Connectors::default();
/// connectors.register("acme", |_url, cluster| {
///     Box::pin(async move { Ok(Arc::new(MemoryTable::new(cluster)) as Arc<dyn MembershipTable>) })
/// })?;
/// let table = connectors.connect("acme://host/path", "blue".parse()?).await?;
/// assert_eq!(table.cluster().cluster(), "blue");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Connectors {
    providers: BTreeMap<String, Arc<dyn Provider>>,
}

impl Default for Connectors {
    fn default() -> Self {
        let mut connectors = Self::empty();
        for provider in builtin::providers() {
            for scheme in provider.schemes() {
                let same = Arc::clone(&provider);
                connectors.providers.insert((*scheme).to_owned(), same);
            }
        }
        connectors
    }
}

impl Connectors {
    /// No scheme at all.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            providers: BTreeMap::new(),
        }
    }

    /// Opens every connection string that begins with `scheme:` with `factory`, which gets the
    /// whole string and the cluster. Its errors must not show secrets. Replaces an existing scheme.
    ///
    /// # Errors
    /// [`ConnectError::BadScheme`].
    pub fn register(
        &mut self,
        scheme: &str,
        factory: impl Fn(String, ClusterName) -> Connecting + Send + Sync + 'static,
    ) -> Result<(), ConnectError> {
        self.insert(scheme, Arc::new(Factory(factory)))
    }

    /// Opens the connection strings of a provider's schemes with it. Replaces existing schemes.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")] {
    /// use membership_provider::{Provider, StoreProvider};
    /// use membership_sql::{SqliteConfig, SqliteTable};
    ///
    /// let acme = StoreProvider::new(&["acme"], SqliteConfig::from_url, SqliteTable::connect);
    /// let mut connectors = membership::Connectors::empty();
    /// connectors.register_provider(acme)?;
    /// assert_eq!(connectors.schemes().collect::<Vec<_>>(), ["acme"]);
    /// # }
    /// # Ok::<(), membership::ConnectError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConnectError::BadScheme`].
    pub fn register_provider(&mut self, provider: impl Provider) -> Result<(), ConnectError> {
        let provider: Arc<dyn Provider> = Arc::new(provider);
        for scheme in provider.schemes() {
            self.insert(scheme, Arc::clone(&provider))?;
        }
        Ok(())
    }

    fn insert(&mut self, scheme: &str, provider: Arc<dyn Provider>) -> Result<(), ConnectError> {
        if !is_scheme(scheme) {
            return Err(ConnectError::BadScheme);
        }
        self.providers.insert(scheme.to_owned(), provider);
        Ok(())
    }

    /// The script that an administrator runs once in the store that a connection string names, if
    /// silos may not create tables; none if there is nothing to run. Connects to nothing.
    ///
    /// # Errors
    /// [`ConnectError`], as [`connect`](Self::connect).
    pub fn schema(&self, url: &str) -> Result<Option<String>, ConnectError> {
        Ok(self.provider(url)?.schema(url)?)
    }

    /// The schemes, in order.
    pub fn schemes(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }

    /// Opens the table of a cluster.
    ///
    /// # Errors
    /// [`ConnectError`]. Cancellation: the provider may have opened connections.
    pub async fn connect(
        &self,
        url: &str,
        cluster: ClusterName,
    ) -> Result<Arc<dyn MembershipTable>, ConnectError> {
        Ok(self.provider(url)?.connect(url, cluster).await?)
    }

    /// The provider of a connection string, if it has a scheme that is registered.
    fn provider(&self, url: &str) -> Result<&Arc<dyn Provider>, ConnectError> {
        let scheme = url
            .split_once(':')
            .map(|(scheme, _)| scheme.to_ascii_lowercase())
            .filter(|scheme| is_scheme(scheme));
        let scheme = scheme.ok_or_else(|| ConnectError::NoScheme {
            known: self.names(),
        })?;
        match self.providers.get(&scheme) {
            Some(provider) => Ok(provider),
            None => Err(self.unknown(scheme)),
        }
    }

    fn unknown(&self, scheme: String) -> ConnectError {
        match known(&scheme) {
            Some(known) => ConnectError::FeatureOff {
                scheme,
                feature: known.feature,
            },
            None => ConnectError::UnknownScheme {
                scheme,
                known: self.names(),
            },
        }
    }

    fn names(&self) -> Vec<String> {
        self.providers.keys().cloned().collect()
    }
}

fn is_scheme(text: &str) -> bool {
    let part =
        |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.');
    text.len() <= 32
        && text.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && text.bytes().all(part)
}

impl fmt::Debug for Connectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.schemes()).finish()
    }
}
