//! What `membership conformance` runs: the suite against a store of which only the address is
//! known.
//!
//! * `backend`: clients for the suite, in clusters of this run, and a list of all these clusters.
//! * `address`: the same address through a proxy, or as another user.
//! * `report`: a line per case, for people or for programs.
//!
//! It uses the contract only: it stops no server, damages nothing, and deletes no cluster that it
//! did not make.

pub(crate) mod address;
pub(crate) mod backend;
pub(crate) mod report;
