//! The options of both relays: all mistakes at once before anything is opened, the name of the
//! other relay, and a policy map that is pushed again.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use common::ports::free_port;
use common::running::{AUSTER, Running};
use common::{run, wait_until};
use serde_json::Value;

/// Runs `auster` in a folder.
fn auster(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(AUSTER);
    command.current_dir(dir).args(words).output().unwrap()
}

fn out(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The arguments of a controller's relay and of a switch's relay.
fn ends<'a>(listen: &'a str, connect: &'a str) -> ([&'a str; 5], [&'a str; 5]) {
    let openflow = "--openflow";
    (
        [
            "controller",
            "--listen",
            listen,
            openflow,
            "tcp:127.0.0.1:1",
        ],
        ["switch", openflow, "ptcp:0:127.0.0.1", "--connect", connect],
    )
}

/// A folder with the certificates of `ctl` and `s1`.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for words in [&["init"][..], &["controller", "ctl"], &["switch", "s1"]] {
        let made = auster(dir.path(), &[&["pki"], words].concat());
        assert!(made.status.success(), "{made:?}");
    }
    dir
}

/// The options of a relay with its certificate.
fn certified(name: &str) -> [String; 6] {
    let peers = if name == "ctl" {
        "switch"
    } else {
        "controller"
    };
    let words = [
        "-p",
        &format!("{name}-privkey.pem"),
        "-c",
        &format!("{name}-cert.pem"),
        "-C",
        &format!("pki/{peers}ca/cacert.pem"),
    ];
    words.map(str::to_owned)
}

fn start(dir: &Path, name: &str, words: &[&str]) -> Running {
    let mut command = Command::new(AUSTER);
    command.current_dir(dir).args(["--log", "info", "relay"]);
    Running::spawn({
        command.args(words).args(certified(name));
        command
    })
}

#[test]
fn check_finds_all_mistakes_of_options_and_files_and_opens_nothing() {
    let dir = folder();
    let dir = dir.path();
    std::fs::write(dir.join("bad.policy"), "Rule #1: color=red\n").unwrap();
    let wrong = auster(
        dir,
        &[
            "relay",
            "switch",
            "--check",
            "--openflow",
            "ptcp:6653",
            "--ovsdb",
            "punix:none/db.sock",
            "--agent",
            "gnmi=ptcp:6653:127.0.0.1",
            "--agent",
            "snmp",
            "--connect",
            "quic:192.0.2.1",
            "--nudge",
            "--policy",
            "bad.policy",
            "--coalesce",
            "1ms",
            "--policy-store",
            "none/stored.policy",
            "--queues-db",
            "udp:h",
            "--status",
            "tcp:127.0.0.1",
            "--record",
            "none/record",
            "--metrics",
            "0.0.0.0:9101",
            "-p",
            "none.pem",
            "-c",
            "s1-cert.pem",
            "-C",
            "ca.pem",
        ],
    );
    let said = out(&wrong.stderr);
    for mistake in [
        "none.pem: No such file",
        "ca.pem: No such file",
        "--agent snmp: write NAME=METHOD",
        "--nudge needs --ovsdb",
        "bad.policy: line 1, column",
        "--coalesce and --duplicate are for relays without --policy",
        "none/stored.policy: No such file",
        "udp:h",
        "--status: 'tcp:127.0.0.1' is no Unix socket: write unix:FILE or FILE",
        "none/record: No such file",
        "--metrics 0.0.0.0:9101 is beyond this machine",
        "--agent: gnmi",
        "--ovsdb: none/db.sock: none is not there",
    ] {
        let is_it = |line: &str| match mistake {
            "--agent: gnmi" => line.starts_with("--openflow:") || line.starts_with("--agent:"),
            mistake => line.contains(mistake),
        };
        assert!(said.lines().any(is_it), "{mistake} is not in:\n{said}");
    }
    assert_eq!(wrong.status.code(), Some(2), "{said}");
    assert!(!said.contains("s1-cert.pem"), "{said}");

    let wrong = ["--listen", "tcp:127.0.0.1", "--openflow", "ptcp:6653"];
    let wrong = auster(
        dir,
        &[&["relay", "controller", "--check"], &wrong[..]].concat(),
    );
    let said = out(&wrong.stderr);
    assert!(
        said.contains("--listen tcp:127.0.0.1: relays listen on"),
        "{said}"
    );
    assert!(
        said.contains("--openflow ptcp:6653: this end dials"),
        "{said}"
    );
    assert!(said.contains("has 2 mistakes, see above"), "{said}");

    // An address that another process uses is no mistake here: nothing is opened.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let [openflow, connect] = [
        format!("ptcp:{port}:127.0.0.1"),
        "quic:192.0.2.1".to_owned(),
    ];
    let good = ["--openflow", &openflow, "--connect", &connect];
    let files = [
        "--status",
        "status",
        "--record",
        "record",
        "--window-bytes",
        "512k",
    ];
    let certified = certified("s1");
    let certified: Vec<&str> = certified.iter().map(String::as_str).collect();
    let words = [
        &["relay", "switch", "--check"],
        &good[..],
        &files,
        &certified,
    ]
    .concat();
    let good = auster(dir, &words);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    assert_eq!(out(&good.stdout), "the command line is good\n");
    assert!(!dir.join("status").exists() && !dir.join("record").exists());
}

