//! A small part of the experiment on queues, for what must hold on any machine: which queue packets
//! are in, and rates far from their limits. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::auster;
use serde_json::Value;
use tempfile::TempDir;

/// A port that any machine fills.
const SCENARIO: &str = "\
title = 'reduced'
[qos_queues]
rate = '10mbit'
offered_mbps = 9
datagram_bytes = 1470
settle_s = 1
window_s = 2
runs = 1
[[qos_queues.cases]]
name = 'minimum'
queues = ['id=1,min=1mbit,max=3mbit,dscp=10', 'id=2,min=6mbit,dscp=18']
[qos_queues.claims]
within_percent = 50
plain_in_queue_0_percent_min = 90
";

#[test]
fn packets_are_in_the_queues_that_flows_name_and_open_vswitch_alone_has_them_in_queue_0() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    fs::write(file("a.toml"), SCENARIO).unwrap();
    let out = file("out");
    let output = auster(&["lab", "run", &file("a.toml"), "--json", "--out", &out]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{errors}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trials = document["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 3);
    for trial in trials {
        let effect = |n: usize| &trial["verify"]["queues"][n]["effect"];
        let (wanted, code) = match trial["way"].as_str().unwrap() {
            "open-vswitch" => ("no", 1),
            _ => ("yes", 0),
        };
        assert_eq!([effect(1), effect(2)], [wanted, wanted], "{trial}");
        assert_eq!(trial["verify_code"], code, "{trial}");
    }
    for name in [
        "result.json",
        "table.txt",
        "runs.csv",
        "tenths.csv",
        "rates.svg",
        "command.txt",
    ] {
        let len = fs::metadata(dir.path().join("out").join(name))
            .unwrap()
            .len();
        assert!(len > 20, "{name}");
    }
}

/// A line of three switches: nothing is sent again, and what a new process finds stays.
#[test]
fn policies_on_many_switches_are_set_once() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let scenario = "title = 'reduced'\n[qos_scale]\nswitches = 3\npolicies = [50]\nwatch_s = \
                    2\nruns = 1\n\
                    [qos_scale.claims]\nresent_per_entry_max = 0.3\n";
    fs::write(file("a.toml"), scenario).unwrap();
    let out = file("out");
    let output = auster(&["lab", "run", &file("a.toml"), "--json", "--out", &out]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trial = &document["trials"][0];
    assert_eq!(trial["entries"], 150, "{trial}");
    // An entry and its barrier at the most, and what is sent anyway.
    let set = trial["apply_messages"].as_u64().unwrap();
    assert!((150..=400).contains(&set), "{trial}");
    for name in ["result.json", "table.txt", "runs.csv", "growth.svg"] {
        assert!(dir.path().join("out").join(name).exists(), "{name}");
    }
}
