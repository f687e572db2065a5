//! Whole clusters in virtual time: the specification row by row, what this protocol does otherwise,
//! and campaigns of random faults under the checkers G1 to G17.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod addresses;
mod arbiter;
mod basics;
mod beginnings;
mod broken_links;
mod campaign;
mod departures;
mod liars;
mod net;
mod never_up;
mod planted;
mod remains;
mod restarts;
mod slow;
mod specification;
mod unsettled;
mod vouching;
