//! The rules of states, on states that random histories have made.

mod history;
mod properties;
mod rules;
mod wire;
