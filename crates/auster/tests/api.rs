//! The REST API as a client sees it: over a socket, and under a fuzzer that is driven by the document
//! that the API gives of itself.

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use common::run;
use common::running::Running;

fn serving(args: &[&str]) -> (Running, SocketAddr) {
    let mut all = vec!["run", "ptcp:0:127.0.0.1", "--api", "0"];
    all.extend(args);
    let mut running = Running::start(&all);
    let line = running.wait_for("API on http://");
    let at = line.split("http://").nth(1).unwrap();
    let at = at.split('/').next().unwrap().parse().unwrap();
    (running, at)
}

/// Requests that fit the document and requests that do not: no answer is a failure of the server,
/// and every answer is one that the document describes.
#[test]
fn a_fuzzer_driven_by_the_document_finds_no_undescribed_answer() {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers/schemathesis");
    let setup = peers.join("setup");
    run(
        setup.to_str().unwrap(),
        &["schemathesis", environment.to_str().unwrap()],
    );
    let (mut running, at) = serving(&[]);
    let output = Command::new(environment.join("bin/schemathesis"))
        .args(["run", &format!("http://{at}/openapi.json")])
        .args(["--phases", "examples,coverage,fuzzing"])
        .args([
            "--max-examples",
            "30",
            "--generation-deterministic",
            "--no-color",
        ])
        .args(["--continue-on-failure", "--warnings", "off"])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,\
             response_schema_conformance,unsupported_method,allow_header_conformance",
        ])
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("passed"),
        "it must have sent something: {told}"
    );
    assert!(running.is_running());
}
