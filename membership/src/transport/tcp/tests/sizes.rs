//! How many bytes each kind of message has, and that the simulator counts as many.

use std::time::Duration;

use membership_core::protocol::{Finding, Header, Message};
use membership_core::{Delta, InstanceId, TableId};
use membership_testing::bytes_on_wire;

use super::super::frame::CHUNK;
use super::super::{carry, terse};
use super::{delta, failed, header, samples, silo};
use crate::transport::Encoder;
use crate::transport::header::Fixed;

/// How many bytes a message has on a connection of silos that know their addresses and have read the
/// table.
fn written(header: &Header, body: Message) -> usize {
    let fixed = Fixed {
        cluster: header.cluster,
        protocol: header.protocol,
        from: header.from,
        instance: header.instance,
        to: header.to.or(Some(silo("10.0.3.8:7100@5"))),
        table_id: header.table_id.or(Some(TableId::new(7))),
    };
    let message = Encoder::default().encode(header, &body.into()).unwrap();
    let mut frames = Vec::new();
    if message.len() <= CHUNK {
        terse::put(&mut frames, &message, &fixed);
    } else {
        for from in (0..message.len()).step_by(CHUNK) {
            carry::put_piece(&mut frames, &message, from);
        }
    }
    frames.len()
}

#[test]
fn the_simulator_counts_what_is_written() {
    for (name, header, body) in samples() {
        let counted = usize::try_from(bytes_on_wire(&header, &body)).unwrap();
        assert_eq!(written(&header, body), counted, "{name}");
    }
    // Around the length from which on a message travels in pieces.
    let rows = |metadata: usize| {
        let mut delta: Delta = delta(None, 3);
        delta.removed = vec!["x".repeat(metadata)];
        Message::Delta(Box::new(delta))
    };
    let around = 64 * 1024;
    for length in (around - 4200..around + 100).step_by(7).chain([200_000]) {
        let body = rows(length);
        let counted = usize::try_from(bytes_on_wire(&header(), &body)).unwrap();
        assert_eq!(written(&header(), body), counted, "{length}");
    }
}

#[test]
fn each_kind_of_message_has_so_many_bytes() {
    let mut header = Header::new(
        u64::MAX,
        silo("10.0.3.9:7100@1763000000000"),
        InstanceId::new(u128::MAX),
    );
    header.to = Some(silo("10.0.3.8:7100@1763000000000"));
    header.table_id = Some(TableId::new(u128::MAX));
    (header.version, header.digest) = (300, u64::MAX);
    let suspect = silo("10.0.3.7:7100@1763000000000");
    let finding = |found| Message::RollAnswer {
        call: u64::MAX,
        findings: vec![(suspect, found)],
        missed: Vec::new(),
    };
    let nonce = u64::from(u32::MAX);
    // Those of docs/architecture.md.
    let sizes = [
        (Message::Probe { nonce }, 22),
        (Message::ProbeAck { nonce }, 22),
        (Message::NotMe { nonce }, 22),
        (
            Message::DialMe {
                nonce: u64::MAX,
                endpoint: suspect.endpoint(),
            },
            34,
        ),
        (Message::DialBack { nonce: u64::MAX }, 27),
        (
            Message::AskDelta {
                table_id: header.table_id,
                have: 300,
            },
            39,
        ),
        (
            Message::Farewell {
                version: 300,
                delta: None,
            },
            20,
        ),
        (Message::YouAreDead { version: 300 }, 19),
        (
            Message::RollCall {
                call: u64::MAX,
                suspects: vec![(suspect, 4_500)],
            },
            43,
        ),
        (finding(Finding::Reached), 43),
        (
            finding(failed(Some(5_000), Some(Some(1_763_000_000_000)))),
            60,
        ),
        (
            Message::RollResult {
                suspects: vec![suspect],
                reached: 40,
                wait: Duration::new(5, 250_000_000),
            },
            37,
        ),
    ];
    for (body, bytes) in sizes {
        let name = body.name();
        assert_eq!(written(&header, body), bytes, "{name}");
    }
}