#[test]
fn a_start_opens_its_first_port_after_all_options_and_files_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "relay",
        "switch",
        "--openflow",
        "ptcp:0:127.0.0.1",
        "--connect",
        "tcp:192.0.2.1",
    ];
    for (more, code) in [
        (&["--record", "none/record"][..], 5),
        (&["--status", "tcp:127.0.0.1"], 2),
        (&["--metrics", "0", "--metrics-tokens", "none"], 5),
        (&["--policy", "auster", "--policy-store", "none/map"], 5),
        (&["--window-bytes", "4X"], 2),
    ] {
        let ended = auster(dir.path(), &[&words[..], more].concat());
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert_eq!(out(&ended.stdout), "", "{more:?}");
    }
}

/// A sample of a relay that serves metrics.
fn sample(relay: &mut Running, series: &str) -> Option<f64> {
    let line = relay.wait_for("metrics on ");
    let at = line.rsplit(' ').next().unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line?.trim().parse().ok()
}

#[test]
fn a_relay_takes_only_one_of_the_name_it_is_given_and_names_the_certificate_it_refuses() {
    let dir = folder();
    let dir = dir.path();
    let port = free_port();
    let listen = format!("pquic:{port}:127.0.0.1");
    let connect = format!("quic:127.0.0.1:{port}");
    let (hub, switch) = ends(&listen, &connect);
    let metrics = ["--metrics", "0"];
    let refused = "auster_relay_handshakes_refused_total{reason=\"certificate\"}";

    let strict = ["--peer-name", "s2"];
    let mut controller = start(dir, "ctl", &[&hub[..], &metrics, &strict].concat());
    controller.wait_for("listening");
    let other = start(dir, "s1", &switch);
    let line = controller.wait_for("refused certificate");
    for words in [
        "s1', serial ",
        "its certificate names 's1'; 's2' is expected",
    ] {
        assert!(line.contains(words), "{line}");
    }
    assert!(sample(&mut controller, refused).unwrap() >= 1.0);
    drop((other, controller));

    let named = ["--peer-name", "s2", "--peer-name", "s1"];
    let mut controller = start(dir, "ctl", &[&hub[..], &named].concat());
    controller.wait_for("listening");
    let strict = ["--peer-name", "other"];
    let mut relay = start(dir, "s1", &[&switch[..], &metrics, &strict].concat());
    let line = relay.wait_for("refused certificate");
    for words in [
        "ctl', serial ",
        "its certificate names 'ctl'; 'other' is expected",
    ] {
        assert!(line.contains(words), "{line}");
    }
    // The certificate is refused at each attempt, and the log has the line once.
    wait_until("it was refused three times", || {
        sample(&mut relay, refused).unwrap() >= 3.0
    });
    let lines = relay
        .log
        .iter()
        .filter(|line| line.contains("refused certificate"));
    assert_eq!(lines.count(), 1, "{:#?}", relay.log);
    drop(relay);
    let strict = ["--peer-name", "CTL"];
    let mut relay = start(dir, "s1", &[&switch[..], &strict].concat());
    relay.wait_for("connected");
    controller.wait_for("connected");
}

