//! No code: only dependencies, with the features that the clients of stores want of crates that all
//! parts of this workspace use. `cargo test` knows no store, and would compile these crates, and
//! all that is built on them, without those features, and the tests against servers all of it once more.
