//! Without the feature nothing is measured.

use std::time::Duration;

use membership_core::protocol::{Observation, Termination, WriterState};
use membership_core::{Change, ClusterView, Operation, SiloAddress};

use crate::transport::TransportStats;

pub(crate) const fn begin() {}
pub(crate) const fn deaths(_: &[Change]) {}
pub(crate) const fn observe(_: &Observation) {}
pub(crate) const fn unreached(_: usize) {}
pub(crate) const fn writer(_: Option<SiloAddress>, _: &WriterState) {}
pub(crate) const fn view(_: &ClusterView) {}
pub(crate) const fn ages(_: Duration, _: Duration) {}
pub(crate) const fn view_withdrawn() {}
pub(crate) const fn table_call(_: Operation, _: &'static str, _: Duration) {}
pub(crate) const fn stopped(_: &Termination) {}
pub(crate) const fn executor_lag(_: Duration) {}
pub(crate) const fn transport(_: &TransportStats, _: &TransportStats) {}

#[cfg(feature = "gossip")]
mod gossip {
    use std::time::Duration;

    pub(crate) const fn begin_member() {}
    pub(crate) fn members(_: impl Iterator<Item = (&'static str, usize)>) {}
    pub(crate) const fn agreement(_: Duration, _: Duration) {}
    pub(crate) const fn died(_: &'static str) {}
    pub(crate) const fn paused() {}
    pub(crate) const fn stopped_because(_: &'static str) {}
}
#[cfg(feature = "gossip")]
pub(crate) use gossip::{agreement, begin_member, died, members, paused, stopped_because};
