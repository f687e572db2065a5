//! States and deltas as bytes, deflated where that makes them smaller.

use std::sync::Arc;

use membership_core::encoding::bounded_by;
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use serde::{Deserialize, Deserializer, Serialize};

use super::codec::{DecodeError, MAX_BYTES, MAX_INFLATED};
use crate::state::Gossip;
use crate::state::wire::WireState;

/// Shorter states are sent as they are.
const DEFLATE_FROM: usize = 512;
/// Of 0 to 10: the fastest that finds repetitions. States are sent often and to many.
const LEVEL: u8 = 1;

/// A state with the bits of its seen set, maybe deflated.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Packed {
    deflated: bool,
    #[serde(deserialize_with = "bytes")]
    bytes: Vec<u8>,
}

fn bytes<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
    bounded_by::<MAX_BYTES, u8, D>(d)
}

impl Packed {
    pub(super) fn of(content: &impl Serialize) -> Result<Self, postcard::Error> {
        let bytes = postcard::to_extend(content, Vec::new())?;
        if bytes.len() >= DEFLATE_FROM {
            let deflated = compress_to_vec(&bytes, LEVEL);
            if deflated.len() < bytes.len() {
                let (bytes, deflated) = (deflated, true);
                return Ok(Self { deflated, bytes });
            }
        }
        let deflated = false;
        Ok(Self { deflated, bytes })
    }

    pub(super) fn read<T: for<'de> Deserialize<'de>>(&self) -> Result<T, DecodeError> {
        if !self.deflated {
            return Ok(postcard::from_bytes(&self.bytes)?);
        }
        let bytes = decompress_to_vec_with_limit(&self.bytes, MAX_INFLATED).map_err(|e| match e
            .status
        {
            miniz_oxide::inflate::TINFLStatus::HasMoreOutput => DecodeError::TooLong(MAX_INFLATED),
            _ => DecodeError::Invalid("a state that is not deflated as it says"),
        })?;
        Ok(postcard::from_bytes(&bytes)?)
    }

    pub(super) fn of_gossip(gossip: &Gossip) -> Result<Self, postcard::Error> {
        Self::of(&(WireState::of(gossip.state()), gossip.seen().bits()))
    }

    pub(super) fn gossip(&self) -> Result<Arc<Gossip>, DecodeError> {
        let (state, bits): (WireState, Vec<u8>) = self.read()?;
        let mut state = state.into_state().map_err(DecodeError::Invalid)?;
        state.forget_strangers(state.named());
        Ok(Arc::new(Gossip::with_seen(state, bits)))
    }
}