#[test]
fn a_map_that_is_pushed_again_changes_nothing_and_says_so() {
    let dir = folder();
    let dir = dir.path();
    std::fs::write(
        dir.join("map"),
        "Generation: 7\nRule #1: traffic_type=1, action=queue_id:0\nDefault: action=queue_id:1\n",
    )
    .unwrap();
    let push = |status: &str| {
        let pushed = auster(dir, &["policy", "push", "map", "--relay", status]);
        assert_eq!(pushed.status.code(), Some(0), "{pushed:?}");
        out(&pushed.stdout)
    };
    let port = free_port();
    let listen = format!("pquic:{port}:127.0.0.1");
    let connect = format!("quic:127.0.0.1:{port}");
    let (hub, switch) = ends(&listen, &connect);
    let scheduled = |status| ["--policy", "auster", "--status", status];
    let mut controller = start(dir, "ctl", &[&hub[..], &scheduled("c.status")].concat());
    controller.wait_for("listening");
    let mut relay = start(
        dir,
        "s1",
        &[&switch[..], &scheduled("unix:s.status")].concat(),
    );
    relay.wait_for("connected");
    controller.wait_for("connected");
    let first = push("c.status");
    assert!(first.starts_with("s1: in use at both ends"), "{first}");
    for status in ["c.status", "unix:c.status", "s.status"] {
        let again = push(status);
        assert!(
            again.contains(": nothing changed, in use at both ends"),
            "{again}"
        );
    }

    let direct = [
        "switch",
        "--openflow",
        "ptcp:0:127.0.0.1",
        "--connect",
        "tcp:192.0.2.1:1",
    ];
    let mut relay = start(dir, "s1", &[&direct[..], &scheduled("d.status")].concat());
    relay.wait_for("listening");
    wait_until("its status is served", || dir.join("d.status").exists());
    assert!(push("d.status").contains(": in use at this end"));
    assert!(push("d.status").contains(": nothing changed, in use at this end"));
}

#[test]
fn certificates_and_policy_maps_are_described_as_json() {
    let dir = folder();
    let shown = auster(dir.path(), &["pki", "show", "s1-cert.pem", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(
        (&shown["role"], &shown["is_authority"]),
        (&"switch".into(), &false.into())
    );
    assert!(
        shown["valid_until"].as_str().unwrap().ends_with('Z'),
        "{shown}"
    );
    let map = dir.path().join("map").display().to_string();
    std::fs::write(&map, "").unwrap();
    let check = [
        "policy",
        "check",
        &map,
        "--json",
        "--active-generation",
        "3",
    ];
    let checked = auster(dir.path(), &check);
    assert_eq!(checked.status.code(), Some(2));
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked["good"], false);
    let problem = &checked["problems"][0];
    assert_eq!(
        (&problem["line"], &problem["column"]),
        (&1.into(), &1.into()),
        "{checked}"
    );
    let text = "Generation: 4\nDefault: action=queue_id:0\n";
    std::fs::write(&map, text).unwrap();
    let good: Value = serde_json::from_str(&run(AUSTER, &check)).unwrap();
    assert_eq!(
        (&good["good"], &good["generation"]),
        (&true.into(), &4.into())
    );
}
