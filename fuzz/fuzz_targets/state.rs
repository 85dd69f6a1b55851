//! `checks/state.rs` on whatever the fuzzer thinks of.

#![no_main]

#[path = "../checks/state.rs"]
mod state;

libfuzzer_sys::fuzz_target!(|data: &[u8]| state::check(data));
