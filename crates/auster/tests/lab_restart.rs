//! Processes of the control plane, killed and started again under traffic on a real network. As
//! root, with Open vSwitch.

mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use common::lab::{auster, remains};
use serde_json::Value;
use tempfile::NamedTempFile;

/// A chain of two switches under 500 packets a second.
fn run(kill: &str, down_ms: &str, new_flow_ms_max: u32) -> (bool, Value) {
    let mut scenario = NamedTempFile::with_suffix(".toml").unwrap();
    let text = format!(
        "title = \"test\"\ntopologies = [\"linear,2\"]\nhosts_per_edge = 3\nwithin_s = 20\n\
         [restart]\nkill = {kill}\ndown_ms = {down_ms}\nrepetitions = 1\npackets_per_s = 500\n\
         before_s = 0.3\nafter_s = 2.2\nnew_flow_ms_max = {new_flow_ms_max}\n"
    );
    scenario.write_all(text.as_bytes()).unwrap();
    let path = scenario.path().display().to_string();
    let run = auster(&["lab", "run", &path, "--transport", "quic", "--json"]);
    let stderr = String::from_utf8_lossy(&run.stderr);
    let document = serde_json::from_slice(&run.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    let id = stderr
        .split("as lab ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let id = id.unwrap_or_else(|| panic!("no lab: {stderr}"));
    assert_eq!(remains(id), [""; 0], "a restarted process is removed too");
    (run.status.success(), document)
}

/// The controller also for 6.5 s: then Open vSwitch waits out a back-off of 4 s, and must be
/// told.
#[test]
fn a_killed_controller_or_relay_costs_established_flows_nothing_and_new_ones_two_seconds() {
    let begun = Instant::now();
    let all = r#"["controller", "relay-controller", "relay-switch"]"#;
    let mut trials = Vec::new();
    for (kill, down_ms) in [(all, "[200]"), (r#"["controller"]"#, "[6500]")] {
        let (succeeded, document) = run(kill, down_ms, 2000);
        assert!(succeeded, "{document:#}");
        assert_eq!(document["passed"], true);
        let restarts = document["networks"][0]["restarts"].as_array().unwrap();
        trials.extend(restarts.clone());
    }
    assert_eq!(trials.len(), 4);
    for trial in &trials {
        assert_eq!(trial["established_lost"], 0, "{trial:#}");
        let sent = trial["established_sent"].as_u64().unwrap();
        assert!(sent > 700, "there was traffic: {trial:#}");
        for flow in trial["new_flows"].as_array().unwrap() {
            assert!(flow["works_ms"].as_f64().unwrap() <= 2000.0, "{trial:#}");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_claim_that_does_not_hold_ends_with_exit_code_1() {
    let (succeeded, document) = run(r#"["controller"]"#, "[200]", 1);
    assert!(!succeeded);
    assert_eq!(document["passed"], false);
    let checks = document["networks"][0]["checks"].as_array().unwrap();
    let failed: Vec<&Value> = checks.iter().filter(|c| c["passed"] == false).collect();
    assert_eq!(failed.len(), 1, "{checks:#?}");
    assert!(
        failed[0]["what"]
            .as_str()
            .unwrap()
            .contains("new flows work within 1 ms")
    );
}

#[test]
fn relays_are_killed_only_where_there_are_relays() {
    let mut scenario = NamedTempFile::with_suffix(".toml").unwrap();
    let dir = env!("CARGO_MANIFEST_DIR");
    let text = std::fs::read(format!("{dir}/../../scenarios/relay-restart.toml")).unwrap();
    scenario.write_all(&text).unwrap();
    let path = scenario.path().display().to_string();
    let run = auster(&["lab", "run", &path, "--transport", "tcp"]);
    assert_eq!(run.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(stderr.contains("--transport quic"), "{stderr}");
}
