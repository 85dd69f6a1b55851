//! `checks/frame.rs` on whatever the fuzzer thinks of.

#![no_main]

#[path = "../checks/frame.rs"]
mod frame;

libfuzzer_sys::fuzz_target!(|data: &[u8]| frame::check(data));
