//! The project's own scenario of a controller that is killed while it sets up, with fewer rounds.
//! `AUSTER_KILL_ROUNDS` says how many. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::auster;
use serde_json::Value;
use tempfile::TempDir;

const ROUNDS: u32 = 10;
const SCENARIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../scenarios/qos-killed.toml"
);

#[test]
fn whenever_it_is_killed_nothing_is_half_and_a_new_process_makes_it_whole() {
    let rounds = std::env::var("AUSTER_KILL_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"));
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let line = [
        "lab",
        "run",
        SCENARIO,
        "--json",
        "--runs",
        &rounds.to_string(),
        "--out",
        &out.display().to_string(),
    ];
    let output = auster(&line);
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{errors}{text}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (extent, totals) = (&document["extent"], &document["totals"]);
    assert_eq!(totals["rounds"], rounds);
    // What there is to be half of: six links' ports and four hosts', two circuits both ways over
    // four and two switches, and four policies on each switch, two of them a queue at each port.
    let parts = (&extent["ports"], &extent["circuit_entries"]);
    assert_eq!(parts, (&10.into(), &12.into()), "{extent}");
    assert_eq!(extent["meters"], 4, "{extent}");
    assert!(
        extent["policy_entries"].as_u64().unwrap() > 4 * 6,
        "{extent}"
    );
    // Three entries and a meter of each switch, four ports' records of two rows, and one row alone.
    assert_eq!(extent["foreign"], 4 * 4 + 4 * 2 + 1, "{extent}");
    for name in ["result.json", "command.txt", "table.txt", "rounds.csv"] {
        let len = fs::metadata(out.join(name)).unwrap().len();
        assert!(len > 20, "{name}");
    }
    let lines = fs::read_to_string(out.join("rounds.csv")).unwrap();
    assert_eq!(lines.lines().count() as u32, 1 + rounds);
}
