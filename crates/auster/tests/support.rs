//! `auster health` and `auster support` beside a controller and a relay that run.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::running::{AUSTER, Running};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn auster(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(AUSTER);
    command.args(words).current_dir(dir);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A mark that stands in each file with a secret.
const MARK: &str = "MARKED-SECRET";

fn signal(running: &Running, signal: Signal) {
    kill(Pid::from_raw(running.child.id().cast_signed()), signal).unwrap();
}

#[test]
fn health_is_an_exit_code_and_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let status = at.join("status.sock").display().to_string();
    let mut run = Running::start(&["run", "ptcp:0:127.0.0.1", "--api", "0", "--status", &status]);
    let api = run.wait_for("API on ");
    let api = api.split("http://").nth(1).unwrap();
    let api = api.split('/').next().unwrap().to_owned();
    for words in [["--api", &api], ["--status", &status]] {
        let words: Vec<&str> = ["health"].into_iter().chain(words).collect();
        let output = auster(at, &words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
        let said = text(&output.stdout);
        assert!(
            said.starts_with("ready: ") && said.lines().count() == 1,
            "{said}"
        );
        let output = auster(at, &[&words[..], &["--json"]].concat());
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["is_healthy"], true, "{document}");
    }
    // The controller hangs.
    signal(&run, Signal::SIGSTOP);
    for words in [["--api", &api], ["--status", &status]] {
        let words: Vec<&str> = ["health", "--json"].into_iter().chain(words).collect();
        let output = auster(at, &words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["is_healthy"], false, "{document}");
        assert!(text(&output.stderr).contains("no answer within 5 s"));
    }
    signal(&run, Signal::SIGCONT);
    drop(run);
    let output = auster(at, &["health", "--api", &api]);
    assert_eq!(output.status.code(), Some(1), "nobody is there: {output:?}");
    let output = auster(at, &["health", "--status", &status]);
    assert_eq!(output.status.code(), Some(1), "nobody is there: {output:?}");
}

#[test]
fn a_relay_is_healthy_while_it_answers() {
    let dir = tempfile::tempdir().unwrap();
    let status = dir.path().join("relay.sock").display().to_string();
    let words = ["relay", "switch", "--openflow", "ptcp:0:127.0.0.1"];
    let more = [
        "--connect",
        "tcp:127.0.0.1:9",
        "--status",
        &format!("unix:{status}"),
    ];
    let words: Vec<&str> = words.into_iter().chain(more).collect();
    let mut relay = Running::start(&words);
    relay.wait_for("listening");
    common::wait_until("the relay answers", || {
        auster(dir.path(), &["health", "--status", &status])
            .status
            .code()
            == Some(0)
    });
    let output = auster(dir.path(), &["health", "--status", &status]);
    assert!(
        text(&output.stdout).starts_with("a relay: 0 "),
        "{output:?}"
    );
    let made = dir.path().join("r.tar.gz").display().to_string();
    let words = [
        "support",
        "--status",
        &status,
        "--api",
        "127.0.0.1:9",
        "--out",
        &made,
    ];
    let output = auster(dir.path(), &words);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    assert!(
        said.contains("status-1.json: ") && said.contains("metrics.txt: left out"),
        "{said}"
    );
}

#[test]
fn a_bundle_has_what_is_needed_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    for words in [&["init"][..], &["controller", "c"]] {
        let words: Vec<&str> = ["pki"].into_iter().chain(words.iter().copied()).collect();
        assert!(auster(at, &words).status.success());
    }
    let words = [
        "api", "token", "add", "me", "--role", "admin", "--file", "tokens",
    ];
    let output = auster(at, &words);
    assert!(output.status.success(), "{output:?}");
    let token = text(&output.stdout);
    let token = token
        .split_whitespace()
        .find(|word| word.starts_with("auster-"));
    let token = token.expect("a token").to_owned();
    fs::write(at.join("token"), format!("{token}\n")).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(at.join("token"), private).unwrap();
    let config = format!(
        "# {MARK} in a comment\nlisten = \"pssl:0:127.0.0.1\"\nstatus = \"status.sock\"\n\
         [tls]\nprivate_key = \"c-privkey.pem\"\ncertificate = \"c-cert.pem\"\n\
         ca = \"pki/switchca/cacert.pem\"\n[api]\nlisten = \"0\"\ntokens = \"tokens\"\n"
    );
    fs::write(at.join("net.toml"), &config).unwrap();
    // A careless operator has a key in the file of the certificate, and notes in the others.
    let key = fs::read_to_string(at.join("c-privkey.pem")).unwrap();
    let certificate = fs::read_to_string(at.join("c-cert.pem")).unwrap();
    fs::write(at.join("c-cert.pem"), format!("{MARK}\n{certificate}{key}")).unwrap();
    fs::write(at.join("c-privkey.pem"), format!("{MARK}\n{key}")).unwrap();
    let path = at.join("net.toml").display().to_string();
    let mut run = Running::start(&["run", "--config", &path]);
    let api = run.wait_for("API on ");
    let api = api.split("http://").nth(1).unwrap();
    let api = api.split('/').next().unwrap().to_owned();

    let words = [
        "support",
        "--config",
        "net.toml",
        "--status",
        "status.sock",
        "--api",
        &api,
        "--token-file",
        "token",
        "--certificate",
        "c-privkey.pem",
    ];
    let output = auster(at, &words);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    let made = at.join("auster-support.tar.gz");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&made).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    common::run(
        "tar",
        &["-xzf", made.to_str().unwrap(), "-C", at.to_str().unwrap()],
    );
    let read = |name: &str| {
        let path = at.join("auster-support").join(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}\n{said}"))
    };
    for name in [
        "versions.json",
        "config.json",
        "certificates.txt",
        "status-1.json",
        "metrics.txt",
        "ready.json",
        "events.ndjson",
        "topology.json",
        "switches.json",
        "state.json",
        "access.json",
    ] {
        assert!(said.contains(&format!("{name}: ")), "{said}");
        read(name);
    }
    assert!(read("config.json").contains("pssl:0:127.0.0.1"));
    assert!(read("certificates.txt").contains("valid until"));
    assert!(read("metrics.txt").contains("auster_certificate_expiry_seconds"));
    assert!(read("events.ndjson").contains("\"event\":\"listening\""));
    assert!(read("ready.json").contains("ready"));
    let secret_line = key.lines().nth(1).unwrap();
    for entry in fs::read_dir(at.join("auster-support")).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::read_to_string(&path).unwrap();
        for secret in [
            MARK,
            &token,
            &token["auster-".len()..],
            secret_line,
            "PRIVATE KEY",
        ] {
            assert!(!found.contains(secret), "{secret} is in {}", path.display());
        }
    }
    // An existing file is not overwritten.
    let again = auster(at, &words);
    assert_eq!(again.status.code(), Some(5), "{again:?}");
}
