//! A small part of the experiment on a circuit, for what must hold on any machine: it is admitted
//! with its queues, one that has no room is refused by field and changes nothing, and it moves with
//! its queues when its link fails. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::auster;
use serde_json::Value;
use tempfile::TempDir;

/// Rates that any machine keeps, and times that a busy one needs.
const SCENARIO: &str = "\
title = 'reduced'
[qos_circuit]
link_rate = '8mbit'
circuit_rate = '2mbit'
dscp = 46
too_much = '7mbit'
stream_mbps = 1.8
background_mbps = 12
datagram_bytes = 1470
settle_s = 1
before_s = 2
after_s = 12
recover_s = 9
runs = 1
[qos_circuit.claims]
loss_percent_max = 100
background_loss_percent_min = 5
moved_ms_max = 9000
queues_ms_max = 9000
";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn a_circuit_moves_with_its_queues_and_one_that_has_no_room_is_refused() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    fs::write(file("a.toml"), SCENARIO).unwrap();
    let out = file("out");
    let output = auster(&["lab", "run", &file("a.toml"), "--json", "--out", &out]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{errors}{text}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trial = &document["trials"][0];

    let way = |key: &str| -> Vec<String> {
        let hops = trial[key].as_array().unwrap();
        let word = |hop: &Value| hop["switch"].as_str().unwrap().to_owned();
        hops.iter().map(word).collect()
    };
    let dpid = |n: u64| format!("{n:016x}");
    assert_eq!(way("way"), [dpid(1), dpid(2), dpid(3)]);
    assert_eq!(way("moved_way"), [dpid(1), dpid(4), dpid(3)]);
    for hop in trial["moved_way"].as_array().unwrap() {
        assert!(hop["queue"].as_u64().is_some_and(|n| n >= 128), "{hop}");
    }
    assert_eq!(trial["ports"].as_array().unwrap().len(), 2, "{trial}");

    let refusal = &trial["refusal"];
    let detail = refusal["detail"].as_str().unwrap();
    assert_eq!(
        (&refusal["status"], &refusal["pointer"]),
        (&422.into(), &"/rate".into())
    );
    let full = "rate: link 0000000000000001:3 -> 0000000000000002:3 is full: 6mbit of 8mbit free, \
                7mbit asked, 1mbit too little";
    assert!(detail.starts_with(full), "{detail}");
    // Beside the circuit the background got what it left: HTB keeps to that.
    let before = &trial["before"];
    assert!(number(&before[1]["rate_mbps"]) < 7.5, "{before}");

    // A sender that the machine held up sends all at once what it has missed, and queues lose of
    // that.
    let is_steady = number(&trial["sender_late_ms"]) <= 100.0;
    for window in [&trial["before"][0], &trial["after"][0]] {
        let loss = number(&window["lost"]) / number(&window["sent"]);
        assert!(!is_steady || loss <= 0.2, "{trial}");
    }

    for name in [
        "result.json",
        "command.txt",
        "table.txt",
        "tenths.csv",
        "shown.txt",
        "rate.svg",
        "loss.svg",
    ] {
        let len = fs::metadata(dir.path().join("out").join(name))
            .unwrap()
            .len();
        assert!(len > 20, "{name}");
    }
    let shown = fs::read_to_string(dir.path().join("out/shown.txt")).unwrap();
    assert!(shown.contains("video: installed"), "{shown}");
}

#[test]
fn wrong_scenarios_are_refused_by_field() {
    let dir = TempDir::new().unwrap();
    let refused = |text: &str, arguments: &[&str], right: &[&str]| {
        let file = dir.path().join("a.toml").display().to_string();
        fs::write(&file, text).unwrap();
        let output = auster(&[&["lab", "run", &file], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
        for part in right {
            assert!(errors.contains(part), "{right:?}: {errors}");
        }
    };
    let wrong = SCENARIO
        .replace("stream_mbps = 1.8", "stream_mbps = 2")
        .replace("before_s = 2", "before_s = 0");
    refused(
        &wrong,
        &[],
        &["stream_mbps: with its headers", "before_s: 0.5 to 60"],
    );
    let misspelt = SCENARIO.replace("after_s", "afterwards_s");
    refused(&misspelt, &[], &["line 12", "afterwards_s"]);
    refused(SCENARIO, &["--runs", "0"], &["runs: 1 to 100"]);
    refused(SCENARIO, &["--seconds", "3"], &["before_s and after_s"]);
    refused(SCENARIO, &["--controller", "none"], &["brings its own"]);
    refused(SCENARIO, &["--quick"], &["has no [qos_circuit.quick]"]);
}
