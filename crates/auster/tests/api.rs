//! The REST API as a client sees it: over a socket, and under a fuzzer that is driven by the
//! document that the API gives of itself.

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

/// Runs schemathesis against an API, with these arguments too.
fn fuzz(at: SocketAddr, checks: &str, more: &[&str]) {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers/schemathesis");
    let setup = peers.join("setup");
    run(
        setup.to_str().unwrap(),
        &["schemathesis", environment.to_str().unwrap()],
    );
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
        .args(["--checks", checks])
        .args(more)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("passed"),
        "it must have sent something: {told}"
    );
}

/// Requests that fit the document and requests that do not: no answer is a failure of the server,
/// and every answer is one that the document describes.
#[test]
fn a_fuzzer_driven_by_the_document_finds_no_undescribed_answer() {
    let (mut running, at) = serving(&[]);
    fuzz(
        at,
        "not_a_server_error,status_code_conformance,content_type_conformance,\
         response_schema_conformance,unsupported_method,allow_header_conformance",
        &[],
    );
    assert!(running.is_running());
}

/// The same of an API with users, by one who may do everything.
#[test]
fn a_fuzzer_with_a_token_finds_no_undescribed_answer() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (tokens, config) = (file("tokens"), file("net.toml"));
    let add = ["api", "token", "add", "fuzzer", "--role", "admin", "--file"];
    let token = run(common::running::AUSTER, &[&add[..], &[&tokens]].concat());
    std::fs::write(&config, format!("[api]\ntokens = \"{tokens}\"\n")).unwrap();
    let (mut running, at) = serving(&["--config", &config]);
    let header = format!("Authorization: Bearer {}", token.trim());
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance";
    fuzz(at, checks, &["--header", &header]);
    assert!(running.is_running());
}

/// Its owner's alone, and spoken to without a port.
#[test]
fn the_api_is_served_on_a_unix_socket() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("api");
    let api = format!("unix:{}", socket.display());
    let mut running = Running::start(&["run", "ptcp:0:127.0.0.1", "--api", &api]);
    running.wait_for("API on unix:");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let path = socket.to_str().unwrap();
    let url = "http://localhost/v1/switches";
    let told = run("curl", &["-s", "--unix-socket", path, url]);
    assert!(told.contains("switches"), "{told}");
    let told = run(
        common::running::AUSTER,
        &["qos", "show", "--api", &api, "--json"],
    );
    assert!(told.starts_with('{'), "{told}");
    let evil = "http://evil.example/v1/switches";
    let told = run("curl", &["-s", "--unix-socket", path, evil]);
    assert!(told.contains("--api-host evil.example"), "{told}");
}

/// Connections that say nothing keep nobody else out for long.
#[test]
fn idle_connections_give_way_and_names_that_are_not_ours_are_refused() {
    let (mut running, at) = serving(&["--api-host", "controller.example"]);
    let idle: Vec<_> = (0..130)
        .map(|_| std::net::TcpStream::connect(at).unwrap())
        .collect();
    let url = format!("http://{at}/metrics");
    let told = run("curl", &["-s", "--max-time", "8", &url]);
    assert!(told.contains("auster_uptime_seconds"), "{told}");
    drop(idle);
    let asked = |host: &str| {
        let host = format!("Host: {host}");
        run(
            "curl",
            &[
                "-s",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "-H",
                &host,
                &url,
            ],
        )
    };
    assert_eq!(asked("controller.example"), "200");
    assert_eq!(asked("evil.example"), "403");
    assert!(running.is_running());
}
