//! `checks/policy.rs` on whatever the fuzzer thinks of.

#![no_main]

#[path = "../checks/policy.rs"]
mod policy;

libfuzzer_sys::fuzz_target!(|data: &[u8]| policy::check(data));
