//! `auster bench relay`: real relays, few switches.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::process::Command;

use serde_json::Value;

#[test]
fn every_message_of_every_switch_comes_out_and_is_told_as_the_schema_says() {
    let out = tempfile::tempdir().unwrap();
    let found = Command::new(common::AUSTER)
        .args([
            "bench", "relay", "--quick", "--runs", "1", "-s", "5", "--json",
        ])
        .args(["--rate", "1000", "-o"])
        .arg(out.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(0), "{said}");
    let document: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(
        common::schema::departures("bench-relay", &document),
        Vec::<String>::new()
    );
    let rows = document["runs"].as_array().unwrap();
    let cells: Vec<(u64, u64)> = rows
        .iter()
        .map(|row| {
            (
                row["switches"].as_u64().unwrap(),
                row["batch"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(cells, [(1, 1), (1, 64), (1, 1), (5, 1)]);
    for row in rows {
        assert!(
            row["messages_per_s"]["mean"].as_f64().unwrap() > 0.0,
            "{row}"
        );
        assert!(
            row["switch_peak_mib"]["mean"].as_f64().unwrap() > 1.0,
            "{row}"
        );
    }
    assert!(rows[3]["controller_kib_each"].is_number(), "{}", rows[3]);
    let csv = std::fs::read_to_string(out.path().join("runs.csv")).unwrap();
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 1 + rows.len(), "{csv}");
    let rate = lines[0].iter().position(|name| *name == "messages_per_s");
    let rate: f64 = lines[4][rate.unwrap()].parse().unwrap();
    let mean = rows[3]["messages_per_s"]["mean"].as_f64().unwrap();
    assert!((rate - mean).abs() < 0.1, "{csv}");
    for plot in ["messages.svg", "cpu.svg", "memory.svg"] {
        assert!(out.path().join(plot).is_file(), "{plot}");
    }
}
