//! Attacks over real sockets on clusters of real silos. There are two attackers: a stranger, who
//! reaches the port and has a key of its own, but has not read the table; and a lying member, a
//! real silo whose transport sends what its protocol does not. `docs/security.md` says what each of
//! them may cost.
//!
//! Tests of this file run one at a time: some measure the memory of this process or the round trips
//! of probes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs
)]

mod common;

mod attacks {
    pub mod cluster;
    pub mod forged;
    pub mod memory;
    pub mod stranger;
    pub mod transport;
    pub mod watch;

    mod certificates;
    mod confirmation;
    mod crowded;
    mod dial;
    mod far_ahead;
    mod half_sent;
    mod large;
    mod other_rows;
    mod past;
    mod refusal;
    mod said_dead;
    mod silent;
    mod strangers;
}
