//! The counters behind [`TransportStats`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::transport::TransportStats;

macro_rules! counters {
    ($($name:ident),+ $(,)?) => {
        /// One atomic per field of [`TransportStats`].
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64),+ }

        impl Counters {
            /// All counters; each is read at a slightly different time.
            pub(super) fn read(&self) -> TransportStats {
                TransportStats { $($name: self.$name.load(Relaxed)),+ }
            }
        }
    };
}

counters!(
    sent,
    received,
    bytes_sent,
    bytes_received,
    dialled,
    dials_failed,
    accepted,
    open,
    queued_bytes,
    dropped_queue_full,
    dropped_no_connection,
    dropped_too_large,
    dropped_of_others,
    refused_too_many,
    refused_cluster,
    refused_unproven,
    refused_secret,
    refused_certificate,
    mismatched_members,
    refused_version,
    refused_handshake,
    handshake_timeouts,
    closed_oversized,
    closed_garbage,
);

pub(super) fn add(counter: &AtomicU64, n: usize) {
    if n > 0 {
        counter.fetch_add(n as u64, Relaxed);
    }
}

pub(super) fn sub(counter: &AtomicU64, n: usize) {
    if n > 0 {
        counter.fetch_sub(n as u64, Relaxed);
    }
}
