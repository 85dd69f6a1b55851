//! `checks/experimenter.rs` on whatever the fuzzer thinks of.

#![no_main]

#[path = "../checks/experimenter.rs"]
mod experimenter;

libfuzzer_sys::fuzz_target!(|data: &[u8]| experimenter::check(data));
