//! One row of the table: what the cluster knows of one silo incarnation.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::address::SiloAddress;
use super::ids::InstanceId;
use super::info::SiloInfo;
use super::status::{Death, SiloStatus};
use super::time::WallTime;

/// Fields that this build does not know, kept as they were read, so that a rewrite by an older build loses nothing (clause T10).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Extra(pub BTreeMap<String, serde_json::Value>);

// A JSON value has no `Hash`; equal values have equal texts.
impl std::hash::Hash for Extra {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        for (key, value) in &self.0 {
            key.hash(state);
            value.to_string().hash(state);
        }
    }
}

/// What an accuser saw: the reason to believe that the suspect is gone, for whoever reads the table later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evidence {
    /// Probes in a row that got no answer. Zero for a suspicion of being stuck.
    pub misses: u32,
    /// How long the last of them was waited for, in milliseconds.
    pub timeout_ms: u64,
    /// The last answer of the suspect to this accuser, by the accuser's clock; none if it never answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<WallTime>,
    /// The silo on whose request the accuser probed, if it is the intermediary of an indirect probe: that silo wrote the vote down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<SiloAddress>,
    /// The accuser's own health score at that moment, 0 (healthy) to 8.
    #[serde(default)]
    pub accuser_health: u8,
    /// The suspect's heartbeat had stood still for long enough in the accuser's eyes.
    #[serde(default)]
    pub stale: bool,
}

/// What somebody is suspected of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SuspicionReason {
    /// It does not answer probes.
    #[default]
    Silent,
    /// It has been Joining for longer than a join may take.
    Stuck,
}

/// One vote against a silo, kept in the suspect's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Suspicion {
    /// Who suspects.
    pub accuser: SiloAddress,
    /// The accuser's clock at the last failed probe.
    pub at: WallTime,
    /// Of what.
    #[serde(default)]
    pub reason: SuspicionReason,
    /// What the accuser saw.
    pub evidence: Evidence,
    /// Fields of newer builds, kept as they are.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Evidence {
    /// The probes that missed an answer; everything else empty.
    #[must_use]
    pub fn missed(misses: u32, timeout_ms: u64) -> Self {
        Self {
            misses,
            timeout_ms,
            ..Self::default()
        }
    }
}

impl Suspicion {
    /// A vote by this accuser.
    #[must_use]
    pub fn new(
        accuser: SiloAddress,
        at: WallTime,
        reason: SuspicionReason,
        evidence: Evidence,
    ) -> Self {
        Self {
            accuser,
            at,
            reason,
            evidence,
            extra: Extra::default(),
        }
    }
}

/// One silo incarnation as the table tells it.
///
/// The heartbeat is not part of it (see [`Heartbeat`]), so that equal versions are equal objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[non_exhaustive]
pub struct MembershipEntry {
    /// Who.
    pub address: SiloAddress,
    /// Where it is in its life.
    pub status: SiloStatus,
    /// How it ended; present exactly when `status` is Dead.
    #[serde(default)]
    pub death: Option<Death>,
    /// Votes against it, oldest first.
    #[serde(default)]
    pub suspicions: Vec<Suspicion>,
    /// What the silo says of itself.
    #[serde(flatten)]
    pub info: SiloInfo,
    /// The process.
    pub instance_id: InstanceId,
    /// When the process started, by its own clock.
    pub start_time: WallTime,
    /// The version at which it became Active. The leader is the Active silo with the smallest one: clocks play no part.
    #[serde(default)]
    pub active_since: Option<u64>,
    /// The version of the commit that last wrote this row; stamped by [`CommitRequest::new`](crate::CommitRequest::new).
    pub written_at: u64,
    /// Fields of newer builds, kept as they are.
    #[serde(flatten)]
    pub extra: Extra,
}

