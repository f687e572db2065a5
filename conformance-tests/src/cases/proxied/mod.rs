//! What only shows when something stands between the client and the server: connections cut at every stage of every request, answers that
//! are lost or held, servers that are away, futures dropped with a question on its way. T2, T5, T13, T14.

mod away;
mod created;
mod cut;
mod dropped;
mod judge;
mod operation;
mod parallel;
mod route;
mod trips;

pub(super) use away::CASES as AWAY;
pub(super) use created::CASES as CREATED;
pub(super) use cut::CASES as CUT;
pub(super) use dropped::CASES as DROPPED;
pub(super) use trips::CASES as TRIPS;

use crate::Stop;

/// Says in which situation it was.
fn during(what: impl std::fmt::Display) -> impl FnOnce(Stop) -> Stop {
    move |stop| match stop {
        Stop::Failed(why) => Stop::Failed(format!("{what}: {why}")),
        other => other,
    }
}
