//! The TCP transport over real sockets on the loopback interface. The one thing each test waits for has a deadline; nothing sleeps to be
//! on the safe side.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod transport_cases {
    pub mod support;

    mod exchange;
    mod hostile;
    mod large;
    mod restart;
}
