//! Transfers by TCP while a link flaps, in the short form of scenarios/tcp-flap.toml. As root, with
//! Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use common::lab::{experiment, scenario};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn transfers_are_completed_while_a_link_flaps() {
    let text = scenario("tcp-flap")
        .replace("runs = 5", "runs = 1")
        .replace("\"10s\"", "\"3s\"")
        .replace("min(transfers) >= 20", "min(transfers) >= 1");
    let dir = TempDir::new().unwrap();
    let document = experiment(&text, dir.path(), &[]);
    let rows = document["networks"][0]["files"].as_array().unwrap();
    let flapping: Vec<&Value> = rows.iter().map(|row| &row["flapping"]).collect();
    assert_eq!(flapping, ["false", "true"]);
    let figure = |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{row}"));
    for row in rows {
        assert!(figure(row, "transfers") >= 1.0, "{row}");
        assert_eq!(figure(row, "failed"), 0.0, "{row}");
        assert!(figure(row, "goodput_mbps") > 0.1, "{row}");
    }
    // The link carries 20 Mbit/s.
    assert!(figure(&rows[0], "goodput_mbps") < 20.0, "{}", rows[0]);
    assert!(figure(&rows[0], "transfer_p50_ms") > 99.0, "{}", rows[0]);
    assert!(figure(&rows[1], "pings_lost") >= 1.0, "{}", rows[1]);
    let checks = document["checks"].as_array().unwrap();
    let said = |words: &str| -> Vec<bool> {
        let is_it = |check: &&Value| check["what"].as_str().unwrap().contains(words);
        let checks = checks.iter().filter(is_it);
        checks.map(|check| check["passed"] == true).collect()
    };
    let completed = said("every transfer is completed");
    assert_eq!(completed.len(), 2, "a claim of both cells");
    assert_eq!(said("flap lose packets"), [true]);
}
