//! Helpers of the tests that need a real Open vSwitch. Each test uses some of them.
#![allow(dead_code, reason = "each test uses its part of it")]

pub mod dummy;
pub mod lab;
pub mod ports;
pub mod relays;
pub mod running;
pub mod schema;
pub mod switch;

use std::process::Command;

/// The project's folder, from the package of the test.
const ROOT: &str = match option_env!("CARGO_BIN_EXE_auster") {
    Some(_) => concat!(env!("CARGO_MANIFEST_DIR"), "/../.."),
    None => concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."),
};

/// The program under test. Tests of the laboratory find it beside the laboratory's own program:
/// `cargo test --workspace` builds both, and `cargo build` before `cargo test -p auster-lab`.
pub const AUSTER: &str = match (
    option_env!("CARGO_BIN_EXE_auster"),
    option_env!("CARGO_BIN_EXE_auster-lab"),
) {
    (Some(auster), _) => auster,
    (None, Some(laboratory)) => laboratory.split_at(laboratory.len() - "-lab".len()).0,
    (None, None) => panic!("neither program is built for this test"),
};

/// Runs a program to its end, and panics with its error output if it fails.
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

/// Waits until `is_so` returns true, and panics with `what` if it never does.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = std::time::Instant::now() + running::PATIENCE;
    while !is_so() {
        assert!(
            std::time::Instant::now() < give_up,
            "it never came that {what}"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
