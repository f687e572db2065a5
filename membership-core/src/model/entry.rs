//! One row of the table: what the cluster knows about one silo incarnation.

use std::collections::{BTreeMap, BTreeSet};

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::address::SiloAddress;
use super::ids::InstanceId;
use super::info::SiloInfo;
use super::status::{Death, SiloStatus};
use super::text::quoted;
use super::time::WallTime;

/// Fields that this build does not know. They are kept as they were read, so that a rewrite by an
/// older build loses nothing (clause T10).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Extra(pub BTreeMap<String, serde_json::Value>);

impl Extra {
    /// Roughly the bytes of memory that the fields take.
    pub(crate) fn memory(&self) -> usize {
        fn of(value: &serde_json::Value) -> usize {
            use serde_json::Value;
            let content = match value {
                Value::String(text) => text.len(),
                Value::Array(items) => items.iter().map(of).sum(),
                Value::Object(fields) => {
                    fields.iter().map(|(name, v)| 64 + name.len() + of(v)).sum()
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            };
            size_of::<Value>() + content
        }
        self.0.iter().map(|(name, v)| name.len() + of(v)).sum()
    }
}

// A JSON value does not implement `Hash`; equal values have equal texts.
impl std::hash::Hash for Extra {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        for (key, value) in &self.0 {
            key.hash(state);
            value.to_string().hash(state);
        }
    }
}

/// What an accuser observed: the evidence for a suspicion, kept for readers of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evidence {
    /// Number of probes in a row without an answer; 0 for the reason "stuck".
    pub misses: u32,
    /// The timeout of the last of these probes, in milliseconds.
    pub timeout_ms: u64,
    /// The suspect's last answer to this accuser, by the accuser's clock; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<WallTime>,
    /// The caller of the roll call, where it wrote this vote with the accuser's consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<SiloAddress>,
    /// The accuser's own health score at that time: 0 (healthy) to 8.
    #[serde(default)]
    pub accuser_health: u8,
    /// Whether the accuser saw the suspect's heartbeat as stale.
    #[serde(default)]
    pub stale: bool,
    /// What the roll call gave on which the vote rests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll_call: Option<RollCount>,
}

/// The result of a roll call about one suspect: how many silos were asked whether they reach it
/// (the caller included), and what they said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RollCount {
    /// How many were asked, the suspect not counted.
    pub asked: u32,
    /// How many had just failed to reach the suspect.
    pub failed: u32,
    /// How many reached it.
    pub reached: u32,
    /// How many did not answer the caller.
    pub silent: u32,
}

/// The reason for a suspicion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SuspicionReason {
    /// The silo does not answer probes.
    #[default]
    Silent,
    /// The silo has been Joining for longer than a join may take.
    Stuck,
    /// Most silos do not answer, this one among them, so that no majority is left: it must show that
    /// it still writes heartbeats. Such a vote does not count.
    Challenge,
}

/// One vote against a silo, kept in the suspect's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Suspicion {
    /// The silo that suspects.
    pub accuser: SiloAddress,
    /// The time of the last failed probe by the accuser's clock.
    pub at: WallTime,
    /// The reason.
    #[serde(default)]
    pub reason: SuspicionReason,
    /// What the accuser observed.
    pub evidence: Evidence,
    /// Fields of newer builds, kept unchanged.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Evidence {
    /// Evidence of this number of missed probes with this timeout; everything else is empty.
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

/// One silo incarnation as its row describes it.
///
/// The heartbeat is not part of it (see [`Heartbeat`]), so that equal versions are equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[non_exhaustive]
pub struct MembershipEntry {
    /// The silo.
    pub address: SiloAddress,
    /// Its status.
    pub status: SiloStatus,
    /// How it ended; present exactly when `status` is Dead.
    #[serde(default)]
    pub death: Option<Death>,
    /// The votes against it, oldest first.
    #[serde(default)]
    pub suspicions: Vec<Suspicion>,
    /// What the silo publishes about itself.
    #[serde(flatten)]
    pub info: SiloInfo,
    /// The id of its process.
    pub instance_id: InstanceId,
    /// When the process started, by its own clock.
    pub start_time: WallTime,
    /// The version at which it became Active. The leader is the Active silo with the smallest
    /// value; clocks are not used.
    #[serde(default)]
    pub active_since: Option<u64>,
    /// When it became Active, by the clock of the silo that wrote it; for people. `None` if it never
    /// did, or an older build wrote it.
    #[serde(default)]
    pub active_at: Option<WallTime>,
    /// The version of the commit that last wrote this row; set by
    /// [`CommitRequest::new`](crate::CommitRequest::new).
    pub written_at: u64,
    /// Fields of newer builds, kept unchanged.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Written by hand because the bytes of stored rows must not change: `instance_id` is between the
/// fields of [`SiloInfo`]. The compiler reports a new field that is missing here; add it at the
/// end, before `extra`.
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
            active_at,
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
        if let Some(at) = active_at {
            row.serialize_entry("active_at", at)?;
        }
        for (name, value) in &extra.0 {
            row.serialize_entry(name, value)?;
        }
        row.end()
    }
}

