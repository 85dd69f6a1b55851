//! `checks/membership.rs` on whatever the fuzzer thinks of.

#![no_main]

#[path = "../checks/membership.rs"]
mod membership;

libfuzzer_sys::fuzz_target!(|data: &[u8]| membership::check(data));
