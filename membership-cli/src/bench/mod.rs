//! `membership bench` measures a table and the store's own cheapest write and read, in one run.
//!
//! * `clusters`: makes clusters for this run, fills them with rows, removes them at its end.
//! * `operations`: one client, how long each operation takes.
//! * `writers`: many clients at once, how many commits get through.
//! * `progress`, `report`: what the user sees meanwhile and at the end.
//!
//! Absolute times depend on the machine. Each figure is therefore shown beside that of the store
//! itself, and both are measured in turns, so that the same disturbances affect both.

pub(crate) mod clusters;
pub(crate) mod operations;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod writers;
