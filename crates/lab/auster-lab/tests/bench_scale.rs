//! `auster bench scale` against `auster run`, with few switches.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::process::Command;

use serde_json::Value;

#[test]
fn every_number_of_switches_is_taken_in_and_told_as_the_schema_says() {
    let auster = common::AUSTER;
    let start = format!("{auster} run ptcp:{{port}}:127.0.0.1");
    let found = Command::new(auster)
        .args(["bench", "scale", "--start", &start, "-s", "3,40", "-d", "1"])
        .args(["--rate-per-switch", "20", "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(0), "{said}");
    let document: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(
        common::schema::departures("bench-scale", &document),
        Vec::<String>::new()
    );
    let steps = document["runs"].as_array().unwrap();
    for (step, switches) in steps.iter().zip([3, 40]) {
        assert_eq!(step["switches"], switches, "{step}");
        assert_eq!(step["setup"]["switches_ready"], switches, "{step}");
        assert!(step["memory_peak_mib"].as_f64().unwrap() > 1.0, "{step}");
        assert!(step["answered_per_s"].as_f64().unwrap() > 0.0, "{step}");
        assert!(step["echo_us"]["count"].as_u64().unwrap() > 0, "{step}");
    }
    assert_eq!(steps.len(), 2);
}

#[test]
fn a_controller_that_fails_at_more_switches_leaves_the_steps_before() {
    let auster = common::AUSTER;
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started").display().to_string();
    let start = format!(
        "[ -e {started} ] && exit 7; touch {started}; exec {auster} run ptcp:{{port}}:127.0.0.1"
    );
    let found = Command::new(auster)
        .args([
            "bench", "scale", "--start", &start, "-s", "3,40,50", "-d", "0.5",
        ])
        .args(["--rate-per-switch", "20", "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(1), "{said}");
    assert!(said.contains("failed at 40 switches: "), "{said}");
    assert!(said.contains("ended before it listened"), "{said}");
    let document: Value = serde_json::from_slice(&found.stdout).unwrap();
    let departures = common::schema::departures("bench-scale", &document);
    assert_eq!(departures, Vec::<String>::new());
    assert_eq!(document["runs"].as_array().unwrap().len(), 1);
}
