//! A small part of the experiments on timeouts, for what must hold on any machine: counts with wide
//! margins. As root, with Open vSwitch, iperf and ping.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;

use common::lab::{auster, measured};
use serde_json::Value;
use tempfile::TempDir;

/// Entries that live for a second; 17 ms over the controller, in which 7 packets come.
const SCENARIO: &str = "\
title = 'reduced'
[timeouts]
seconds = 3
datagram_bytes = 1470
runs = 1
[timeouts.controllers.fixed.timeouts]
policy = 'fixed'
idle_s = 0
hard_s = 1
first_packets = 'controller'
[[timeouts.streams]]
name = 'hard'
controller = 'fixed'
detour_ms = 17
rates_mbps = [5]
iperf_runs = 1
[[timeouts.streams]]
name = 'busy'
controller = 'fixed'
detour_ms = 17
rates_mbps = [5]
streams = 2
load = { start_percent = 40, step_percent = 20, every_s = 1 }
[[timeouts.streams]]
name = 'without'
controller = 'none'
rates_mbps = [5]
[[timeouts.pings]]
name = 'reactive'
controller = 'fixed'
detour_ms = 17
sizes_bytes = [64]
count = 3
interval_s = 0.5
[timeouts.claims]
some_reordered = ['hard', 'busy']
fewer = [['without', 'hard']]
[[timeouts.plots]]
file = 'cpu'
title = 'CPU'
x = 'second'
y = 'core_cpu_percent'
rows = ['busy']
[timeouts.quick]
seconds = 1.5
runs = 1
rows = ['without']
";

fn row<'a>(document: &'a Value, list: &str, name: &str) -> &'a Value {
    let rows = document[list].as_array().unwrap().iter();
    let mut of = rows.filter(|row| row["row"] == name);
    of.next().unwrap_or_else(|| panic!("no {name}: {document}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn an_entry_that_expires_reorders_and_no_entry_does_not() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    fs::write(file("a.toml"), SCENARIO).unwrap();
    let out = file("out");
    let output = auster(&["lab", "run", &file("a.toml"), "--json", "--out", &out]);
    let document = measured(&output);

    let hard = row(&document, "rows", "hard");
    assert_eq!(hard["sent"], 1276, "{hard}");
    // At two expiries, of some six packets each.
    let reordered = number(&hard["reordered"]["median"]);
    assert!(reordered >= 1.0, "{hard}");
    assert!(number(&hard["detours"]["median"]) >= 2.0, "{hard}");
    assert!(number(&hard["packet_ins"]["median"]) > reordered, "{hard}");
    let detour_ms = number(&hard["detour_ms"]["median"]);
    assert!(detour_ms >= 17.0, "{hard}");
    assert!(number(&hard["predicted"]["median"]) > 2.0, "{hard}");
    assert!(number(&hard["iperf_reordered"]["median"]) > 0.0, "{hard}");
    assert!(number(&hard["late_ms"]["max"]) > 1.0, "{hard}");
    assert_eq!(hard["unseen"], 0, "{hard}");

    let busy = row(&document, "rows", "busy");
    assert_eq!(busy["sent"], 2 * 1276, "{busy}");
    let seconds = fs::read_to_string(dir.path().join("out/seconds.csv")).unwrap();
    let of_busy: Vec<&str> = seconds
        .lines()
        .filter(|l| l.starts_with("\"busy\""))
        .collect();
    assert_eq!(of_busy.len(), 3, "{seconds}");

    let without = row(&document, "rows", "without");
    assert_eq!(without["packet_ins"]["max"], 0.0, "{without}");
    assert_eq!(without["reordered"]["max"], 0.0, "{without}");

    let reactive = row(&document, "pings", "reactive");
    assert_eq!(
        (&reactive["sent"], &reactive["lost"]),
        (&3.into(), &0.into())
    );
    // The first one and its answer each ask the controller.
    assert!(number(&reactive["by_request_ms"][0]) > 17.0, "{reactive}");

    let names = [
        "result.json",
        "command.txt",
        "table.txt",
        "runs.csv",
        "seconds.csv",
        "pings.csv",
        "cpu.svg",
        "cpu.csv",
    ];
    for name in names {
        let len = fs::metadata(dir.path().join("out").join(name))
            .unwrap()
            .len();
        assert!(len > 10, "{name}");
    }
}

#[test]
fn a_quick_part_and_the_command_line_bound_it() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.toml").display().to_string();
    fs::write(&file, SCENARIO).unwrap();
    let output = auster(&[
        "lab",
        "run",
        &file,
        "--quick",
        "--runs",
        "2",
        "--seconds",
        "0.5",
        "--json",
    ]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["rows"].as_array().unwrap().len(), 1);
    let without = row(&document, "rows", "without");
    assert_eq!(
        (&without["runs"], &without["sent"]),
        (&2.into(), &(2 * 213).into())
    );
    assert_eq!(document["pings"].as_array().unwrap().len(), 0);
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
        .replace("hard_s = 1", "hard_s = -1")
        .replace("count = 3", "count = 0")
        .replace("detour_ms = 17", "detour_ms = 5000");
    refused(
        &wrong,
        &[],
        &[
            "hard_s",
            "pings 'reactive': count: 1 to 1000",
            "streams 'hard': detour_ms: 0 to 1000",
        ],
    );
    let unknown = SCENARIO.replace("['without', 'hard']", "['without', 'soft']");
    refused(&unknown, &[], &["claims: no streams are called 'soft'"]);
    refused(SCENARIO, &["--runs", "0"], &["runs: 1 to 1000"]);
    refused(SCENARIO, &["--seconds", "nan"], &["seconds: above 0"]);
    refused(SCENARIO, &["--controller", "none"], &["brings its own"]);
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios/first-contact.toml");
    let other = fs::read_to_string(other).unwrap();
    refused(
        &other,
        &["--seconds", "2"],
        &["the events of this scenario"],
    );
}
