//! `checks/scheduler.rs` on whatever the fuzzer thinks of.

#![no_main]

#[path = "../checks/scheduler.rs"]
mod scheduler;

libfuzzer_sys::fuzz_target!(|data: &[u8]| scheduler::check(data));
