//! The REST API as a client sees it: over a socket, and under a fuzzer driven by the document in
//! which the API describes itself.

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

/// Runs schemathesis against an API, with further arguments.
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
        // The answers of these paths have no end.
        .args(["--exclude-path-regex", "^/v1/(events|live)$"])
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

/// Sends requests that fit the document and requests that do not. No answer reports a failure of
/// the server, and the document describes every answer.
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

/// The same for an API with users, as a user who may do everything.
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

/// The socket is open to its owner only, and requests name no port.
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

/// Silent connections keep no other client out for long.
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

/// The body and the status of an answer.
fn asked(at: SocketAddr, method: &str, path: &str, body: &str) -> (String, String) {
    let url = format!("http://{at}{path}");
    let told = run(
        "curl",
        &[
            "-s",
            "-X",
            method,
            "-d",
            body,
            "-w",
            "\n%{http_code} %header{etag}",
            &url,
        ],
    );
    let (body, status) = told.rsplit_once('\n').unwrap();
    (body.to_owned(), status.to_owned())
}

/// After a restart the controller has everything that the API was asked for, however the process
/// ended.
#[test]
fn a_restart_has_what_the_api_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let state = state.to_str().unwrap();
    let (mut running, at) = serving(&["--state", state]);
    let (_, made) = asked(at, "PUT", "/v1/services/voice", r#"{"proto": "udp"}"#);
    assert!(made.starts_with("201 \""), "{made}");
    asked(
        at,
        "PUT",
        "/v1/policies/first",
        r#"{"service": "voice", "drop": true}"#,
    );
    let places = r#"{"places":{"0000000000000001":[-75,0]}}"#;
    let (_, placed) = asked(at, "PUT", "/v1/layout", places);
    let second = Command::new(common::running::AUSTER)
        .args(["run", "ptcp:0:127.0.0.1", "--state", state])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("another auster run uses it"), "{said}");
    running.child.kill().unwrap();
    running.child.wait().unwrap();

    let (mut running, at) = serving(&["--state", state]);
    let (_, again) = asked(at, "GET", "/v1/services/voice", "");
    assert_eq!(again, made.replace("201", "200"));
    let placed = (places.to_owned(), placed.replace("201", "200"));
    assert_eq!(asked(at, "GET", "/v1/layout", ""), placed);
    let (policy, _) = asked(at, "GET", "/v1/policies/first", "");
    assert!(policy.contains("voice"), "{policy}");

    // The same documents move to another controller, by a file.
    let export = run(
        common::running::AUSTER,
        &["state", "export", "--api", &at.to_string()],
    );
    let file = dir.path().join("export.json");
    std::fs::write(&file, export).unwrap();
    let (_other, other_at) = serving(&[]);
    let import = [
        "state",
        "import",
        file.to_str().unwrap(),
        "--api",
        &other_at.to_string(),
    ];
    assert_eq!(
        run(common::running::AUSTER, &import),
        "3 created, 0 replaced\n"
    );
    assert_eq!(asked(other_at, "GET", "/v1/layout", "").0, places);
    let (other_policy, _) = asked(other_at, "GET", "/v1/policies/first", "");
    assert_eq!(other_policy, policy);
    running.child.kill().unwrap();
    running.child.wait().unwrap();

    // A torn file is put aside, and the network starts.
    let file = Path::new(state).join("intent.json");
    let torn = &std::fs::read(&file).unwrap()[..40];
    std::fs::write(&file, torn).unwrap();
    let (mut running, at) = serving(&["--state", state]);
    let line = running.wait_for("intent.json: it cannot be read");
    let aside = line
        .split("kept as ")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap();
    assert_eq!(std::fs::read(aside).unwrap(), torn);
    let (_, gone) = asked(at, "GET", "/v1/services/voice", "");
    assert!(gone.starts_with("404"), "{gone}");
    let (_, made) = asked(at, "PUT", "/v1/services/voice", "{}");
    assert!(made.starts_with("201"), "{made}");
}
