//! A control channel that breaks on a real network, by relays and by Open vSwitch's own TLS. As
//! root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::io::Write;

use common::lab::auster;
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

const SCENARIO: &str = "title = 'test'\n[reconnect]\nruns = 1\nrtt_ms = 20\ndown_ms = 200\n\
    interval_ms = 20\nafter_s = 1\npatience_s = 60\n";

/// Whether it succeeded, its document, and where its files are.
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

#[test]
fn sessions_survive_by_quic_what_ends_them_by_tls() {
    let (_, document, out) = run(
        "events = ['takeover', 'address-change']\nways = ['quic', 'ssl']\n\
         claims = { survived = ['takeover', 'address-change'], \
         entries_kept = ['takeover', 'address-change'] }\n",
    );
    let checks = document["checks"].as_array().unwrap();
    // A machine that stands still for a second loses a ping by itself. Sessions are judged below.
    let ours = |c: &&Value| !c["what"].as_str().unwrap().contains("flows");
    assert!(
        checks.iter().filter(ours).all(|c| c["passed"] == true),
        "{document:#}"
    );
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let is_quic = row["way"] == "quic";
        assert_eq!(row["survived_runs"], u64::from(is_quic), "{row:#}");
        assert_eq!(row["entries_lost"], 0, "{row:#}");
        assert!(
            row["new_sent"].as_u64().unwrap() > 40,
            "there was traffic: {row:#}"
        );
    }
    // A new address by itself is no reason for a handshake.
    let moved = rows
        .iter()
        .find(|r| r["event"] == "address-change" && r["way"] == "quic");
    assert_eq!(moved.unwrap()["reconnects"], 0);
    for file in [
        "result.json",
        "table.txt",
        "runs.csv",
        "command.txt",
        "first-answer.svg",
    ] {
        let len = std::fs::metadata(out.path().join(file)).unwrap().len();
        assert!(len > 0, "{file}");
    }
}

/// The same claim, where it does not hold: another controller cannot go on with the session.
#[test]
fn a_claim_that_does_not_hold_ends_with_exit_code_1() {
    let (succeeded, document, _) = run(
        "events = ['rehome', 'controller-restart']\nways = ['quic']\n\
         claims = { survived = ['rehome'], entries_kept = ['rehome', 'controller-restart'] }\n",
    );
    assert!(!succeeded);
    let checks = document["checks"].as_array().unwrap();
    let failed: Vec<&Value> = checks.iter().filter(|c| c["passed"] == false).collect();
    // Beside other work a claim on lost packets may fail before it.
    let is_it = |check: &&Value| {
        let what = check["what"].as_str().unwrap();
        what.contains("rehome by quic: the switch's session survives")
    };
    assert!(failed.iter().any(is_it), "{checks:#?}");
}
