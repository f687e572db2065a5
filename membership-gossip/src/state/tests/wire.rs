//! What is sent arrives.

use proptest::prelude::*;

use super::history::{World, steps};
use crate::state::wire::WireState;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_state_survives_the_wire(steps in steps(60)) {
        for state in World::run(&steps).states {
            let bytes = postcard::to_stdvec(&WireState::of(&state)).unwrap();
            let read: WireState = postcard::from_bytes(&bytes).unwrap();
            prop_assert_eq!(read.into_state().unwrap(), state);
        }
    }
}
