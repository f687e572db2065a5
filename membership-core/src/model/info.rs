//! What a silo says of itself: the part of its row that the application chooses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a silo tells the cluster of itself when it joins. The same value goes through the builder, the protocol's
/// identity and the row, so a new field is added here and where [`MembershipEntry`](crate::MembershipEntry) is stored.
///
/// ```
/// let mut info = membership_core::SiloInfo::named("orders-1");
/// info.role = "orders".to_owned();
/// info.gateway_port = 30_000;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SiloInfo {
    /// Where clients reach it; 0 = it is no gateway.
    #[serde(default)]
    pub gateway_port: u16,
    /// The machine's name, for people, and to tell two hosts with one private address apart.
    #[serde(default)]
    pub host_name: String,
    /// The silo's name, for people.
    #[serde(default)]
    pub silo_name: String,
    /// What it is for; free text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Its failure zone; free text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Whatever the application wants every silo to know of this one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl SiloInfo {
    /// A silo with this name; everything else empty.
    #[must_use]
    pub fn named(silo_name: impl Into<String>) -> Self {
        Self {
            silo_name: silo_name.into(),
            ..Self::default()
        }
    }
}
