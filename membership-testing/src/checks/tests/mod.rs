//! Tests of the checkers. Each one must detect a planted bug: a made-up history, or a silo that
//! misbehaves.

mod deaths;
mod end;
mod load;
mod roll_calls;
mod stage;
mod views;

pub(super) use stage::*;
