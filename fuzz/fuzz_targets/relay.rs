//! `checks/relay.rs` on whatever the fuzzer thinks of.

#![no_main]

#[path = "../checks/relay.rs"]
mod relay;

libfuzzer_sys::fuzz_target!(|data: &[u8]| relay::check(data));
