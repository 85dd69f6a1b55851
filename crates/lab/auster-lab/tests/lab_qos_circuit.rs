//! A small form of scenarios/qos-circuit.toml, for what must hold on any machine. The circuit is
//! admitted with its queues, and moves with them when its link fails. A circuit without room is
//! refused by field and changes nothing. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::experiment;
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn a_circuit_moves_with_its_queues_and_one_that_has_no_room_is_refused() {
    let dir = env!("CARGO_MANIFEST_DIR");
    let path = format!("{dir}/../../../scenarios/qos-circuit.toml");
    // A fifth of the rates, which any machine keeps, and times that a busy machine needs. A
    // sender's lateness depends on the machine.
    let mut text = fs::read_to_string(path).unwrap();
    for (from, to) in [
        ("30mbit", "6mbit"),
        ("35mbit", "7mbit"),
        ("40mbit", "8mbit"),
        ("10mbit", "2mbit"),
        (", 5mbit", ", 1mbit"),
        ("10Mbit", "2Mbit"),
        ("10000000", "2000000"),
        ("rate_mbps = 9.5", "rate_mbps = 1.8"),
        ("rate_mbps = 60", "rate_mbps = 12"),
        ("_late_ms <= 25", "_late_ms <= 100000"),
        ("time = \"2s\"", "time = \"9s\""),
        ("time = \"2500ms\"", "time = \"9s\""),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let dir = TempDir::new().unwrap();
    let document = experiment(&text, dir.path(), &["--quick"]);
    let row = |name: &str| &document["networks"][0][name][0];
    let figure = |name: &str, key: &str| {
        let value: &Value = &row(name)[key];
        value
            .as_f64()
            .unwrap_or_else(|| panic!("{name}.{key}: {document:#}"))
    };
    for (name, key, right) in [
        ("admission", "refusal_code", 2.0),
        ("admission", "refusal_named", 1.0),
        ("admission", "refusal_changed", 0.0),
        ("failure", "effect_code", 0.0),
        ("failure", "moved_code", 0.0),
        ("failure", "left", 0.0),
    ] {
        assert_eq!(figure(name, key), right, "{name}.{key}: {document:#}");
    }
    for (name, key) in [
        ("admission", "installed_ms"),
        ("admission", "queued_ms"),
        ("failure", "moved_ms"),
        ("failure", "told_ms"),
        ("failure", "queues_effect_ms"),
    ] {
        assert!(figure(name, key) > 0.0, "{name}.{key}: {document:#}");
    }
    // The background got only the rate that the circuit left: HTB enforces that.
    assert!(figure("before", "background_mbps") < 7.5, "{document:#}");
    // A sender that the machine held up sends all missed packets at once, and queues drop some of
    // them.
    let late = ["sender_late_ms", "background_late_ms"].map(|key| figure("before", key));
    for name in ["before", "after"] {
        let is_steady = late.iter().all(|ms| *ms <= 100.0);
        assert!(
            !is_steady || figure(name, "lost_percent") <= 20.0,
            "{document:#}"
        );
    }
    let result = dir.path().join("out/result.json");
    assert!(fs::metadata(result).unwrap().len() > 20);
}
