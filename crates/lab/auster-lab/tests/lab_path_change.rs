//! A small part of the experiment on changes of a path, for figures that must hold on any machine.
//! Needs root and Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::experiment;
use serde_json::Value;
use tempfile::TempDir;

/// The scenario of the project with two of its changes, and a new path far slower than the first.
fn reduced() -> String {
    let text = include_str!("../../../../scenarios/path-change.toml");
    let quick =
        "change = [\"planned, 3 ms slower\", \"link fails, 3 ms slower\"]\nrate_mbps = [5]\n";
    let text = text.replace("half = \"500ms\"", "half = \"700ms\"");
    text.replacen("to_ms = 5", "to_ms = 30", 1) + quick
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn planned_changes_lose_nothing_and_a_cut_link_does() {
    let dir = TempDir::new().unwrap();
    let document = experiment(&reduced(), dir.path(), &["--quick"]);
    let out = dir.path().join("out");
    let row = |kind: &str, change: &str| {
        let networks = document["networks"].as_array().unwrap();
        let mut rows = networks.iter().flat_map(|o| o[kind].as_array()).flatten();
        let row = rows.find(|row| row["change"] == change);
        row.unwrap_or_else(|| panic!("no {change}: {document}"))
    };
    let delays = |row: &Value| {
        let of = |key: &str| number(&row[key]);
        (of("delay_before_ms"), of("delay_after_ms"))
    };

    let slower = row("there", "planned, 3 ms slower");
    let (before, after) = delays(slower);
    assert!(before >= 2.0 && after >= 30.0 && before < after, "{slower}");
    // If the machine holds a sender up for long, queues drop packets.
    let late_ms = number(&slower["sender_late_ms"]);
    assert!(late_ms > 25.0 || number(&slower["lost"]) == 0.0, "{slower}");
    let (before, after) = delays(row("back", "planned, 3 ms slower"));
    assert!(
        before >= 30.0 && after >= 2.0 && after < before,
        "{document}"
    );
    // At least the packets on the link are lost.
    let fails = row("there", "link fails, 3 ms slower");
    assert!(number(&fails["lost"]) >= 1.0, "{fails}");
    let (_, after) = delays(fails);
    assert!(after >= 5.0, "{fails}");
    // The stream may stay on its path.
    let (before, after) = delays(row("back", "link fails, 3 ms slower"));
    assert!(before >= 5.0 && after >= 2.0, "{document}");
    for kind in ["there", "back"] {
        let picture = fs::read_to_string(out.join(format!("{kind}-5.svg"))).unwrap();
        assert!(picture.contains("planned, 3 ms slower"), "{picture}");
    }
}
