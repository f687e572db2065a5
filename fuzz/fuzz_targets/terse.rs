//! The target `terse` of `membership-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| membership_fuzz::read("terse", bytes));
