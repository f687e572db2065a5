//! Measuring a table against the store's own cheapest write and read, in one run: what `membership bench` does.
//!
//! * `grounds`: clusters of this run's own, filled with rows, and gone when it ends, however it ends.
//! * `operations`: one client, how long each operation takes.
//! * `writers`: many clients at once, how many commits get through.
//! * `progress`, `report`: what is seen meanwhile, and what comes out.
//!
//! Absolute times say more about a machine than about a table. So each figure stands beside that of the store itself, and the two are
//! taken in turns: what disturbs one disturbs the other.

pub(crate) mod grounds;
pub(crate) mod operations;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod writers;
