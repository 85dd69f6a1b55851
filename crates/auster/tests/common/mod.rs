//! Helpers of the tests that need a real Open vSwitch. Each test uses some of them.
#![allow(dead_code)]

pub mod dummy;
pub mod lab;
pub mod relays;
pub mod running;
pub mod schema;
pub mod switch;

use std::process::Command;

/// Runs a program to its end, and panics with its words if it fails.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}: run scripts/setup"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
