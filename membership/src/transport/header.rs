//! The header of a message as bytes. It leaves out what both ends of a connection know.
//!
//! Most of a header never changes: who sends, to whom, in which cluster. The handshake of a
//! connection has [fixed](Fixed) it, so a header on that connection carries only the parts that
//! differ. Each header stands for itself: it does not depend on messages before it, which may have
//! been dropped. Without a handshake every part is there. Headers of members without a table are not
//! taken apart: see `tcp/again.rs`.
//!
//! ```text
//! 3 bits     the encoding
//! 5 bits     which of the next five parts are there
//!            cluster and protocol | from | instance | to | table id
//! always     version, 8 bytes of digest
//! ```

use membership_core::protocol::Header;
use membership_core::{InstanceId, SiloAddress, TableId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::{DecodeError, EncodeError};

/// The encoding of this build. Earlier ones, which no release had, are 0 here.
const ENCODING: u8 = 2;
/// How many bits of the first byte say which parts are there.
const PARTS: u8 = 5;
const CLUSTER: u8 = 1;
const FROM: u8 = 1 << 1;
const INSTANCE: u8 = 1 << 2;
const TO: u8 = 1 << 3;
const TABLE: u8 = 1 << 4;
const ALL: u8 = (1 << PARTS) - 1;

/// What a handshake has fixed of the headers that follow it in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fixed {
    pub(super) cluster: u64,
    pub(super) protocol: u16,
    pub(super) from: SiloAddress,
    pub(super) instance: InstanceId,
    pub(super) to: Option<SiloAddress>,
    pub(super) table_id: Option<TableId>,
}

impl Fixed {
    /// The parts of a header that a receiver does not know.
    fn missing(&self, header: &Header) -> u8 {
        let is_new = [
            (
                CLUSTER,
                (self.cluster, self.protocol) != (header.cluster, header.protocol),
            ),
            (FROM, self.from != header.from),
            (INSTANCE, self.instance != header.instance),
            (TO, self.to != header.to),
            (TABLE, self.table_id != header.table_id),
        ];
        let new = is_new.into_iter().filter(|(_, is_new)| *is_new);
        new.fold(0, |parts, (part, _)| parts | part)
    }
}

/// The bytes of a header, without what is fixed; all of it where nothing is.
pub(super) fn put(header: &Header, fixed: Option<&Fixed>) -> Result<Vec<u8>, EncodeError> {
    let parts = fixed.map_or(ALL, |fixed| fixed.missing(header));
    let mut bytes = Vec::with_capacity(if parts == 0 { 24 } else { 96 });
    bytes.push(ENCODING << PARTS | parts);
    let has = |part: u8| parts & part != 0;
    if has(CLUSTER) {
        add(&mut bytes, &(header.cluster, header.protocol))?;
    }
    if has(FROM) {
        add(&mut bytes, &header.from)?;
    }
    if has(INSTANCE) {
        add(&mut bytes, &header.instance)?;
    }
    if has(TO) {
        add(&mut bytes, &header.to)?;
    }
    if has(TABLE) {
        add(&mut bytes, &header.table_id)?;
    }
    // A digest has no small values, so it is no number of variable length.
    add(&mut bytes, &(header.version, header.digest.to_le_bytes()))?;
    Ok(bytes)
}

fn add(bytes: &mut Vec<u8>, part: &impl Serialize) -> Result<(), EncodeError> {
    *bytes = postcard::to_extend(part, std::mem::take(bytes)).map_err(EncodeError::new)?;
    Ok(())
}

/// The header that bytes begin with, and what follows it.
pub(super) fn take<'a>(
    bytes: &'a [u8],
    fixed: Option<&Fixed>,
) -> Result<(Header, &'a [u8]), DecodeError> {
    let ended = || DecodeError::damaged(postcard::Error::DeserializeUnexpectedEnd);
    let (first, rest) = bytes.split_first().ok_or_else(ended)?;
    if first >> PARTS != ENCODING {
        return Err(DecodeError::Encoding(first >> PARTS));
    }
    let mut parts = Parts {
        there: first & ALL,
        rest,
    };
    let (cluster, protocol) = parts.take(CLUSTER, fixed.map(|f| (f.cluster, f.protocol)))?;
    let from = parts.take(FROM, fixed.map(|f| f.from))?;
    let instance = parts.take(INSTANCE, fixed.map(|f| f.instance))?;
    let mut header = Header::new(cluster, from, instance);
    header.protocol = protocol;
    header.to = parts.take(TO, fixed.map(|f| f.to))?;
    header.table_id = parts.take(TABLE, fixed.map(|f| f.table_id))?;
    let (version, digest) = parts.next::<(u64, [u8; 8])>()?;
    (header.version, header.digest) = (version, u64::from_le_bytes(digest));
    Ok((header, parts.rest))
}

/// A header that is being read.
struct Parts<'a> {
    there: u8,
    rest: &'a [u8],
}

impl Parts<'_> {
    /// A part: as it is there, or else as it is fixed.
    fn take<T: DeserializeOwned>(&mut self, part: u8, fixed: Option<T>) -> Result<T, DecodeError> {
        if self.there & part != 0 {
            self.next()
        } else {
            fixed.ok_or(DecodeError::Incomplete)
        }
    }

    fn next<T: DeserializeOwned>(&mut self) -> Result<T, DecodeError> {
        let (value, rest) = postcard::take_from_bytes(self.rest).map_err(DecodeError::damaged)?;
        self.rest = rest;
        Ok(value)
    }
}