/// By hand, because rows keep their bytes: `instance_id` stands between the fields of [`SiloInfo`]. A new field is
/// missed by the compiler here, and goes to the end, before `extra`.
impl Serialize for MembershipEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            address,
            status,
            death,
            suspicions,
            info,
            instance_id,
            start_time,
            active_since,
            written_at,
            extra,
        } = self;
        let SiloInfo {
            gateway_port,
            host_name,
            silo_name,
            role,
            zone,
            metadata,
        } = info;
        let mut row = serializer.serialize_map(None)?;
        row.serialize_entry("address", address)?;
        row.serialize_entry("status", status)?;
        if let Some(death) = death {
            row.serialize_entry("death", death)?;
        }
        if !suspicions.is_empty() {
            row.serialize_entry("suspicions", suspicions)?;
        }
        row.serialize_entry("gateway_port", gateway_port)?;
        row.serialize_entry("host_name", host_name)?;
        row.serialize_entry("silo_name", silo_name)?;
        row.serialize_entry("instance_id", instance_id)?;
        for (name, text) in [("role", role), ("zone", zone)] {
            if !text.is_empty() {
                row.serialize_entry(name, text)?;
            }
        }
        if !metadata.is_empty() {
            row.serialize_entry("metadata", metadata)?;
        }
        row.serialize_entry("start_time", start_time)?;
        if let Some(version) = active_since {
            row.serialize_entry("active_since", version)?;
        }
        row.serialize_entry("written_at", written_at)?;
        for (name, value) in &extra.0 {
            row.serialize_entry(name, value)?;
        }
        row.end()
    }
}

impl MembershipEntry {
    /// A silo that is about to join: everything else empty or zero.
    #[must_use]
    pub fn new(address: SiloAddress, instance_id: InstanceId, start_time: WallTime) -> Self {
        Self {
            address,
            status: SiloStatus::Joining,
            death: None,
            suspicions: Vec::new(),
            info: SiloInfo::default(),
            instance_id,
            start_time,
            active_since: None,
            written_at: 0,
            extra: Extra::default(),
        }
    }

    /// An Active silo that clients may use.
    #[must_use]
    pub fn is_gateway(&self) -> bool {
        self.status == SiloStatus::Active && self.info.gateway_port != 0
    }
}

/// A sign of life in the table: only the counter decides what is newer, the time is for people.
///
/// Written `counter time`, for example `17 2026-11-21T01:02:03.004Z`. The counter starts at 1 for each epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Rises by one with each beat; 0 means that none was written yet.
    pub counter: u64,
    /// The owner's clock at the beat.
    pub at: WallTime,
}

impl std::fmt::Display for Heartbeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.counter, self.at)
    }
}

/// A text that is not a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a heartbeat: a counter, a space and a UTC time were expected")]
pub struct ParseHeartbeatError(String);

impl std::str::FromStr for Heartbeat {
    type Err = ParseHeartbeatError;
    fn from_str(text: &str) -> Result<Self, ParseHeartbeatError> {
        let parse = || {
            let (counter, at) = text.split_once(' ')?;
            Some(Self {
                counter: counter.parse().ok()?,
                at: at.parse().ok()?,
            })
        };
        parse().ok_or_else(|| ParseHeartbeatError(text.chars().take(60).collect()))
    }
}

/// Every heartbeat of a table, and the cluster's own cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heartbeats {
    /// The last heartbeat of each silo that has a row and wrote one.
    pub silos: BTreeMap<SiloAddress, Heartbeat>,
    /// The cluster's own cell: up to 4 KiB of text, reserved for the core.
    pub cluster: Option<String>,
}

impl Heartbeats {
    /// These heartbeats, and the cluster's cell if it was written.
    #[must_use]
    pub const fn new(silos: BTreeMap<SiloAddress, Heartbeat>, cluster: Option<String>) -> Self {
        Self { silos, cluster }
    }

    /// The counter of one silo; 0 when it has not beaten yet.
    #[must_use]
    pub fn counter(&self, silo: &SiloAddress) -> u64 {
        self.silos.get(silo).map_or(0, |h| h.counter)
    }
}
