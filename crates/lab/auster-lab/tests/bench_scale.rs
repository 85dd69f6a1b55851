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
