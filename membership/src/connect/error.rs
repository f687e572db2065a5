//! Why a connection string does not lead to a table. Never shows what comes after the scheme, which
//! may hold a password (clause T15).

use membership_core::TableError;

crate::debug_as_display!(ConnectError);

/// Why a connection string does not lead to a table.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// It does not begin with a scheme.
    #[error("the connection string does not begin with a scheme; this build knows {}", list(.known))]
    NoScheme {
        /// What this build has.
        known: Vec<String>,
    },
    /// No provider has the scheme.
    #[error("this build does not know the scheme `{scheme}:`; it knows {}; add your own with `Connectors::register`", list(.known))]
    UnknownScheme {
        /// The scheme.
        scheme: String,
        /// What this build has.
        known: Vec<String>,
    },
    /// This version has a provider for the scheme, but this build does not.
    #[error(
        "this build has no provider for `{scheme}:`; turn it on with `cargo add silo-membership --features {feature}`"
    )]
    FeatureOff {
        /// The scheme.
        scheme: String,
        /// The feature it needs.
        feature: &'static str,
    },
    /// Not a scheme: a letter, then letters, digits, `+`, `-` and `.`, at most 32.
    #[error(
        "not a scheme: use a lower-case letter, then lower-case letters, digits, `+`, `-` and `.`, at most 32 characters"
    )]
    BadScheme,
    /// The provider cannot open the table.
    #[error(transparent)]
    Table(#[from] TableError),
}

fn list(known: &[String]) -> String {
    if known.is_empty() {
        "none".to_owned()
    } else {
        known
            .iter()
            .map(|s| format!("`{s}:`"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}
