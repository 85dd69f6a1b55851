//! The Python package in `contrib/python`: its own tests, with the program that has been built.

use std::path::Path;
use std::process::Command;

/// Runs a module of the package's tests.
fn run(module: &str) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/python");
    let output = Command::new("python3")
        .args(["-W", "error::SyntaxWarning", "-m", "unittest", module])
        .current_dir(&package)
        .env("AUSTER", env!("CARGO_BIN_EXE_auster"))
        .env("PYTHONPATH", package.join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap_or_else(|error| panic!("python3: {error}"));
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    // A module without tests succeeds too.
    assert!(report.contains("\nOK"), "{report}");
    assert!(!report.contains("Ran 0 tests"), "{report}");
}

#[test]
fn fields_of_packets() {
    run("tests.test_packets");
}

#[test]
fn the_client_against_a_server_of_its_own() {
    run("tests.test_network");
}

#[test]
fn the_client_against_auster() {
    run("tests.test_real");
}

#[test]
fn examples_on_a_real_open_vswitch() {
    run("tests.test_examples");
}

#[test]
fn programs_of_the_tutorial() {
    run("tests.test_tutorial");
}