impl MembershipEntry {
    /// The row of a silo that is about to join; everything else is empty or zero.
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
            active_at: None,
            written_at: 0,
            extra: Extra::default(),
        }
    }

    /// Roughly the bytes of memory of the fields that this build does not know.
    pub(crate) fn unknown_memory(&self) -> usize {
        let votes = self.suspicions.iter().map(|vote| vote.extra.memory());
        self.extra.memory() + votes.sum::<usize>()
    }

    /// The place of an Active silo in the order of leaders, the smallest first: the version at which it
    /// became Active, ties by address; clocks are not used.
    pub(crate) fn seniority(&self) -> (u64, SiloAddress) {
        (self.active_since.unwrap_or(u64::MAX), self.address)
    }

    /// Whether this is an Active silo that clients may use.
    #[must_use]
    pub fn is_gateway(&self) -> bool {
        self.status == SiloStatus::Active && self.info.gateway_port != 0
    }
}

/// A sign of life in the table. Only the counter decides which heartbeat is newer; the time is for
/// people.
///
/// Written as `counter time`, for example `17 2026-11-21T01:02:03.004Z`. The counter starts at 1
/// for each epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Increases by one with each heartbeat; 0 means that none was written yet.
    pub counter: u64,
    /// The time of the heartbeat by the owner's clock.
    pub at: WallTime,
}

impl std::fmt::Display for Heartbeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.counter, self.at)
    }
}

crate::debug_as_display!(ParseHeartbeatError);

/// The error for a text that is not a heartbeat.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
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
        parse().ok_or_else(|| ParseHeartbeatError(quoted(text, 60)))
    }
}

/// All heartbeats of a table, and the cluster's own cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heartbeats {
    /// The last heartbeat of each silo that has a row and wrote a heartbeat.
    pub silos: BTreeMap<SiloAddress, Heartbeat>,
    /// The cluster's own cell: at most 4 KiB of text, reserved for this crate.
    pub cluster: Option<String>,
    /// The silos that have a heartbeat but no row (clause T8), as a read that knew no version found
    /// them; another read need not name them. Where the store reads heartbeats beside the rows, a
    /// silo whose row is inserted meanwhile can be among them. They are for people who look for what
    /// was removed by hand: nothing depends on them.
    pub orphans: BTreeSet<SiloAddress>,
}

impl Heartbeats {
    /// Creates a value from the heartbeats of silos that have a row and, if it was written, the
    /// cluster's own cell.
    #[must_use]
    pub const fn new(silos: BTreeMap<SiloAddress, Heartbeat>, cluster: Option<String>) -> Self {
        Self {
            silos,
            cluster,
            orphans: BTreeSet::new(),
        }
    }

    /// The same from everything that a store holds: each heartbeat with whether its silo has a row.
    /// Those without become [`orphans`](Self::orphans).
    ///
    /// ```
    /// use membership_core::{Heartbeat, Heartbeats, SiloAddress};
    /// let silo = |port| SiloAddress::new([127, 0, 0, 1].into(), port, 1);
    /// let stored = [(silo(1), Heartbeat::default(), true), (silo(2), Heartbeat::default(), false)];
    /// let heartbeats = Heartbeats::from_stored(stored, None);
    /// assert!(heartbeats.silos.keys().eq([&silo(1)]) && heartbeats.orphans.iter().eq([&silo(2)]));
    /// ```
    #[must_use]
    pub fn from_stored(
        stored: impl IntoIterator<Item = (SiloAddress, Heartbeat, bool)>,
        cluster: Option<String>,
    ) -> Self {
        let mut orphans = BTreeSet::new();
        let of_row = |(silo, heartbeat, has_row): (_, _, bool)| {
            if !has_row {
                orphans.insert(silo);
            }
            has_row.then_some((silo, heartbeat))
        };
        Self {
            silos: stored.into_iter().filter_map(of_row).collect(),
            cluster,
            orphans,
        }
    }

    /// The counter of one silo; 0 when it has not written a heartbeat.
    #[must_use]
    pub fn counter(&self, silo: &SiloAddress) -> u64 {
        self.silos.get(silo).map_or(0, |h| h.counter)
    }
}
