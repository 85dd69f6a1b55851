//! `checks/ovsdb.rs` on whatever the fuzzer thinks of.

#![no_main]

#[path = "../checks/ovsdb.rs"]
mod ovsdb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| ovsdb::check(data));
