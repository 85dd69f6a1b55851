//! `checks/text.rs` on whatever the fuzzer thinks of.

#![no_main]

#[path = "../checks/text.rs"]
mod text;

libfuzzer_sys::fuzz_target!(|data: &[u8]| text::check(data));
