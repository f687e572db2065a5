//! Faults between the client and the server: connections cut at every stage of every request, lost
//! or held answers, unreachable servers, old connections that are frozen, and futures that are
//! dropped with a request on its way. T2, T5, T13, T14, T16.

mod anew;
mod away;
mod created;
mod cut;
mod dropped;
mod judge;
mod operation;
mod parallel;
mod route;
mod trips;

pub(super) use anew::CASES as ANEW;
pub(super) use away::CASES as AWAY;
pub(super) use created::CASES as CREATED;
pub(super) use cut::CASES as CUT;
pub(super) use dropped::CASES as DROPPED;
pub(super) use trips::CASES as TRIPS;

use crate::Stop;

/// Adds the situation to a failure.
fn during(what: impl std::fmt::Display) -> impl FnOnce(Stop) -> Stop {
    move |stop| match stop {
        Stop::Failed(why) => Stop::Failed(format!("{what}: {why}")),
        other => other,
    }
}
