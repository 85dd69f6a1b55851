//! A control channel that breaks on a real network, with relays and with Open vSwitch's own TLS. As
//! root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::io::Write;

use common::lab::auster;
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

/// Three pairs of hosts at one switch. A busy machine may lose pings by itself, and may take long:
/// no claim is about time or lost pings.
const SCENARIO: &str = r#"
title = "test"
[topology]
graph = "single,6"
arp = "static"
fresh = true
[control]
delay_ms = 10
[controller]
transport = "$way"
addresses = ["172.30.1.1", "172.30.2.1"]
standby = "$standby"
[ready]
within = "180s"
pings = "streams"
[[traffic]]
id = "established"
kind = "ping"
between = ["h1-h2"]
interval = "20ms"
[[traffic]]
id = "new"
kind = "ping"
between = ["h5-h6"]
interval = "20ms"
begins = "broken"
[[probe]]
id = "heard"
kind = "host"
of = "h5"
[[probe]]
id = "session"
kind = "sessions"
[[probe]]
id = "table"
kind = "entries"
[[probe]]
id = "relay"
kind = "relay"
[[at]]
time = "3s"
id = "broken"
[[row]]
name = "channel"
window = ["broken", "end"]
first_answer_ms = "max(new.answered_ms)"
heard_ms = "heard.known_ms"
new_sent = "new.sent"
sessions = "session.count"
sessions_kept = "session.kept"
entries_before = "table.count"
entries_lost = "table.lost"
reconnects = "relay.reconnects"
[[claim]]
that = "max(entries_lost) == 0 and min(entries_before) > 0"
says = "no entry is lost"
[[claim]]
that = "min(sessions_kept) == 1"
says = "the session survives"
"#;

/// Whether the run succeeded, its document, and the directory of its files.
fn run(more: &str) -> (bool, Value, TempDir) {
    let mut scenario = NamedTempFile::with_suffix(".toml").unwrap();
    scenario
        .write_all(format!("{SCENARIO}{more}").as_bytes())
        .unwrap();
    let (path, out) = (
        scenario.path().display().to_string(),
        tempfile::tempdir().unwrap(),
    );
    let to = out.path().display().to_string();
    let run = auster(&["lab", "run", &path, "--json", "--out", &to]);
    let stderr = String::from_utf8_lossy(&run.stderr);
    let document = serde_json::from_slice(&run.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    (run.status.success(), document, out)
}

fn rows(document: &Value) -> Vec<&Value> {
    let networks = document["networks"].as_array().unwrap().iter();
    networks
        .flat_map(|network| network["channel"].as_array().unwrap())
        .collect()
}

#[test]
fn sessions_survive_by_quic_what_ends_them_by_tls() {
    let (_, document, out) = run(r#"
        [[matrix.event]]
        name = "takeover"
        standby = false
        [[matrix.event]]
        name = "address-change"
        standby = false
        [matrix]
        way = ["quic", "tls"]
        [[at]]
        of = "takeover*"
        after = "broken"
        time = "0s"
        id = "gone"
        address = { at = "controller", remove = "172.30.1.1/24" }
        [[at]]
        of = "takeover, way=tls"
        after = "broken"
        time = "0s"
        id = "taken_over"
        connect = "ssl:172.30.2.1:6653"
        [[at]]
        of = "address-change*"
        after = "broken"
        time = "0s"
        id = "moved"
        address = { at = "switches", remove = "172.30.1.2/24", add = "172.30.1.3/24" }
        [[at]]
        after = "broken"
        time = "30s"
        id = "end"
        "#);
    let rows = rows(&document);
    assert_eq!(rows.len(), 4);
    for row in &rows {
        let is_quic = row["way"] == "quic";
        assert_eq!(row["sessions"], 1, "{row:#}");
        assert_eq!(row["sessions_kept"], u64::from(is_quic), "{row:#}");
        assert_eq!(row["entries_lost"], 0, "{row:#}");
        assert_eq!(row["reconnects"].is_null(), !is_quic, "{row:#}");
        for figure in ["entries_before", "new_sent", "first_answer_ms", "heard_ms"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure}: {row:#}");
        }
    }
    let by = |event| {
        let mut rows = rows.iter();
        rows.find(|r| r["event"] == event && r["way"] == "quic")
            .unwrap()
    };
    // A new address alone does not cause a handshake.
    assert_eq!(by("address-change")["reconnects"], 0);
    assert!(by("takeover")["reconnects"].as_u64().unwrap() >= 1);
    for check in document["checks"].as_array().unwrap() {
        let what = check["what"].as_str().unwrap();
        let holds = what.contains("no entry") || what.contains("way=quic");
        assert_eq!(check["passed"], holds, "{check:#}");
    }
    for file in ["result.json", "pings.csv", "command.txt"] {
        let len = std::fs::metadata(out.path().join(file)).unwrap().len();
        assert!(len > 0, "{file}");
    }
}

/// A controller that a switch moves to cannot resume the switch's session.
#[test]
fn a_claim_that_does_not_hold_ends_with_exit_code_1() {
    let (succeeded, document, _) = run(r#"
        [[matrix.event]]
        name = "rehome"
        standby = true
        [matrix]
        way = ["quic-0rtt"]
        [[at]]
        after = "broken"
        time = "0s"
        id = "stopped"
        stop = "relay-controller"
        [[at]]
        after = "broken"
        time = "20s"
        id = "end"
        "#);
    assert!(!succeeded);
    let checks = document["checks"].as_array().unwrap();
    for check in checks {
        let survives = check["what"].as_str().unwrap().contains("survives");
        assert_eq!(check["passed"], !survives, "{check:#}");
    }
    let rows = rows(&document);
    assert_eq!(rows.len(), 1);
    assert!(rows[0]["first_answer_ms"].as_f64().is_some(), "{rows:#?}");
}
