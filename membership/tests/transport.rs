//! The TCP transport over real sockets on the loopback interface. Tests wait for a condition with a
//! deadline; they do not sleep.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod transport_cases {
    pub mod support;

    mod certificates;
    mod crowded;
    mod exchange;
    mod hostile;
    mod impostors;
    mod inbox;
    mod large;
    mod losses;
    mod mismatch;
    mod newcomers;
    mod restart;
    mod standing;
    mod strangers;
}
