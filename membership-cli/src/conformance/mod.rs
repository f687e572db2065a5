//! The suite against a store of which there is nothing but an address: what `membership conformance` runs.
//!
//! * `backend`: clients for the suite, in clusters that nobody else has, and an account of all of them.
//! * `address`: the same address with something of it changed: through a proxy, as another user.
//! * `report`: a line per case, for people or for programs.
//!
//! It works within the contract only: it stops nobody's server, damages nothing, and deletes no cluster that it did not make.

pub(crate) mod address;
pub(crate) mod backend;
pub(crate) mod report;
