//! The schemes of a build, including those of third parties.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use membership_core::{ClusterName, MembershipTable, TableError};

use super::builtin;
use super::error::ConnectError;
use super::known::known;

/// What a factory gives: the future of a table.
pub type Connecting =
    Pin<Box<dyn Future<Output = Result<Arc<dyn MembershipTable>, TableError>> + Send>>;

/// From a connection string to what an administrator runs once if silos may not create tables.
type Schema = Arc<dyn Fn(&str) -> Result<String, TableError> + Send + Sync>;

type Factory = Arc<dyn Fn(String, ClusterName) -> Connecting + Send + Sync>;

/// The schemes that [`connect`](Self::connect) understands. [`Connectors::default`] has those of
/// this build's features; [`register`](Self::register) adds others. Cheap to clone.
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
    factories: BTreeMap<String, Factory>,
    schemas: BTreeMap<String, Schema>,
}

impl Default for Connectors {
    fn default() -> Self {
        let mut connectors = Self::empty();
        builtin::register(&mut connectors);
        connectors
    }
}

impl Connectors {
    /// No scheme at all.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            factories: BTreeMap::new(),
            schemas: BTreeMap::new(),
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
        if !is_scheme(scheme) {
            return Err(ConnectError::BadScheme);
        }
        self.factories.insert(scheme.to_owned(), Arc::new(factory));
        Ok(())
    }

    /// Adds what an administrator has to run once, in the store's own language, if the silos' user
    /// may not create tables. Only for stores that have a schema.
    ///
    /// # Errors
    /// [`ConnectError::BadScheme`].
    pub fn register_schema(
        &mut self,
        scheme: &str,
        schema: impl Fn(&str) -> Result<String, TableError> + Send + Sync + 'static,
    ) -> Result<(), ConnectError> {
        if !is_scheme(scheme) {
            return Err(ConnectError::BadScheme);
        }
        self.schemas.insert(scheme.to_owned(), Arc::new(schema));
        Ok(())
    }

    /// What an administrator has to run once in the store that a connection string names, if silos
    /// may not create tables; none if there is nothing to run. Connects to nothing.
    ///
    /// # Errors
    /// [`ConnectError`], as [`connect`](Self::connect).
    pub fn schema(&self, url: &str) -> Result<Option<String>, ConnectError> {
        let scheme = self.known(url)?;
        Ok(self
            .schemas
            .get(&scheme)
            .map(|schema| schema(url))
            .transpose()?)
    }

    /// The schemes, in order.
    pub fn schemes(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
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
        let scheme = self.known(url)?;
        match self.factories.get(&scheme) {
            Some(factory) => Ok(factory(url.to_owned(), cluster).await?),
            None => Err(self.unknown(scheme)),
        }
    }

    /// The scheme of a connection string, if this build has a factory for it.
    fn known(&self, url: &str) -> Result<String, ConnectError> {
        let scheme = url
            .split_once(':')
            .map(|(scheme, _)| scheme.to_ascii_lowercase())
            .filter(|scheme| is_scheme(scheme));
        let scheme = scheme.ok_or_else(|| ConnectError::NoScheme {
            known: self.names(),
        })?;
        if self.factories.contains_key(&scheme) {
            Ok(scheme)
        } else {
            Err(self.unknown(scheme))
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
        self.factories.keys().cloned().collect()
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
