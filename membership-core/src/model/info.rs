//! What a silo publishes about itself: the part of its row that the application chooses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a silo publishes about itself when it joins. The builder, the protocol's identity and the
/// row use the same type. A new field is added here and in the stored form of
/// [`MembershipEntry`](crate::MembershipEntry).
///
/// ```
/// let mut info = membership_core::SiloInfo::named("orders-1");
/// info.role = "orders".to_owned();
/// info.gateway_port = 30_000;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SiloInfo {
    /// Port where clients reach the silo; 0 = it is not a gateway.
    #[serde(default)]
    pub gateway_port: u16,
    /// Name of the machine, for people, and to distinguish two hosts with the same private address.
    #[serde(default)]
    pub host_name: String,
    /// Name of the silo, for people.
    #[serde(default)]
    pub silo_name: String,
    /// Role of the silo; free text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Failure zone of the silo; free text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Data of the application that every silo can read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl SiloInfo {
    /// Creates the info of a silo with this name; everything else is empty.
    #[must_use]
    pub fn named(silo_name: impl Into<String>) -> Self {
        Self {
            silo_name: silo_name.into(),
            ..Self::default()
        }
    }
}
