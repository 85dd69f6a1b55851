//! `checks/message.rs` on whatever the fuzzer thinks of.

#![no_main]

#[path = "../checks/message.rs"]
mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check(data));
